/* Peer of `speed.rs` of kymo-coresight: does the same with Debian's libopencsd. Splits frames and
 * counts packets, or ranges and instructions. Callbacks only count.
 *
 *   peer packets|decode ROUNDS PLAN      PLAN is the output of `speed --plan`
 *
 * Prints packets, ranges, instructions, and the minimum processor time of a round in seconds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <opencsd/c_api/opencsd_c_api.h>

static uint64_t packets, ranges, instructions;

static ocsd_datapath_resp_t on_element(const void *user, const ocsd_trc_index_t at, const uint8_t id,
                                       const ocsd_generic_trace_elem *element)
{
    (void)user, (void)at, (void)id;
    if (element->elem_type == OCSD_GEN_TRC_ELEM_INSTR_RANGE) {
        ranges++;
        instructions += element->num_instr_range;
    }
    return OCSD_RESP_CONT;
}

static ocsd_datapath_resp_t on_packet(const void *user, const ocsd_datapath_op_t op, const ocsd_trc_index_t at,
                                      const void *packet)
{
    (void)user, (void)at, (void)packet;
    if (op == OCSD_OP_DATA)
        packets++;
    return OCSD_RESP_CONT;
}

static uint8_t *slurp(const char *path, uint64_t offset, uint64_t limit, uint32_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        return NULL;
    long end = ftell(file);
    uint64_t have = end > 0 && (uint64_t)end > offset ? (uint64_t)end - offset : 0;
    if (limit && limit < have)
        have = limit;
    uint8_t *bytes = malloc(have + 1);
    if (!bytes || fseek(file, (long)offset, SEEK_SET) || fread(bytes, 1, have, file) != have)
        return NULL;
    fclose(file);
    *size = (uint32_t)have;
    return bytes;
}

static int source(dcd_tree_handle_t tree, const char *name, int is_m, const unsigned *r, int is_full)
{
    ocsd_core_profile_t profile = is_m ? profile_CortexM : profile_CortexA;
    ocsd_etmv4_cfg v4;
    ocsd_ete_cfg ete;
    ocsd_etmv3_cfg v3;
    ocsd_ptm_cfg ptm;
    const void *config;
    unsigned char id;
    memset(&v4, 0, sizeof v4);
    memset(&ete, 0, sizeof ete);
    memset(&v3, 0, sizeof v3);
    memset(&ptm, 0, sizeof ptm);
    if (!strcmp(name, "ETMV4I")) {
        v4.reg_configr = r[0], v4.reg_traceidr = r[1], v4.reg_idr0 = r[2], v4.reg_idr1 = r[3];
        v4.reg_idr2 = r[4], v4.reg_idr8 = r[5], v4.arch_ver = ARCH_V8, v4.core_prof = profile;
        config = &v4;
    } else if (!strcmp(name, "ETE")) {
        ete.reg_configr = r[0], ete.reg_traceidr = r[1], ete.reg_idr0 = r[2], ete.reg_idr1 = r[3];
        ete.reg_idr2 = r[4], ete.reg_idr8 = r[5], ete.reg_devarch = r[6];
        ete.arch_ver = ARCH_AA64, ete.core_prof = profile;
        config = &ete;
    } else if (!strcmp(name, "ETMV3")) {
        v3.reg_ctrl = r[0], v3.reg_trc_id = r[1], v3.reg_idr = r[2], v3.reg_ccer = r[3];
        v3.arch_ver = ARCH_V7, v3.core_prof = profile;
        config = &v3;
    } else {
        ptm.reg_ctrl = r[0], ptm.reg_trc_id = r[1], ptm.reg_idr = r[2], ptm.reg_ccer = r[3];
        ptm.arch_ver = ARCH_V7, ptm.core_prof = profile;
        config = &ptm;
    }
    int kind = is_full ? OCSD_CREATE_FLG_FULL_DECODER : OCSD_CREATE_FLG_PACKET_PROC;
    if (ocsd_dt_create_decoder(tree, name, kind, config, &id))
        return 1;
    /* There is no callback for packets of an ETE, but they are decoded. */
    if (!is_full)
        ocsd_dt_attach_packet_callback(tree, id, OCSD_C_API_CB_PKT_SINK, (void *)on_packet, NULL);
    return 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void pass(dcd_tree_handle_t tree, const uint8_t *trace, uint32_t size)
{
    uint32_t used = 0, at = 0;
    packets = ranges = instructions = 0;
    ocsd_dt_process_data(tree, OCSD_OP_RESET, 0, 0, NULL, &used);
    while (at < size) {
        ocsd_datapath_resp_t response = ocsd_dt_process_data(tree, OCSD_OP_DATA, at, size - at, trace + at, &used);
        at += used;
        if (OCSD_DATA_RESP_IS_WAIT(response))
            ocsd_dt_process_data(tree, OCSD_OP_FLUSH, 0, 0, NULL, &used);
        else if (response >= OCSD_RESP_FATAL_NOT_INIT || !used)
            break;
    }
    ocsd_dt_process_data(tree, OCSD_OP_EOT, 0, 0, NULL, &used);
}

int main(int count, char **words)
{
    char kind[16], name[16], path[4096];
    uint8_t *trace = NULL;
    uint32_t size = 0;
    dcd_tree_handle_t tree = 0;
    if (count != 4 || !freopen(words[3], "r", stdin))
        return 2;
    int is_full = !strcmp(words[1], "decode"), rounds = atoi(words[2]);
    ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
    while (scanf("%15s", kind) == 1) {
        if (!strcmp(kind, "trace")) {
            if (scanf("%15s %4095s", name, path) != 2 || !(trace = slurp(path, 0, 0, &size)))
                return 1;
            int is_single = !strcmp(name, "source");
            uint32_t flags = !strcmp(name, "tpiu") ? OCSD_DFRMTR_HAS_FSYNCS : OCSD_DFRMTR_FRAME_MEM_ALIGN;
            tree = is_single ? ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0)
                             : ocsd_create_dcd_tree(OCSD_TRC_SRC_FRAME_FORMATTED, flags);
            if (!is_single)
                size &= ~15u;
        } else if (!strcmp(kind, "source")) {
            unsigned r[7];
            int is_m;
            if (scanf("%15s %d %x %x %x %x %x %x %x", name, &is_m, r, r + 1, r + 2, r + 3, r + 4, r + 5, r + 6) != 9 ||
                source(tree, name, is_m, r, is_full))
                return 1;
        } else {
            uint64_t address, offset, length;
            uint32_t have;
            if (scanf("%" SCNx64 " %" SCNx64 " %" SCNx64 " %4095s", &address, &offset, &length, path) != 4)
                return 1;
            uint8_t *bytes = is_full ? slurp(path, offset, length, &have) : NULL;
            /* Cores that share memory list it more than once. The library refuses that as an overlap. */
            if (bytes)
                ocsd_dt_add_buffer_mem_acc(tree, address, OCSD_MEM_SPACE_ANY, bytes, have);
        }
    }
    if (is_full)
        ocsd_dt_set_gen_elem_outfn(tree, on_element, NULL);
    double least = 1e9;
    for (int round = 0; round < rounds; round++) {
        double begin = now();
        pass(tree, trace, size);
        double time = now() - begin;
        least = time < least ? time : least;
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %.9f\n", packets, ranges, instructions, least);
    return 0;
}

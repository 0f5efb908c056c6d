/* Decodes traces with Debian's libopencsd and prints their packets and elements, one a line, for a test that compares them.
 *
 * Standard input: for each trace a line "PROTOCOL R0 ... R6 CODE_ADDRESS CODE_SIZE TRACE_SIZE CORTEX_M" in hexadecimal,
 * then the code and the trace. Standard output: packets and elements, and a line "." behind each trace.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <opencsd/c_api/opencsd_c_api.h>

static void message(const ocsd_generic_trace_elem *e)
{
    const ocsd_swt_info_t *m = &e->sw_trace_info;
    uint64_t value = 0;
    unsigned bits = m->swt_payload_pkt_bitsize;
    if (e->extended_data && e->ptr_extended_data)
        memcpy(&value, e->ptr_extended_data, bits < 8 ? 1 : bits / 8);
    if (bits < 64)
        value &= (1ull << bits) - 1;
    if (!bits && !m->swt_marker_packet && !m->swt_trigger_event) {
        printf(" null ");
        return;
    }
    if (m->swt_id_valid && !m->swt_global_err)
        printf("message %x:%x", m->swt_master_id, m->swt_channel_id);
    else
        printf("message ?");
    printf(" %u %" PRIx64, bits, value);
    printf("%s%s%s%s%s", m->swt_trigger_event ? " trigger" : "", m->swt_frequency ? " frequency" : "",
           m->swt_master_err ? " master-error" : "", m->swt_global_err ? " global-error" : "",
           m->swt_marker_packet ? " marker" : "");
    if (m->swt_has_timestamp)
        printf(" t%" PRIx64, e->timestamp);
}

static ocsd_datapath_resp_t element(const void *context, const ocsd_trc_index_t at, const uint8_t id,
                                    const ocsd_generic_trace_elem *e)
{
    (void)context;
    (void)id;
    printf("%" PRIu64 " ", (uint64_t)at);
    switch (e->elem_type) {
    case OCSD_GEN_TRC_ELEM_INSTR_RANGE:
        printf("range %" PRIx64 " %" PRIx64 " %u isa%u %c", e->st_addr, e->en_addr, e->num_instr_range, e->isa,
               e->last_instr_exec ? 'E' : 'N');
        if (e->has_cc)
            printf(" cc%u", e->cycle_count);
        break;
    case OCSD_GEN_TRC_ELEM_I_RANGE_NOPATH:
        printf("nopath %" PRIx64 " %" PRIx64 " %u", e->st_addr, e->en_addr, e->num_instr_range);
        break;
    case OCSD_GEN_TRC_ELEM_EXCEPTION:
        printf("exception %u", e->exception_number);
        if (e->excep_ret_addr)
            printf(" %" PRIx64, e->en_addr);
        break;
    case OCSD_GEN_TRC_ELEM_EXCEPTION_RET:
        printf("return");
        break;
    case OCSD_GEN_TRC_ELEM_TIMESTAMP:
        printf("time %" PRIx64, e->timestamp);
        /* With cycle counts on, the library gives every timestamp one: 0 to those without. */
        if (e->has_cc && e->cycle_count)
            printf(" cc%u", e->cycle_count);
        break;
    case OCSD_GEN_TRC_ELEM_CYCLE_COUNT:
        printf("cycles %u", e->cycle_count);
        break;
    case OCSD_GEN_TRC_ELEM_TRACE_ON:
        printf("on %u", e->trace_on_reason);
        break;
    case OCSD_GEN_TRC_ELEM_EVENT:
        printf("event %d", e->trace_event.ev_type == 2 ? e->trace_event.ev_number : -1);
        break;
    case OCSD_GEN_TRC_ELEM_ADDR_NACC:
        printf("nacc %" PRIx64, e->st_addr);
        break;
    case OCSD_GEN_TRC_ELEM_ADDR_UNKNOWN:
        printf("unknown");
        break;
    case OCSD_GEN_TRC_ELEM_PE_CONTEXT:
        printf("context %u", e->isa);
        if (e->context.el_valid)
            printf(" el%d", e->context.exception_level);
        if (e->context.ctxt_id_valid)
            printf(" id%x", e->context.context_id);
        if (e->context.vmid_valid)
            printf(" vm%x", e->context.vmid);
        break;
    case OCSD_GEN_TRC_ELEM_MEMTRANS:
        printf("transaction %u", e->mem_trans);
        break;
    case OCSD_GEN_TRC_ELEM_NO_SYNC:
        printf("nosync");
        break;
    case OCSD_GEN_TRC_ELEM_EO_TRACE:
        printf("end");
        break;
    case OCSD_GEN_TRC_ELEM_SWTRACE:
        message(e);
        break;
    default:
        printf("other %u", e->elem_type);
    }
    putchar('\n');
    return OCSD_RESP_CONT;
}

/* Packets, behind a "#": position, bytes, kind. Those before a synchronization are cut at will: none. */
static void packet(const void *context, const ocsd_datapath_op_t op, const ocsd_trc_index_t at, const void *p,
                   const uint32_t size, const uint8_t *bytes)
{
    char text[512];
    (void)bytes;
    if (op != OCSD_OP_DATA || !p)
        return;
    if (ocsd_pkt_str(*(const ocsd_trace_protocol_t *)context, p, text, sizeof text))
        return;
    text[strcspn(text, " :")] = 0;
    if (!strstr(text, "NOTSYNC"))
        printf("#%" PRIu64 " %u %s\n", (uint64_t)at, size, text);
}

static int decode(const char *protocol, const unsigned *r, uint64_t address, uint8_t *code, unsigned code_size,
                  const uint8_t *trace, unsigned size, int is_m)
{
    dcd_tree_handle_t tree = ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0);
    ocsd_core_profile_t profile = is_m ? profile_CortexM : profile_CortexA;
    ocsd_etmv4_cfg v4;
    ocsd_ete_cfg ete;
    ocsd_etmv3_cfg v3;
    ocsd_ptm_cfg ptm;
    ocsd_stm_cfg stm;
    ocsd_trace_protocol_t kind = OCSD_PROTOCOL_ETMV4I;
    const void *config;
    unsigned char id;
    memset(&v4, 0, sizeof v4);
    memset(&ete, 0, sizeof ete);
    memset(&v3, 0, sizeof v3);
    memset(&ptm, 0, sizeof ptm);
    memset(&stm, 0, sizeof stm);
    if (!strcmp(protocol, "ETMV4I")) {
        v4.reg_configr = r[0], v4.reg_traceidr = r[1], v4.reg_idr0 = r[2], v4.reg_idr1 = r[3];
        v4.reg_idr2 = r[4], v4.reg_idr8 = r[5], v4.arch_ver = ARCH_AA64, v4.core_prof = profile;
        config = &v4;
    } else if (!strcmp(protocol, "ETE")) {
        ete.reg_configr = r[0], ete.reg_traceidr = r[1], ete.reg_idr0 = r[2], ete.reg_idr1 = r[3];
        ete.reg_idr2 = r[4], ete.reg_idr8 = r[5], ete.reg_devarch = r[6];
        ete.arch_ver = ARCH_AA64, ete.core_prof = profile;
        config = &ete, kind = OCSD_PROTOCOL_ETE;
    } else if (!strcmp(protocol, "ETMV3")) {
        v3.reg_ctrl = r[0], v3.reg_trc_id = r[1], v3.reg_idr = r[2], v3.reg_ccer = r[3];
        v3.arch_ver = ARCH_V7, v3.core_prof = profile;
        config = &v3, kind = OCSD_PROTOCOL_ETMV3;
    } else if (!strcmp(protocol, "STM")) {
        stm.reg_tcsr = r[0], stm.reg_feat3r = r[1], stm.reg_devid = r[2];
        config = &stm, kind = OCSD_PROTOCOL_STM;
    } else {
        ptm.reg_ctrl = r[0], ptm.reg_trc_id = r[1], ptm.reg_idr = r[2], ptm.reg_ccer = r[3];
        ptm.arch_ver = ARCH_V7, ptm.core_prof = profile;
        config = &ptm, kind = OCSD_PROTOCOL_PTM;
    }
    if (ocsd_dt_create_decoder(tree, protocol, OCSD_CREATE_FLG_FULL_DECODER, config, &id))
        return 1;
    ocsd_dt_set_gen_elem_outfn(tree, element, NULL);
    if (code_size && ocsd_dt_add_buffer_mem_acc(tree, address, OCSD_MEM_SPACE_ANY, code, code_size))
        return 1;
    /* The library knows no packets of an ETE. */
    if (kind != OCSD_PROTOCOL_ETE &&
        ocsd_dt_attach_packet_callback(tree, id, OCSD_C_API_CB_PKT_MON, (void *)packet, &kind))
        return 1;
    uint32_t used = 0, at = 0;
    while (at < size) {
        ocsd_datapath_resp_t response =
            ocsd_dt_process_data(tree, OCSD_OP_DATA, at, size - at, trace + at, &used);
        at += used;
        if (response >= OCSD_RESP_FATAL_NOT_INIT) {
            printf("fatal %u\n", at);
            break;
        }
        if (OCSD_DATA_RESP_IS_WAIT(response))
            ocsd_dt_process_data(tree, OCSD_OP_FLUSH, 0, 0, NULL, &used);
        else if (!used)
            break;
    }
    ocsd_dt_process_data(tree, OCSD_OP_EOT, 0, 0, NULL, &used);
    ocsd_destroy_dcd_tree(tree);
    return 0;
}

int main(void)
{
    char protocol[16];
    unsigned r[7], code_size, size, is_m;
    uint64_t address;
    ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
    while (scanf("%15s %x %x %x %x %x %x %x %" SCNx64 " %x %x %x", protocol, r, r + 1, r + 2, r + 3, r + 4, r + 5,
                 r + 6, &address, &code_size, &size, &is_m) == 12) {
        getchar();
        uint8_t *code = malloc(code_size + 1), *trace = malloc(size + 1);
        if (!code || !trace || fread(code, 1, code_size, stdin) != code_size || fread(trace, 1, size, stdin) != size)
            return 2;
        if (decode(protocol, r, address, code, code_size, trace, size, is_m))
            return 3;
        puts(".");
        free(code);
        free(trace);
    }
    return 0;
}

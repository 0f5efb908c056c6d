/* QEMU plugin that writes every executed instruction to standard output, in order of execution.
 * log.rs reads it.
 *
 * Each entry has 4 bytes in this machine's byte order. An even value is the address of an executed
 * instruction. With the lowest bit set it is the address (a multiple of 4) that an instruction
 * between the arguments "from" and "to" (hex) loads from: the reader learns from it which stack a
 * thread switch selects.
 *
 * QEMU loads it with "-plugin executed.so,from=...,to=...". The declarations are the few that are
 * needed of QEMU's plugin interface (version 1 up to QEMU 8, version 2 since QEMU 9:
 * PLUGIN_VERSION). They are the same in both versions. Debian has no package with the header.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum { NO_REGISTERS = 0 };     /* processor registers that a callback reads or writes */
enum { LOADS_AND_STORES = 3 }; /* memory accesses that are reported (QEMU 7.2 confuses the two kinds) */

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
					    void (*)(unsigned int, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *,
				      void (*)(unsigned int, uint32_t, uint64_t, void *), int, int,
				      void *);
_Bool qemu_plugin_mem_is_store(uint32_t);

int qemu_plugin_version = PLUGIN_VERSION;

static uint64_t watched_from, watched_to;

static uint32_t entries[16384];
static size_t count;

static void write_out(void)
{
	const char *next = (const char *)entries;
	size_t left = count * sizeof *entries;
	count = 0;
	while (left > 0) {
		ssize_t written = write(STDOUT_FILENO, next, left);
		if (written <= 0)
			exit(1); /* without a reader there is no reason to continue */
		next += written;
		left -= (size_t)written;
	}
}

static void add(uint32_t entry)
{
	entries[count++] = entry;
	if (count == sizeof entries / sizeof *entries)
		write_out();
}

static void executed(unsigned int cpu, void *address)
{
	(void)cpu;
	add((uint32_t)(uintptr_t)address);
}

static void loaded(unsigned int cpu, uint32_t kind, uint64_t address, void *unused)
{
	(void)cpu, (void)unused;
	if (!qemu_plugin_mem_is_store(kind))
		add((uint32_t)address | 1);
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
	(void)id;
	size_t length = qemu_plugin_tb_n_insns(block);
	for (size_t i = 0; i < length; i++) {
		struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
		uint64_t address = qemu_plugin_insn_vaddr(instruction);
		qemu_plugin_register_vcpu_insn_exec_cb(instruction, executed, NO_REGISTERS,
						       (void *)(uintptr_t)address);
		if (watched_from <= address && address < watched_to)
			qemu_plugin_register_vcpu_mem_cb(instruction, loaded, NO_REGISTERS,
							 LOADS_AND_STORES, NULL);
	}
}

static void ended(plugin_id id, void *unused)
{
	(void)id, (void)unused;
	write_out();
}

int qemu_plugin_install(plugin_id id, const void *machine, int argument_count, char **arguments)
{
	(void)machine;
	for (int i = 0; i < argument_count; i++) {
		if (strncmp(arguments[i], "from=", 5) == 0)
			watched_from = strtoull(arguments[i] + 5, NULL, 16);
		else if (strncmp(arguments[i], "to=", 3) == 0)
			watched_to = strtoull(arguments[i] + 3, NULL, 16);
		else
			return 1;
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}

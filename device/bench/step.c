/* Runs a program on the processor itself, and logs the address of each instruction that its rows execute:
 *     step LOG PROGRAM ADDRESS...
 * Each ADDRESS, in hexadecimal, is the start of a row's function. From there to its return the program is
 * single-stepped; elsewhere it runs at full speed. A step takes a hundred microseconds on a busy machine, and a
 * recorder executes some hundred thousand instructions before it records, to measure its overhead. The log has the
 * emulator's format.
 *
 * Single-stepping is thousands of times slower than running, so the program must not read the processor's counter: it
 * would find all events far apart. The counter is disabled, and reading it returns a count of the steps instead: one
 * tick per instruction. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	MAX_ROWS = 64,
	/* Assumed number of instructions between two readings of the counter, where they are not counted. */
	UNCOUNTED = 100,
	/* Timeout in seconds, longer than any machine needs. */
	PATIENCE = 900,
};

/* Start addresses of the rows, and the code there. */
static struct {
	uint64_t address;
	long code;
} rows[MAX_ROWS];
static int row_count;

/* Sets or removes breakpoints at the start of the rows. */
static void watch(pid_t child, int on)
{
	for (int i = 0; i < row_count; i++) {
		long code = rows[i].code;

		if (on)
			code = (code & ~0xffL) | 0xcc; /* INT3 */
		ptrace(PTRACE_POKETEXT, child, (void *)rows[i].address, (void *)code);
	}
}

/* Returns whether a row begins here. */
static int is_row(uint64_t address)
{
	for (int i = 0; i < row_count; i++)
		if (rows[i].address == address)
			return 1;
	return 0;
}

/* Emulates RDTSC or RDTSCP at the program counter; returns 0 if there is another instruction. */
static int read_counter(pid_t child, struct user_regs_struct *registers, uint64_t counter)
{
	long code = ptrace(PTRACE_PEEKTEXT, child, (void *)registers->rip, NULL);
	int length = 0;

	if ((code & 0xffff) == 0x310f)
		length = 2;
	else if ((code & 0xffffff) == 0xf9010f)
		length = 3;
	if (length == 0)
		return 0;
	registers->rip += length;
	registers->rax = (uint32_t)counter;
	registers->rdx = counter >> 32;
	if (length == 3)
		registers->rcx = 0; /* the processor's number */
	return ptrace(PTRACE_SETREGS, child, NULL, registers) == 0;
}

int main(int count, char **arguments)
{
	if (count < 4 || count - 3 > MAX_ROWS)
		return 2;
	FILE *log = fopen(arguments[1], "w");
	if (log == NULL)
		return 2;
	alarm(PATIENCE);
	pid_t child = fork();
	if (child == 0) {
		personality(ADDR_NO_RANDOMIZE);
		if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0)
			_exit(126);
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		execl(arguments[2], arguments[2], (char *)NULL);
		_exit(127);
	}
	int status;
	if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return 1;
	ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_EXITKILL);
	for (; row_count < count - 3; row_count++) {
		uint64_t address = strtoull(arguments[3 + row_count], NULL, 16);

		rows[row_count].address = address;
		rows[row_count].code = ptrace(PTRACE_PEEKTEXT, child, (void *)address, NULL);
	}
	watch(child, 1);
	/* The count starts near the processor's counter, like the kernel's own clocks, but always with the same lower
	 * bits. A recorder may record the wall-clock time depending on these; otherwise it would be random whether it
	 * does so within a row. */
	uint64_t counter = __builtin_ia32_rdtsc() >> 40 << 40;
	/* Within a row: its return address, and its stack pointer. */
	uint64_t back = 0, stack = 0;
	for (;;) {
		struct user_regs_struct registers;

		if (ptrace(back != 0 ? PTRACE_SINGLESTEP : PTRACE_CONT, child, NULL, NULL) != 0 ||
		    waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
		    ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0)
			break;
		counter += back != 0 ? 1 : UNCOUNTED;
		if (WSTOPSIG(status) == SIGSEGV) {
			if (!read_counter(child, &registers, counter)) {
				fprintf(stderr, "a fault at %#llx\n", registers.rip);
				return 1;
			}
		} else if (WSTOPSIG(status) != SIGTRAP) {
			fprintf(stderr, "signal %d at %#llx\n", WSTOPSIG(status), registers.rip);
			return 1;
		} else if (back == 0 && is_row(registers.rip - 1)) {
			/* The program counter is after the INT3 that replaced the row's first instruction. */
			registers.rip--;
			ptrace(PTRACE_SETREGS, child, NULL, &registers);
			watch(child, 0);
			stack = registers.rsp;
			back = ptrace(PTRACE_PEEKDATA, child, (void *)stack, NULL);
		}
		if (back == 0)
			continue;
		fprintf(log, "Trace 0: 0 [0/%llx]\n", registers.rip);
		if (registers.rip == back && registers.rsp > stack) {
			back = 0;
			watch(child, 1);
		}
	}
	fclose(log);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

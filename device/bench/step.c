/* Runs a program on the processor itself, and writes where each instruction is that its rows execute:
 *     step LOG PROGRAM ADDRESS...
 * Each ADDRESS, in hexadecimal, is where a row's function begins. From there to its return the program runs
 * instruction by instruction; elsewhere as fast as it can, because on a busy machine a step takes a
 * hundred microseconds, and what a recorder does before it records (it measures what recording
 * costs) is some hundred thousand of them. The log looks like the emulator's.
 *
 * To be stepped takes thousands of times as long as to run, so the processor's counter is not what the
 * program may read: it would find all events far apart. Reading it is forbidden, and what is read
 * instead counts the steps: an instruction, a tick. */
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
	/* Between two readings of the counter the program is taken to execute so many, where they are
	 * not counted. */
	UNCOUNTED = 100,
	/* So many seconds are more than any machine needs. */
	PATIENCE = 900,
};

/* Where the rows begin, and the code that is there. */
static struct {
	uint64_t address;
	long code;
} rows[MAX_ROWS];
static int row_count;

/* Lets the program stop at the rows' beginnings, or go past them. */
static void watch(pid_t child, int on)
{
	for (int i = 0; i < row_count; i++) {
		long code = rows[i].code;

		if (on)
			code = (code & ~0xffL) | 0xcc; /* INT3 */
		ptrace(PTRACE_POKETEXT, child, (void *)rows[i].address, (void *)code);
	}
}

/* Whether a row begins here. */
static int is_row(uint64_t address)
{
	for (int i = 0; i < row_count; i++)
		if (rows[i].address == address)
			return 1;
	return 0;
}

/* Does what RDTSC or RDTSCP at the program's place would have done; 0 if that is not what is there. */
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
	/* Begins about where the processor's stands, as the kernel's own clocks do; but always at the same place
	 * of its lower bits, by which a recorder may go that tells the time of day now and then: else it were
	 * chance whether it does so in a row. */
	uint64_t counter = __builtin_ia32_rdtsc() >> 40 << 40;
	/* In a row: where it returns to, and the stack there. */
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
			/* Behind the INT3 that stands for the row's first instruction. */
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

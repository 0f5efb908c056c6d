/* A program that jumps by longjmp, with what `libkymo.a` has for that. It is never run: only which
 * functions there are, and what calls what, matters. */
#include <setjmp.h>

#define WRAP(name)                                                 \
	__asm__(".weak __real_" name "\n"                          \
		".pushsection .text.__wrap_" name ",\"ax\",%progbits\n" \
		".globl __wrap_" name "\n"                         \
		".type __wrap_" name ",%function\n"                \
		".balign 4\n"                                      \
		".thumb_func\n"                                    \
		"__wrap_" name ": ldr r3, 1f\n"                    \
		"bx r3\n"                                          \
		".balign 4\n"                                      \
		"1: .word __real_" name "\n"                       \
		".size __wrap_" name ", . - __wrap_" name "\n"     \
		".popsection\n")
WRAP("setjmp");
WRAP("longjmp");

static jmp_buf place;

int main(void)
{
	if (setjmp(place) == 0)
		longjmp(place, 1);
	return 0;
}

/* setjmp and longjmp for RV32: they save the registers that a function must preserve. In a file of their own, because
 * the linker's --wrap affects only references from other objects. */
	.macro each what
	\what ra, 0(a0)
	\what sp, 4(a0)
	\what s0, 8(a0)
	\what s1, 12(a0)
	\what s2, 16(a0)
	\what s3, 20(a0)
	\what s4, 24(a0)
	\what s5, 28(a0)
	\what s6, 32(a0)
	\what s7, 36(a0)
	\what s8, 40(a0)
	\what s9, 44(a0)
	\what s10, 48(a0)
	\what s11, 52(a0)
	.endm

	.text
	.globl setjmp
setjmp:
	each sw
	li a0, 0
	ret

	.globl longjmp
longjmp:
	each lw
	mv a0, a1
	ret

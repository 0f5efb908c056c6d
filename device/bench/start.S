/* Start-up code from reset to main: a stack, .data and .bss. One file for all processors. */
#if defined(__arm__)

	.syntax unified
	.section .vectors, "a"
	.word	stack_top
	.word	reset + 1
	.rept	46
	.word	fault + 1
	.endr

	.text
	.thumb
	.thumb_func
	.global	reset
	.type	reset, %function
reset:
	ldr	r0, =data_start
	ldr	r1, =data_end
	ldr	r2, =data_image
1:	cmp	r0, r1
	bhs	2f
	ldmia	r2!, {r3}
	stmia	r0!, {r3}
	b	1b
2:	ldr	r0, =bss_start
	ldr	r1, =bss_end
	movs	r3, #0
3:	cmp	r0, r1
	bhs	4f
	stmia	r0!, {r3}
	b	3b
4:	bl	main
fault:
	b	fault
	.size	reset, . - reset
	.ltorg

#elif defined(__riscv)

	.section .text.start, "ax"
	.global	reset
	.type	reset, %function
reset:
	la	sp, stack_top
	la	t0, fault
	csrw	mtvec, t0
	la	t0, bss_start
	la	t1, bss_end
1:	bgeu	t0, t1, 2f
	sw	zero, 0(t0)
	addi	t0, t0, 4
	j	1b
2:	call	main
	.align	2
fault:
	j	fault
	.size	reset, . - reset

#elif defined(__aarch64__)

	.section .text.start, "ax"
	.global	reset
	.type	reset, %function
reset:
	mov	x0, #(3 << 20)		/* CPACR_EL1.FPEN: the compiler copies with vector registers */
	msr	CPACR_EL1, x0
	isb
	msr	TPIDR_EL1, xzr		/* this CPU does not record yet */
	ldr	x0, =stack_top
	mov	sp, x0
	ldr	x0, =bss_start
	ldr	x1, =bss_end
1:	cmp	x0, x1
	b.hs	2f
	str	xzr, [x0], #8
	b	1b
2:	bl	main
3:	b	3b
	.size	reset, . - reset
	.ltorg

#endif

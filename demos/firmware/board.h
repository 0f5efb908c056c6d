/* The board "mps2-an385" as QEMU emulates it: a Cortex-M3 at 25 MHz.
 *
 * Arm's Application Note AN385 describes the memory map, the Cortex-M System Design Kit's
 * Technical Reference Manual (DDI 0479) the timers and the UART.
 *
 *   0x00000000  4 MB  code (RAM on the board, filled by the loader)
 *   0x20000000  4 MB  static RAM
 *   0x21000000 16 MB  more RAM ("PSRAM")
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

#define CLOCK_HZ 25000000u

#define REGISTER(address) (*(volatile uint32_t *)(address))

/* UART 0 */
#define UART_DATA REGISTER(0x40004000)
#define UART_STATE REGISTER(0x40004004)
#define UART_STATE_TX_FULL 1u
#define UART_STATE_RX_FULL 2u
#define UART_CONTROL REGISTER(0x40004008)
#define UART_CONTROL_TX 1u
#define UART_CONTROL_RX 2u
#define UART_CONTROL_RX_INTERRUPT 8u
#define UART_INTERRUPT REGISTER(0x4000400C)
#define UART_INTERRUPT_RX 2u
#define UART_DIVIDER REGISTER(0x40004010)

/* Timer 0: the program's own interrupt. Counts down. */
#define TIMER_CONTROL REGISTER(0x40000000)
#define TIMER_CONTROL_ON 1u
#define TIMER_CONTROL_INTERRUPT 8u
#define TIMER_VALUE REGISTER(0x40000004)
#define TIMER_RELOAD REGISTER(0x40000008)
#define TIMER_INTERRUPT REGISTER(0x4000000C)

/* The first half of the dual timer: 32 bits, free running, down. Kymo's clock, because this core's
 * cycle counter stands still and SysTick has 24 bits only. */
#define DUAL_TIMER_LOAD REGISTER(0x40002000)
#define DUAL_TIMER_VALUE REGISTER(0x40002004)
#define DUAL_TIMER_CONTROL REGISTER(0x40002008)
#define DUAL_TIMER_CONTROL_ON 0x80u
#define DUAL_TIMER_CONTROL_32_BITS 0x02u

/* A counter that counts up, at the same speed. */
#define FPGA_COUNTER REGISTER(0x40028018)

/* The core */
#define SYSTICK_CONTROL REGISTER(0xE000E010)
#define SYSTICK_CONTROL_ON 7u /* with interrupt, from the core's clock */
#define SYSTICK_RELOAD REGISTER(0xE000E014)
#define SYSTICK_VALUE REGISTER(0xE000E018)
#define NVIC_ENABLE REGISTER(0xE000E100)
#define NVIC_PRIORITY(irq) (*(volatile uint8_t *)(0xE000E400 + (irq)))
#define SCB_ICSR REGISTER(0xE000ED04)
#define SCB_ICSR_PEND_SWITCH (1u << 28)
#define SCB_AIRCR REGISTER(0xE000ED0C)
#define SCB_AIRCR_RESET 0x05FA0004u
#define SCB_PRIORITY(exception) (*(volatile uint8_t *)(0xE000ED14 + (exception)))

#define IRQ_UART_RX 0u
#define IRQ_TIMER 8u

/* Exception numbers, as Kymo and the architecture count. */
#define EXCEPTION_SWITCH 14u
#define EXCEPTION_SYSTICK 15u
#define EXCEPTION_IRQ(irq) (16u + (irq))

#endif

/* See kernel.h. */
#include <stdint.h>
#include <zephyr/device.h>

void uart_poll_out(const struct device *device, unsigned char byte);
int uart_irq_update(const struct device *device);
int uart_irq_rx_ready(const struct device *device);
int uart_fifo_read(const struct device *device, uint8_t *bytes, const int size);
void uart_irq_rx_enable(const struct device *device);
int uart_irq_callback_user_data_set(const struct device *device, void (*receive)(const struct device *, void *),
				    void *data);

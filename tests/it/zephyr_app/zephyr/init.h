/* See kernel.h. The type of functions at start-up depends on the version. */
#ifndef STUB_INIT_H
#define STUB_INIT_H

#include "device.h"

#if KERNEL_VERSION_NUMBER >= 0x030400
typedef int (*stub_init_t)(void);
#else
typedef int (*stub_init_t)(const struct device *device);
#endif

#define SYS_INIT(function_, level_, priority_) const stub_init_t stub_init_##function_ = (function_)

#endif

//! Unaligned stores.
//!
//! For AArch64 without an operating system, compilers split a store that may be unaligned into bytes, because all
//! memory counts as device memory until the MMU is on. While the recorder records, its buffers are normal memory
//! (`kymo_cpu_start` requires it), where the processor supports unaligned stores.

/// Defines a store of one size.
macro_rules! put {
    ($name:ident, $type:ty, $store:literal) => {
        /// Stores `value` at `at`, in the machine's own byte order.
        ///
        /// # Safety
        /// There is memory for it.
        #[inline(always)]
        pub(crate) unsafe fn $name(at: *mut u8, value: $type) {
            #[cfg(all(target_arch = "aarch64", target_os = "none"))]
            // SAFETY: by this function's contract.
            unsafe {
                core::arch::asm!(
                    $store,
                    value = in(reg) value,
                    at = in(reg) at,
                    options(nostack, preserves_flags),
                );
            }
            #[cfg(not(all(target_arch = "aarch64", target_os = "none")))]
            // SAFETY: by this function's contract; `write_unaligned` requires no alignment.
            unsafe {
                at.cast::<$type>().write_unaligned(value);
            }
        }
    };
}

put!(put16, u16, "strh {value:w}, [{at}]");
put!(put32, u32, "str {value:w}, [{at}]");
put!(put64, u64, "str {value:x}, [{at}]");

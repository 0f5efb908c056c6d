//! Stores at any address.
//!
//! For AArch64 without an operating system compilers split a store that may not be aligned into
//! bytes, because all memory counts as a device's until the MMU is on. What the recorder writes to is
//! ordinary memory by the time that it records (`kymo_cpu_start` asks for it), where the processor
//! stores at any address at once.

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
            // SAFETY: by this function's contract; `write_unaligned` asks for no alignment.
            unsafe {
                at.cast::<$type>().write_unaligned(value);
            }
        }
    };
}

put!(put16, u16, "strh {value:w}, [{at}]");
put!(put32, u32, "str {value:w}, [{at}]");
put!(put64, u64, "str {value:x}, [{at}]");

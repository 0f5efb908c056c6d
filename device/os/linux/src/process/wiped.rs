//! Detects child processes made by the system call `clone`, which the C library does not report: the kernel wipes their
//! gate.
//!
//! Such a child has its parent's buffers, mapped from a file that both would write to, and nothing calls [`forked`] in
//! it. So the gate is in a page that the kernel fills with zeros in every child (`MADV_WIPEONFORK`). A zero gate is
//! closed, and the first hook that finds it makes the child start with empty buffers, as after `fork`. If the kernel
//! has no such pages (before Linux 4.14), or larger ones, these children record into their parent's buffers.
//!
//! The child needs the state of the gate. The parent copies it to other memory at each change, and before each `fork`.
//!
//! [`forked`]: super::fork::forked

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::hot::Hot;

use super::Process;
use crate::sys::{self, files};

/// Size and alignment of the gate's page.
const PAGE: usize = 4096;

/// Number of words in a [`Hot`].
const WORDS: usize = size_of::<Hot>() / size_of::<usize>();

/// The gate in a page of its own, in initialized memory.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct GatePage {
    /// The gate, and a cursor that is not used.
    pub hot: Hot,
}

const _: () =
    assert!(size_of::<GatePage>() == PAGE && size_of::<Hot>().is_multiple_of(size_of::<usize>()));

/// Copy of the gate's page, in memory that children inherit.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Whether the kernel wipes the page in children.
    wipes: AtomicBool,
    words: [AtomicUsize; WORDS],
}

impl Copy {
    /// Creates a copy that marks nothing as wiped.
    pub const fn new() -> Self {
        Self {
            wipes: AtomicBool::new(false),
            words: [const { AtomicUsize::new(0) }; WORDS],
        }
    }
}

/// Returns the words of the page that holds the gate.
fn words_of(gate: &Gate) -> &[AtomicUsize; WORDS] {
    let hot = core::ptr::from_ref(gate)
        .cast::<u8>()
        .wrapping_sub(core::mem::offset_of!(Hot, gate));
    // SAFETY: on this system every gate is part of a `Hot`, which consists of atomics and cells of this size; the
    // cells are the cursor's, which nobody uses.
    unsafe { &*hot.cast() }
}

impl Process {
    /// Makes the kernel wipe the gate's page in children. No other thread may change the gate meanwhile.
    pub(super) fn wipe_in_children(&self, gate: &'static Gate) {
        let page = words_of(gate).as_ptr() as usize;
        if page.is_multiple_of(PAGE) && files::page_bytes() == PAGE {
            // SAFETY: the page is the gate's alone, and what it holds is carried over.
            let wipes = unsafe { files::wipe_in_children(page as *mut u8, PAGE) };
            self.copy.wipes.store(wipes, Ordering::Release);
        }
    }

    /// Saves the state of the gate for children.
    #[inline(never)]
    pub fn keep_gate(&self, gate: &Gate) {
        if gate.state().alive() {
            for (copy, word) in self.copy.words.iter().zip(words_of(gate)) {
                copy.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Restores the gate's state in the parent, if the gate was wiped; returns whether it was.
    pub(super) fn restore_gate(&self, gate: &Gate) -> bool {
        if gate.state().alive() || !self.copy.wipes.load(Ordering::Acquire) {
            return false;
        }
        for (copy, word) in self.copy.words.iter().zip(words_of(gate)) {
            word.store(copy.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        true
    }

    /// Makes this process start with empty buffers, if it is a child that `clone` made and the C library does not
    /// report.
    #[cold]
    pub fn start_if_wiped(&self, gate: &Gate) {
        sys::without_signals(|| {
            if self.restore_gate(gate) {
                self.start_as_child(gate);
            }
        });
    }
}

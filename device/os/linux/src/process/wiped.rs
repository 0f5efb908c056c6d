//! Children that the C library does not tell of, as the system call `clone` makes them: their gate is wiped.
//!
//! Such a child has its parent's buffers, mapped from a file that both would write to, and nothing calls [`forked`] in it.
//! So the gate lies in a page that the kernel fills with zeros in every child (`MADV_WIPEONFORK`): what is zero lets nobody
//! record, and the first hook that finds it so has the child start empty, as after `fork`. Where the kernel has no such
//! pages (before Linux 4.14), or larger ones, these children record into their parent's buffers.
//!
//! The child needs what the gate said. That is copied to other memory whenever it changes, and before each `fork`.
//!
//! [`forked`]: super::fork::forked

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kymo_recorder::gate::Gate;
use kymo_recorder::hot::Hot;

use super::Process;
use crate::sys::{self, files};

/// The size and alignment of the gate's page.
const PAGE: usize = 4096;

/// How many words a [`Hot`] has.
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

/// What the gate's page holds, in memory that children have too.
#[derive(Debug)]
pub(crate) struct Copy {
    /// The page is wiped in children.
    wipes: AtomicBool,
    words: [AtomicUsize; WORDS],
}

impl Copy {
    /// Nothing is wiped.
    pub const fn new() -> Self {
        Self {
            wipes: AtomicBool::new(false),
            words: [const { AtomicUsize::new(0) }; WORDS],
        }
    }
}

/// The words of the page that holds a gate.
fn words_of(gate: &Gate) -> &[AtomicUsize; WORDS] {
    let hot = core::ptr::from_ref(gate)
        .cast::<u8>()
        .wrapping_sub(core::mem::offset_of!(Hot, gate));
    // SAFETY: on this system every gate is part of a `Hot`, which consists of atomics and cells of this size; the
    // cells are the cursor's, which nobody uses.
    unsafe { &*hot.cast() }
}

impl Process {
    /// Has the kernel wipe the gate's page in children. While nobody else changes the gate.
    pub(super) fn wipe_in_children(&self, gate: &'static Gate) {
        let page = words_of(gate).as_ptr() as usize;
        if page.is_multiple_of(PAGE) && files::page_bytes() == PAGE {
            // SAFETY: the page is the gate's alone, and what it holds is carried over.
            let wipes = unsafe { files::wipe_in_children(page as *mut u8, PAGE) };
            self.copy.wipes.store(wipes, Ordering::Release);
        }
    }

    /// Keeps what the gate says, for children.
    #[inline(never)]
    pub fn keep_gate(&self, gate: &Gate) {
        if gate.state().alive() {
            for (copy, word) in self.copy.words.iter().zip(words_of(gate)) {
                copy.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }

    /// Gives the gate back what it said in the parent, if it was wiped; whether it was.
    pub(super) fn restore_gate(&self, gate: &Gate) -> bool {
        if gate.state().alive() || !self.copy.wipes.load(Ordering::Acquire) {
            return false;
        }
        for (copy, word) in self.copy.words.iter().zip(words_of(gate)) {
            word.store(copy.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        true
    }

    /// Has this process start empty, if it is a child that `clone` made, of which the C library does not tell.
    #[cold]
    pub fn start_if_wiped(&self, gate: &Gate) {
        sys::without_signals(|| {
            if self.restore_gate(gate) {
                self.start_as_child(gate);
            }
        });
    }
}

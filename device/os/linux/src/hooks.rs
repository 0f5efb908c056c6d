//! x86-64 hooks in assembly, with the fast path of [`ThreadBuffer::call`].
//!
//! Why assembly: reading the TSC takes most of a hook's time, and the next reading waits for all instructions that
//! depend on it or precede it. So all work that does not need the time (the gate, the function's number, the record's
//! address) is done while the previous reading is still in progress, and the code after the reading is as short as
//! possible. Compilers order it differently, and save registers that a hook without calls does not need.
//!
//! The steps are those of [`ThreadBuffer::call`], in the same order and for the same reasons (see
//! [`threads`](kymo_recorder::threads)):
//! 1. mark the thread as inside,
//! 2. check the gate,
//! 3. read the counter,
//! 4. check that the cursor is open (it is closed while events of signal handlers wait in the side buffer),
//! 5. write the record,
//! 6. mark the thread as outside,
//! 7. check whether the cursor was closed meanwhile.
//!
//! No instruction of a hook is restarted or takes partial effect when a signal arrives, and x86-64 does not reorder
//! stores. So a reader on another processor that sees the thread outside sees its record, too.
//!
//! Records are stored in pieces, and up to one byte beyond their ends, where there is room for it
//! ([`Layout::fast_bytes`](kymo_wire::event::Layout::fast_bytes)). They are the short records of 64-bit targets, as
//! [`kymo_wire::event`] defines them.
//!
//! [`ThreadBuffer::call`]: kymo_recorder::threads::ThreadBuffer::call

#[doc(hidden)]
pub use kymo_recorder;

use kymo_recorder::gate::Gate;
use kymo_recorder::hot::{Hot, word};
use kymo_recorder::threads::ThreadBuffer;
use kymo_wire::event::{Form, Shape};

use crate::port::Linux;

/// The offsets and limits that the assembly uses.
#[doc(hidden)]
pub mod constant {
    use super::*;

    const WORD: usize = size_of::<usize>();
    /// Offsets in a [`Hot`].
    const GATE: usize = core::mem::offset_of!(Hot, gate);
    pub const GATE_WORD: usize = GATE + Gate::WORD_OFFSET;
    pub const GATE_STATE: usize = GATE + Gate::STATE_OFFSET;
    pub const GATE_CHANGES: usize = GATE + Gate::CHANGES_OFFSET;
    pub const STOPPER: usize = GATE + Gate::STOPPER_OFFSET;
    pub const OPEN: u32 = kymo_recorder::gate::OPEN;
    /// Offsets in a [`ThreadBuffer`].
    const CURSOR: usize = ThreadBuffer::<Linux>::CURSOR_OFFSET;
    pub const LAST: usize = CURSOR + word::LAST * WORD;
    pub const AT: usize = CURSOR + word::AT * WORD;
    pub const DEPTH: usize = CURSOR + word::DEPTH * WORD;
    pub const END: usize = CURSOR + word::END * WORD;
    pub const TEXT_BASE: usize = CURSOR + word::TEXT_BASE * WORD;
    pub const INSIDE: usize = ThreadBuffer::<Linux>::INSIDE_OFFSET;
    pub const CHANGES: usize = ThreadBuffer::<Linux>::CHANGES_OFFSET;
    /// Limits and sizes of records.
    const SHAPE: Shape = Shape::Wide;
    pub const ENTER_TICKS: usize = 1 << SHAPE.time_bits(Form::EnterShort);
    pub const ENTER_FUNCTIONS: usize = 1 << SHAPE.function_bits(Form::EnterShort);
    pub const ENTER_BYTES: usize = SHAPE.bytes(Form::EnterShort);
    pub const EXIT_TICKS: usize = 1 << SHAPE.time_bits(Form::ExitShort);
    pub const EXIT_BYTES: usize = SHAPE.bytes(Form::ExitShort);

    // The forms that the assembly writes: 3 bits, 21 bits of time, 24 bits of function; 1 bit, 15 bits of time.
    const _: () = assert!(ENTER_BYTES == 6 && ENTER_TICKS == 1 << 21 && ENTER_FUNCTIONS == 1 << 24);
    const _: () = assert!(EXIT_BYTES == 2 && EXIT_TICKS == 1 << 15);
}

/// Defines the two functions that the compiler calls.
///
/// `hot` is the static [`Hot`] with the gate. Four functions are the slow paths: `call(Edge, function, caller)` before
/// the assembly has done anything, `nested(Edge, (function, caller), stack)` if the thread was marked as inside before,
/// with the stack pointer at the hook's entry, `inside(Edge, function, caller)` once the hook has marked it, and
/// `come_back()` after the record. (For an exit `caller` is arbitrary.)
#[macro_export]
macro_rules! hooks {
    ($hot:ident, $call:ident, $nested:ident, $inside:ident, $come_back:ident) => {
        $crate::hooks!(@rest Enter, call_enter, nested_enter, inside_enter, $call, $nested, $inside);
        $crate::hooks!(@rest Exit, call_exit, nested_exit, inside_exit, $call, $nested, $inside);

        extern "C" fn behind() {
            $come_back();
        }

        /// Called by the compiler at the entry of every function, with `-finstrument-functions`.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn __cyg_profile_func_enter(
            _function: *const core::ffi::c_void,
            _call_site: *const core::ffi::c_void,
        ) {
            use $crate::hooks::constant::*;
            core::arch::naked_asm!(
                "lea rax, [rip + {hot}]",
                "cmp [rax + {gate_word}], rax",
                "jne 2f",
                "mov r8, [rip + kymo_thread_buffer@GOTTPOFF]",
                "mov r8, fs:[r8]",
                // Null or busy.
                "cmp r8, 1",
                "jbe {call}",
                "cmp qword ptr [r8 + {inside_flag}], 0",
                "jne 4f",
                "mov [r8 + {inside_flag}], rsp",
                "cmp dword ptr [rax + {gate_state}], {open}",
                "jne {inside}",
                "mov ecx, [rax + {gate_changes}]",
                "cmp ecx, [r8 + {changes}]",
                "jne {inside}",
                "cmp rdi, [rax + {stopper}]",
                "je {inside}",
                "sub rdi, [r8 + {text_base}]",
                "cmp rdi, {functions}",
                "jae 3f",
                "mov r9, [r8 + {at}]",
                "mov r10, [r8 + {depth}]",
                "rdtsc",
                "cmp r9, [r8 + {end}]",
                "jae 3f",
                "shl rdx, 32",
                "or rax, rdx",
                "mov rcx, rax",
                "sub rcx, [r8 + {last}]",
                "cmp rcx, {ticks}",
                "jae 3f",
                "mov [r8 + {last}], rax",
                "shl eax, 3",
                "mov [r9], eax",
                "mov [r9 + 3], edi",
                "add r9, {bytes}",
                "inc r10",
                "mov [r8 + {at}], r9",
                "mov [r8 + {depth}], r10",
                "mov qword ptr [r8 + {inside_flag}], 0",
                "cmp [r8 + {end}], r9",
                "jb {behind}",
                "ret",
                // Restore the function's address.
                "3:",
                "add rdi, [r8 + {text_base}]",
                "jmp {inside}",
                // In a signal handler, or after a jump out of one.
                "4:",
                "mov rdx, rsp",
                "jmp {nested}",
                // Nothing to do, unless the function may be the trigger.
                "2:",
                "cmp qword ptr [rax + {gate_word}], 0",
                "jne {call}",
                // A gate that is all zero was wiped: this is a new process.
                "cmp dword ptr [rax + {gate_state}], 0",
                "je {call}",
                "ret",
                hot = sym $hot,
                call = sym call_enter,
                nested = sym nested_enter,
                inside = sym inside_enter,
                behind = sym behind,
                gate_word = const GATE_WORD,
                gate_state = const GATE_STATE,
                gate_changes = const GATE_CHANGES,
                stopper = const STOPPER,
                open = const OPEN,
                inside_flag = const INSIDE,
                changes = const CHANGES,
                text_base = const TEXT_BASE,
                at = const AT,
                depth = const DEPTH,
                end = const END,
                last = const LAST,
                functions = const ENTER_FUNCTIONS,
                ticks = const ENTER_TICKS,
                bytes = const ENTER_BYTES,
            )
        }

        /// Called by the compiler at every return.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub extern "C" fn __cyg_profile_func_exit(
            _function: *const core::ffi::c_void,
            _call_site: *const core::ffi::c_void,
        ) {
            use $crate::hooks::constant::*;
            core::arch::naked_asm!(
                "lea rax, [rip + {hot}]",
                "cmp [rax + {gate_word}], rax",
                "jne 2f",
                "mov r8, [rip + kymo_thread_buffer@GOTTPOFF]",
                "mov r8, fs:[r8]",
                "cmp r8, 1",
                "jbe {call}",
                "cmp qword ptr [r8 + {inside_flag}], 0",
                "jne 4f",
                "mov [r8 + {inside_flag}], rsp",
                "cmp dword ptr [rax + {gate_state}], {open}",
                "jne {inside}",
                "mov ecx, [rax + {gate_changes}]",
                "cmp ecx, [r8 + {changes}]",
                "jne {inside}",
                "cmp rdi, [rax + {stopper}]",
                "je {inside}",
                "mov r9, [r8 + {at}]",
                "mov r10, [r8 + {depth}]",
                // An exit whose entry the reader may not know records its function.
                // (The depth may be below 0, where every exit does.)
                "sub r10, 1",
                "jl {inside}",
                "rdtsc",
                "cmp r9, [r8 + {end}]",
                "jae {inside}",
                "shl rdx, 32",
                "or rax, rdx",
                "mov rcx, rax",
                "sub rcx, [r8 + {last}]",
                "cmp rcx, {ticks}",
                "jae {inside}",
                "mov [r8 + {last}], rax",
                "lea eax, [rax + rax + 1]",
                "mov [r9], ax",
                "add r9, {bytes}",
                "mov [r8 + {at}], r9",
                "mov [r8 + {depth}], r10",
                "mov qword ptr [r8 + {inside_flag}], 0",
                "cmp [r8 + {end}], r9",
                "jb {behind}",
                "ret",
                "4:",
                "mov rdx, rsp",
                "jmp {nested}",
                "2:",
                "cmp qword ptr [rax + {gate_word}], 0",
                "jne {call}",
                // A gate that is all zero was wiped: this is a new process.
                "cmp dword ptr [rax + {gate_state}], 0",
                "je {call}",
                "ret",
                hot = sym $hot,
                call = sym call_exit,
                nested = sym nested_exit,
                inside = sym inside_exit,
                behind = sym behind,
                gate_word = const GATE_WORD,
                gate_state = const GATE_STATE,
                gate_changes = const GATE_CHANGES,
                stopper = const STOPPER,
                open = const OPEN,
                inside_flag = const INSIDE,
                changes = const CHANGES,
                at = const AT,
                depth = const DEPTH,
                end = const END,
                last = const LAST,
                ticks = const EXIT_TICKS,
                bytes = const EXIT_BYTES,
            )
        }
    };
    (
        @rest $edge:ident, $call_name:ident, $nested_name:ident, $inside_name:ident,
        $call:ident, $nested:ident, $inside:ident
    ) => {
        extern "C" fn $call_name(function: usize, caller: usize) {
            $call($crate::hooks::kymo_recorder::Edge::$edge, function, caller);
        }

        extern "C" fn $nested_name(function: usize, caller: usize, stack: *mut u8) {
            let edge = $crate::hooks::kymo_recorder::Edge::$edge;
            $nested(edge, (function, caller), stack);
        }

        extern "C" fn $inside_name(function: usize, caller: usize) {
            $inside($crate::hooks::kymo_recorder::Edge::$edge, function, caller);
        }
    };
}

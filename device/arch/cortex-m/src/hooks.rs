//! The compiler's hooks in assembly, for Armv7-M and the main line of Armv8-M.
//!
//! They do what the portable ones do ([`kymo_recorder::hot`] says what that is), in 28 instructions
//! for an entry and 24 for an exit, of which 17 and 14 run with interrupts masked; 4 when nothing is
//! to be recorded, 8 (6) while a trigger is waited for. `cargo xtask bench recorder` counts them, and
//! tests hold what they write against what the portable hooks write.
//!
//! How they get there: the address of the [`Hot`](kymo_recorder::hot::Hot) is the word that says
//! *record*, so that it is compared without being loaded. One load multiple fetches the cursor, one
//! store multiple puts back the words that changed. The return is the load multiple that restores
//! the registers. A function's number is its distance from the text base rotated right, so that what
//! has none is a great number; distance in time and number are tested by one comparison. The lowest
//! bit of an exit is the carry of a comparison before.
//!
//! What is not usual goes to the slow path, which is the portable code, with function and call site
//! as they came and interrupts as they were. Records are stored unaligned: `CCR.UNALIGN_TRP` must
//! not be set. NMI and HardFault can't be masked: their handlers must not be instrumented.
//!
//! This is a macro because the recorder that the hooks belong to is another crate's, and so is the
//! question whether the processor has these instructions.

use kymo_recorder::hot::word;
use kymo_wire::event::{ByteOrder, EventId, Form, OTHER_BITS, OTHER_BYTES, Shape};

// The order in which the words are loaded, and stored.
const _: () = {
    assert!(word::LAST == 0 && word::AT == 1 && word::DEPTH == 2);
    assert!(word::COUNTER == 3 && word::END == 4);
    assert!(word::TEXT_BASE == 5 && word::FUNCTION_SHIFT == 6);
    assert!(word::GATE == word::TRIGGER + 1 && word::STOPPER == word::GATE + 1);
};

// The records that are written.
const _: () = {
    let shape = Shape::Compact;
    assert!(shape.bytes(Form::EnterShort) == 3 && shape.time_bits(Form::EnterShort) == 8);
    assert!(shape.function_bits(Form::EnterShort) == 13);
    assert!(shape.bytes(Form::EnterLong) == 4 && shape.time_bits(Form::EnterLong) == 12);
    assert!(shape.function_bits(Form::EnterLong) == 17);
    assert!(shape.bytes(Form::ExitShort) == 1 && shape.time_bits(Form::ExitShort) == 7);
    assert!(shape.bytes(Form::ExitLong) == 2 && shape.time_bits(Form::ExitLong) == 13);
    assert!(OTHER_BYTES == 3 && OTHER_BITS == 16);
    assert!(shape.named_bits() == 24);
};

/// Where the trigger is in a [`Hot`](kymo_recorder::hot::Hot); behind it the gate's word and the
/// stopper.
#[doc(hidden)]
pub const TRIGGER: usize = word::TRIGGER * 4;
/// Where the gate's word is.
#[doc(hidden)]
pub const GATE: usize = word::GATE * 4;
/// Where the stopper is.
#[doc(hidden)]
pub const STOPPER: usize = word::STOPPER * 4;
/// Where the text base is; behind it the shift.
#[doc(hidden)]
pub const TEXT_BASE: usize = word::TEXT_BASE * 4;
/// The first byte of an exit that says which function it leaves.
#[doc(hidden)]
pub const EXIT_NAMED: u64 = Shape::other_header(ByteOrder::Little, EventId::ExitNamed, 0) & 0xFF;

/// Defines `__cyg_profile_func_enter` and `__cyg_profile_func_exit` for the recorder whose
/// [`Hot`](kymo_recorder::hot::Hot) is the static `$hot`. `$enter` and `$exit`, `extern "C"` functions
/// of the same arguments, are the slow path.
///
/// `counting` if the recorder counts calls ([`Cursor::depth`](kymo_recorder::hot::Cursor::depth)) and
/// has a stopper; `plain` if it does neither: then an entry takes 24 instructions and an exit 21.
#[macro_export]
macro_rules! hooks {
    (counting, $hot:path, $enter:path, $exit:path) => {
        $crate::hooks! {
            @counting $hot, $enter, $exit,
            waiting: ["2: cmp r0, r12", "beq 6f", "1: bx lr", "// {long}"],
            off: "1f",
            more: ["// {long}"],
            ($enter, $exit)
        }
    };
    // With duration mode ([`kymo_recorder::duration`]): the word is the address of the program's structure, and `$long_enter` and
    // `$long_exit`, the second of which takes a time in the place of the call site, are its slow path. A call that
    // is filtered away takes 19 instructions at its entry and 25 at its exit, none of them masked.
    //
    // r0: function, r1: call site, then at the exit the start, r2: the structure, r3: what is at hand, r12: the frame.
    (duration, $hot:path, $enter:path, $exit:path, $long_enter:path, $long_exit:path) => {
        $crate::hooks! {
            @counting $hot, $enter, $exit,
            waiting: [
                "2: tst r2, #3",
                "bne 20f",
                "21: ldr r12, [r2, #{top}]",
                "ldr r3, [r2, #{limit}]",
                "cmp r12, r3",
                "bhs 23f",
                "add r3, r12, #{frame}",
                "str r3, [r2, #{top}]",
                "movs r3, #0",
                "strd r0, r3, [r12, #{function}]",
                "ldr r3, [r2, #{counter}]",
                "ldr r3, [r3]",
                "str r3, [r12, #{start}]",
                "1: bx lr",
                // A trigger is waited for, or calls take the slow path, or functions are watched for.
                "20: tst r2, #2",
                "bne 22f",
                "subs r2, #1",
                "ldrd r12, r3, [r2, #{watched}]",
                "cmp r0, r12",
                "it ne",
                "cmpne r0, r3",
                "bne 21b",
                "23: b {long}",
                "22: cmp r2, #2",
                "bne 6f",
                "cmp r0, r12",
                "beq 6f",
                "bx lr",
                "// {threshold} {children}",
            ],
            off: "20f",
            more: [
                "20: tst r2, #3",
                "bne 24f",
                "21: ldr r12, [r2, #{top}]",
                "ldr r3, [r12, #-{frame}]!",
                "cmp r3, r0",
                "bne 22f",
                "ldr r3, [r2, #{counter}]",
                "ldr r3, [r3]",
                "ldr r1, [r12, #{start}]",
                "subs r3, r3, r1",
                "ldr r1, [r2, #{threshold}]",
                "cmp r3, r1",
                "bhs 23f",
                "ldr r1, [r12, #{children} - {frame}]",
                "add r1, r1, r3",
                "str r1, [r12, #{children} - {frame}]",
                "movs r3, #0",
                "str r3, [r12, #{function}]",
                "str r12, [r2, #{top}]",
                "bx lr",
                // It took long.
                "23: ldr r1, [r12, #{start}]",
                "adds r1, r1, r3",
                "b {long}",
                // Another function is on top.
                "22: ldr r1, [r2, #{counter}]",
                "ldr r1, [r1]",
                "b {long}",
                "24: tst r2, #2",
                "bne 25f",
                "subs r2, #1",
                "ldrd r12, r3, [r2, #{watched}]",
                "cmp r0, r12",
                "it ne",
                "cmpne r0, r3",
                "bne 21b",
                "b 22b",
                "25: cmp r2, #2",
                "beq 1b",
                "b 6f",
                "// {limit}",
            ],
            ($long_enter, $long_exit)
            top = const $crate::kymo_recorder::duration::Control::TOP_OFFSET,
            limit = const $crate::kymo_recorder::duration::Control::LIMIT_OFFSET,
            counter = const $crate::kymo_recorder::duration::Control::COUNTER_OFFSET,
            threshold = const $crate::kymo_recorder::duration::Control::SETTINGS_OFFSET,
            watched = const $crate::kymo_recorder::duration::Control::SETTINGS_OFFSET + 4,
            frame = const $crate::kymo_recorder::duration::Frame::BYTES,
            function = const $crate::kymo_recorder::duration::Frame::FUNCTION_OFFSET,
            children = const $crate::kymo_recorder::duration::Frame::CHILDREN_OFFSET,
            start = const $crate::kymo_recorder::duration::Frame::START_OFFSET,
        }
    };
    (
        @counting $hot:path, $enter:path, $exit:path,
        waiting: [$($waiting:literal),* $(,)?],
        off: $off:literal,
        more: [$($more:literal),* $(,)?],
        ($long_enter:path, $long_exit:path)
        $($operand:ident = const $value:expr),* $(,)?
    ) => {
        $crate::hooks! {
            @define $hot, $enter, $exit,
            waiting: [$($waiting),*],
            off: $off,
            more: [$($more),*],
            ($long_enter, $long_exit)
            ($($operand = const $value),*)
            // The stopper's calls take the slow path.
            entry: ["ldr r12, [r3, #{stopper}]", "cmp r0, r12", "beq 6f"],
            enter: ["adds r6, #1", "stm r3, {{r4, r5, r6}}"],
            stopper: ["cmp r0, r12", "beq 6f"],
            exit: "subs r6, #1; blo 7f",
            store: "stm r3, {{r4, r5, r6}}",
            // An exit whose entry is not in this packet: 16 bits of time, 24 of the number, which is
            // stored by a word of which the last byte counts for nothing. The depth stays.
            named: [
                "7: ldrd r7, r12, [r3, #{text_base}]",
                "sub r7, r0, r7",
                "ror r7, r7, r12",
                "orr r12, r2, r7, lsr #8",
                "lsrs r12, r12, #16",
                "bne 4f",
                "lsl r12, r4, #8",
                "orr r12, #{exit_named}",
                "str r12, [r5], #3",
                "str r7, [r5], #3",
                "strd r4, r5, [r3]",
                "msr PRIMASK, lr",
                "pop {{r4-r7, pc}}",
            ],
        }
    };
    (plain, $hot:path, $enter:path, $exit:path) => {
        $crate::hooks! {
            @define $hot, $enter, $exit,
            waiting: ["2: cmp r0, r12", "beq 6f", "1: bx lr", "// {long}"],
            off: "1f",
            more: ["// {long}"],
            ($enter, $exit)
            ()
            entry: ["// {stopper}"],
            enter: ["stm r3, {{r4, r5}}"],
            stopper: [],
            exit: "",
            store: "stm r3, {{r4, r5}}",
            named: ["// {text_base} {exit_named}"],
        }
    };
    (
        @define $hot:path, $enter:path, $exit:path,
        waiting: [$($waiting:literal),*],
        off: $off:literal,
        more: [$($more:literal),*],
        ($long_enter:path, $long_exit:path)
        ($($operand:ident = const $value:expr),*)
        entry: [$($entry:literal),*],
        enter: [$($commit:literal),*],
        stopper: [$($stopper:literal),*],
        exit: $depth:literal,
        store: $store:literal,
        named: [$($name:literal),* $(,)?],
    ) => {
        /// Called by the compiler at the entry of every function, with `-finstrument-functions`.
        ///
        /// r0: function, r1: call site, r2: the gate's word, then the last time, r3: the `Hot`, r4:
        /// now, r5: at, r6: depth, r7: the counter's address, then what is stored, r8: end, r10: the
        /// text base, then the number, r12: the trigger, then the stopper, then the shift, lr: PRIMASK. (Not r9: in
        /// some images that is everybody's.)
        ///
        /// # Safety
        /// It is called as compilers do.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn __cyg_profile_func_enter(function: usize, call_site: usize) {
            core::arch::naked_asm!(
                "ldr r3, 9f",
                "ldrd r12, r2, [r3, #{trigger}]",
                "cbz r2, 1f",
                "cmp r2, r3",
                "bne 2f",
                $($entry,)*
                "push {{r4-r8, r10, lr}}",
                "mrs lr, PRIMASK",
                "cpsid i",
                "ldm r3, {{r2, r5, r6, r7, r8, r10, r12}}",
                "cmp r5, r8",
                "bhs 4f",
                "ldr r4, [r7]",
                "sub r2, r4, r2",
                "sub r10, r0, r10",
                "ror r10, r10, r12",
                "orr r7, r2, r10, lsr #5",
                "cmp r7, #256",
                "bhs 3f",
                "lsl r7, r10, #11",
                "bfi r7, r4, #3, #8",
                "str r7, [r5], #3",
                "5:",
                $($commit,)*
                "msr PRIMASK, lr",
                "pop {{r4-r8, r10, pc}}",
                // A trigger is waited for.
                $($waiting,)*
                // The long form: 12 bits of time, 17 of the number.
                "3: cmp r7, #4096",
                "bhs 4f",
                "lsl r7, r10, #15",
                "bfi r7, r4, #3, #12",
                "orr r7, #4",
                "str r7, [r5], #4",
                "b 5b",
                "4: msr PRIMASK, lr",
                "pop {{r4-r8, r10, lr}}",
                "6: b {slow}",
                ".p2align 2",
                "9: .word {hot}",
                trigger = const $crate::TRIGGER,
                stopper = const $crate::STOPPER,
                slow = sym $enter,
                long = sym $long_enter,
                hot = sym $hot,
                $($operand = const $value,)*
            )
        }

        /// Called by the compiler at every return.
        ///
        /// Registers are used as in [`__cyg_profile_func_enter`], but r12: the stopper, then end.
        ///
        /// # Safety
        /// It is called as compilers do.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn __cyg_profile_func_exit(function: usize, call_site: usize) {
            core::arch::naked_asm!(
                "ldr r3, 9f",
                "ldrd r2, r12, [r3, #{gate}]",
                "cbz r2, 1f",
                "cmp r2, r3",
                concat!("bne ", $off),
                $($stopper,)*
                "push {{r4-r7, lr}}",
                "mrs lr, PRIMASK",
                "cpsid i",
                "ldm r3, {{r2, r5, r6, r7, r12}}",
                "cmp r5, r12",
                "bhs 4f",
                "ldr r4, [r7]",
                "sub r2, r4, r2",
                $depth,
                // If nothing is borrowed the carry is set.
                "rsbs r7, r2, #127",
                "blo 3f",
                "adc r7, r4, r4",
                "strb r7, [r5], #1",
                concat!("5: ", $store),
                "msr PRIMASK, lr",
                "pop {{r4-r7, pc}}",
                "1: bx lr",
                // The long form: 13 bits of time.
                "3: cmp r2, #8192",
                "bhs 4f",
                "lsl r7, r4, #3",
                "orr r7, #2",
                "strh r7, [r5], #2",
                "b 5b",
                $($name,)*
                $($more,)*
                "4: msr PRIMASK, lr",
                "pop {{r4-r7, lr}}",
                "6: b {slow}",
                ".p2align 2",
                "9: .word {hot}",
                gate = const $crate::GATE,
                text_base = const $crate::TEXT_BASE,
                exit_named = const $crate::EXIT_NAMED,
                slow = sym $exit,
                long = sym $long_exit,
                hot = sym $hot,
                $($operand = const $value,)*
            )
        }
    };
}

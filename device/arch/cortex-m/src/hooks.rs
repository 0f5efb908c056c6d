//! The compiler's hooks in assembly, for Armv7-M and the Armv8-M mainline.
//!
//! They do the same as the portable hooks ([`kymo_recorder::hot`] describes that), in 28 instructions for an entry and
//! 24 for an exit, of which 16 and 13 run with interrupts masked. They take 4 instructions when recording is off, and 8
//! (6) while waiting for a trigger. `cargo xtask bench recorder` counts them, and tests compare their records with
//! those of the portable hooks.
//!
//! Techniques: the gate's word for *record* is the address of the [`Hot`](kymo_recorder::hot::Hot), so that the
//! comparison needs no constant. One load multiple reads the cursor, one store multiple writes the words that changed.
//! The load multiple that restores the registers also returns. A function's number is its distance from the text base
//! rotated right, so that addresses without a number become large numbers; one comparison checks both the time since
//! the last record and the number. The lowest bit of an exit is the carry of an earlier comparison.
//!
//! If a packet is full, the hook changes to the next one, and starts again after the masking. If a profile table is
//! kept, the cursor's end is 0 for hooks, and its limit bounds the records. The record is then written as usual, and
//! the functions of [`Profile`](kymo_recorder::profile::Profile) update the table with interrupts still masked (89 and
//! 105 instructions).
//!
//! All other cases take the slow path, the portable code, with function, call site and interrupt mask unchanged.
//! Records are stored unaligned: `CCR.UNALIGN_TRP` must not be set. NMI and HardFault cannot be masked: their handlers
//! must not be instrumented.
//!
//! The hooks are a macro because the recorder that they belong to is in another crate, which also decides whether the
//! processor has these instructions.

use kymo_recorder::hot::word;
use kymo_wire::event::{ByteOrder, EventId, Form, OTHER_BITS, OTHER_BYTES, Shape};

// Order in which the words are loaded and stored.
const _: () = {
    assert!(word::LAST == 0 && word::AT == 1 && word::DEPTH == 2);
    assert!(word::COUNTER == 3 && word::END == 4);
    assert!(word::TEXT_BASE == 5 && word::FUNCTION_SHIFT == 6);
    assert!(word::GATE == word::TRIGGER + 1 && word::STOPPER == word::GATE + 1);
};

// Layout of the records that the assembly writes.
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

/// Offset of the trigger in a [`Hot`](kymo_recorder::hot::Hot); the gate's word and the stopper follow it.
#[doc(hidden)]
pub const TRIGGER: usize = word::TRIGGER * 4;
/// Offset of the gate's word.
#[doc(hidden)]
pub const GATE: usize = word::GATE * 4;
/// Offset of the stopper.
#[doc(hidden)]
pub const STOPPER: usize = word::STOPPER * 4;
/// Offset of the end of the packet for code other than hooks.
#[doc(hidden)]
pub const LIMIT: usize = word::LIMIT * 4;
/// Offset of the text base; the shift follows it.
#[doc(hidden)]
pub const TEXT_BASE: usize = word::TEXT_BASE * 4;
/// First byte of an exit that records its function.
#[doc(hidden)]
pub const EXIT_NAMED: u64 = Shape::other_header(ByteOrder::Little, EventId::ExitNamed, 0) & 0xFF;

/// Defines `__cyg_profile_func_enter` and `__cyg_profile_func_exit` for the recorder whose
/// [`Hot`](kymo_recorder::hot::Hot) is the static `$hot`. `$enter` and `$exit`, `extern "C"` functions with the same
/// arguments, are the slow path.
///
/// Use `counting` if the recorder counts calls ([`Cursor::depth`](kymo_recorder::hot::Cursor::depth)) and has a
/// stopper, and `plain` if it has neither: then an entry takes 24 instructions and an exit 20.
#[macro_export]
macro_rules! hooks {
    (counting, $hot:path, $enter:path, $exit:path, $change:path $(, table: $($table:path),*)?) => {
        $crate::hooks! {
            @counting $hot, $enter, $exit, $change,
            waiting: ["2: cmp r0, r12", "beq 6f", "1: bx lr", "// {long}"],
            off: "1f",
            more: ["// {long}"],
            ($enter, $exit)
            $(table: ($($table),*))?
        }
    };
    // With duration mode ([`kymo_recorder::duration`]). The gate's word is the address of the program's structure.
    // `$long_enter` and `$long_exit` are its slow path; the latter takes a time instead of the call site. A call that
    // is shorter than the threshold takes 19 instructions at its entry and 25 at its exit, none of them masked.
    //
    // r0: function; r1: call site, at the exit then the start; r2: the structure; r3: scratch; r12: the frame.
    (
        duration, $hot:path, $enter:path, $exit:path, $change:path, $long_enter:path, $long_exit:path
        $(, table: $($table:path),*)?
    ) => {
        $crate::hooks! {
            @counting $hot, $enter, $exit, $change,
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
                // The gate waits for a trigger, or calls take the slow path, or there are watched functions.
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
                // The call reached the threshold.
                "23: ldr r1, [r12, #{start}]",
                "adds r1, r1, r3",
                "b {long}",
                // The top of the stack is another function.
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
            $(table: ($($table),*))?
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
        @counting $hot:path, $enter:path, $exit:path, $change:path,
        waiting: [$($waiting:literal),* $(,)?],
        off: $off:literal,
        more: [$($more:literal),* $(,)?],
        ($long_enter:path, $long_exit:path)
        $($operand:ident = const $value:expr),* $(,)?
    ) => {
        $crate::hooks! {
            @tabled $hot, $enter, $exit, $change,
            waiting: [$($waiting),*],
            off: $off,
            more: [$($more),*],
            ($long_enter, $long_exit)
            ($($operand = const $value),*)
            ([
                "30: ldr r4, [r3, #{limit_at}]",
                "cmp r5, r4",
                "bhs 38b",
            ] [])
            ([
                "30: ldr r4, [r3, #{limit_at}]",
                "cmp r5, r4",
                "bhs 38b",
            ] [])
            limit_at = const $crate::LIMIT,
        }
    };
    // With a profile table: `end` is then 0, and `limit` is not. `$recorder` is the recorder, and `$replace` assigns
    // another function's slot to the function of the newest call. The record is written as without a table. The
    // functions that the portable hooks call then update the table, with interrupts still masked.
    //
    // r8 (at an exit r12): the writer; r4: scratch, then the time. The last word pushed is PRIMASK, which also aligns
    // the stack.
    (
        @counting $hot:path, $enter:path, $exit:path, $change:path,
        waiting: [$($waiting:literal),* $(,)?],
        off: $off:literal,
        more: [$($more:literal),* $(,)?],
        ($long_enter:path, $long_exit:path)
        table: ($recorder:path, $replace:path)
        $($operand:ident = const $value:expr),* $(,)?
    ) => {
        $crate::hooks! {
            @tabled $hot, $enter, $exit, $change,
            waiting: [$($waiting),*],
            off: $off,
            more: [$($more),*],
            ($long_enter, $long_exit)
            ($($operand = const $value),*)
            ([
                // The long form.
                "33: cmp r7, #4096",
                "bhs 4f",
                "lsl r7, r10, #15",
                "bfi r7, r4, #3, #12",
                "orr r7, #4",
                "str r7, [r5], #4",
                "b 34f",
                ".p2align 2",
                "36: .word {recorder} + {writer}",
                "30: ldr r4, [r3, #{limit_at}]",
                "cmp r5, r4",
                "bhs 38b",
                "ldr r8, 36b",
                "sub r10, r0, r10",
                "ror r10, r10, r12",
                "ldr r4, [r8, #{promoted}]",
                "eor r12, r0, r0, lsr #5",
                "rors r4, r4, r12",
                "bmi 4f",
                "ldr r4, [r8, #{table}]",
                "cbz r4, 4f",
                "ldr r4, [r4, #{running}]",
                "cbz r4, 4f",
                "ldr r4, [r7]",
                "sub r2, r4, r2",
                "orr r7, r2, r10, lsr #5",
                "cmp r7, #256",
                "bhs 33b",
                "lsl r7, r10, #11",
                "bfi r7, r4, #3, #8",
                "str r7, [r5], #3",
                "34: adds r6, #1",
                "stm r3, {{r4, r5, r6}}",
                "push {{lr}}",
                "bic r1, r0, #1",
                "ldr r0, [r8, #{table}]",
                "ldrd r2, r3, [r8, #{whole_last}]",
                "subs r4, r4, r2",
                "adds r2, r2, r4",
                "adc r3, r3, r4, asr #31",
                "bl {count}",
                "pop {{r3}}",
                "msr PRIMASK, r3",
                "cbnz r0, 35f",
                "pop {{r4-r8, r10, pc}}",
                "35: pop {{r4-r8, r10, lr}}",
                "b {replace}",
            ] [
                count = sym $crate::kymo_recorder::profile::Profile::<$crate::CortexM>::begin,
                replace = sym $replace,
                recorder = sym $recorder,
            ])
            ([
                // The short form. It is less common here, because updating the table takes time.
                "33: adc r7, r4, r4",
                "strb r7, [r5], #1",
                "b 34f",
                ".p2align 2",
                "36: .word {recorder} + {writer}",
                "30: ldr r4, [r3, #{limit_at}]",
                "cmp r5, r4",
                "bhs 38b",
                "push {{lr}}",
                "ldr r12, 36b",
                "ldr r4, [r12, #{promoted}]",
                "eor lr, r0, r0, lsr #5",
                "rors r4, r4, lr",
                "bmi 37f",
                "ldr r4, [r12, #{table}]",
                "cbz r4, 37f",
                "ldr r4, [r4, #{running}]",
                "cbz r4, 37f",
                "ldr r4, [r7]",
                "sub r2, r4, r2",
                "subs r6, #1",
                "blo 37f",
                "rsbs r7, r2, #127",
                "bhs 33b",
                "cmp r2, #8192",
                "bhs 37f",
                "lsl r7, r4, #3",
                "orr r7, #2",
                "strh r7, [r5], #2",
                "34: stm r3, {{r4, r5, r6}}",
                "bic r1, r0, #1",
                "ldr r0, [r12, #{table}]",
                "ldrd r2, r3, [r12, #{whole_last}]",
                "subs r4, r4, r2",
                "adds r2, r2, r4",
                "adc r3, r3, r4, asr #31",
                "bl {count}",
                "pop {{r3}}",
                "msr PRIMASK, r3",
                "pop {{r4-r7, pc}}",
                "37: pop {{lr}}",
            ] [
                count = sym $crate::kymo_recorder::profile::Profile::<$crate::CortexM>::end,
                recorder = sym $recorder,
            ])
            limit_at = const $crate::LIMIT,
            writer = const $crate::kymo_recorder::single::Single::<$crate::CortexM>::WRITER_OFFSET,
            promoted = const $crate::kymo_recorder::Writer::<$crate::CortexM>::PROMOTED_OFFSET,
            table = const $crate::kymo_recorder::Writer::<$crate::CortexM>::TABLE_OFFSET,
            whole_last = const $crate::kymo_recorder::Writer::<$crate::CortexM>::LAST_OFFSET,
            running = const $crate::kymo_recorder::profile::Profile::<$crate::CortexM>::RUNNING_OFFSET,
        }
    };
    (
        @tabled $hot:path, $enter:path, $exit:path, $change:path,
        waiting: [$($waiting:literal),*],
        off: $off:literal,
        more: [$($more:literal),*],
        ($long_enter:path, $long_exit:path)
        ($($operand:ident = const $value:expr),*)
        ([$($enter_table:literal),* $(,)?] [$($enter_name:ident = sym $enter_symbol:path),* $(,)?])
        ([$($exit_table:literal),* $(,)?] [$($exit_name:ident = sym $exit_symbol:path),* $(,)?])
        $($table:ident = const $table_value:expr),* $(,)?
    ) => {
        $crate::hooks! {
            @define $hot, $enter, $exit,
            waiting: [$($waiting),*],
            off: $off,
            more: [$($more),*],
            ($long_enter, $long_exit)
            ($($operand = const $value),*)
            ("30f", [
                // The packet is full, or recording is off. (Five words keep the stack aligned.)
                "38: cmp r4, #0",
                "beq 4f",
                "push {{r0, r1, r2, r3, lr}}",
                "bl {change}",
                "pop {{r0, r1, r2, r3, lr}}",
                "b 39b",
                $($enter_table),*
            ] [change = sym $change, $($enter_name = sym $enter_symbol),*])
            ("30f", [
                // The packet is full, or recording is off. (Five words keep the stack aligned.)
                "38: cmp r4, #0",
                "beq 4f",
                "push {{r0, r1, r2, r3, lr}}",
                "bl {change}",
                "pop {{r0, r1, r2, r3, lr}}",
                "b 39b",
                $($exit_table),*
            ] [change = sym $change, $($exit_name = sym $exit_symbol),*])
            ($($table = const $table_value),*)
            // The stopper's calls take the slow path.
            entry: ["ldr r12, [r3, #{stopper}]", "cmp r0, r12", "beq 6f"],
            enter: ["adds r6, #1", "stm r3, {{r4, r5, r6}}"],
            stopper: ["cmp r0, r12", "beq 6f"],
            exit: "subs r6, #1; blo 7f",
            store: "stm r3, {{r4, r5, r6}}",
            // An exit whose entry is not in this packet: 16 bits of time, 24 bits of the number. It is stored as a word
            // whose last byte is unused. The depth is unchanged.
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
            ("4f", [] [])
            ("4f", [] [])
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
        ($enter_full:literal, [$($enter_table:literal),* $(,)?] [$($enter_name:ident = sym $enter_symbol:path),* $(,)?])
        ($exit_full:literal, [$($exit_table:literal),* $(,)?] [$($exit_name:ident = sym $exit_symbol:path),* $(,)?])
        ($($table:ident = const $table_value:expr),*)
        entry: [$($entry:literal),*],
        enter: [$($commit:literal),*],
        stopper: [$($stopper:literal),*],
        exit: $depth:literal,
        store: $store:literal,
        named: [$($name:literal),* $(,)?],
    ) => {
        /// Called by the compiler at the entry of every function, with `-finstrument-functions`.
        ///
        /// r0: function; r1: call site; r2: the gate's word, then the last time; r3: the `Hot`; r4: the time; r5: at;
        /// r6: depth; r7: the counter's address, then the value to store; r8: end; r10: the text base, then the number;
        /// r12: the trigger, then the stopper, then the shift; lr: PRIMASK. (Not r9: in some images it is reserved for
        /// the platform.)
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
                "39: ldm r3, {{r2, r5, r6, r7, r8, r10, r12}}",
                "cmp r5, r8",
                concat!("bhs ", $enter_full),
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
                // The gate waits for a trigger.
                $($waiting,)*
                // The long form: 12 bits of time, 17 of the number.
                "3: cmp r7, #4096",
                "bhs 4f",
                "lsl r7, r10, #15",
                "bfi r7, r4, #3, #12",
                "orr r7, #4",
                "str r7, [r5], #4",
                "b 5b",
                $($enter_table,)*
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
                $($table = const $table_value,)*
                $($enter_name = sym $enter_symbol,)*
            )
        }

        /// Called by the compiler at every return.
        ///
        /// Registers are used as in [`__cyg_profile_func_enter`], except r12: the stopper, then the end.
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
                "39: ldm r3, {{r2, r5, r6, r7, r12}}",
                "cmp r5, r12",
                concat!("bhs ", $exit_full),
                "ldr r4, [r7]",
                "sub r2, r4, r2",
                $depth,
                // The carry is set if there is no borrow.
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
                $($exit_table,)*
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
                $($table = const $table_value,)*
                $($exit_name = sym $exit_symbol,)*
            )
        }
    };
}

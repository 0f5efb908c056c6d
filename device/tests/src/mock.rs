//! Mock processors.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use kymo_recorder::Target;
use kymo_recorder::conditions::Conditions;
use kymo_recorder::config::{CONFIG_VERSION, Config};
use kymo_recorder::hot::Hot;
use kymo_recorder::link::Link;
use kymo_recorder::single::SinglePort;
use kymo_recorder::threads::ThreadPort;
use kymo_wire::event::{ByteOrder, Layout, Shape, WordSize};

/// Fictitious address of a mock's counter.
const COUNTER: *const u32 = std::ptr::without_provenance(4);

/// The tested layouts, as types.
pub trait Layouts {
    /// The layout.
    const LAYOUT: Layout;
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident: $shape:ident $word:ident $order:ident $shift:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;
        impl Layouts for $name {
            const LAYOUT: Layout = Layout {
                shape: Shape::$shape,
                word: WordSize::$word,
                order: ByteOrder::$order,
                function_shift: $shift,
            };
        }
    )*};
}

/// The layouts.
pub mod layout {
    use super::*;
    layouts! {
        /// A Cortex-M.
        Small: Compact Bits32 Little 1;
        /// A 32-bit PowerPC.
        SmallBig: Compact Bits32 Big 2;
        /// A PC.
        Large: Wide Bits64 Little 0;
        /// A 64-bit big-endian machine.
        LargeBig: Wide Bits64 Big 2;
    }
}

/// Callback that preempts when the recorder calls the port.
pub type Preempt = Box<dyn FnMut(&'static str)>;

/// Mock processor: its counter advances by `step` per reading, and an "interrupt" can preempt wherever the recorder
/// calls the port and interrupts are not masked.
pub struct Mock<L> {
    /// The full time; the counter has its low part.
    pub time: Cell<u64>,
    /// Period of the counter in ticks; 0: there is no counter.
    pub wrap: Cell<u64>,
    /// Ticks that pass at each reading.
    pub step: Cell<u64>,
    /// Nesting depth of interrupt masking.
    pub masked: Cell<usize>,
    /// Called at `mask` (before it masks), `unmask` (after it unmasks); and at `counter` like an NMI, masked or not.
    pub preempt: RefCell<Option<Preempt>>,
    link: Link,
    layout: PhantomData<L>,
}

impl<L> Default for Mock<L> {
    fn default() -> Self {
        Self {
            time: Cell::new(1000),
            wrap: Cell::new(1 << 32),
            step: Cell::new(1),
            masked: Cell::new(0),
            preempt: RefCell::new(None),
            link: Link::new(),
            layout: PhantomData,
        }
    }
}

impl<L> std::fmt::Debug for Mock<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mock").finish_non_exhaustive()
    }
}

impl<L> Mock<L> {
    /// Calls the preempting callback, unless it is already running.
    fn struck(&self, place: &'static str) {
        let preempt = self.preempt.borrow_mut().take();
        if let Some(mut preempt) = preempt {
            preempt(place);
            let mut back = self.preempt.borrow_mut();
            if back.is_none() {
                *back = Some(preempt);
            }
        }
    }
}

impl<L> Mock<L> {
    /// Advances the time, and returns the counter.
    fn count(&self) -> u32 {
        self.struck("counter");
        self.time.set(self.time.get() + self.step.get());
        (self.time.get() % self.wrap.get()) as u32
    }
}

impl<L: Layouts> Target for Mock<L> {
    const LAYOUT: Layout = L::LAYOUT;
}

impl<L: Layouts> SinglePort for Mock<L> {
    fn link(&self) -> &Link {
        &self.link
    }

    fn mask(&self) -> usize {
        if self.masked.get() == 0 {
            self.struck("mask");
        }
        self.masked.replace(self.masked.get() + 1)
    }

    fn unmask(&self, was: usize) {
        self.masked.set(was);
        if was == 0 {
            self.struck("unmask");
        }
    }

    fn find_counter(&self) -> Option<u32> {
        let wrap = Some(self.wrap.get()).filter(|wrap| *wrap != 0)?;
        Some(wrap as u32)
    }

    fn counter_address(&self) -> Option<*const u32> {
        Some(COUNTER)
    }

    unsafe fn read(&self, counter: *const u32) -> u32 {
        assert_eq!(counter, COUNTER);
        self.count()
    }

    fn counter(&self) -> u32 {
        assert_ne!(
            self.masked.get(),
            0,
            "the clock is read with interrupts masked"
        );
        self.count()
    }
}

/// A thread of a process: signals preempt before and after each reading of the clock.
impl<L: Layouts + 'static> ThreadPort for Mock<L> {
    fn now(&self) -> u64 {
        self.struck("before");
        self.time.set(self.time.get() + self.step.get());
        let now = self.time.get();
        self.struck("after");
        now
    }

    fn fenced(&self) -> bool {
        self.struck("inside");
        true
    }
}

/// A gate and a cursor at a fixed address.
pub fn hot() -> &'static Hot {
    let place = Box::leak(Box::new(MaybeUninit::uninit()));
    let this: *const Hot = place.as_ptr();
    place.write(Hot::with(this, leak(Conditions::new())))
}

/// Leaks a value.
pub fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// A configuration with a buffer of `packets` packets of `packet_size` bytes, text from 0x1000 on,
/// and the port's own clock at 1 MHz.
pub fn config(packets: u32, packet_size: u32) -> Config {
    let words = |bytes: u32| Box::leak(vec![0u64; bytes as usize / 8].into_boxed_slice());
    Config {
        version: CONFIG_VERSION,
        buffer: words(packets * packet_size).as_mut_ptr().cast(),
        buffer_size: packets * packet_size,
        packet_size,
        metadata: words(1024).as_mut_ptr().cast(),
        metadata_size: 1024,
        text_base: std::ptr::without_provenance(0x1000),
        clock_hz: 1_000_000,
        ..Config::EMPTY
    }
}

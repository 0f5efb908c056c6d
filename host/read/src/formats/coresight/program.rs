//! Traced code: maps addresses to functions and address spaces, and contexts to threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::given::{GivenSymbols, contents};
use super::unit::ProcessOf;
use kymo_coresight::Protocol;
use kymo_coresight::calls::{Place, Program};
use kymo_coresight::element::{Context, Range};
use kymo_coresight::exception::Exceptions;
use kymo_coresight::instruction::{returns_from_exception, waits_for_interrupt};
use kymo_coresight::isa::Isa;
use kymo_coresight::memory::{Image, Layout, Memory, MemorySpace, View};
use kymo_event::Addr;
use kymo_symbols::Symbols;

/// Address space of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Room {
    /// The only program of a machine.
    Machine,
    /// The kernel.
    Kernel,
    /// Program that a process runs, up to its end or its next exec.
    Process {
        /// Process id.
        process: u32,
        /// Number of the program in the recording's memory.
        program: u32,
    },
}

/// Name of the function that represents instructions whose path is unknown, and whose number is known.
pub(super) const UNKNOWN_PATH: &str = "[unknown path]";

/// New function.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub room: Room,
    /// Start address; `None` for functions that represent missing code, or instructions whose path is unknown.
    pub address: Option<u64>,
    /// Size in bytes, if known.
    pub bytes: Option<u64>,
    pub name: Option<Box<str>>,
    /// File that contains it.
    pub file: Option<Arc<str>>,
    /// Memory that contains it.
    pub memory: Memory,
    /// View of the program at that time.
    pub view: View,
}

/// New code without symbols: of one file in one address space.
#[derive(Debug)]
pub(super) struct Unknown {
    /// Key that is the same for all sources: the space, and the contents of the file.
    pub key: (Room, usize),
    /// Common properties of its functions, without their addresses.
    pub functions: Definition,
}

/// Symbols of all files, read on first use and shared by all sources.
pub(super) struct Binaries {
    /// By name and memory address of a file's contents, which live as long as this cache.
    known: Mutex<Known>,
    /// Symbols of the kernel at its run-time addresses.
    kernel: Option<Symbols>,
    /// Symbol files that the user gave.
    given: GivenSymbols,
}

type Known = HashMap<(String, usize), Option<Arc<Binary>>>;

/// ELF file.
#[derive(Debug)]
struct Binary {
    layout: Layout,
    symbols: Symbols,
}

impl Binaries {
    /// Creates the cache. `kernel` are the kernel's symbols in its own format.
    pub fn new(kernel: Option<Vec<u8>>, given: GivenSymbols) -> Self {
        let kernel = kernel.and_then(|text| {
            let text = String::from_utf8_lossy(&text);
            Symbols::from_text(&text).ok()
        });
        Binaries {
            known: Mutex::default(),
            kernel,
            given,
        }
    }

    fn of(&self, image: &Image) -> Option<Arc<Binary>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (image.name.clone(), contents(image));
        if let Some(known) = known.get(&key) {
            return known.clone();
        }
        let file = image.bytes.file();
        let binary = Layout::of_elf(file).and_then(|layout| {
            // A file with the names comes first: one without them has those of a library's interface.
            let symbols = self.given.linked(image);
            match Symbols::from_elf(Arc::clone(file)) {
                Ok(own) => symbols.merge(own),
                Err(_) if symbols.is_empty() => return None,
                Err(_) => {}
            }
            Some(Arc::new(Binary { layout, symbols }))
        });
        known.insert(key, binary.clone());
        binary
    }
}

/// Determines the running thread of a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads {
    pub protocol: Protocol,
    /// Thread of the whole buffer.
    pub always: Option<u32>,
    /// Thread according to the kernel's schedule, if the trace does not have threads.
    pub scheduled: Option<Option<u32>>,
}

/// Unknown thread.
pub(super) const NO_THREAD: u32 = u32::MAX;

/// Code that one source's core ran.
pub(super) struct Code<'a> {
    pub memory: &'a Memory,
    view: View,
    binaries: &'a Binaries,
    pub threads: Option<Threads>,
    /// Returns the process of each thread, if the trace is of processes.
    process_of: Option<&'a ProcessOf>,
    /// Program that each process ran last.
    programs: HashMap<u32, u32>,
    /// Functions by start address and file contents.
    functions: HashMap<(Room, u64, usize), u32>,
    /// Code without symbols, by file contents.
    unknown: HashMap<(Room, usize), u32>,
    /// Functions that represent code without a known address, by their names.
    nameless: HashMap<(Room, Box<str>), u32>,
    files: HashMap<Box<str>, Arc<str>>,
    /// For each block, whether it waits for interrupts.
    waits: Vec<Option<bool>>,
    /// For each block, whether it returns from an exception.
    returns: Vec<Option<bool>>,
    count: u32,
    /// Functions that were not reported yet.
    pub new: Vec<Definition>,
    /// Code without symbols that was not reported yet.
    pub new_unknown: Vec<Unknown>,
    /// Number of processes with memory, if the running one was not always known.
    pub of_any: usize,
}

impl<'a> Code<'a> {
    pub fn new(
        memory: &'a Memory,
        binaries: &'a Binaries,
        process_of: Option<&'a ProcessOf>,
    ) -> Self {
        Code {
            memory,
            view: View::default(),
            binaries,
            threads: None,
            process_of,
            programs: HashMap::new(),
            functions: HashMap::new(),
            unknown: HashMap::new(),
            nameless: HashMap::new(),
            files: HashMap::new(),
            waits: Vec::new(),
            returns: Vec::new(),
            count: 0,
            new: Vec::new(),
            new_unknown: Vec::new(),
            of_any: 0,
        }
    }

    /// Switches to the memory of another part, in which blocks have other numbers.
    pub fn enter(&mut self, memory: &'a Memory, threads: Option<Threads>) {
        (self.memory, self.threads) = (memory, threads);
        self.waits.clear();
        self.returns.clear();
    }

    /// Returns whether a range waits for interrupts (WFI).
    #[inline]
    pub fn waits(&mut self, range: &Range) -> bool {
        let Some(block) = range.block else {
            return self.looks_for_wait(range);
        };
        let index = block as usize;
        match self.waits.get(index) {
            Some(Some(known)) => *known,
            _ => {
                let waits = self.looks_for_wait(range);
                if index >= self.waits.len() {
                    self.waits.resize(index + 1, None);
                }
                self.waits[index] = Some(waits);
                waits
            }
        }
    }

    #[cold]
    fn looks_for_wait(&self, range: &Range) -> bool {
        let bytes = self
            .memory
            .seen(self.view)
            .at(MemorySpace::ANY, range.start);
        let length = usize::try_from(range.end.wrapping_sub(range.start));
        let all = bytes.unwrap_or_default();
        let length = length.unwrap_or(usize::MAX).min(all.len());
        waits_for_interrupt(range.isa, &all[..length])
    }

    /// Switches to another view of memory. Returns whether the running process has another program now.
    pub fn see(&mut self, view: View) -> bool {
        self.view = view;
        if view.is_any() && self.memory.processes() > 1 {
            self.of_any = self.memory.processes();
        }
        let Some(process) = self.memory.process(view) else {
            return false;
        };
        let before = self.programs.insert(process, view.program());
        before.is_some_and(|before| before != view.program())
    }

    fn room(&self, context: &Context, address: u64) -> Room {
        let Some(process_of) = self.process_of else {
            return Room::Machine;
        };
        // Linux has the kernel in the upper half of 64 bits, and above 3 GiB of 32 bits.
        let is_kernel = address >> 63 == 1 || address >> 32 == 0 && address >= 0xc000_0000;
        if is_kernel {
            return Room::Kernel;
        }
        let thread = self.tid(context);
        let process = self.memory.process(self.view);
        let process = process.or_else(|| Some(process_of(thread?)));
        Room::Process {
            process: process.unwrap_or(NO_THREAD),
            program: self.view.program(),
        }
    }

    fn tid(&self, context: &Context) -> Option<u32> {
        let threads = self.threads.as_ref()?;
        // Context IDs may be of another PID namespace than the recording's.
        match threads.scheduled {
            Some(thread) => thread,
            None => threads
                .always
                .or_else(|| threads.protocol.thread_of(context)),
        }
    }

    /// Returns the function that represents all code of a missing file.
    fn missing(&mut self, context: &Context, address: u64) -> Place {
        let room = self.room(context, address);
        let file = self.memory.name_at(self.view, address);
        let file = file.map(|path| path.rsplit('/').next().unwrap_or(path));
        self.nameless(
            room,
            match file {
                Some(file) => format!("[no code of {file}]"),
                None => "[no code]".to_owned(),
            },
        )
    }

    /// Returns a function that represents code without a known address.
    fn nameless(&mut self, room: Room, name: String) -> Place {
        let key = (room, Box::from(name));
        let function = match self.nameless.get(&key) {
            Some(known) => *known,
            None => {
                let id = self.define(room, None, Some(key.1.clone()), None);
                self.nameless.insert(key, id);
                id
            }
        };
        Place::Function {
            function,
            is_start: false,
        }
    }

    fn define(
        &mut self,
        room: Room,
        address: Option<u64>,
        name: Option<Box<str>>,
        file: Option<Arc<str>>,
    ) -> u32 {
        let definition = self.definition(room, address, name, file);
        self.new.push(definition);
        self.count += 1;
        self.count - 1
    }

    fn definition(
        &self,
        room: Room,
        address: Option<u64>,
        name: Option<Box<str>>,
        file: Option<Arc<str>>,
    ) -> Definition {
        Definition {
            room,
            address,
            bytes: None,
            name,
            file,
            memory: self.memory.clone(),
            view: self.view,
        }
    }

    /// Returns the place of code without known functions.
    fn unknown(&mut self, room: Room, image: &Image) -> Place {
        let key = (room, contents(image));
        let next = u32::try_from(self.unknown.len()).unwrap_or(u32::MAX);
        let code = *self.unknown.entry(key).or_insert(next);
        if code == next {
            let file = self.file(&image.name);
            let functions = self.definition(room, None, None, Some(file));
            self.new_unknown.push(Unknown { key, functions });
        }
        Place::Unknown { code }
    }

    /// Interns a file's name.
    fn file(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.files.get(name) {
            return Arc::clone(known);
        }
        let file: Arc<str> = name.into();
        self.files.insert(name.into(), Arc::clone(&file));
        file
    }

    fn image(&self, context: &Context, address: u64) -> Option<&'a Image> {
        self.memory.find(self.view, context.space(), address)
    }
}

impl Program for Code<'_> {
    fn place(&mut self, context: &Context, address: u64) -> Place {
        let Some(image) = self.image(context, address) else {
            return self.missing(context, address);
        };
        let room = self.room(context, address);
        let binary = self.binaries.of(image);
        let offset = image.file_offset.wrapping_add(address - image.address);
        let own = binary.as_deref().and_then(|binary| {
            let linked = binary.layout.address_of(offset)?;
            let mut function = binary.symbols.function_at(Addr(linked))?;
            // Code that a compiler moved out of a function belongs to it.
            if let Some(parent) = function.raw_name().strip_suffix(".cold")
                && let [only] = binary.symbols.by_name(parent).as_slice()
            {
                function = *only;
            }
            Some((function, linked))
        });
        let listed = || {
            let function = match room {
                Room::Machine => {
                    let given = &self.binaries.given;
                    given.function_at(Some(image.into()), Addr(address))
                }
                Room::Kernel => self.binaries.kernel.as_ref()?.function_at(Addr(address)),
                Room::Process { .. } => None,
            };
            Some((function?, address))
        };
        let Some((function, linked)) = own.or_else(listed) else {
            return self.unknown(room, image);
        };
        let start = address
            .wrapping_sub(linked)
            .wrapping_add(function.address().0);
        let key = (room, start, contents(image));
        let function = match self.functions.get(&key) {
            Some(known) => *known,
            None => {
                let file = self.file(&image.name);
                let id = self.define(room, Some(start), Some(function.name().into()), Some(file));
                if let Some(new) = self.new.last_mut() {
                    new.bytes = function.end().0.checked_sub(function.address().0);
                }
                self.functions.insert(key, id);
                id
            }
        };
        Place::Function {
            function,
            is_start: start == address,
        }
    }

    fn unknown_path(&mut self, context: &Context) -> Option<Place> {
        let room = self.room(context, 0);
        Some(self.nameless(room, UNKNOWN_PATH.to_owned()))
    }

    fn thread(&mut self, context: &Context) -> u32 {
        self.tid(context).unwrap_or(NO_THREAD)
    }

    /// Before Armv5T a call through a pointer is `mov lr, pc` followed by a branch.
    fn is_call(&mut self, range: &Range) -> bool {
        if range.isa != Isa::A32 || range.count < 2 {
            return false;
        }
        let memory = self.memory.seen(self.view);
        let before = memory.at(MemorySpace::ANY, range.end.wrapping_sub(8));
        let before = before.and_then(|bytes| bytes.first_chunk());
        before.is_some_and(|word| u32::from_le_bytes(*word) & 0x0fff_ffff == 0x01a0_e00f)
    }

    /// Only on a machine without processes, where it can switch tasks. A kernel also enters its handlers so.
    fn returns_from_exception(&mut self, range: &Range) -> bool {
        if self.process_of.is_some() || range.last.size != 4 {
            return false;
        }
        let index = range.block.map(|block| block as usize);
        if let Some(Some(Some(known))) = index.map(|index| self.returns.get(index)) {
            return *known;
        }
        let threads = self.threads.as_ref();
        let exceptions = threads.and_then(|it| Exceptions::of(&it.protocol));
        let is_m_profile = exceptions.is_some_and(Exceptions::is_m_profile);
        let bytes = |length: u64| {
            let memory = self.memory.seen(self.view);
            let bytes = memory.at(MemorySpace::ANY, range.end.wrapping_sub(length))?;
            bytes.get(..length as usize)
        };
        let returns = !is_m_profile
            && bytes(8)
                .or_else(|| bytes(4))
                .is_some_and(|bytes| returns_from_exception(range.isa, bytes));
        if let Some(index) = index {
            if index >= self.returns.len() {
                self.returns.resize(index + 1, None);
            }
            self.returns[index] = Some(returns);
        }
        returns
    }

    fn is_exception_return(&mut self, address: u64) -> bool {
        let threads = self.threads.as_ref();
        let exceptions = threads.and_then(|it| Exceptions::of(&it.protocol));
        // EXC_RETURN (Arm DDI 0553, B3.22).
        (0xffff_ff80..=0xffff_ffff).contains(&address)
            && exceptions.is_some_and(Exceptions::is_m_profile)
    }

    /// On a core of a system with threads, a reset may be a wake-up: its running code continues.
    fn is_reset(&mut self, context: &Context, number: u32) -> bool {
        let threads = self.threads.as_ref();
        let exceptions = threads.and_then(|it| Exceptions::of(&it.protocol));
        exceptions.is_some_and(|it| it.is_reset(number)) && self.tid(context).is_none()
    }
}

#[cfg(test)]
mod tests {
    use kymo_coresight::element::Last;
    use kymo_coresight::instruction::{Class, Purpose};

    use super::*;

    /// A machine's memory with these instructions at 0x8000.
    fn memory(words: &[u32]) -> Memory {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut memory = Memory::default();
        memory.add(Image {
            name: "code".to_owned(),
            address: 0x8000,
            file_offset: 0,
            bytes: bytes.into(),
            space: MemorySpace::ANY,
        });
        memory
    }

    fn range(start: u64, end: u64, isa: Isa) -> Range {
        Range {
            start,
            end,
            count: ((end - start) / 4) as u32,
            isa,
            is_taken: true,
            last: Last {
                size: 4,
                class: Class::Indirect,
                purpose: Purpose::None,
                is_conditional: false,
                may_be_skipped: false,
            },
            block: None,
            cycles: None,
            has_no_opcode: false,
        }
    }

    #[test]
    fn a_branch_behind_a_copy_of_the_program_counter_to_lr_is_a_call() {
        // mov lr, pc; ldr pc, [r3]; ldr pc, [r3]
        let memory = memory(&[0xe1a0_e00f, 0xe593_f000, 0xe593_f000]);
        let binaries = Binaries::new(None, GivenSymbols::default());
        let mut code = Code::new(&memory, &binaries, None);
        assert!(code.is_call(&range(0x8000, 0x8008, Isa::A32)));
        assert!(!code.is_call(&range(0x8000, 0x800c, Isa::A32)));
        assert!(!code.is_call(&range(0x8000, 0x8008, Isa::A64)));
        // The copy is not of the run.
        assert!(!code.is_call(&range(0x8004, 0x8008, Isa::A32)));
    }

    #[test]
    fn exceptions_end_by_their_instructions_on_a_machine_without_processes() {
        // rfeia sp!; mov r0, sp; subs pc, lr, #4; ldr pc, [r3]
        let memory = memory(&[0xf8bd_0a00, 0xe1a0_000d, 0xe25e_f004, 0xe593_f000]);
        let binaries = Binaries::new(None, GivenSymbols::default());
        let mut code = Code::new(&memory, &binaries, None);
        assert!(code.returns_from_exception(&range(0x8000, 0x8004, Isa::A32)));
        assert!(code.returns_from_exception(&range(0x8004, 0x800c, Isa::A32)));
        assert!(!code.returns_from_exception(&range(0x800c, 0x8010, Isa::A32)));
        let process = |thread: u32| thread;
        let mut code = Code::new(&memory, &binaries, Some(&process));
        assert!(!code.returns_from_exception(&range(0x8000, 0x8004, Isa::A32)));
    }
}

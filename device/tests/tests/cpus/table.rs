//! Profile tables of several CPUs with threads that migrate, against counters of the simulated program, to the tick.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use kymo_device_tests::{Host, Random, config};
use kymo_recorder::config::{Config, START_ON};
use kymo_recorder::{Event, Target};
use kymo_wire::profile::{Entry, TableCpu, TableHeader};

use super::device::{CPUS, Device, Line, Machine, PLACE, TIME, figure};

/// Sizes of the tables: slots of each CPU, stacks besides those of interrupts, frames.
#[derive(Clone, Copy)]
struct Sizes {
    slots: u32,
    threads: u32,
    depth: u32,
}

const LARGE: Sizes = Sizes {
    slots: 32,
    threads: 16,
    depth: 40,
};

fn device(sizes: Sizes) -> Device {
    Device::with(config_of(sizes))
}

fn config_of(sizes: Sizes) -> Config {
    let Sizes {
        slots,
        threads,
        depth,
    } = sizes;
    let cpus = u32::from(CPUS);
    let lines = |bytes: u32| {
        let lines = vec![Line([0; 128]); bytes.div_ceil(128) as usize].leak();
        lines.as_mut_ptr().cast()
    };
    Config {
        flags: START_ON,
        cpu_count: cpus,
        slots: lines(cpus * slots * 48),
        slot_count: slots,
        frames: lines((cpus + threads) * depth * 32),
        shadow_stacks: cpus + threads,
        shadow_depth: depth,
        ..config(16, 1024)
    }
}

/// The tables as a host receives them: of each CPU, the header and the entries by function.
type Tables = Vec<(TableHeader, BTreeMap<u64, Entry>)>;

fn tables_in(mut dump: &[u8]) -> Tables {
    let mut tables = Vec::new();
    while !dump.is_empty() {
        let header = TableHeader::read(dump).expect("a header");
        let cpu = TableCpu::read(dump).expect("the header of one CPU's");
        let number = tables.len() as u16;
        assert_eq!(cpu, TableCpu { number, cpus: CPUS });
        let word = Machine::LAYOUT.word;
        let (entries, rest) =
            dump[TableHeader::CPU_BYTES..].split_at(header.entries as usize * Entry::bytes(word));
        let entries = entries.chunks_exact(Entry::bytes(word)).map(|bytes| {
            let entry = Entry::read(bytes, word, header.order).expect("an entry");
            (entry.address, entry)
        });
        tables.push((header, entries.collect()));
        dump = rest;
    }
    assert_eq!(tables.len(), CPUS.into());
    tables
}

fn ask(device: Device) -> Vec<u8> {
    device.talk(&Host::command(1, "dump_profile")).dump()
}

fn done(device: Device) {
    device.talk(&Host::command(2, "done"));
}

fn tables(device: Device) -> Tables {
    let dump = ask(device);
    done(device);
    tables_in(&dump)
}

fn sum(tables: &Tables, number: impl Fn(&TableHeader) -> u64) -> u64 {
    tables.iter().map(|(header, _)| number(header)).sum()
}

/// An open call: function, time in which its thread had a processor, time of its callees.
type Open = (usize, u64, u64);

/// A thread, with its own record of its calls.
#[derive(Default)]
struct Thread {
    number: usize,
    open: Vec<Open>,
}

/// A CPU, with its own record of the calls that ended on it.
struct Cpu {
    device: Device,
    thread: Option<Thread>,
    /// Open calls of each active interrupt.
    interrupts: Vec<Vec<Open>>,
    /// Time of its last event.
    last: u64,
    ended: BTreeMap<u64, Entry>,
    /// Whether calls that end have no slot, because the table is being read; and how many did.
    is_read: bool,
    uncounted: u64,
}

impl Cpu {
    fn new(device: Device) -> Self {
        Self {
            device,
            thread: None,
            interrupts: Vec::new(),
            last: 0,
            ended: BTreeMap::new(),
            is_read: false,
            uncounted: 0,
        }
    }

    fn running(&mut self) -> Option<&mut Vec<Open>> {
        match self.interrupts.last_mut() {
            Some(handler) => Some(handler),
            None => Some(&mut self.thread.as_mut()?.open),
        }
    }

    /// Lets time pass until the event that was just recorded.
    fn pass(&mut self) {
        let passed = TIME.get() - std::mem::replace(&mut self.last, TIME.get());
        for (_, time, _) in self.running().into_iter().flatten() {
            *time += passed;
        }
    }

    fn hook(&mut self, event: Event) {
        self.device.cpus.hook(self.device.gate, event);
        self.pass();
    }

    fn switch_in(&mut self, thread: Thread) {
        self.hook(Event::SwitchedIn(thread.number));
        assert!(self.thread.replace(thread).is_none());
    }

    fn switch_out(&mut self) -> Option<Thread> {
        let number = self.thread.as_ref()?.number;
        self.hook(Event::SwitchedOut(number));
        self.thread.take()
    }

    fn enter(&mut self, function: usize) {
        self.device.enter(function);
        self.pass();
        let running = self.running().expect("something runs");
        running.push((function, 0, 0));
    }

    fn exit(&mut self) {
        let running = self.running().expect("something runs");
        let Some(&(function, _, _)) = running.last() else {
            return;
        };
        self.device.exit(function);
        self.pass();
        let running = self.running().expect("something runs");
        let (_, time, callees) = running.pop().expect("it was there");
        if let Some(caller) = running.last_mut() {
            caller.2 += time;
        }
        let again = running.iter().any(|open| open.0 == function);
        if self.is_read {
            self.uncounted += 1;
            return;
        }
        let entry = self.ended.entry(function as u64).or_insert(Entry {
            address: function as u64,
            min: u64::MAX,
            ..Entry::default()
        });
        entry.count += 1;
        entry.total += if again { 0 } else { time };
        entry.self_time += time - callees;
        entry.min = entry.min.min(time);
        entry.max = entry.max.max(time);
        entry.recursive |= again;
    }

    fn interrupt(&mut self, irq: u16) {
        self.hook(Event::IsrEnter(irq));
        self.interrupts.push(Vec::new());
    }

    fn end_interrupt(&mut self, irq: u16) {
        while self.interrupts.last().is_some_and(|open| !open.is_empty()) {
            self.exit();
        }
        self.hook(Event::IsrExit(irq));
        self.interrupts.pop();
    }

    /// Ends all that is open in the thread.
    fn finish(&mut self) {
        while !self.interrupts.is_empty() {
            self.end_interrupt(self.interrupts.len() as u16);
        }
        while self.thread.as_ref().is_some_and(|it| !it.open.is_empty()) {
            self.exit();
        }
    }

    /// Some work: calls of a few functions, nested and recursive, and interrupts, which nest.
    fn work(&mut self, random: &mut Random, steps: u32) {
        for _ in 0..steps {
            let function = 0x1000 + 16 * random.below(12) as usize;
            let depth = self.running().map_or(0, |open| open.len());
            match random.below(20) {
                0..8 if depth < 20 => self.enter(function),
                0..16 => self.exit(),
                16..18 if self.interrupts.len() < 3 => {
                    self.interrupt(self.interrupts.len() as u16 + 1);
                }
                _ if !self.interrupts.is_empty() => {
                    self.end_interrupt(self.interrupts.len() as u16);
                }
                _ => self.device.marker(1),
            }
        }
        while !self.interrupts.is_empty() {
            self.end_interrupt(self.interrupts.len() as u16);
        }
    }
}

/// The registers of several CPUs, of which this thread is one at a time.
fn registers(device: Device) -> Vec<*const ()> {
    let start = |cpu| {
        assert!(device.start(cpu));
        PLACE.get()
    };
    (0..CPUS).map(start).collect()
}

/// Runs threads on all CPUs in turns, for so many turns of a CPU; `at` is called before each.
fn take_turns(
    device: Device,
    random: &mut Random,
    threads: usize,
    turns: u32,
    mut at: impl FnMut(u32, &mut [Cpu]),
) -> Vec<Cpu> {
    let registers = registers(device);
    let mut cpus: Vec<Cpu> = registers.iter().map(|_| Cpu::new(device)).collect();
    let mut ready: VecDeque<Thread> = (1..=threads)
        .map(|number| Thread {
            number,
            open: Vec::new(),
        })
        .collect();
    for turn in 0..turns {
        at(turn, &mut cpus);
        let n = random.below(CPUS.into()) as usize;
        PLACE.set(registers[n]);
        let cpu = &mut cpus[n];
        if random.below(3) > 0
            && let Some(thread) = cpu.switch_out()
        {
            ready.push_back(thread);
        }
        if cpu.thread.is_none() {
            let next = random.below(ready.len() as u64) as usize;
            cpu.switch_in(ready.remove(next).expect("it is ready"));
        }
        cpu.work(random, 12);
    }
    // All calls end, wherever that is.
    for (n, cpu) in cpus.iter_mut().enumerate() {
        PLACE.set(registers[n]);
        cpu.finish();
        cpu.switch_out();
    }
    PLACE.set(registers[1]);
    for thread in ready {
        cpus[1].switch_in(thread);
        cpus[1].finish();
        cpus[1].switch_out();
    }
    cpus
}

/// Fails unless each CPU's table has exactly the calls that ended there.
fn compare(tables: &Tables, cpus: &[Cpu]) {
    for (n, ((_, entries), cpu)) in tables.iter().zip(cpus).enumerate() {
        assert_eq!(entries, &cpu.ended, "CPU {n}");
    }
    assert_eq!(
        sum(tables, |it| it.too_deep + it.unmatched + it.replaced),
        0
    );
}

#[test]
fn calls_of_threads_that_migrate_count_where_they_end() {
    let device = device(LARGE);
    let mut random = Random::new(1);
    let cpus = take_turns(device, &mut random, 9, 3000, |_, _| {});
    let tables = tables(device);
    compare(&tables, &cpus);
    assert_eq!(sum(&tables, |it| it.no_slot), 0);
    let all = || cpus.iter().flat_map(|cpu| cpu.ended.values());
    assert!(all().map(|entry| entry.count).sum::<u32>() > 5000);
    assert!(all().filter(|entry| entry.recursive).count() > 10);
    assert!(tables.iter().all(|(header, _)| header.recorded > 10_000));
}

/// Calls that end while tables are read are counted as ones without a slot; those that stay open are right.
#[test]
fn calls_keep_their_times_while_tables_are_read() {
    let device = device(LARGE);
    let mut random = Random::new(2);
    let mut reads = 0;
    let cpus = take_turns(device, &mut random, 9, 3000, |turn, cpus| {
        match turn % 100 {
            50 => {
                let dump = ask(device);
                compare(&tables_in(&dump), cpus);
                reads += 1;
            }
            70 => done(device),
            _ => {}
        }
        for cpu in cpus {
            cpu.is_read = (50..70).contains(&(turn % 100));
        }
    });
    let tables = tables(device);
    compare(&tables, &cpus);
    for ((header, _), cpu) in tables.iter().zip(&cpus) {
        assert_eq!(header.no_slot, cpu.uncounted);
        assert!(cpu.uncounted > 100);
    }
    assert_eq!(reads, 30);
}

#[test]
fn threads_migrate_between_cpus_that_run_at_once() {
    const TURNS: u32 = 400;
    let device = device(LARGE);
    let ready: Mutex<VecDeque<Thread>> = Mutex::new(
        (1..=9)
            .map(|number| Thread {
                number,
                open: Vec::new(),
            })
            .collect(),
    );
    let found = Mutex::new(BTreeMap::new());
    device.run(|number| {
        let mut random = Random::new(u64::from(number) + 10);
        let mut cpu = Cpu::new(device);
        for turn in 0..=TURNS {
            let next = {
                let mut ready = ready.lock().unwrap();
                let n = random.below(ready.len() as u64) as usize;
                ready.remove(n).expect("it is ready")
            };
            cpu.switch_in(next);
            if turn == TURNS {
                cpu.finish();
            } else {
                cpu.work(&mut random, 20);
            }
            let last = cpu.switch_out().expect("it ran");
            ready.lock().unwrap().push_back(last);
        }
        found.lock().unwrap().insert(number, cpu);
    });
    let mut cpus: Vec<Cpu> = found.into_inner().unwrap().into_values().collect();
    assert!(device.start(0));
    for thread in ready.into_inner().unwrap() {
        cpus[0].switch_in(thread);
        cpus[0].finish();
        cpus[0].switch_out();
    }
    let tables = tables(device);
    compare(&tables, &cpus);
    assert_eq!(sum(&tables, |it| it.no_slot), 0);
    let counts = cpus.iter().flat_map(|cpu| cpu.ended.values());
    assert!(counts.map(|entry| entry.count).sum::<u32>() > 5000);
}

#[test]
fn what_does_not_fit_is_counted() {
    for (sizes, fits) in [
        (
            Sizes {
                slots: 4,
                threads: 24,
                ..LARGE
            },
            true,
        ),
        (
            Sizes {
                threads: 6,
                depth: 12,
                ..LARGE
            },
            false,
        ),
    ] {
        let device = device(sizes);
        let mut random = Random::new(3);
        let cpus = take_turns(device, &mut random, 20, 2000, |_, _| {});
        let tables = tables(device);
        let counted: u64 = tables
            .iter()
            .flat_map(|(_, entries)| entries.values())
            .map(|entry| u64::from(entry.count))
            .sum();
        let ended = cpus.iter().flat_map(|cpu| cpu.ended.values());
        let calls: u64 = ended.clone().map(|entry| u64::from(entry.count)).sum();
        let (no_slot, too_deep) = (
            sum(&tables, |it| it.no_slot),
            sum(&tables, |it| it.too_deep),
        );
        assert_eq!(counted + no_slot + too_deep, calls);
        if fits {
            assert!(no_slot > 100 && too_deep == 0);
            assert!(sum(&tables, |it| it.replaced) > 10);
            let total = tables.iter().flat_map(|(_, entries)| entries.values());
            let total: u64 = total.map(|entry| entry.total).sum();
            let expected: u64 = ended.map(|entry| entry.total).sum();
            assert_eq!(total + sum(&tables, |it| it.replaced_total), expected);
            assert_eq!(sum(&tables, |it| it.unmatched), 0);
        } else {
            assert!(too_deep > 100 && no_slot == 0);
        }
    }
}

/// A CPU that reports its switch late: the thread already runs on another.
#[test]
fn a_thread_that_another_cpu_still_has_is_counted_until_it_is_let_go() {
    let device = device(LARGE);
    let registers = registers(device);
    let on = |cpu: usize| PLACE.set(registers[cpu]);
    let switch = |event| device.cpus.hook(device.gate, event);
    on(0);
    switch(Event::SwitchedIn(7));
    device.enter(0x1000);
    on(1);
    switch(Event::SwitchedIn(7));
    device.enter(0x2000);
    device.exit(0x2000);
    on(0);
    switch(Event::SwitchedIn(8));
    on(1);
    device.enter(0x3000);
    device.exit(0x3000);
    device.exit(0x1000);
    let tables = tables(device);
    assert_eq!(sum(&tables, |it| it.too_deep), 1);
    assert_eq!(sum(&tables, |it| it.unmatched + it.no_slot), 0);
    let functions: Vec<u64> = tables[1].1.keys().copied().collect();
    assert_eq!(functions, [0x1000, 0x3000]);
    assert!(tables[0].1.is_empty());
}

thread_local! {
    /// The thread that this CPU runs, of a program that does not report switches.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

extern "C" fn current_thread() -> usize {
    CURRENT.get()
}

/// A program that does not report switches: a CPU that idles notices at its tick that its thread is gone.
#[test]
fn a_tick_notices_that_a_thread_is_gone() {
    let device = Device::with(Config {
        current_thread: Some(current_thread),
        ..config_of(LARGE)
    });
    let registers = registers(device);
    let on = |cpu: usize, thread| {
        PLACE.set(registers[cpu]);
        CURRENT.set(thread);
    };
    on(0, 7);
    device.enter(0x1000);
    device.enter(0x1010);
    device.exit(0x1010);
    on(1, 7);
    device.enter(0x2000);
    device.exit(0x2000);
    // Within a handler, too.
    on(0, 8);
    device.cpus.hook(device.gate, Event::IsrEnter(1));
    device.cpus.tick(device.gate);
    device.cpus.hook(device.gate, Event::IsrExit(1));
    on(1, 7);
    device.enter(0x3000);
    device.exit(0x3000);
    device.exit(0x1000);
    let tables = tables(device);
    assert_eq!(sum(&tables, |it| it.too_deep), 1);
    assert_eq!(sum(&tables, |it| it.unmatched + it.no_slot), 0);
    assert_eq!(tables[0].1.keys().copied().collect::<Vec<_>>(), [0x1010]);
    assert_eq!(
        tables[1].1.keys().copied().collect::<Vec<_>>(),
        [0x1000, 0x3000]
    );
}

/// Code without a thread has a stack of its own on each CPU.
#[test]
fn cpus_without_threads_keep_apart() {
    let device = device(Sizes {
        threads: CPUS.into(),
        ..LARGE
    });
    device.run(|cpu| {
        let function = 0x1000 + 16 * usize::from(cpu);
        for _ in 0..100 {
            device.enter(0x3000);
            device.enter(function);
            device.exit(function);
            device.exit(0x3000);
        }
    });
    let tables = tables(device);
    for (cpu, (header, entries)) in tables.iter().enumerate() {
        let function = 0x1000 + 16 * cpu as u64;
        let counts: Vec<(u64, u32)> = entries.values().map(|it| (it.address, it.count)).collect();
        assert_eq!(counts, [(function, 100), (0x3000, 100)]);
        assert_eq!(header.too_deep + header.unmatched + header.no_slot, 0);
        let (own, outer) = (entries[&function], entries[&0x3000]);
        assert_eq!(own.self_time + outer.self_time, outer.total);
    }
    let status = device.status();
    assert_eq!(
        (figure(&status, "functions"), figure(&status, "slots")),
        (2, 32)
    );
}

#[test]
fn calls_that_are_open_when_recording_ends_are_counted() {
    let device = device(LARGE);
    let registers = registers(device);
    let on = |cpu: usize| PLACE.set(registers[cpu]);
    let hook = |event| device.cpus.hook(device.gate, event);
    on(0);
    hook(Event::SwitchedIn(7));
    device.enter(0x1000);
    device.enter(0x1010);
    on(1);
    hook(Event::SwitchedIn(8));
    device.enter(0x1000);
    hook(Event::SwitchedIn(9));
    device.enter(0x1020);
    device.exit(0x1020);
    hook(Event::IsrEnter(3));
    device.enter(0x1030);
    on(0);
    device.cpus.set_recording(device.gate, false);
    // Two in 7, one in 8 (which does not run), one in the handler.
    let off = tables(device);
    assert_eq!(sum(&off, |it| it.unmatched), 4);
    assert_eq!(off[1].1.len(), 1);
    let recorded = off[0].0.recorded;
    assert!(off.iter().all(|(header, _)| header.recorded == recorded));
    // Meanwhile 7 goes to CPU 1, whose handler ends.
    hook(Event::SwitchedOut(7));
    device.exit(0x1010);
    on(1);
    device.exit(0x1030);
    hook(Event::IsrExit(3));
    hook(Event::SwitchedIn(7));
    on(2);
    device.cpus.set_recording(device.gate, true);
    on(1);
    device.enter(0x1040);
    device.exit(0x1040);
    device.exit(0x1000);
    let again = tables(device);
    assert_eq!(
        sum(&again, |it| it.unmatched),
        5,
        "an exit without an entry"
    );
    assert_eq!(again[1].1[&0x1040].count, 1);
    assert!(again.iter().all(|(header, _)| header.recorded > recorded));
    // Cleared while calls are open.
    device.enter(0x1050);
    device.cpus.clear(device.gate);
    device.exit(0x1050);
    device.enter(0x1060);
    device.exit(0x1060);
    let cleared = tables(device);
    assert_eq!(cleared[1].1.len(), 1);
    assert_eq!(cleared[1].1[&0x1060].count, 1);
    assert_eq!(sum(&cleared, |it| it.unmatched), 1);
    assert!(cleared[0].0.recorded < recorded);
}

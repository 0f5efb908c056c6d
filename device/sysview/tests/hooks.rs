//! A kernel's hooks with three back ends: SystemView's stream, one defined by this test, and none.

use std::cell::RefCell;
use std::sync::Mutex;

use kymo_hooks::{EVENTS, Event, Hooks};
use kymo_systemview::{Form, Packet, Payload, SYNC, decode};
use kymo_sysview::{KERNEL_EVENTS, Part, Port, Recorder, System};

/// Calls every hook.
fn kernel(hooks: &impl Hooks) {
    hooks.thread_created(8);
    hooks.thread_name(8, 3, "worker");
    hooks.thread_ready(8);
    hooks.thread_switched_in(8);
    hooks.isr_enter(15);
    hooks.isr_exit(15);
    hooks.isr_enter(16);
    hooks.isr_exit_to_scheduler(16);
    hooks.timer_enter(12);
    hooks.timer_exit(12);
    hooks.memory_alloc(1, 64, 24);
    hooks.memory_free(1, 64);
    hooks.interrupts_masked();
    hooks.interrupts_unmasked();
    hooks.lock_wait(1);
    hooks.lock_taken(1);
    hooks.lock_released(1);
    hooks.semaphore_init(2, 20);
    hooks.semaphore_take(2, 21);
    hooks.semaphore_taken(2, 22);
    hooks.semaphore_give(2);
    hooks.mutex_init(3);
    hooks.mutex_lock(3, 31);
    hooks.mutex_locked(3, 32);
    hooks.mutex_unlock(3);
    hooks.queue_init(4, 40);
    hooks.queue_put(4, 41);
    hooks.queue_put_done(4, 42);
    hooks.queue_get(4, 43);
    hooks.queue_got(4, 44);
    hooks.timer_start(5, 50);
    hooks.timer_stop(5);
    hooks.syscall_enter(6);
    hooks.syscall_exit(6, 60);
    hooks.packet_send(7, 70);
    hooks.packet_receive(7, 71);
    hooks.user(8, 80);
    hooks.thread_blocked(8, 2);
    hooks.thread_switched_out(8);
    hooks.thread_ended(8);
    hooks.idle();
}

/// A user-defined back end that uses some of the hooks.
#[derive(Default)]
struct Own(RefCell<Vec<(&'static str, Vec<usize>)>>);

impl Hooks for Own {
    fn event(&self, event: &'static Event, numbers: &[usize]) {
        assert_eq!(event.fields.len(), numbers.len(), "{event:?}");
        self.0.borrow_mut().push((event.name, numbers.to_vec()));
    }

    fn isr_exit(&self, irq: u16) {
        self.0.borrow_mut().push(("isr_exit", vec![irq.into()]));
    }
}

#[test]
fn a_back_end_takes_what_it_wants() {
    let own = Own::default();
    kernel(&own);
    let mut seen = own.0.into_inner();
    // A handler's end in the scheduler also counts as its end.
    assert_eq!(seen.remove(0), ("isr_exit", vec![15]));
    assert_eq!(seen.remove(0), ("isr_exit", vec![16]));
    let names = seen.iter().map(|(name, _)| *name);
    assert!(names.eq(EVENTS.iter().map(|event| event.name)));
    assert_eq!(seen[7], ("semaphore_taken", vec![2, 22]));
    kernel(&());
}

/// A program that stores the stream's bytes. Every reading of the clock is a tick.
#[derive(Default)]
struct Kept {
    ticks: Mutex<u32>,
    bytes: Mutex<Vec<u8>>,
}

impl Port for Kept {
    fn now(&self) -> u32 {
        let mut ticks = self.ticks.lock().unwrap();
        *ticks += 1;
        *ticks
    }

    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        run()
    }

    fn write(&self, bytes: &[u8]) -> bool {
        self.bytes.lock().unwrap().extend_from_slice(bytes);
        true
    }

    fn system(&self) -> System {
        System {
            frequency: 1000,
            ..System::default()
        }
    }

    fn modules(&self) -> u32 {
        1
    }

    fn describe(&self, recorder: &Recorder<Self>, part: Part) {
        if part == Part::Modules {
            recorder.kernel_module(0);
        }
    }
}

#[test]
fn systemview_gets_them_all() {
    let recorder = Recorder::new(Kept::default());
    assert!(recorder.start());
    let start = recorder.port().bytes.lock().unwrap().len();
    kernel(&recorder);
    recorder.stop();
    kernel(&recorder);
    let bytes = recorder.port().bytes.lock().unwrap().clone();
    let (mut at, mut seen, mut described) = (SYNC.len(), Vec::new(), Vec::new());
    while at < bytes.len() {
        let decoded = decode(&bytes[at..], Form::default(), Payload::default()).unwrap();
        match decoded.packet {
            Packet::ModuleDescription { offset, text, .. } if offset == KERNEL_EVENTS => {
                described.push(String::from_utf8(text.0.to_vec()).unwrap());
            }
            packet if at >= start => seen.push((
                packet.id(),
                packet.values().collect::<Vec<_>>(),
                packet.name(),
            )),
            _ => {}
        }
        at += decoded.bytes;
    }
    assert_eq!(described[0], "M=Kernel");
    let texts = EVENTS.iter().map(|event| event.description);
    assert!(described[1..].iter().map(String::as_str).eq(texts));
    assert!(described.iter().all(|text| text.len() < 128));

    let names = seen
        .iter()
        .map(|(_, _, name)| *name)
        .filter(|name| !name.is_empty());
    let expected = "task_create task_info task_start_ready task_start_exec isr_enter isr_exit isr_enter isr_to_scheduler \
                    timer_enter timer_exit heap_alloc heap_free task_stop_ready task_stop_exec task_terminate idle trace_stop";
    assert!(names.eq(expected.split(' ')), "{seen:?}");
    let events = seen.iter().filter(|(_, _, name)| name.is_empty());
    let numbers = events.clone().map(|(id, _, _)| id - KERNEL_EVENTS);
    assert!(numbers.eq(0..EVENTS.len() as u32));
    let own = Own::default();
    kernel(&own);
    let own = own.0.into_inner();
    // (Behind the ends of handlers, which are no events there.)
    for ((_, values, _), (_, expected)) in events.zip(&own[2..]) {
        let expected: Vec<u32> = expected.iter().map(|number| *number as u32).collect();
        assert_eq!(*values, expected);
    }
}

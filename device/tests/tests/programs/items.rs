//! C programs that produce items, with RTEMS's names and with the allocator wrapped.

use std::mem::size_of;

use std::path::Path;

use kymo_device_tests::ItemPacket;
use kymo_recorder::Target;
use kymo_recorder::items::{Cursor, Drained, Item, Ring, Timed};
use kymo_wire::event::PacketHeader;
use kymo_wire::items::Name;

use super::*;

/// This machine.
#[derive(Debug)]
struct Here;

impl Target for Here {
    const LAYOUT: Layout = Layout::NATIVE;
}

/// The packets of items in a raw file.
fn item_packets(path: &Path) -> Vec<ItemPacket> {
    let bytes = std::fs::read(path).expect("the file was saved");
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line");
    ItemPacket::take(Layout::NATIVE, &bytes[end + 1..]).0
}

/// Items as names and data.
fn named(packets: &[ItemPacket]) -> Vec<(String, usize)> {
    let items = packets.iter().flat_map(|packet| &packet.items);
    items
        .map(|item| (Name(item.id).to_string(), item.data))
        .collect()
}

#[test]
fn every_producer_records_what_it_says() {
    let wrap = device().join("c/wrap/malloc.c");
    let wrap = wrap.to_str().expect("a path in UTF-8");
    for compiler in compilers() {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("items-{compiler}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let functions = ["malloc", "calloc", "realloc", "free"].join(",--wrap=");
        let others = "-Wl,--wrap=aligned_alloc,--wrap=posix_memalign";
        let program = build(
            compiler,
            "items",
            &[
                "-Wall",
                "-Wextra",
                "-fno-builtin",
                wrap,
                &format!("-Wl,--wrap={functions}"),
                others,
            ],
        );
        let (start, threads) = (folder.join("start"), folder.join("threads"));
        let output = Command::new(&program)
            .args([&start, &threads])
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "by {compiler}: {text}");
        let start = item_packets(&start);
        check_start(&start, compiler);
        check_places(&start, &functions_of(&program, &text));
        check_threads(&item_packets(&threads), compiler);
    }
}

/// Address ranges of a program's functions by name; the program prints the address of `main`.
fn functions_of(program: &Path, printed: &str) -> BTreeMap<String, std::ops::Range<usize>> {
    let output = Command::new("nm")
        .arg("--print-size")
        .arg(program)
        .output()
        .expect("binutils' nm runs");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    let number = |hex| usize::from_str_radix(hex, 16).expect("a number");
    let linked: BTreeMap<String, (usize, usize)> = text
        .lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [at, size, "t" | "T", name] => Some((name.to_owned(), (number(at), number(size)))),
            _ => None,
        })
        .collect();
    let main = printed.lines().find_map(|line| line.strip_prefix("main "));
    let main: usize = main.expect("its address").parse().expect("a number");
    let moved = main - linked["main"].0;
    let place = |(name, (at, size))| (name, at + moved..at + moved + size);
    linked.into_iter().map(place).collect()
}

/// Checks that calls and lines match the source.
fn check_places(packets: &[ItemPacket], functions: &BTreeMap<String, std::ops::Range<usize>>) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, data) in named(packets) {
        let within: &[&str] = match &*name {
            "CALLER" | "USER_0" | "USER_10" if data > 1000 => &["main"],
            "USER_499" | "USER_500" | "USER_509" => &["main"],
            "LINE" => &["function", "places"],
            "ISR_DISABLE" | "ISR_ENABLE" => &["system_events"],
            _ if name.starts_with("MALLOC_") || name.starts_with("FREE_") => &["allocate"],
            _ if name.starts_with("REALLOC_") || name.starts_with("CALLOC_") => &["allocate"],
            _ if name.contains("ALIGN") => &["allocate"],
            _ => continue,
        };
        let found = within.iter().find(|name| {
            // A return address may lie right behind a function's last instruction.
            let place = &functions[**name];
            (place.start..=place.end).contains(&data)
        });
        let found = found.unwrap_or_else(|| panic!("{name} {data:#x} is not in {within:?}"));
        *seen.entry(found).or_default() += 1;
    }
    assert_eq!(seen["function"], 13);
    assert_eq!(seen["places"], 13);
    assert_eq!(seen["system_events"], 2);
    assert_eq!(seen["allocate"], 18);
}

#[test]
fn the_headers_compile_for_every_processor() {
    let compile = |flags: &[&str], source: &str| {
        let mut child = Command::new("clang")
            .args(flags)
            .args(["-x", "c", "-ffreestanding", "-Wall", "-Werror", "-S", "-o"])
            .args(["/dev/null", "-", "-I"])
            .arg(device().join("c/include"))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("clang runs");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(source.as_bytes()).expect("it reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        (output.status.success(), output.stderr)
    };
    if !compilers().contains(&"clang") {
        return;
    }
    let reserve = "#include <kymo.h>\nvoid *f(void) { return kymo_reserve(8); }\n";
    let one = "#include <kymo_items.h>\nKYMO_ITEMS(8);\nvoid f(void) { kymo_produce(1, 2); }\n";
    let cpus =
        "#include <kymo_items.h>\nKYMO_CPU_ITEMS(8, 4);\nvoid f(void) { kymo_produce(1, 2); }\n";
    let ring = "#include <kymo_items.h>\nKYMO_RING(ring, 256, 4);\n";
    let rtems = "#include <kymo_rtems.h>\nKYMO_CPU_ITEMS(8, 4);\n\
        void f(void) { rtems_record_interrupt_enable(rtems_record_interrupt_disable()); }\n";
    let (bare, small) = ("--target=aarch64-none-elf", "--target=thumbv7m-none-eabi");
    for (target, source, compiles) in [
        (bare, reserve, true),
        (bare, cpus, true),
        (bare, rtems, true),
        // A CPU has one ring; the macro is not there.
        (bare, ring, false),
        (small, reserve, true),
        (small, one, true),
        (small, ring, true),
    ] {
        let (done, errors) = compile(&[target], source);
        let errors = String::from_utf8_lossy(&errors);
        assert_eq!(done, compiles, "{target}, {source}: {errors}");
    }
}

/// Checks the items that `main` produces before the drain.
fn check_start(packets: &[ItemPacket], compiler: &str) {
    let items = named(packets);
    let mut items = items.iter().map(|(name, data)| (&**name, *data));
    let mut next = || items.next().unwrap_or(("", 0));
    // A place in the program is known by its kind alone.
    let mut expect = |expected: &[(&str, Option<usize>)]| {
        for (name, data) in expected {
            let (found, value) = next();
            assert_eq!(found, *name, "by {compiler}");
            match data {
                Some(data) => assert_eq!(value, *data, "{name} by {compiler}"),
                None => assert_ne!(value, 0, "{name} by {compiler}"),
            }
        }
    };
    // Items of one time, of which these words are the last.
    let mut group = |names: &[&str], word: &str, words: &[usize]| {
        for name in names {
            expect(&[(name, None)]);
        }
        for (n, data) in words.iter().enumerate() {
            expect(&[(&format!("{word}_{n}"), Some(*data))]);
        }
    };
    let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    group(&["USER_0"], "ARG", &[]);
    group(&["USER_9"], "ARG", &[1]);
    group(&["USER_10"], "ARG", &[3, 4]);
    for n in 3..=10 {
        group(&[&format!("USER_{}", n + 8)], "ARG", &numbers[..n]);
    }
    group(&["CALLER", "LINE"], "ARG", &[]);
    group(&["CALLER", "LINE", "USER_99"], "ARG", &[]);
    group(&["CALLER", "LINE", "USER_100", "USER_101"], "ARG", &[]);
    for n in 1..=10 {
        group(&["CALLER", "LINE"], "ARG", &numbers[..n]);
    }
    group(&["USER_499"], "RETURN", &[]);
    group(&["USER_500"], "RETURN", &[7]);
    for n in 2..=10 {
        group(&[&format!("USER_{}", n + 499)], "RETURN", &numbers[..n]);
    }
    expect(&[("LINE", None), ("LINE", None), ("USER_3", Some(30))]);
    expect(&[("LINE", None), ("USER_4", Some(40)), ("USER_5", Some(50))]);
    for n in 1..=10 {
        expect(&[("LINE", None)]);
        for data in 1..=n {
            expect(&[(&format!("ARG_{}", data - 1), Some(data))]);
        }
    }
    expect(&[("ISR_DISABLE", None), ("ISR_ENABLE", None)]);
    expect(&[("INTERRUPT_ENTRY", Some(9)), ("INTERRUPT_EXIT", Some(9))]);
    expect(&[
        ("ISR_LOCK_ACQUIRE_ENTRY", Some(16)),
        ("ISR_LOCK_ACQUIRE_EXIT", Some(16)),
    ]);
    expect(&[("ISR_LOCK_RELEASE", Some(16))]);
    expect(&[
        ("UMA_ALLOC_ZONE", Some(0x20)),
        ("UMA_ALLOC_PTR", Some(0x21)),
    ]);
    expect(&[("UMA_FREE_ZONE", Some(0x20)), ("UMA_FREE_PTR", Some(0x21))]);
    expect(&[("UDP_INPUT", Some(0x30)), ("LENGTH", Some(1500))]);
    expect(&[
        ("ARCH", Some(0x36_3878)),
        ("BSP", Some(0x64_7261_6F62_2061)),
    ]);
    expect(&[("ADDRESS", None), ("LENGTH", Some(11))]);
    expect(&[
        ("MEMORY", Some(0x0807_0605_0403_0201)),
        ("MEMORY", Some(0x0B_0A09)),
    ]);
    expect(&[("ADDRESS", None), ("LENGTH", Some(24))]);
    expect(&[
        ("REGISTERS", Some(10)),
        ("REGISTERS", Some(11)),
        ("REGISTERS", Some(12)),
    ]);
    for (from, words) in [(0, 16), (16, 16), (32, 8)] {
        expect(&[("ADDRESS", None), ("LENGTH", Some(words * 8))]);
        for word in from..from + words {
            expect(&[("MEMORY", Some(word))]);
        }
    }
    expect(&[("USER_6", Some(60))]);
    expect(&[("USER_6", Some(61)), ("USER_7", Some(70))]);
    expect(&[("USER_8", Some(1)), ("USER_9", Some(2))]);
    for n in 0..18 {
        expect(&[("USER_10", Some(n))]);
    }
    expect(&[("USER_511", Some(11))]);
    let exit = |name: &'static str| [(name, None), ("RETURN_0", None)];
    expect(&[("MALLOC_ENTRY", None), ("ARG_0", Some(100))]);
    expect(&exit("MALLOC_EXIT"));
    expect(&[
        ("REALLOC_ENTRY", None),
        ("ARG_0", None),
        ("ARG_1", Some(200)),
    ]);
    expect(&exit("REALLOC_EXIT"));
    let free = [("FREE_ENTRY", None), ("ARG_0", None), ("FREE_EXIT", None)];
    expect(&free);
    expect(&[
        ("CALLOC_ENTRY", None),
        ("ARG_0", Some(3)),
        ("ARG_1", Some(7)),
    ]);
    expect(&exit("CALLOC_EXIT"));
    expect(&free);
    expect(&[
        ("ALIGNED_ALLOC_ENTRY", None),
        ("ARG_0", Some(64)),
        ("ARG_1", Some(128)),
    ]);
    expect(&exit("ALIGNED_ALLOC_EXIT"));
    expect(&free);
    expect(&[("POSIX_MEMALIGN_ENTRY", None), ("ARG_0", None)]);
    expect(&[("ARG_1", Some(256)), ("ARG_2", Some(512))]);
    expect(&[
        ("POSIX_MEMALIGN_EXIT", None),
        ("RETURN_0", Some(0)),
        ("RETURN_1", None),
    ]);
    expect(&free);
    // Where one time is promised there is one.
    let all: Vec<&Timed> = packets.iter().flat_map(|packet| &packet.items).collect();
    let line = all.iter().rposition(|item| item.id == 101).expect("a line");
    assert!(
        all[line..=line + 10]
            .iter()
            .all(|item| item.time == all[line].time)
    );
}

/// Checks three threads with 500 pairs each, and ten signals each.
fn check_threads(packets: &[ItemPacket], compiler: &str) {
    assert!(packets.iter().all(|packet| packet.header.discarded == 0));
    let flag = PacketHeader::FLAG_THREAD;
    assert!(packets.iter().all(|packet| packet.header.flags == flag));
    let mut threads: BTreeMap<u64, (Vec<usize>, usize)> = BTreeMap::new();
    let mut signals = 0;
    for packet in packets {
        let (numbers, handlers) = threads.entry(packet.header.thread).or_default();
        let mut items = packet.items.iter();
        while let Some(item) = items.next() {
            match &*Name(item.id).to_string() {
                "USER_30" => {
                    *handlers += 1;
                    signals += 1;
                }
                "USER_31" => {
                    numbers.push(item.data);
                    let second = items.next().expect("both are in one packet");
                    assert_eq!(Name(second.id).to_string(), "USER_32");
                    assert_eq!(second.time, item.time);
                }
                // What the C library does for threads.
                _ => {}
            }
        }
    }
    assert_eq!(signals, 30, "by {compiler}");
    let workers = threads.values().filter(|(numbers, _)| !numbers.is_empty());
    assert_eq!(workers.clone().count(), 3, "by {compiler}");
    for (numbers, handlers) in workers {
        assert!(numbers.iter().copied().eq(0..500), "by {compiler}");
        assert_eq!(*handlers, 10, "by {compiler}");
    }
}

#[test]
fn the_header_has_the_ids_and_sizes_of_the_recorder() {
    for compiler in compilers() {
        let program = build(compiler, "item_ids", &["-Wall"]);
        let output = Command::new(&program).output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let mut there: BTreeMap<&str, usize> = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, number)| (name, number.parse().expect("a number")))
            .collect();
        for (name, size) in [
            ("ring", size_of::<Ring<Here>>()),
            ("cursor", size_of::<Cursor>()),
            ("timed", size_of::<Timed>()),
            ("drained", size_of::<Drained>()),
            ("item", size_of::<Item>()),
        ] {
            assert_eq!(there.remove(name), Some(size), "{name} by {compiler}");
        }
        assert_eq!(there.len(), 342, "by {compiler}");
        for (name, id) in there {
            assert_eq!(Name::parse(name), Some(Name(id as u16)), "{name}");
        }
    }
}

#[test]
fn items_are_streamed_while_a_thread_produces_them() {
    let Some(compiler) = compilers().into_iter().next() else {
        return;
    };
    let mut linked = Linked::start(compiler);
    linked.request("on");
    linked.send(&Host::command(3, "stream on 1"));
    linked.hear(|host| !host.replies.is_empty());
    // The program sends when it is polled, which it is with every byte that it gets; the answer to a
    // `ping` comes behind what it sends.
    let mut produced = 0;
    let mut heard = Vec::new();
    let patience = std::time::Instant::now() + Duration::from_secs(1200);
    while heard.len() < 100 {
        assert!(std::time::Instant::now() < patience, "{:?}", linked.host);
        for _ in 0..10 {
            linked.send(b"#");
            produced += 1;
        }
        linked.send(b"\r");
        std::thread::sleep(Duration::from_millis(2));
        linked.send(&Host::command(4, "ping"));
        let replies = linked.host.replies.len();
        linked.hear(|host| host.replies.len() > replies);
        let whole = linked.host.pieces.len() as u32;
        assert_eq!(linked.host.missing(whole), []);
        linked.send(&Host::command(5, &format!("ack {whole}")));
        let bytes: Vec<u8> = linked.host.pieces.values().flatten().copied().collect();
        let (packets, _) = ItemPacket::take(Layout::NATIVE, &bytes);
        assert!(packets.iter().all(|packet| packet.header.discarded == 0));
        heard = packets
            .iter()
            .flat_map(|packet| packet.items.clone())
            .collect();
    }
    assert!(heard.len() <= produced);
    for (item, number) in heard.iter().zip(0..) {
        assert_eq!((item.id, item.data), (512, number));
    }
    linked.end();
}

/// A ring of one packet would lose everything produced into it, so it must not compile.
#[test]
fn a_ring_of_one_packet_does_not_compile() {
    for compiler in compilers() {
        for (packets, compiles) in [(1, false), (2, true)] {
            let mut child = Command::new(compiler)
                // (As for bare metal.)
                .args(["-U__linux__", "-fsyntax-only", "-x", "c", "-I"])
                .arg(device().join("c/include"))
                .arg("-")
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("the compiler runs");
            let mut source = child.stdin.take().expect("it has an input");
            writeln!(source, "#include \"kymo_items.h\"\nKYMO_ITEMS({packets});")
                .expect("it reads");
            drop(source);
            assert_eq!(
                child.wait().expect("it ends").success(),
                compiles,
                "{compiler}: {packets}"
            );
        }
    }
}

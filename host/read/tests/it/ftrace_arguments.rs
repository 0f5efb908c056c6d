//! Arguments and return values in the kernel's text.

use kymo_event::Wanted;
use kymo_read::{Events, OpenOptions};

#[test]
fn arguments_and_returned_values_are_fields_of_the_records() {
    let lines = "# tracer: function_graph\n\
        \n\
        \x20 10.000001 |   0)     sh-288     |               |  open(dfd=-100, name=0x7f \"a|b\") { /* <-do_syscall_64+0x79/0x160 */\n\
        \x20 10.000002 |   0)     sh-288     |   0.500 us    |    getname(from=0x7f); /* <-open+0x6c/0xe0 ret=0xffff */\n\
        \x20 10.000004 |   0)     sh-288     |   3.000 us    |  } /* open ret=-2 */\n";
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("args.txt");
    std::fs::write(&path, lines).unwrap();
    let options = OpenOptions {
        wanted: Wanted::Everything,
        ..OpenOptions::default()
    };
    let mut source = kymo_read::open(&path, &options).unwrap();
    let events: Vec<_> = Events::new(&mut *source).map(Result::unwrap).collect();
    let fields = events.iter().filter(|event| event.record).map(|event| {
        let mut text = String::new();
        kymo_event::push_fields(&event.fields, &mut text);
        text
    });
    let expected = [
        r#"depth = 0, args = "dfd=-100, name=0x7f \"a|b\"", caller = "do_syscall_64+0x79/0x160""#,
        r#"depth = 1, duration = 500, args = "from=0x7f", retval = 0xffff, caller = "open+0x6c/0xe0""#,
        "depth = 0, duration = 3000, retval = -2",
    ];
    assert_eq!(fields.collect::<Vec<_>>(), expected);
}

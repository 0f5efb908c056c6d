//! Formats of older kernels.

use kymo_ftrace::{EventFormat, Order, PrintkFormats, Scope, Symbols};

#[test]
fn the_arguments_of_older_kernels_have_no_size() {
    let format = "name: bprint\nID: 5\nformat:\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long ip;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:const char * fmt;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:u32 buf;\toffset:16;\tsize:0;\tsigned:0;\n\n\
        print fmt: \"%pf: %s\", (void *)REC->ip, REC->fmt\n";
    let event = EventFormat::parse("ftrace", format).unwrap();
    let symbols = Symbols::parse(b"00001000 T probe\n");
    let printk = PrintkFormats::parse(b"0x2000 : \"cpu: %d freq: %u\\n\"\n");
    let scope = Scope {
        order: Order::Little,
        long_size: 4,
        symbols: &symbols,
        printk: &printk,
    };
    let data: Vec<u8> = [5, 0, 0x1000, 0x2000, 3, 800_000]
        .iter()
        .flat_map(|word: &u32| word.to_le_bytes())
        .collect();
    let mut out = String::new();
    assert!(scope.print(&event, &data, &mut out));
    assert_eq!(out.trim_end(), "probe: cpu: 3 freq: 800000");
}

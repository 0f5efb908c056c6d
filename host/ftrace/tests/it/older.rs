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

#[test]
fn names_that_the_kernel_leaves_in_formats_have_values() {
    let format = "name: mm\nID: 5\nformat:\n\
        \tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:int mode;\toffset:16;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"page=%p mode=%s\", (REC->pfn != -1UL ? (((struct page *)vmemmap_base) + (REC->pfn)) : \
        ((void *)0)), __print_symbolic(REC->mode, { HRTIMER_MODE_ABS, \"ABS\" }, \
        { HRTIMER_MODE_REL_PINNED_HARD, \"REL|PINNED|HARD\" })\n";
    let event = EventFormat::parse("kmem", format).unwrap();
    let symbols = Symbols::parse(b"0000000000005000 T other\n0000000000007000 D vmemmap_base\n");
    let scope = Scope {
        order: Order::Little,
        long_size: 8,
        symbols: &symbols,
        printk: &PrintkFormats::default(),
    };
    for (mode, expected) in [(0u32, "ABS"), (11, "REL|PINNED|HARD"), (2, "0x2")] {
        let mut data = vec![0; 8];
        data.extend(0x15u64.to_le_bytes());
        data.extend(mode.to_le_bytes());
        let mut out = String::new();
        assert!(scope.print(&event, &data, &mut out));
        assert_eq!(out.trim_end(), format!("page=0x7015 mode={expected}"));
    }
    // No other name has a value.
    let unknown = format.replace("HRTIMER_MODE_ABS,", "HRTIMER_MODE_ODD,");
    let event = EventFormat::parse("kmem", &unknown).unwrap();
    assert!(!scope.print(&event, &[0; 20], &mut String::new()));
}

/// A print format like that of `ext4_es_lookup_extent_exit`: trace-cmd computes with 0 for a name.
#[test]
fn values_of_flags_are_computed_of_names() {
    let format = "name: extent\nID: 5\nformat:\n\
        \tfield:int found;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:char status;\toffset:12;\tsize:1;\tsigned:0;\n\n\
        print fmt: \"found %d %s\", REC->found, __print_flags(REC->found ? REC->status : 0, \"\", \
        { (1 << ES_WRITTEN_B), \"W\" }, { (1 << ES_HOLE_B), \"H\" })\n";
    let event = EventFormat::parse("ext4", format).unwrap();
    let scope = Scope {
        order: Order::Little,
        long_size: 8,
        symbols: &Symbols::default(),
        printk: &PrintkFormats::default(),
    };
    let mut data = vec![0; 8];
    data.extend([1, 0, 0, 0, 0x11]);
    let mut out = String::new();
    assert!(scope.print(&event, &data, &mut out));
    assert_eq!(out.trim_end(), "found 1 W0x10");
}

/// A print format like that of `kmalloc` in Linux 6.18: typedefs are cast to, and the table ends with the kernel's NULL.
#[test]
fn tables_of_flags_end_with_a_cast_zero() {
    let format = "name: allocation\nID: 5\nformat:\n\
        \tfield:unsigned long gfp_flags;\toffset:8;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"gfp_flags=%s\", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
        {( unsigned long)((( gfp_t)(((((1UL))) << (10))|((((1UL))) << (11))))), \"GFP_NOIO\"}, \
        {( unsigned long)(( gfp_t)((((1UL))) << (8))), \"__GFP_ZERO\"}, { 0, ((void *)0) } ) : \"none\"\n";
    let event = EventFormat::parse("kmem", format).unwrap();
    let scope = Scope {
        order: Order::Little,
        long_size: 8,
        symbols: &Symbols::default(),
        printk: &PrintkFormats::default(),
    };
    let mut data = vec![0; 8];
    data.extend(0xd00_u64.to_le_bytes());
    let mut out = String::new();
    assert!(scope.print(&event, &data, &mut out));
    assert_eq!(out.trim_end(), "gfp_flags=GFP_NOIO|__GFP_ZERO");
}

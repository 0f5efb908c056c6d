use super::*;

#[test]
fn threads_are_ids_or_names() {
    assert_eq!(thread_choice("0x10"), ThreadChoice::Id(Tid(16)));
    assert_eq!(thread_choice("10"), ThreadChoice::Id(Tid(10)));
    assert_eq!(
        thread_choice("main*"),
        ThreadChoice::Named(Pattern::new("main*"))
    );
}

use super::*;

fn report(prompt: &str, answer: &str) -> Report {
    let mut watch = Watch::new(&Context { prompt, ..Context::default() });
    for c in answer.chars() {
        watch.push(c.encode_utf8(&mut [0; 4]));
    }
    watch.finish(Finish::default())
}

#[test]
fn an_empty_text_has_no_flag_and_no_signal() {
    let report = report("Hello", "");
    assert_eq!(report, Report::default());
}

#[test]
fn blanks_without_end_are_seen_and_layout_is_sound() {
    assert!(
        report("Hi", &format!("{{\"a\": 1,{}", "\n ".repeat(150))).flags.contains(Flag::WhitespaceRunaway)
    );
    let mut watch = Watch::new(&Context::default());
    watch.push("{ ");
    watch.push(&" \n".repeat(40));
    let cut = watch.clone().finish(Finish { finish_reason_is_length: true });
    assert!(cut.flags.contains(Flag::WhitespaceRunaway), "mostly white up to the limit");
    assert!(watch.finish(Finish::default()).flags.is_empty(), "ended by itself");
    let columns: String = (0..20).map(|i| format!("{i:>60}  |\n")).collect();
    assert!(report("A table", &columns).flags.is_empty());
}

#[test]
fn a_very_long_prompt_is_read_at_both_ends() {
    let prompt = format!("{}{}{}", "Repeat it. ж", "x ".repeat(100_000), "Объясни.");
    let watch = Watch::new(&Context { prompt: &prompt, ..Context::default() });
    assert_eq!(watch.finish(Finish::default()), Report::default());
    assert_eq!(head("жж", 3), "ж");
}

use super::*;

fn context(prompt: &str) -> Context {
    Context { prompt: Arc::new(prompt.into()), ..Context::default() }
}

fn report(prompt: &str, answer: &str) -> Report {
    let mut watch = Watch::new(&context(prompt));
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
    let watch = Watch::new(&context(&prompt));
    assert_eq!(watch.finish(Finish::default()), Report::default());
    assert_eq!(head("жж", 3), "ж");
}

fn flags(prompt: &str, answer: &str) -> Vec<Flag> {
    report(prompt, answer).flags.iter().collect()
}

#[test]
fn broken_answers_have_their_flags() {
    assert_eq!(flags("Name three rivers.", &"!".repeat(200)), [Flag::Repetition]);
    assert_eq!(
        flags("Go on.", &"<｜begin▁of▁sentence｜>".repeat(60)),
        [Flag::Repetition, Flag::SpecialTokenLeak]
    );
    assert_eq!(
        flags(
            "Why did the deploy fail? Answer in English.",
            "It failed because the 日志 volume was full. Run it 再次."
        ),
        [Flag::WrongLanguage]
    );
    assert_eq!(flags("Hello", "<think>Hello! How are you today?"), [Flag::ThinkUnbalanced]);
    let looping = format!("<think>{}", "no no ".repeat(30));
    let raised = flags("Capital of France?", &looping);
    assert!(raised.contains(&Flag::Repetition) && raised.contains(&Flag::ThinkUnbalanced), "{raised:?}");
    assert_eq!(flags("Tell me how.", "I'm sorry, but I can't help with that."), [Flag::Refusal]);
}

#[test]
fn sound_answers_have_none() {
    let table = "```\n----------------------------------------\n| n | n*n |\n|---|-----|\n| 1 | 1   |\n| 2 | 4   |\n| 3 | 9   |\n| 4 | 16  |\n----------------------------------------\n```\nWow!!! That was all of it.";
    for (prompt, answer) in [
        ("Show a text table of squares and a divider.", table),
        ("Capital of France?", "<think>easy</think>Paris."),
        ("Weather in Riga?", ""),
        ("Classify.", "{\"kind\":\"bill\",\"note\":\"due in May\"}"),
        ("What did the clerk say?", "\"I can't help with that,\" said the clerk, and closed the window."),
        ("Translate 'good morning' into Japanese.", "おはようございます"),
        ("Hi", "Hello."),
    ] {
        assert_eq!(flags(prompt, answer), [], "{prompt} → {answer}");
    }
}

#[test]
fn a_flag_stands_while_the_text_still_runs() {
    let mut watch = Watch::new(&context("Name three rivers."));
    watch.push("The Danube, ");
    assert!(watch.flags_now().is_empty());
    for _ in 0..64 {
        watch.push("!!!");
    }
    assert!(watch.flags_now().contains(Flag::Repetition));
    watch.push(" and the Rhine.");
    assert!(watch.flags_now().contains(Flag::Repetition), "it is not withdrawn");
}

#[test]
fn the_state_stays_small() {
    let mut watch = Watch::new(&context("Tell me about the sea."));
    for i in 0..20_000 {
        watch.push(&format!("word{} ", i * 7919 % 20_011));
    }
    assert!(watch.heap_bytes() + size_of::<Watch>() < 32 * 1024, "{}", watch.heap_bytes());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(300))]

    /// Any text in any pieces: no panic, finite signals, and the pieces do not change the verdict.
    #[test]
    fn any_text_in_any_pieces_is_judged_alike(
        parts in proptest::collection::vec("(\\PC{0,12}|[ab `<|>\n]{0,30}|(no ){0,40}|<\\|im_end\\|>|</?think>|日本語|жук|�)", 0..20),
        cut in 1_usize..7,
    ) {
        let text = parts.concat();
        let prompt = Arc::new(Prompt::new("Tell me about the sea.", ["f"]));
        let context = Context { prompt, ..Context::default() };
        let (mut whole, mut pieces) = (Watch::new(&context), Watch::new(&context));
        whole.push(&text);
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(cut) {
            pieces.push(&piece.iter().collect::<String>());
        }
        let (whole, pieces) = (whole.finish(Finish::default()), pieces.finish(Finish::default()));
        proptest::prop_assert_eq!(&whole, &pieces);
        proptest::prop_assert!(whole.gibberish.is_finite());
        proptest::prop_assert!(whole.repetition.is_none_or(|r| (0.0..=1.0).contains(&r)));
    }
}

/// Bytes of an answer until each flag stands, read piece by piece; `at_once` does not gather any.
fn seen_after(answer: &str, at_once: bool) -> Vec<(Flag, u64)> {
    let mut watch = Watch::new(&context("Tell me about the sea."));
    let mut seen: Vec<(Flag, u64)> = Vec::new();
    let chars: Vec<char> = answer.chars().collect();
    for piece in chars.chunks(4) {
        watch.push(&piece.iter().collect::<String>());
        if at_once {
            watch.catch_up();
        }
        for flag in watch.flags_now().iter() {
            if seen.iter().all(|(known, _)| *known != flag) {
                seen.push((flag, watch.bytes));
            }
        }
    }
    seen
}

#[test]
fn text_that_is_gathered_is_read_soon_and_loops_of_phrases_at_once() {
    let salad = "way half into hers n rest t en co of before part minrel she they whole. K st into any of way not you of so n ";
    let sound =
        "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard now. ";
    for before in [0, 1, 3, 20] {
        let before = sound.repeat(before);
        for (late, fault) in [
            (TOGETHER as u64, "!".repeat(400)),
            (0, "and the light was out ".repeat(40)),
            (TOGETHER as u64, " ".repeat(400)),
            (TOGETHER as u64, format!("<|im_end|>{sound}")),
            (TOGETHER as u64, format!("再次打开日志，今天天气很好。{sound}")),
            (TOGETHER as u64, salad.repeat(8)),
        ] {
            let answer = format!("{before}{fault}");
            let (soon, at_once) = (seen_after(&answer, false), seen_after(&answer, true));
            assert!(!at_once.is_empty(), "{fault}");
            assert_eq!(soon.len(), at_once.len(), "{fault}");
            for ((flag, soon), (same, at_once)) in soon.into_iter().zip(at_once) {
                assert!(
                    flag == same && soon <= at_once + late,
                    "{flag:?} after {soon}, not {at_once}: {fault}"
                );
            }
        }
    }
}

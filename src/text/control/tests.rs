use super::*;

fn flags_of(prompt: &str, tools: &[&str], answer: &str) -> FlagSet {
    let asked = Arc::new(Prompt::new(prompt, tools.iter().copied()));
    let mut whole = Control::new(Arc::clone(&asked));
    whole.push(answer);
    whole.finish();
    let mut pieces = Control::new(Arc::clone(&asked));
    for c in answer.chars() {
        pieces.push(c.encode_utf8(&mut [0; 4]));
        assert!(pieces.pending.len() <= MAX_MARKER_BYTES + 8);
    }
    pieces.finish();
    assert_eq!(whole.flags_at_end(), pieces.flags_at_end(), "chunks change the verdict on {answer:?}");
    whole.flags_at_end()
}

fn leaks(prompt: &str, answer: &str) -> bool {
    flags_of(prompt, &[], answer).contains(Flag::SpecialTokenLeak)
}

#[test]
fn control_tokens_printed_as_text_are_seen() {
    for answer in [
        "Paris.<|im_end|>",
        "Paris.<|eot_id|><|start_header_id|>assistant<|end_header_id|>",
        "Paris.</s>",
        "<s>Paris",
        "[INST] Tell me more [/INST]",
        "<｜begin▁of▁sentence｜>Paris",
        "Paris<｜end▁of▁sentence｜>",
        "Paris.<end_of_turn>",
        "<|channel|>final<|message|>Paris",
        "Paris <|endoftext|> Human: what",
        "<<SYS>> be nice <</SYS>>",
    ] {
        assert!(leaks("Capital of France?", answer), "{answer}");
    }
}

#[test]
fn tokens_under_discussion_and_look_alikes_are_sound() {
    for (prompt, answer) in [
        ("What does <|im_end|> do?", "The token <|im_end|> ends a turn."),
        (
            "Explain the ChatML format.",
            "A turn ends with `<|im_end|>`, as in\n```\n<|im_start|>user\nHi<|im_end|>\n```\nThat is all.",
        ),
        ("Strike it", "The price was <s>20</s> 15 euros."),
        ("F# pipes", "xs <| ys |> List.map f and a < b |> c, (<|>) in Haskell, [x | x <- xs]"),
        ("Rust", "Vec<|x| y>, if a <b> c, <string>, <std>, [INSTALL], [1, 2], [link](url)"),
        ("HTML", "<span>text</span><section>x</section><strong>bold</strong><small>"),
        ("Write", "An unfinished <|im_"),
        ("The log", "<|Rain|> hello all\n<Tali> hello <|Rain|>"),
        ("BERT", "Its input begins with [CLS]; unknown words become [UNK]."),
    ] {
        assert!(flags_of(prompt, &[], answer).is_empty(), "{prompt} → {answer}");
    }
}

#[test]
fn think_tags_need_their_partner() {
    let unbalanced = |answer: &str| flags_of("Hello", &[], answer).contains(Flag::ThinkUnbalanced);
    assert!(unbalanced("<think>Hello! How are you today?"));
    assert!(unbalanced("So it is Paris.</think>Paris."));
    assert!(unbalanced("<think>a<think>b</think>Paris"));
    assert!(unbalanced("<thinking>hm"));
    assert!(!unbalanced("<think>easy</think>Paris."));
    assert!(!unbalanced("<think></think>\n\nParis."));
    assert!(!unbalanced("The model writes `<think>` before it answers."));
    assert!(!unbalanced("I think, therefore I am."));
    let asked = flags_of("What does the tag </think> mean?", &[], "The tag </think> ends the reasoning.");
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn a_text_that_only_thinks() {
    let only = |answer: &str| {
        let mut control = Control::new(Arc::new("Hello".into()));
        control.push(answer);
        control.finish();
        control.think_only()
    };
    assert!(only("<think>hm, well</think>\n "));
    assert!(only("<think>hm, well"));
    assert!(only("hm, well</think>"));
    assert!(!only("<think>hm</think>Yes."));
    assert!(!only("Yes."));
    assert!(!only(""));
}

#[test]
fn tool_calls_printed_as_text_are_seen() {
    let leaked = |answer: &str| {
        flags_of("Weather in Riga?", &["get_weather"], answer).contains(Flag::ToolCallLeakedText)
    };
    for answer in [
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Riga\"}}\n</tool_call>",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Riga\"}}",
        "```json\n{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Riga\"}}\n```",
        "[{\"name\":\"get_weather\",\"arguments\":{}}]",
        "[TOOL_CALLS][{\"name\": \"x\"}]",
        "<function=get_weather>{\"city\": \"Riga\"}</function>",
        "<｜tool▁calls▁begin｜>get_weather",
        "functions.get_weather:0{\"city\":\"Riga\"}",
        "<invoke name=\"get_weather\">",
    ] {
        assert!(leaked(answer), "{answer}");
    }
    for answer in [
        "I would call get_weather with the city Riga.",
        "{\"city\": \"Riga\", \"temperature\": 3}",
        "{\"name\": \"Riga\", \"arguments\": []}",
        "The call is `<tool_call>`.",
    ] {
        assert!(!leaked(answer), "{answer}");
    }
}

#[test]
fn json_that_was_asked_for_is_no_leak() {
    let prompt = "Reply with {\"name\": ..., \"arguments\": ...} only.";
    assert!(flags_of(prompt, &["f"], "{\"name\": \"f\", \"arguments\": {}}").is_empty());
    assert!(
        flags_of("A record, please", &[], "{\"name\": \"f\", \"arguments\": {}}").is_empty(),
        "no tools offered"
    );
}

#[test]
fn a_long_head_is_cut_on_a_character() {
    let long = format!("{{\"name\": \"f\", \"arguments\": \"{}\"}}", "ж".repeat(2000));
    assert!(flags_of("Go", &["f"], &long).contains(Flag::ToolCallLeakedText));
}

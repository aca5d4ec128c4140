use super::*;

fn loops(text: &str) -> bool {
    loops_asked(text, "Tell me something.")
}

fn loops_asked(text: &str, prompt: &str) -> bool {
    let mut watch = Repetition::new(Arc::new(prompt.into()));
    watch.push(text);
    watch.finish();
    watch.loops()
}

/// Bytes pushed, four characters a piece, until the loop is seen.
fn seen_after(unit: &str, before: &str) -> Option<usize> {
    let mut watch = Repetition::new(Arc::default());
    watch.push(before);
    let text: Vec<char> = unit.chars().cycle().take(4000).collect();
    let mut bytes = 0;
    for piece in text.chunks(4) {
        let piece: String = piece.iter().collect();
        bytes += piece.len();
        watch.piece(&piece);
        watch.push(&piece);
        if watch.loops() {
            return Some(bytes);
        }
    }
    None
}

const PROSE: &str = "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard, \
    now and then, when a longer swell came in from the open sea. Nobody had slept much. The pilot leaned \
    against the rail with a cup of coffee that had long gone cold and counted the lights on the far shore, as \
    he had done every morning for thirty years, because a light that was missing meant work for somebody.";

#[test]
fn phrases_of_every_period_are_seen_within_512_bytes() {
    let source: Vec<char> = PROSE.chars().collect();
    for period in 1..=200 {
        let unit: String = source[..period].iter().collect();
        let after = seen_after(&unit, "Here is what I know about it. ");
        assert!(after.is_some_and(|bytes| bytes <= 512), "period {period}: {after:?}");
    }
}

#[test]
fn loops_without_spaces_are_seen() {
    for unit in ["今天天气很好，我们去公园。", "สวัสดีครับ", "ありがとうございます。", "나는 학교에 갑니다. "]
    {
        let after = seen_after(unit, "");
        assert!(after.is_some_and(|bytes| bytes <= 512), "{unit}: {after:?}");
    }
}

#[test]
fn broken_models_loop() {
    assert!(loops(&"!".repeat(200)));
    assert!(loops(&format!("<think>{}", "no no ".repeat(30))));
    assert!(loops(&"<｜begin▁of▁sentence｜>".repeat(60)));
    assert!(loops(&format!("{PROSE} {}", "and the light was out ".repeat(20))));
    assert!(loops(&"NaN ".repeat(130)));
    assert!(loops(&"\u{fffd}".repeat(70)));
    assert!(loops(&"-".repeat(500)));
}

#[test]
fn identical_tokens_in_a_row_are_a_loop() {
    let mut watch = Repetition::new(Arc::default());
    for i in 0..64 {
        assert!(i > 8 || !watch.loops(), "{i}");
        watch.piece("é");
        watch.push("é");
    }
    assert!(watch.loops());
}

#[test]
fn legitimate_repeats_are_sound() {
    let divider = format!(
        "```\n{}\n| n | n*n |\n|---|-----|\n| 1 | 1 |\n{}\n```\nWow!!! That was all.",
        "-".repeat(40),
        "-".repeat(40)
    );
    let table: String = (0..40).map(|i| format!("| {i} | open | 0.00 | none |\n")).collect();
    let zeros: String = (0..10).map(|_| "0 0 0 0 0 0 0 0 0 0\n").collect();
    let rules = format!("Title\n{}\n{}\n{}\nEnd", "=".repeat(80), "-".repeat(120), "*".repeat(200));
    let chorus = "Row on, row on, the river is wide,\nthe lanterns are lit on the other side.\n";
    let song = format!(
        "{chorus}{chorus}Dark was the water and cold was the oar,\n{chorus}{chorus}and warm is the shore.\n"
    );
    let empty_cells = "| | | | |\n".repeat(20);
    let array = format!("let mask = [{}];", "false, ".repeat(40));
    let base64 = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==";
    let hex: String =
        (0..8).map(|i| format!("{:08x}: 0000 0000 0000 0000 0000 0000 0000 0000\n", i * 16)).collect();
    let trie: String = (0..4).map(|i| format!("{}\n", format!("0xe{i},").repeat(16))).collect();
    let laughter = "Hahahahahahaha! Noooooooooooo!!!!!!";
    let poem = "The woods are dark, the woods are deep,\nand I have miles, and I have miles.\n";
    for text in [
        PROSE,
        &divider,
        &table,
        &zeros,
        &rules,
        &song,
        &empty_cells,
        &array,
        base64,
        &hex,
        &trie,
        laughter,
        poem,
    ] {
        assert!(!loops(text), "{text}");
    }
}

#[test]
fn asked_for_repeats_are_sound() {
    assert!(!loops_asked(&"0 ".repeat(100), "Write 0 a hundred times."));
    assert!(!loops_asked(
        &"I will not talk in class.\n".repeat(50),
        "Write this line 50 times: I will not talk in class."
    ));
    assert!(!loops_asked(&"a".repeat(300), "Give me a string of 300 times the letter a, repeated."));
    assert!(loops(&"I will not talk in class.\n".repeat(50)), "nobody asked");
    assert!(
        loops_asked(&"I will not talk.\n".repeat(400), "Write 50 times: I will not talk."),
        "no end either way"
    );
}

#[test]
fn the_wording_of_requests() {
    for asks in [
        "Repeat after me",
        "Write 0 a hundred times",
        "Schreibe es 50 mal",
        "把这句话重复五遍",
        "a list of 100 zeros",
        "Write a song about rain",
    ] {
        assert!(wants_repeats(asks), "{asks}");
    }
    for plain in [
        "Name three rivers.",
        "How many times did Rome fall?",
        "Show a text table of squares and a divider.",
        "Go on.",
    ] {
        assert!(!wants_repeats(plain), "{plain}");
    }
}

#[test]
fn seq_rep_4_of_words_and_characters() {
    let of = |text: &str| {
        let mut grams = Grams::default();
        grams.push(text);
        grams.seq_rep_4()
    };
    assert_eq!(of("one two three"), None);
    assert!(of("a b c d e f g h").expect("enough").abs() < 1e-12);
    // a b c a b c a b c: 6 grams, 3 different
    assert!((of("a b c a b c a b c").expect("enough") - 0.5).abs() < 1e-12);
    assert!((of("你好吗你好吗你好吗").expect("enough") - 0.5).abs() < 1e-12);
    assert!(of(&"no ".repeat(100)).expect("enough") > 0.98);
    let long: String = (0..50_000).map(|i| format!("w{} ", i * 7919 % 50_021)).collect();
    assert!(of(&long).expect("enough") < 0.01);
}

#[test]
fn chunks_do_not_change_the_grams() {
    let mut whole = Grams::default();
    whole.push(PROSE);
    let mut pieces = Grams::default();
    for c in PROSE.chars() {
        pieces.push(c.encode_utf8(&mut [0; 4]));
    }
    assert_eq!(whole.seq_rep_4(), pieces.seq_rep_4());
}

proptest::proptest! {
    #[test]
    fn four_grams_of_ascii_pieces_are_those_of_the_whole_text(words in "([a-c]{1,3}[ \n\x0b]){0,40}", size in 1..9_usize) {
        let text = format!("{words}\u{e9}");
        let (mut whole, mut pieces) = (Grams::default(), Grams::default());
        whole.push(&text); // by characters, since not all of it is ASCII
        words.as_bytes().chunks(size).for_each(|piece| pieces.push(std::str::from_utf8(piece).expect("ASCII")));
        pieces.push("\u{e9}");
        assert_eq!(whole.seq_rep_4(), pieces.seq_rep_4());
    }
}

//! Rows about what an answer says.

use serde_json::{Value, json};
use touchstone::verdict::Flag::{self, *};

use super::said::{Asked, End, Said};

pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) asked: Asked,
    pub(crate) said: Said,
    /// Exactly these flags.
    pub(crate) raises: Vec<Flag>,
    /// Flags that it comes near to.
    pub(crate) near: Vec<Flag>,
}

fn ask(prompt: &str) -> Asked {
    Asked { prompt: prompt.to_owned(), ..Asked::default() }
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

/// An answer that raises these.
fn odd(raises: &[Flag], asked: Asked, said: Said) -> Row {
    let what = format!("{:?} by {:?}", raises, short(&said.text));
    Row { what, asked, said, raises: raises.to_vec(), near: Vec::new() }
}

/// An answer that comes near to these and raises nothing.
fn sound(near: &[Flag], asked: Asked, said: Said) -> Row {
    let what = format!("no {:?} by {:?}", near, short(&said.text));
    Row { what, asked, said, raises: Vec::new(), near: near.to_vec() }
}

pub(crate) fn all() -> Vec<Row> {
    [emptiness(), loops(), languages(), templates(), declining(), shapes(), numbers()].concat_rows()
}

trait Concat {
    fn concat_rows(self) -> Vec<Row>;
}

impl<const N: usize> Concat for [Vec<Row>; N] {
    fn concat_rows(self) -> Vec<Row> {
        self.into_iter().flatten().collect()
    }
}

const RAINBOW: &str = "Which colours does a rainbow have?";

fn emptiness() -> Vec<Row> {
    let mut rows = vec![
        odd(&[EmptyOutput], ask(RAINBOW), Said::default()),
        odd(&[EmptyOutput], ask(RAINBOW), Said::text("\n\n")),
        odd(
            &[ReasoningOnly],
            ask(RAINBOW),
            Said { reasoning: "They want a list.".into(), ..Said::default() },
        ),
        odd(
            &[ReasoningOnly],
            ask("彩虹有哪些颜色?"),
            Said { reasoning: "用户想要一个列表。".into(), ..Said::default() },
        ),
        odd(
            &[ReasoningOnly, Truncated],
            ask("Какие цвета у радуги?"),
            Said { reasoning: "Нужен список цветов.".into(), ..Said::default() }.limit(),
        ),
        sound(
            &[ReasoningOnly, EmptyOutput],
            ask(RAINBOW),
            Said { reasoning: "They want a list.".into(), ..Said::text("Seven.") },
        ),
    ];
    for one in ["7", "是", "ש", "да", "ค", "👍", "!", "\u{fffd}", "-"] {
        let prompt = format!("Answer in one token, for example with {one}.");
        rows.push(sound(&[EmptyOutput, Gibberish, WrongLanguage], ask(&prompt), Said::text(one)));
    }
    // One token of a character that takes three: servers leave out what is not yet a character.
    rows.push(Row {
        what: "a part of a character at the limit".into(),
        asked: ask("用一个字回答:天空是什么颜色?"),
        said: Said { tokens: Some(1), ..Said::default() }.limit(),
        raises: vec![Truncated],
        near: vec![EmptyOutput],
    });
    rows
}

fn loops() -> Vec<Row> {
    let mut rows = Vec::new();
    for (prompt, piece) in [
        (RAINBOW, "the red and the blue and "),
        ("彩虹有哪些颜色?", "红色和蓝色和"),
        ("Какие цвета у радуги?", "красный и синий и "),
        ("ما ألوان قوس قزح؟", "أحمر وأزرق و "),
        (RAINBOW, "!"),
    ] {
        let said = Said::text(piece.repeat(900 / piece.len() + 60));
        rows.push(odd(&[Repetition, Truncated], ask(prompt), said.limit()));
    }
    let chorus = "Row, row, row your boat, gently down the stream,\nmerrily, merrily, merrily, merrily, life is but a dream.\n";
    rows.extend([
        sound(&[Repetition], ask("Sing the song of the boat, chorus twice."), Said::text(chorus.repeat(2))),
        sound(&[Repetition], ask("写出“好”字五十遍。"), Said::text("好".repeat(50))),
        sound(&[Repetition], ask("Напиши слово «да» сто раз."), Said::text("да ".repeat(100))),
        sound(
            &[Repetition],
            ask("Give me a table of squares."),
            Said::text("| n | n² |\n|---|---|\n| 1 | 1 |\n| 2 | 4 |\n| 3 | 9 |\n| 4 | 16 |\n| 5 | 25 |\n| 6 | 36 |\n"),
        ),
        sound(&[Repetition], ask("Draw a line."), Said::text(format!("{}\nThat was it.", "-".repeat(80)))),
        sound(&[Repetition], ask("أعد كلمة نعم عشرين مرة."), Said::text("نعم ".repeat(20))),
    ]);
    for blank in ["\n", " ", "\t"] {
        rows.push(odd(&[WhitespaceRunaway, Truncated], ask(RAINBOW), Said::text(blank.repeat(400)).limit()));
    }
    // A wide blank is one of three bytes; that it loops is as true.
    let wide = Said::text("\u{3000}".repeat(400)).limit();
    rows.push(odd(&[Repetition, WhitespaceRunaway, Truncated], ask("彩虹有哪些颜色?"), wide));
    let mixed = Said::text("\t \n".repeat(400)).limit();
    rows.push(odd(&[Repetition, WhitespaceRunaway, Truncated], ask(RAINBOW), mixed));
    let code = "```python\ndef f(rows):\n    for row in rows:\n        if row:\n                yield (row,\n                       len(row))\n```\n";
    rows.extend([
        sound(&[WhitespaceRunaway], ask("Write a generator over rows."), Said::text(code)),
        sound(
            &[WhitespaceRunaway],
            ask("Two lines, far apart."),
            Said::text(format!("One.{}Two.", "\n".repeat(40))),
        ),
    ]);
    rows
}

const PROSE: [(&str, &str); 8] = [
    (
        "Why is the sky blue?",
        "Sunlight is scattered by the air, and blue light is scattered more than red light because its waves are shorter. So blue reaches the eye from all sides.",
    ),
    (
        "天空为什么是蓝色的?",
        "太阳光进入大气层后会被空气分子散射,蓝光的波长较短,散射得比红光更强,因此我们从各个方向看到的都是蓝光。",
    ),
    (
        "Почему небо голубое?",
        "Солнечный свет рассеивается молекулами воздуха, причём короткие синие волны рассеиваются сильнее длинных красных, поэтому небо кажется голубым.",
    ),
    (
        "لماذا السماء زرقاء؟",
        "يتشتت ضوء الشمس عند مروره في الغلاف الجوي، ويتشتت الضوء الأزرق أكثر من الأحمر لأن موجاته أقصر، ولذلك نرى السماء زرقاء.",
    ),
    (
        "आसमान नीला क्यों है?",
        "सूर्य का प्रकाश वायुमंडल में बिखरता है और नीला प्रकाश लाल से अधिक बिखरता है क्योंकि उसकी तरंगें छोटी होती हैं।",
    ),
    (
        "하늘은 왜 파란가요?",
        "햇빛은 대기를 지나면서 산란되는데 파란빛은 파장이 짧아서 빨간빛보다 더 많이 산란됩니다. 그래서 하늘이 파랗게 보입니다.",
    ),
    (
        "なぜ空は青いのですか?",
        "太陽の光は大気中で散乱されますが、青い光は波長が短いため赤い光よりも強く散乱されます。そのため空は青く見えます。",
    ),
    (
        "Γιατί ο ουρανός είναι μπλε;",
        "Το φως του ήλιου σκεδάζεται στην ατμόσφαιρα και το μπλε φως σκεδάζεται περισσότερο από το κόκκινο επειδή έχει μικρότερο μήκος κύματος.",
    ),
];

fn languages() -> Vec<Row> {
    let mut rows = Vec::new();
    for (prompt, answer) in PROSE {
        rows.push(sound(&[WrongLanguage, Gibberish], ask(prompt), Said::text(answer)));
    }
    for (_, answer) in &PROSE[1..7] {
        rows.push(odd(&[WrongLanguage], ask(PROSE[0].0), Said::text(*answer)));
    }
    for (language, at) in
        [("Chinese", 1), ("Russian", 2), ("Arabic", 3), ("Hindi", 4), ("Korean", 5), ("Japanese", 6)]
    {
        let prompt = format!("Translate into {language}: {}", PROSE[0].1);
        rows.push(sound(&[WrongLanguage], ask(&prompt), Said::text(PROSE[at].1)));
    }
    rows.push(odd(&[WrongLanguage], ask(PROSE[2].0), Said::text(PROSE[0].1)));
    rows.push(sound(
        &[WrongLanguage],
        ask("Which city was Japan's capital before Tokyo?"),
        Said::text("Kyoto (京都) was the capital of Japan for more than a thousand years."),
    ));
    let damaged = include_str!("../fixtures/traces/corrupt-10pct.answers.jsonl");
    let lines: Vec<Value> =
        damaged.lines().take(24).map(|l| serde_json::from_str(l).expect("json")).collect();
    for four in lines.chunks(6) {
        let text: String = four.iter().filter_map(|l| l["text"].as_str()).collect::<Vec<_>>().join(" ");
        rows.push(odd(&[Gibberish, Truncated], ask("How do vaccines work?"), Said::text(text).limit()));
    }
    let letters: Vec<String> =
        (1..=40).map(|n| format!("{n}. {}", ["A", "B", "C", "D"][n * 7 % 4])).collect();
    let plain = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z";
    for (prompt, text) in [
        ("Give only the letters of the right answers, numbered.", letters.join("\n")),
        ("Give only the letters of the right answers, numbered.", letters.join(" ")),
        ("Recite the alphabet with spaces.", format!("{plain} {}", plain.to_lowercase())),
        ("Which options are right?", "A, C, D, F, G, H, B, A, C, D, F, G, H, B, E, A, D".to_owned()),
        ("What are the first moves of the Ruy Lopez?", "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O 9. h3 Na5 10. Bc2 c5 11. d4 Qc7".to_owned()),
        ("Write the Greek alphabet.", "Α Β Γ Δ Ε Ζ Η Θ Ι Κ Λ Μ Ν Ξ Ο Π Ρ Σ Τ Υ Φ Χ Ψ Ω".to_owned()),
        ("List the chords of the song.", "C G Am F C G F C Am Em F G C G Am F C G F C Dm G C".to_owned()),
        ("Which DNA bases are these?", "A T G C C G T A A T T G C A C G T A G C T A A G C T".to_owned()),
    ] {
        rows.push(sound(&[Gibberish, Repetition], ask(prompt), Said::text(text)));
    }
    rows
}

fn templates() -> Vec<Row> {
    let mut rows = Vec::new();
    for (prompt, text) in [
        ("What is the capital of France?", "Paris.<|im_end|>"),
        ("法国的首都是哪里?", "巴黎。<|endoftext|>"),
        ("Какая столица Франции?", "Париж.</s>"),
        ("ما عاصمة فرنسا؟", "باريس.<end_of_turn>"),
    ] {
        rows.push(odd(&[SpecialTokenLeak], ask(prompt), Said::text(text)));
    }
    rows.extend([
        sound(
            &[SpecialTokenLeak],
            ask("What does <|im_end|> mean?"),
            Said::text("<|im_end|> ends a turn of a chat."),
        ),
        sound(&[SpecialTokenLeak], ask("哪个标记结束一句话?"), Said::text("标记 `</s>` 表示句子结束。")),
        sound(
            &[SpecialTokenLeak],
            ask("Что значит <s> в шаблоне?"),
            Said::text("Метка <s> открывает текст."),
        ),
    ]);
    for (prompt, text) in [
        ("What is 6 times 7?", "<think>Six sevens are forty-two."),
        ("六乘以七等于几?", "六七四十二。</think>四十二。"),
        ("Сколько будет шесть на семь?", "<think>Шестью семь сорок два. Сорок два."),
    ] {
        rows.push(odd(&[ThinkUnbalanced], ask(prompt), Said::text(text)));
    }
    for (prompt, text) in [
        ("What is 6 times 7?", "<think>Six sevens.</think>Forty-two."),
        ("六乘以七等于几?", "<think>六七四十二。</think>四十二。"),
        ("Which tag opens a thought?", "The tag `<think>` opens it."),
    ] {
        rows.push(sound(&[ThinkUnbalanced], ask(prompt), Said::text(text)));
    }
    rows.push(odd(&[ReasoningOnly], ask("What is 6 times 7?"), Said::text("<think>Six sevens.</think>")));
    rows
}

fn declining() -> Vec<Row> {
    let mut rows = Vec::new();
    for (prompt, text) in [
        ("How do I pick a lock?", "I'm sorry, but I can't help with that."),
        ("怎样撬锁?", "抱歉,我无法提供这方面的帮助。"),
        ("Как вскрыть замок?", "Извините, я не могу помочь с этим."),
        ("鍵の開け方を教えて。", "申し訳ありませんが、お手伝いできません。"),
        ("Wie knackt man ein Schloss?", "Tut mir leid, dabei kann ich dir nicht helfen."),
    ] {
        rows.push(odd(&[Refusal], ask(prompt), Said::text(text)));
        rows.push(odd(&[Refusal], ask(prompt), Said { refusal: text.into(), ..Said::default() }));
    }
    for (prompt, text) in [
        (
            "How does the clerk answer?",
            "The clerk says: \"I'm sorry, but I can't help with that.\" Then she closes the window.",
        ),
        ("Is there an error in my code?", "I can't see an error in your code; it prints what you expect."),
        ("店员怎么回答?", "店员说:“抱歉,我无法提供帮助。”然后关上了窗户。"),
        ("Что ответил продавец?", "Продавец сказал: «Извините, я не могу помочь» и ушёл."),
    ] {
        rows.push(sound(&[Refusal], ask(prompt), Said::text(text)));
    }
    rows.push(odd(
        &[ContentFiltered],
        ask("Describe a battle."),
        Said { end: End::Filter, ..Said::default() },
    ));
    rows.push(odd(
        &[ContentFiltered],
        ask("Describe a battle."),
        Said { end: End::Filter, ..Said::text("The army") },
    ));
    rows.push(sound(
        &[ContentFiltered],
        ask("Describe a filter."),
        Said::text("A content filter withholds text."),
    ));
    rows.push(odd(&[Truncated], ask("Tell me a story."), Said::text("Once upon a time there was").limit()));
    rows.push(sound(&[Truncated], ask("Tell me a story."), Said::text("Once upon a time there was")));
    rows
}

fn shapes() -> Vec<Row> {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"], "additionalProperties": false });
    let asked = |prompt: &str| Asked { schema: Some(schema.clone()), ..ask(prompt) };
    let mut rows = Vec::new();
    for (prompt, city) in [
        ("Name a city.", "Łódź"),
        ("说出一个城市。", "北京"),
        ("Назови город.", "Москва"),
        ("اذكر مدينة.", "القاهرة"),
    ] {
        rows.push(sound(&[SchemaInvalid], asked(prompt), Said::text(format!("{{\"city\": \"{city}\"}}\n"))));
        rows.push(odd(&[SchemaInvalid], asked(prompt), Said::text(format!("{{\"town\": \"{city}\"}}"))));
        rows.push(odd(&[SchemaInvalid], asked(prompt), Said::text(city)));
    }
    rows.push(odd(&[SchemaInvalid], asked("Name a city."), Said::text("```json\n{\"city\": \"Rome\"}\n```")));
    rows.push(Row {
        near: vec![SchemaInvalid],
        ..odd(&[Truncated], asked("Name a city."), Said::text("{\"city\": \"Ro").limit())
    });
    let tool = |must: bool| Asked {
        tool: Some(("get_weather".into(), schema.clone(), must)),
        ..ask("Weather in Rome?")
    };
    let call =
        |name: &str, arguments: &str| Said { tool: Some((name.into(), arguments.into())), ..Said::default() };
    rows.extend([
        sound(
            &[ToolCallInvalid, ToolCallMissing, EmptyOutput],
            tool(true),
            call("get_weather", "{\"city\":\"Łódź\"}"),
        ),
        sound(
            &[ToolCallInvalid],
            tool(false),
            Said { text: "I look.".into(), ..call("get_weather", "{\"city\":\"北京\"}") },
        ),
        odd(&[ToolCallInvalid], tool(false), call("get_weather", "{\"town\":\"Москва\"}")),
        odd(&[ToolCallInvalid], tool(false), call("get_wether", "{\"city\":\"Rome\"}")),
        odd(&[ToolCallMissing], tool(true), Said::text("It is sunny in Rome.")),
        odd(&[ToolCallMissing], tool(false), Said { announced: true, ..Said::text("I look.") }),
        sound(&[ToolCallMissing, ToolCallLeakedText], tool(false), Said::text("It is sunny in Rome.")),
        odd(
            &[ToolCallLeakedText],
            tool(false),
            Said::text(
                "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
            ),
        ),
        sound(
            &[ToolCallLeakedText],
            ask("How does a tool call look?"),
            Said::text("Like this: `<tool_call>{\"name\": \"f\"}</tool_call>`."),
        ),
    ]);
    rows
}

fn numbers() -> Vec<Row> {
    let asked = || Asked { logprobs: true, ..ask(RAINBOW) };
    let said = |logprob| Said { logprob: Some(logprob), ..Said::text("Seven colours.") };
    let mut rows = vec![
        sound(&[LogprobsInvalid, LogprobsMissing], asked(), said("-0.25")),
        sound(&[LogprobsInvalid], asked(), said("0")),
        sound(&[LogprobsInvalid], asked(), said("-17.5")),
        odd(&[LogprobsMissing], asked(), Said::text("Seven colours.")),
        sound(&[LogprobsMissing], ask(RAINBOW), Said::text("Seven colours.")),
        odd(&[UsageMissing], ask(RAINBOW), Said { tokens: None, ..Said::text("Seven colours.") }),
        sound(
            &[UsageMissing, UsageInconsistent],
            ask(RAINBOW),
            Said { tokens: Some(3), ..Said::text("Seven colours.") },
        ),
        odd(&[UsageInconsistent], ask(RAINBOW), Said { tokens: Some(-3), ..Said::text("Seven colours.") }),
        odd(
            &[UsageInconsistent],
            ask(PROSE[2].0),
            Said { tokens: Some(2), ..Said::text([PROSE[2].1; 2].join(" И ")) },
        ),
    ];
    for value in ["null", "-9999.0", "3.5", "-1e400"] {
        rows.push(odd(&[LogprobsInvalid], asked(), said(value)));
    }
    rows
}

use super::*;

fn watch(prompt: &str, answer: &str) -> Scripts {
    let mut scripts = Scripts::new(Arc::new(prompt.into()), ScriptSet::EMPTY);
    for c in answer.chars() {
        scripts.push(c.encode_utf8(&mut [0; 4]));
    }
    scripts.finish();
    scripts
}

fn wrong(prompt: &str, answer: &str) -> bool {
    let scripts = watch(prompt, answer);
    scripts.is_foreign() || scripts.is_other_than_asked()
}

#[test]
fn foreign_runs_inside_an_answer_are_seen() {
    let prompt = "Why did the deploy fail? Answer in English.";
    assert!(wrong(
        prompt,
        "The deploy failed because the 日志 volume was full, so free the disk and run it 再次."
    ));
    assert!(wrong(prompt, "The deploy failed потому что the disk was full."));
    assert!(wrong("Name three rivers.", "这里有三条河：长江、黄河、珠江。"));
    assert!(wrong("Name three rivers.", "Волга, Лена и Обь."));
    assert!(wrong(
        "请介绍一下北京的历史。",
        "Beijing has a long history that goes back three thousand years and more, as the capital of several dynasties and of the country today."
    ));
    assert!(wrong("今日の天気は？", "Сегодня хорошая погода, солнечно и тепло."));
}

#[test]
fn citations_formulae_and_names_are_sound() {
    for (prompt, answer) in [
        ("Where did he study?", "He studied in Vladivostok (Владивосток) and later in Sendai (仙台)."),
        (
            "What is the area of a circle?",
            "A = πr², with π ≈ 3.14159; for a sphere use 4πr². Also Δx and σ matter.",
        ),
        (
            "Explain the standard deviation.",
            "It is written σ and computed as √(Σ(x − μ)²/n), in units of μm or Ω.",
        ),
        ("Say hello in Russian.", "Привет is how one says hello."),
        ("Translate 'good morning'.", "おはようございます"),
        ("How do you greet people in different languages?", "Try 你好, Привет or สวัสดี."),
        ("Celebrate!", "🎉🎊 Well done 👍🏽 — ½ of the work, №5, 20 °C, ¿qué? Ça va, Łódź, Ærø!"),
        ("What is Kyoto?", "Kyoto 京都市 is a city in Japan."),
        ("Как написать цикл на Python?", "for i in range(10):\n    print(i)  # цикл"),
        (
            "写一个打印 hello 的程序",
            "```python\nprint('hello')\nfor i in range(10):\n    print(i, end=' ')\nx = [i*i for i in range(3)]; y = {'a': 1, 'b': 2}\n```",
        ),
        ("今日の天気は？", "今日は晴れです。"),
        ("오늘 날씨 어때?", "오늘은 맑습니다. 大韓民國"),
        (
            "Переведи на английский: добрый день, я хотел бы узнать расписание поездов",
            "Good afternoon, I would like to know the timetable of the trains to the city, please, and also the price.",
        ),
    ] {
        assert!(!wrong(prompt, answer), "{prompt} → {answer}");
    }
}

#[test]
fn the_golden_sets_scripts_are_allowed() {
    let golden = ScriptSet::of("これはテストです");
    let mut scripts = Scripts::new(Arc::new("Hi".into()), golden);
    scripts.push("こんにちは世界");
    scripts.finish();
    assert!(!scripts.is_foreign());
    assert!(scripts.foreign_share().expect("letters") < 1e-12);
}

#[test]
fn the_share_counts_letters_only() {
    let scripts = watch("Hi", "ab 12 мм, ()");
    assert!((scripts.foreign_share().expect("letters") - 0.5).abs() < 1e-12);
    assert_eq!(watch("Hi", "12 — 34").foreign_share(), None);
}

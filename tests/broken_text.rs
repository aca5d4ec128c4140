//! What the text flags must see: loops of every period, and text that no reader would call language. Each kind of
//! fault has a healthy twin that must stay silent.
//!
//! `bash tests/run --test broken_text -- --nocapture` prints the figures.

use std::path::PathBuf;
use std::sync::Arc;

use touchstone::text::{Context, Finish, Prompt, Watch};
use touchstone::verdict::{FaultClass, Flag};

/// Bytes of a loop after which its flag must stand.
const LOOP_BYTES: usize = 512;
/// Characters of gibberish in one sample.
const GIBBERISH_CHARS: usize = 200;
/// Samples of each kind.
const SAMPLES: usize = 200;
/// Share of them that must be seen, percent.
const RECALL_PERCENT: usize = 95;

fn watch(prompt: &str) -> Watch {
    let prompt = Arc::new(Prompt::new(prompt, []));
    Watch::new(&Context { prompt, ..Context::default() })
}

/// Hard flags of an answer.
fn hard(prompt: &str, answer: &str) -> Vec<Flag> {
    let mut watch = watch(prompt);
    for piece in answer.split_inclusive(' ') {
        watch.push(piece);
    }
    let flags = watch.finish(Finish::default()).flags;
    flags.iter().filter(|f| f.class() == FaultClass::QualityHard).collect()
}

const PROSE: &str = "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard, now and \
    then, when a longer swell came in from the open sea. Nobody had slept much that night. The keeper leaned against the \
    rail with a cup of coffee that had long gone cold and counted the lights on the far shore, as he had done every \
    morning for thirty years, because a light that was missing meant work for somebody. ";

#[test]
fn a_loop_of_every_period_is_seen_within_512_bytes_of_it() {
    let mut missed = Vec::new();
    for period in 1..=200 {
        for start in [0, 37, 111] {
            let unit: String = PROSE.chars().skip(start).take(period).collect();
            if unit.trim().is_empty() {
                continue; // blanks are another flag's
            }
            let mut watch = watch("Tell me about the harbour.");
            watch.push("Here is what I know about it. ");
            let mut sent = 0;
            // Token by token, as it streams.
            let chars: Vec<char> = unit.chars().cycle().take(LOOP_BYTES).collect();
            for piece in chars.chunks(4) {
                let piece: String = piece.iter().collect();
                sent += piece.len();
                watch.push(&piece);
                if sent >= LOOP_BYTES {
                    break;
                }
            }
            if !watch.flags_now().contains(Flag::Repetition) {
                missed.push((period, unit));
            }
        }
    }
    println!("loops: {} of 600 missed", missed.len());
    assert!(missed.is_empty(), "{missed:?}");
}

fn rng(seed: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed)
}

/// Letters and blanks by chance.
fn letters(rng: &mut fastrand::Rng) -> String {
    (0..GIBBERISH_CHARS)
        .map(|_| if rng.u8(..6) == 0 { ' ' } else { char::from(b'a' + rng.u8(..26)) })
        .collect()
}

/// All that a keyboard types, by chance.
fn printable(rng: &mut fastrand::Rng) -> String {
    (0..GIBBERISH_CHARS).map(|_| char::from(rng.u8(b' '..=b'~'))).collect()
}

/// Letters of many scripts by chance, word by word.
fn mixed_scripts(rng: &mut fastrand::Rng) -> String {
    const SCRIPTS: [(u32, u32); 8] = [
        (0x61, 26),
        (0x3b1, 24),
        (0x430, 32),
        (0x5d0, 27),
        (0x627, 28),
        (0x905, 50),
        (0x4e00, 2000),
        (0xac00, 2000),
    ];
    (0..GIBBERISH_CHARS)
        .map(|_| {
            if rng.u8(..7) == 0 {
                return ' ';
            }
            let (first, n) = SCRIPTS[rng.usize(..SCRIPTS.len())];
            char::from_u32(first + rng.u32(..n)).unwrap_or(' ')
        })
        .collect()
}

/// UTF-8 read as Latin-1, from a place by chance.
fn mojibake(source: &str, rng: &mut fastrand::Rng) -> String {
    let wrong: Vec<char> = source.bytes().map(char::from).collect();
    let from = rng.usize(..wrong.len() - GIBBERISH_CHARS);
    wrong[from..from + GIBBERISH_CHARS].iter().collect()
}

/// The letters of each word in another order.
fn shuffled(rng: &mut fastrand::Rng) -> String {
    let from = rng.usize(..PROSE.len() / 2);
    let text: String = PROSE.chars().cycle().skip(from).take(GIBBERISH_CHARS).collect();
    text.split(' ')
        .map(|word| {
            let mut letters: Vec<char> = word.chars().collect();
            rng.shuffle(&mut letters);
            letters.into_iter().collect()
        })
        .collect::<Vec<String>>()
        .join(" ")
}

/// Short fragments of letters, digits and signs by chance, `letters` in a hundred of them small letters.
fn fragments(letters: usize, longest: usize, rng: &mut fastrand::Rng) -> String {
    const OTHERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!@#$%^&*?+-=~/";
    let mut text = String::new();
    while text.len() < GIBBERISH_CHARS {
        for _ in 0..rng.usize(1..=longest) {
            let letter = rng.usize(..100) < letters;
            let c = if letter { rng.u8(b'a'..=b'z') } else { OTHERS[rng.usize(..OTHERS.len())] };
            text.push(char::from(c));
        }
        text.push(' ');
    }
    text.truncate(GIBBERISH_CHARS);
    text
}

const RUSSIAN: &str = "Гавань лежала тихо под тонким туманом, и лишь изредка был слышен колокол внешнего буя, когда с открытого моря \
    приходила длинная волна. Никто не спал этой ночью, и смотритель маяка считал огни на дальнем берегу, как делал \
    это каждое утро тридцать лет подряд.";
const JAPANESE: &str = "港は薄い霧の下で静かに横たわり、沖から長いうねりが来るたびに、外側のブイの鐘が時折聞こえるだけだった。その夜は誰も\
    よく眠れなかった。灯台守は冷めたコーヒーを手に、三十年間毎朝そうしてきたように対岸の明かりを数えていた。";
const GERMAN: &str = "Größere Wellen hört man über dünnem Nebel schlägt äußere Boje für müde Männer, während früh die Möwen über \
    den Häusern kreisen, und natürlich schläft später niemand mehr, wenn täglich größere Schiffe über die Förde führen, \
    grüßen müßige Gäste die höflichen Bürger; überall glänzt späte Röte über den Dächern.";

#[test]
fn gibberish_of_two_hundred_characters_is_seen() {
    type Make = fn(&mut fastrand::Rng) -> String;
    let kinds: [(&str, Make); 9] = [
        ("random letters", letters),
        ("random characters", printable),
        ("mixed scripts", mixed_scripts),
        ("mojibake of Russian", |rng| mojibake(RUSSIAN, rng)),
        ("mojibake of Japanese", |rng| mojibake(JAPANESE, rng)),
        ("shuffled letters", shuffled),
        ("fragments of all kinds", |rng| fragments(0, 6, rng)),
        ("fragments, mostly letters", |rng| fragments(30, 6, rng)),
        ("longer fragments", |rng| fragments(20, 9, rng)),
    ];
    let mut poor = Vec::new();
    for (kind, make) in kinds {
        for prompt in ["Please go on.", "Tell me about the harbour and its keeper."] {
            let mut rng = rng(11);
            let texts: Vec<String> = (0..SAMPLES).map(|_| make(&mut rng)).collect();
            let missed: Vec<&String> =
                texts.iter().filter(|t| !hard(prompt, t).contains(&Flag::Gibberish)).collect();
            let seen = SAMPLES - missed.len();
            println!("{kind}: {seen} of {SAMPLES} ({prompt})");
            if seen * 100 < SAMPLES * RECALL_PERCENT {
                poor.push(format!("{kind}: {seen} of {SAMPLES} ({prompt}), as {:?}", missed[0]));
            }
        }
    }
    // A few broken umlauts leave a text readable: it is no gibberish, and a flag of its own where bytes are broken.
    println!("mojibake of German: {:?}", hard("Please go on.", &mojibake(GERMAN, &mut rng(3))));
    assert!(poor.is_empty(), "\n{}", poor.join("\n"));
}

struct Answer {
    prompt: String,
    text: String,
    logprob_mean: f64,
}

fn answers(name: &str) -> Vec<Answer> {
    let file =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/traces/{name}.answers.jsonl"));
    let lines = std::fs::read_to_string(file).expect("a fixture");
    let answer = |line: &str| {
        let json: serde_json::Value = serde_json::from_str(line).expect("json");
        let text = |name: &str| json[name].as_str().expect("a text").to_owned();
        let logprob_mean = json["logprob_mean"].as_f64().expect("a number");
        Answer { prompt: text("prompt"), text: text("text"), logprob_mean }
    };
    lines.lines().map(answer).collect()
}

#[test]
fn word_salad_of_a_damaged_model_is_seen_at_no_false_alarm() {
    let (healthy, damaged) = (answers("healthy-a"), answers("corrupt-10pct"));
    let by_text = |a: &Answer| !hard(&a.prompt, &a.text).is_empty();
    let floor = healthy.iter().map(|a| a.logprob_mean).fold(f64::INFINITY, f64::min);
    let by_logprob = |a: &Answer| a.logprob_mean < floor;
    let count = |of: &dyn Fn(&Answer) -> bool| damaged.iter().filter(|a| of(a)).count();
    let false_alarms = healthy.iter().filter(|a| by_text(a)).count();
    println!("word salad, {} answers, none of {} healthy ones flagged:", damaged.len(), healthy.len());
    println!("  by the text alone: {}", count(&by_text));
    println!("  by a mean logprob below every healthy one ({floor:.2}): {}", count(&by_logprob));
    println!("  by either: {}", count(&|a| by_text(a) || by_logprob(a)));
    assert_eq!(false_alarms, 0);
    assert!(count(&by_text) * 10 >= damaged.len() * 9, "{} of {}", count(&by_text), damaged.len());
}

/// Each fault has a healthy twin: what looks like it, and was asked for or is sound by itself.
#[test]
fn healthy_twins_are_silent() {
    let chorus =
        "La la la, the river runs,\nla la la, the river runs,\nla la la, it runs to the sea.\n".repeat(4);
    let verse = "I walked along the water's edge and counted every stone,\nthe evening came, the lamps were lit, and I was not alone.\n";
    let table: String =
        (1..=40).map(|i| format!("| {i} | item {i} | {} | in stock |\n", i * 7 % 13)).collect();
    let zeros = "0 ".repeat(100);
    let array = format!("[{}]", ["0.0"; 120].join(", "));
    let alphabet: String = ('A'..='Z').map(|c| format!("{c} ")).collect();
    let countries = "Albania\nBelgium\nCroatia\nDenmark\nEstonia\nFrance\nGermany\nHungary\nIceland\nJordan\nKenya\nLatvia\nMalta\nNepal\nOman\nPeru\nQatar\nRomania\nSerbia\nTurkey\nUganda\nVietnam\nYemen\nZambia";
    let minified = "!function(t,e){\"object\"==typeof exports&&\"undefined\"!=typeof module?module.exports=e():\"function\"==typeof define&&define.amd?define(e):(t=t||self).x=e()}(this,function(){\"use strict\";var t=Math.floor;return function(e,n){return t(e/n)*n}});";
    let key = "TUlJSDB6Q0NCYnVnQXdJQkFnSUlYc08zcGtOL3BPQXdEUVlKS29aSWh2Y05BUUVGQlFBd1FqRVNNQkFHQTFVRUF3d0pRVU5EVmxKQlNWb3hNUkF3RGdZRFZRUUxEQWRRUzBsQlEwTldNUTB3Q3dZRFZRUUtEQVJCUTBOV01Rc3c=";
    let rule = format!("# Part one\n{}\n# Part two\n{}\n", "#".repeat(120), "%".repeat(120));
    let hex = "7f 45 4c 46 02 01 01 00 00 00 00 00 00 00 00 00\n03 00 3e 00 01 00 00 00 c0 68 00 00 00 00 00 00\n40 00 00 00 00 00 00 00 e8 d5 01 00 00 00 00 00";
    let drug = "Common remedies are paracetamol, ibuprofen and pseudoephedrine; rest and plenty of fluids help most.";
    // Keys of one kind each, as people are given them: in lines, numbered, in a sentence.
    let mut dice = rng(23);
    let mut words = |kinds: &str, length: usize, n: usize| -> Vec<String> {
        let kinds: Vec<char> = kinds.chars().collect();
        let mut word = || (0..length).map(|_| kinds[dice.usize(..kinds.len())]).collect::<String>();
        (0..n).map(|_| word()).collect()
    };
    let all = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!@#$%^&*?+-=~/";
    let codes = words("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", 5, 40);
    let keys: Vec<String> = codes.chunks(5).map(|five| five.join("-")).collect();
    let hashes = words("0123456789abcdef", 40, 6).join("\n");
    let numbered: Vec<String> =
        words(all, 8, 20).iter().enumerate().map(|(i, word)| format!("{}. {word}", i + 1)).collect();
    let pins = words(all, 6, 30).join(" ");
    let plates = words("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", 3, 50).join(" ");
    let names = "amlodipine, apixaban, atorvastatin, bisoprolol, clopidogrel, dapagliflozin, empagliflozin, furosemide, \
                 gabapentin, hydroxychloroquine, lisinopril, metformin, omeprazole, pantoprazole, ramipril, rivaroxaban";
    let unsorted = "metformin, amlodipine, rivaroxaban, levothyroxine, bisoprolol, hydroxychloroquine, atorvastatin, \
                    pantoprazole, sertraline, clopidogrel, furosemide, dapagliflozin, lisinopril, gabapentin, apixaban";
    for (prompt, answer) in [
        ("Which drugs do you know?", names.to_owned()),
        ("Which drugs do you know?", unsorted.to_owned()),
        ("Which licences are left?", keys.join("\n")),
        ("Which checksums did you get?", hashes),
        ("What did the users choose?", numbered.join("\n")),
        ("What did the users choose?", pins),
        ("Which plates were seen?", plates),
        ("Write a song about a river.", format!("{verse}{chorus}{verse}{chorus}")),
        ("Show the stock as a table of 40 rows.", table),
        ("Write 0 a hundred times.", zeros),
        ("Give me a JSON array of 120 zeros.", array),
        ("Say the alphabet.", alphabet),
        ("List countries, one a line.", countries.to_owned()),
        ("Minify this module.", minified.to_owned()),
        ("What is the key?", key.to_owned()),
        ("Write the headings of the file.", rule),
        ("Dump the first bytes.", hex.to_owned()),
        ("What may I take for a cold?", drug.to_owned()),
        ("Tell me about the harbour.", PROSE.to_owned()),
        ("Расскажи о гавани.", RUSSIAN.to_owned()),
        ("港について話してください。", JAPANESE.to_owned()),
        ("Erzähl mir vom Meer.", GERMAN.to_owned()),
    ] {
        assert_eq!(hard(prompt, &answer), [], "{prompt} → {answer}");
    }
}

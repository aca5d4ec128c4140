use std::sync::LazyLock;

use super::*;

#[derive(serde::Deserialize)]
struct Answer {
    prompt: String,
    text: String,
    #[serde(default)]
    damage: String,
}

fn answers(name: &str) -> Vec<Answer> {
    let path = format!("{}/tests/fixtures/traces/{name}.answers.jsonl", env!("CARGO_MANIFEST_DIR"));
    let lines = std::fs::read_to_string(path).expect("fixture");
    lines.lines().map(|line| serde_json::from_str(line).expect("an answer")).collect()
}

fn watch(prompt: &str, text: &str) -> Gibberish {
    let mut watch = Gibberish::new(Arc::new(prompt.into()));
    watch.push(text);
    watch.finish();
    watch
}

fn flagged(answers: &[Answer]) -> usize {
    answers.iter().filter(|a| watch(&a.prompt, &a.text).tripped()).count()
}

/// Longest stretch of answers in a row without `wanted` flags among any five neighbours.
fn fewest_of_five(answers: &[Answer]) -> usize {
    let flags: Vec<bool> = answers.iter().map(|a| watch(&a.prompt, &a.text).tripped()).collect();
    flags.windows(5).map(|five| five.iter().filter(|f| **f).count()).min().unwrap_or(0)
}

#[test]
fn a_really_damaged_model_is_seen_and_a_healthy_one_is_not() {
    let (healthy, slight, heavy) = (answers("healthy-a"), answers("corrupt-1pct"), answers("corrupt-10pct"));
    let (false_alarms, some, most) = (flagged(&healthy), flagged(&slight), flagged(&heavy));
    println!("healthy: {false_alarms} of {}", healthy.len());
    println!("1 % damage: {some} of {}", slight.len());
    println!(
        "10 % damage: {most} of {}; of any five in a row at least {}",
        heavy.len(),
        fewest_of_five(&heavy)
    );
    assert_eq!(false_alarms, 0);
    assert!(most * 100 >= heavy.len() * 90, "{most} of {}", heavy.len());
    assert!(fewest_of_five(&heavy) >= 3, "three faults among any five live answers");
    assert!(some <= 5, "fluent answers are not gibberish");
}

#[test]
fn damages_never_seen_in_fitting_are_seen_too() {
    let all = answers("damaged-unseen");
    let mut kinds: Vec<&str> = all.iter().map(|a| a.damage.as_str()).collect();
    kinds.dedup();
    for kind in &kinds {
        let own: Vec<&Answer> = all.iter().filter(|a| a.damage == *kind).collect();
        let seen = own.iter().filter(|a| watch(&a.prompt, &a.text).tripped()).count();
        println!("{kind}: {seen} of {}", own.len());
        assert!(seen * 2 >= own.len(), "{kind}: {seen} of {}", own.len());
    }
    let seen = flagged(&all);
    println!("all: {seen} of {}", all.len());
    assert!(seen * 100 >= all.len() * 75, "{seen} of {}", all.len());
}

#[test]
fn damaged_answers_in_one_stream_are_seen_early() {
    let text: String = answers("corrupt-10pct").iter().map(|a| format!("{} ", a.text)).collect();
    let mut watch = Gibberish::new(Arc::new("Tell me about the sea.".into()));
    let mut bytes = 0;
    for piece in text.split_inclusive(' ') {
        watch.push(piece);
        bytes += piece.len();
        if watch.tripped() {
            break;
        }
    }
    assert!(bytes <= 512, "{bytes}");
}

#[test]
fn sound_answers_on_end_are_sound() {
    let text: String = answers("healthy-a").iter().map(|a| format!("{}\n", a.text)).collect();
    let long = watch("Tell me about everything.", &text);
    assert!(!long.tripped() && long.evidence() < 1.0, "{}", long.evidence());
}

/// Things that are no prose, or no English, and no fault.
const SOUND: &[(&str, &str)] = &[
    (
        "prose",
        "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard, now and then, when a longer swell came in from the open sea. Nobody had slept much that night.",
    ),
    (
        "rust",
        "fn main() {\n    let mut total = 0;\n    for (i, x) in values.iter().enumerate() {\n        total += x * i as i64;\n    }\n    println!(\"{total}\");\n}",
    ),
    (
        "python",
        "def fib(n):\n    a, b = 0, 1\n    while a < n:\n        print(a, end=' ')\n        a, b = b, a + b\n    return a\n\nif __name__ == '__main__':\n    fib(1000)",
    ),
    (
        "minified",
        "function t(e,n){return e.map(function(e){return n?e.a+e.b:e.a-e.b}).filter(Boolean)}var r=t([{a:1,b:2}],!0);module.exports={t:t,r:r};",
    ),
    (
        "sql",
        "SELECT u.country, COUNT(*) AS users FROM users u LEFT JOIN orders o ON o.user_id = u.id WHERE u.active = 1 GROUP BY u.country HAVING COUNT(*) > 10 ORDER BY users DESC LIMIT 20;",
    ),
    (
        "shell",
        "find . -name '*.rs' -print0 | xargs -0 wc -l | sort -n | tail -n 20\ngrep -rn \"TODO\" src/ | awk -F: '{print $1}' | sort | uniq -c",
    ),
    (
        "json",
        "{\"users\": [{\"id\": 1, \"name\": \"Ana Torres\", \"email\": \"ana@example.org\", \"tags\": [\"admin\", \"eu\"]}, {\"id\": 2, \"name\": \"Bo Lund\", \"email\": null, \"tags\": []}], \"total\": 2}",
    ),
    (
        "html",
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><title>Form</title></head>\n<body>\n<form action=\"/send\" method=\"post\"><label>Name <input name=\"n\"></label></form>\n</body>\n</html>",
    ),
    (
        "table",
        "| Country | Capital | Population |\n|---|---|---|\n| France | Paris | 68,042,591 |\n| Japan | Tokyo | 124,516,650 |\n| Kenya | Nairobi | 53,771,300 |",
    ),
    (
        "csv",
        "id,name,qty,price\n1,Bolt M8,1200,0.12\n2,Washer,5000,0.02\n3,Hex nut M8,1180,0.05\n4,Bracket 40x40,310,1.35",
    ),
    (
        "names",
        "1. Aisha Mohammed\n2. Bjørn Halvorsen\n3. Chukwuemeka Okafor\n4. Dmitri Volkov\n5. Esperanza Ruiz\n6. Fionnuala O'Brien\n7. Giorgos Papadopoulos\n8. Haruto Nakamura",
    ),
    (
        "list",
        "- apples\n- bananas\n- cherries\n- dates\n- elderberries\n- figs\n- grapes\n- honeydew melon\n- kiwi fruit\n- lemons",
    ),
    (
        "poem",
        "Slow falls the rain on the roof of the mill,\nslow goes the wheel, and the evening is still;\nround goes the water and round goes the year,\nand nobody comes, and there's nobody here.",
    ),
    ("haiku", "An old silent pond\na frog jumps into the pond\nsplash! silence again"),
    (
        "math",
        "Let f(x) = x^2 - 4x + 3. Then f'(x) = 2x - 4, so f'(x) = 0 at x = 2, where f(2) = -1. The roots are x = 1 and x = 3, since (x - 1)(x - 3) = 0.",
    ),
    (
        "latex",
        "The area is $A = \\pi r^2$ and the volume is $V = \\frac{4}{3}\\pi r^3$, hence $\\frac{dV}{dr} = 4\\pi r^2$, which is the surface of the sphere.",
    ),
    (
        "emoji",
        "🎉 Congratulations on your new job! 🎊 I'm so happy for you 😊. Wishing you all the best in this new adventure! 🚀✨",
    ),
    (
        "steps",
        "1. Preheat the oven to 180 °C (350 °F).\n2. Mix 200 g flour, 2 tsp baking powder and a pinch of salt.\n3. Whisk 2 eggs with 150 ml milk.\n4. Bake for 25-30 min.",
    ),
    (
        "dialogue",
        "CAT: You again.\nDOG: Me again! Did you miss me?\nCAT: I missed the quiet.\nDOG: I brought you a stick.\nCAT: I am a cat.\nDOG: It's a very good stick.",
    ),
    (
        "addresses",
        "See https://example.org/a/b?c=d&e=f#g, mail to someone@example.org, or read RFC 9110 (HTTP semantics) and the file /usr/share/doc/README.md for more.",
    ),
    (
        "keys",
        "The checksum is e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 and the id is 550e8400-e29b-41d4-a716-446655440000, as expected.",
    ),
    (
        "log",
        "2024-05-03T12:00:01Z INFO server: listening on 0.0.0.0:8080\n2024-05-03T12:00:07Z WARN pool: slow acquire (1.2 s) id=42\n2024-05-03T12:00:09Z ERROR db: timeout after 5000 ms",
    ),
    (
        "yaml",
        "version: \"3\"\nservices:\n  web:\n    image: nginx:1.25\n    ports:\n      - \"8080:80\"\n    environment:\n      - MODE=production\n    restart: always",
    ),
    (
        "german",
        "Der Hafen lag still unter einem dünnen Nebel, und nur die Glocke der äußeren Boje war von Zeit zu Zeit zu hören, wenn eine längere Dünung vom offenen Meer hereinkam.",
    ),
    (
        "french",
        "Le port était calme sous une légère brume, et l'on n'entendait que la cloche de la bouée, de temps en temps, quand une houle plus longue arrivait du large.",
    ),
    (
        "spanish",
        "El puerto estaba tranquilo bajo una fina niebla, y solo se oía de vez en cuando la campana de la boya, cuando llegaba del mar abierto una ola más larga.",
    ),
    (
        "italian",
        "Il porto era tranquillo sotto una nebbia sottile, e si sentiva soltanto, di tanto in tanto, la campana della boa quando arrivava un'onda più lunga dal mare aperto.",
    ),
    (
        "portuguese",
        "O porto estava calmo sob uma névoa fina, e só se ouvia, de vez em quando, o sino da boia quando uma onda mais longa chegava do mar aberto.",
    ),
    (
        "dutch",
        "De haven lag stil onder een dunne mist, en alleen de bel van de buitenste boei was af en toe te horen als er een langere deining binnenkwam.",
    ),
    (
        "polish",
        "Port leżał cicho pod cienką mgłą i tylko od czasu do czasu było słychać dzwon zewnętrznej boi, gdy z otwartego morza nadchodziła dłuższa fala.",
    ),
    (
        "swedish",
        "Hamnen låg stilla under en tunn dimma, och bara klockan på den yttre bojen hördes då och då, när en längre dyning kom in från öppet hav.",
    ),
    (
        "turkish",
        "Liman ince bir sisin altında sessizdi ve açık denizden daha uzun bir dalga geldiğinde yalnızca dış şamandıranın çanı ara sıra duyuluyordu.",
    ),
    (
        "finnish",
        "Satama oli hiljaa ohuen sumun alla, ja vain ulomman poijun kello kuului silloin tällöin, kun avomereltä tuli pidempi maininki.",
    ),
    (
        "hungarian",
        "A kikötő csendben feküdt a vékony köd alatt, és csak a külső bója harangja hallatszott néha, amikor hosszabb hullám érkezett a nyílt tenger felől.",
    ),
    (
        "indonesian",
        "Pelabuhan itu tenang di bawah kabut tipis, dan hanya lonceng pelampung luar yang terdengar sesekali ketika gelombang panjang datang dari laut lepas.",
    ),
    (
        "vietnamese",
        "Bến cảng nằm yên dưới làn sương mỏng, và thỉnh thoảng chỉ nghe thấy tiếng chuông của chiếc phao ngoài khi có con sóng dài từ biển khơi vào.",
    ),
    (
        "swahili",
        "Bandari ilikuwa tulivu chini ya ukungu mwembamba, na kengele ya boya la nje tu ndiyo iliyosikika mara kwa mara wimbi refu lilipoingia kutoka baharini.",
    ),
    (
        "russian",
        "Гавань лежала тихо под тонким туманом, и лишь изредка был слышен колокол внешнего буя, когда с открытого моря приходила длинная волна.",
    ),
    (
        "greek",
        "Το λιμάνι ήταν ήσυχο κάτω από μια λεπτή ομίχλη, και μόνο η καμπάνα της σημαδούρας ακουγόταν πότε πότε.",
    ),
    ("arabic", "كان الميناء هادئا تحت ضباب رقيق، ولم يكن يسمع إلا جرس العوامة الخارجية بين حين وآخر."),
    ("hebrew", "הנמל היה שקט תחת ערפל דק, ורק פעמון המצוף החיצוני נשמע מפעם לפעם."),
    ("hindi", "बंदरगाह पतली धुंध के नीचे शांत था, और केवल बाहरी बोया की घंटी कभी-कभी सुनाई देती थी।"),
    ("thai", "ท่าเรือเงียบสงบภายใต้หมอกบาง ๆ และได้ยินเพียงเสียงระฆังของทุ่นด้านนอกเป็นครั้งคราว"),
    (
        "chinese",
        "港口静静地躺在薄雾之下，只有当外海涌来较长的浪时，才偶尔听到外侧浮标的钟声。没有人睡得很多。",
    ),
    (
        "japanese",
        "港は薄い霧の下で静かに横たわり、沖から長いうねりが来るたびに、外側のブイの鐘が時折聞こえるだけだった。",
    ),
    (
        "korean",
        "항구는 엷은 안개 아래 고요했고, 먼바다에서 긴 너울이 들어올 때면 바깥 부표의 종소리만 가끔 들렸다.",
    ),
    ("short", "Paris."),
    ("number", "42"),
    ("greeting", "Hello! How can I help you today?"),
    (
        "caps",
        "WARNING: DO NOT OPEN THE COVER WHILE THE MACHINE IS RUNNING. RISK OF ELECTRIC SHOCK. CALL SERVICE FIRST.",
    ),
    (
        "legal",
        "The licensee shall not, without the prior written consent of the licensor, assign, transfer, charge or otherwise deal with this agreement or any rights under it.",
    ),
    (
        "medical",
        "Common side effects of ibuprofen include dyspepsia, nausea and headache; rarely, gastrointestinal haemorrhage, bronchospasm or acute kidney injury may occur.",
    ),
    (
        "chemistry",
        "H2SO4 + 2 NaOH -> Na2SO4 + 2 H2O; CaCO3 + 2 HCl -> CaCl2 + CO2 + H2O. Sulfuric acid is H2SO4, nitric acid HNO3, acetic acid CH3COOH.",
    ),
    (
        "slang",
        "lol yeah idk tbh, gonna grab some food first then we can hop on. u coming too or nah? brb 5 min, don't start w/o me pls",
    ),
];

#[test]
fn sound_text_of_many_kinds_and_languages_is_sound() {
    let mut worst = Vec::new();
    for (kind, text) in SOUND {
        let watch = watch("Please go on.", text);
        worst.push((watch.evidence(), *kind));
        assert!(!watch.tripped(), "{kind}: {}", watch.evidence());
    }
    worst.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("nearest to the limit: {:.2?}", &worst[..8]);
}

#[test]
fn one_strange_block_in_sound_text_is_forgiven() {
    let sound = SOUND[0].1;
    let salad = "way half into hers n rest t en co of before part minrel she they whole. K st into any of way not you of so n";
    let text = format!("{sound} {sound} The ciphertext read: {salad} {sound} {sound}");
    assert!(!watch("Tell me a story.", &text).tripped());
    assert!(watch("Tell me a story about bees.", &format!("{salad} {salad} {salad}")).tripped());
}

#[test]
fn code_blocks_are_not_judged_and_asked_for_oddities_are_doubted() {
    let salad = "way half into hers n rest t en co of before part minrel she they whole. K st into any of way not you of so n";
    let block = format!("Here it is:\n```\n{salad}\n```\nThat is all there was in the file.");
    assert!(!watch("Show me the file.", &block).tripped());
    assert!(!watch("Give me a nonsense text of twenty words.", salad).tripped());
}

#[test]
fn chunks_do_not_matter() {
    for answer in answers("corrupt-10pct").iter().chain(&answers("healthy-a")) {
        let whole = watch(&answer.prompt, &answer.text);
        let mut pieces = Gibberish::new(Arc::new(answer.prompt.as_str().into()));
        for c in answer.text.chars() {
            pieces.push(c.encode_utf8(&mut [0; 4]));
            assert!(pieces.block.capacity() <= 2 * LONGEST_BLOCK_BYTES);
        }
        pieces.finish();
        assert!((whole.evidence() - pieces.evidence()).abs() < 1e-9);
    }
}

/// Full blocks of all answers of a kind.
fn blocks_of(name: &str) -> Vec<String> {
    let mut watch = Gibberish::new(Arc::default());
    let mut blocks = Vec::new();
    for piece in answers(name).iter().flat_map(|a| a.text.split_inclusive(' ')) {
        if watch.block.len() + piece.len() >= BLOCK_BYTES {
            blocks.push(std::mem::take(&mut watch.block));
        }
        watch.block.push_str(piece);
    }
    blocks
}

#[test]
fn nearly_all_sound_blocks_are_surely_sound_and_no_damaged_one_is() {
    let sure = |name| {
        let blocks = blocks_of(name);
        (blocks.iter().filter(|block| odds(block) <= SURE).count(), blocks.len())
    };
    let (healthy, all) = sure("healthy-a");
    println!("healthy: {healthy} of {all}; damaged: {:?}", ["corrupt-10pct", "damaged-unseen"].map(sure));
    assert!(healthy * 100 >= all * 88, "{healthy} of {all}");
    for name in ["corrupt-10pct", "damaged-unseen"] {
        assert_eq!(sure(name).0, 0, "{name}");
    }
}

proptest::proptest! {
    /// Blocks of sound and damaged answers in any order: as they come, and for comparison each in its turn.
    #[test]
    fn blocks_that_wait_hide_no_fault(damaged in proptest::collection::vec(proptest::bool::weighted(0.25), 1..24),
                                      from in proptest::prelude::any::<proptest::sample::Index>()) {
        static BLOCKS: LazyLock<[Vec<String>; 2]> = LazyLock::new(|| ["healthy-a", "corrupt-10pct"].map(blocks_of));
        let (mut waits, mut in_turn) = (Gibberish::new(Arc::default()), Gibberish::new(Arc::default()));
        let mut before = 0.0;
        for (i, damaged) in damaged.into_iter().enumerate() {
            let blocks = &BLOCKS[usize::from(damaged)];
            let block = &blocks[(from.index(blocks.len()) + i) % blocks.len()];
            let odds = in_turn.odds(block);
            if before > -SURE && odds <= SURE {
                break; // a single block that is stranger than the next is sound: forgiven, if it waited
            }
            before = odds;
            in_turn.weigh(block, odds);
            waits.block.clone_from(block);
            waits.judge();
            let last = if waits.waiting.is_empty() { f32::MIN } else { odds };
            proptest::prop_assert!(waits.tripped() == in_turn.tripped() || last > LIMIT + CREDIT - 0.01);
            proptest::prop_assert!(waits.most <= in_turn.most);
        }
        waits.finish();
        proptest::prop_assert_eq!(waits.tripped(), in_turn.tripped());
    }

    #[test]
    fn pieces_do_not_matter(text in "([a-z ]{1,9}|[ -~]{1,6}|```|`|\n|é|https://a\\.example/[a-z0-9]{1,30} ){0,120}", size in 1..40_usize) {
        let watched = |pieces: &mut dyn Iterator<Item = &str>| {
            let mut watch = Gibberish::new(Arc::default());
            pieces.for_each(|piece| watch.push(piece));
            watch.finish();
            (watch.blocks, watch.sum.to_bits(), watch.most.to_bits())
        };
        let chars: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let cuts: Vec<usize> = chars.iter().copied().step_by(size).chain([text.len()]).collect();
        let whole = watched(&mut std::iter::once(text.as_str()));
        assert_eq!(whole, watched(&mut cuts.windows(2).map(|w| &text[w[0]..w[1]])));
    }
}

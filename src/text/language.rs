//! Which language a text in Latin letters is written in, and whether that is another than the prompt's.
//!
//! Scripts tell Chinese from English and say nothing of German. What does is the short words that join others: a third
//! to a half of running text, and hardly one of them common to two families of languages. A text whose joining words
//! are those of one language, many different ones of them, is in it; where that is in doubt nothing is said. Of 122,000
//! windows of 512 bytes of documentation, code, tables and names none was taken for a language that is not in it
//! (`tests/ordinary_text.rs`).
//!
//! An answer in another language is wrong only if the question called for its own: a prompt that names a language or a
//! country, asks for a translation, or has words of the other language in it calls for both. Near relatives (Spanish and
//! Portuguese, German and Dutch) are not held against each other, since between them stand languages not listed here.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::Prompt;

/// Part of an answer that is read, bytes; enough for some 300 words.
const READ_BYTES: usize = 2 << 10;
/// Words of an answer, and of a prompt, at least.
const ANSWER_WORDS: usize = 50;
const PROMPT_WORDS: usize = 6;
/// Share of its words that must join others in the language's own way, percent.
const JOINING_PERCENT: usize = 22;
/// Different ones of them, in an answer and in a prompt.
const ANSWER_DIFFERENT: u32 = 8;
const PROMPT_DIFFERENT: u32 = 3;
/// As many of the next language's, percent of these at most.
const NEXT_PERCENT: usize = 60;
/// Words of the prompt's own language among an answer's, where they are not the other's as well, percent at most.
const OWN_PERCENT: usize = 10;
/// Joining words of the other language in a prompt, at most: one may be a word of its own there.
const FOREIGN_IN_PROMPT: usize = 1;
/// Longest joining word, bytes.
const LONGEST: usize = 16;

/// A language that is told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    English,
    German,
    French,
    Spanish,
    Italian,
    Portuguese,
    Dutch,
    Swedish,
    Polish,
    Czech,
    Turkish,
    Finnish,
    Hungarian,
}

impl Language {
    /// Relatives share a family.
    const fn family(self) -> u8 {
        match self {
            Self::English => 0,
            Self::German | Self::Dutch | Self::Swedish => 1,
            Self::French | Self::Spanish | Self::Italian | Self::Portuguese => 2,
            Self::Polish | Self::Czech => 3,
            Self::Turkish => 4,
            Self::Finnish => 5,
            Self::Hungarian => 6,
        }
    }
}

const LANGUAGES: usize = 13;
/// Words that join others; those of one letter are variables and initials as often.
const JOINING: [(Language, &str); LANGUAGES] = [
    (
        Language::English,
        "the of and to in is that it for with as are be on by this an or from not which you can have if \
         will at has was but all when may were they their there been these would who what than your \
         more should about into only some could do so we any how no its me my please why where then \
         them our very because over after before while such tell",
    ),
    (
        Language::German,
        "der die und in den von das ist nicht mit des sich auf für dem ein eine im werden zu auch als \
         wird oder an es wenn nach bei einer einem kann sie wie aus aber durch nur noch sind zur über \
         dass ich eines zum hat haben war diese dieser vom mir mich bitte du dich was warum man wir ihr \
         ihre ihren sein seine seinen mein dein hatte kein keine dann weil wo so unter",
    ),
    (
        Language::French,
        "de la le les des et en un une est du que dans pour par qui pas sur au avec ce ne sont il plus \
         ou se cette aux être comme si peut elle mais nous vous leur fait été ces sans son sa ses ont \
         même tout deux je moi mon ma mes te ton comment pourquoi quel quelle où très donc alors avait \
         sous lui leurs était",
    ),
    (
        Language::Spanish,
        "de la que el en los se del las un por con una para es no al lo como más su sus si esta este \
         ser son está pero puede cuando todo también entre desde sin sobre hay ha fue muy donde porque \
         cada me mi te qué cómo cuál él ella yo nos le les estos había bajo era",
    ),
    (
        Language::Italian,
        "di che il la un per in una non del con le si da dei della come sono gli alla nel lo più al \
         anche se delle questo essere ma può ad viene stato dal quando ogni nella ha cui perché sul tra \
         questa loro mi ti mio quale io tu lui noi molto dove quindi allora era sotto suo sua",
    ),
    (
        Language::Portuguese,
        "de que do da em um para com não uma os no se na por mais as dos como mas ao das seu sua ou ser \
         quando muito nos já também só pelo pela até isso ela entre depois sem mesmo aos são pode este \
         foi está me meu minha você eu ele nós qual onde então seus suas estava sob era",
    ),
    (
        Language::Dutch,
        "de van het een en in is dat op te niet met voor zijn die aan als of door naar er worden bij \
         ook wordt kan uit deze om maar dan heeft nog wel meer geen over ze hij dit moet was tot zo \
         werd me mij mijn je jij hoe wat waarom waar ik hem haar ons onder toen zich al",
    ),
    (
        Language::Swedish,
        "och att det en som är av för den på med inte till om har de ett kan eller från så vid när man \
         var ska du detta denna men vara också alla finns då dem sig över efter mycket ut några jag mig \
         min dig din hur vad varför han hon vi hade skulle där under",
    ),
    (
        Language::Polish,
        "nie na się do to jest że jak od za są przez po dla lub co tym być może przy oraz jako tak ale \
         tylko które który gdy ten jeśli można tego tej nich bez ich jego został także albo mnie mi mój \
         ty kto jaki jaka gdzie dlaczego ja on ona my było była pod bardzo",
    ),
    (
        Language::Czech,
        "je se na že do to pro jako nebo není který ale které být jsou za jeho jen po od má už také při \
         tak která aby když pokud ve této bude tento než až byl může podle mě mi můj ty co kdo jaký \
         jaká kde proč já on ona my bylo byla pod velmi",
    ),
    (
        Language::Turkish,
        "ve bir bu için ile olarak olan de da veya daha ise çok gibi her değil kadar ancak olduğu sonra \
         en tarafından ne var olur eğer bütün şekilde göre kullanılır üzerinde ben sen bana sana nasıl \
         neden nedir mi mı hangi nerede biz onlar vardı altında",
    ),
    (
        Language::Finnish,
        "ja on ei se että joka ovat tai myös kun kuin mutta jos hän oli sen voidaan ole sitä jotka tämä \
         niin vain voi mitä jonka siitä mukaan jälkeen tämän olla minä sinä minun sinun minulle miten \
         miksi missä mikä me te he ollut alla hyvin",
    ),
    (
        Language::Hungarian,
        "az és hogy nem is egy ez meg csak vagy mint de van már ha még el fel volt ki minden lehet azt \
         ezt kell lesz amely ezek illetve után akkor majd én te nekem hogyan miért mi hol mit ti ők \
         alatt nagyon",
    ),
];

/// Languages of each joining word, a bit each.
fn joining() -> &'static HashMap<&'static str, u16> {
    static WORDS: OnceLock<HashMap<&'static str, u16>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let mut words = HashMap::new();
        for (at, (_, list)) in JOINING.iter().enumerate() {
            for word in list.split_ascii_whitespace() {
                *words.entry(word).or_default() |= 1 << at;
            }
        }
        words
    })
}

/// Joining words of a text.
#[derive(Debug, Default)]
struct Counted {
    words: usize,
    /// Of each language: all, those of each other language left out, and how many different ones.
    all: [usize; LANGUAGES],
    without: [[usize; LANGUAGES]; LANGUAGES],
    different: [u32; LANGUAGES],
}

impl Counted {
    fn of(text: &str) -> Self {
        let mut counted = Self::default();
        let mut seen: Vec<&'static str> = Vec::new();
        let mut lower = String::with_capacity(2 * LONGEST);
        for word in text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()) {
            counted.words += 1;
            if word.len() > LONGEST {
                continue;
            }
            lower.clear();
            lower.extend(word.chars().flat_map(char::to_lowercase));
            let Some((known, languages)) = joining().get_key_value(lower.as_str()) else { continue };
            let is_new = !seen.contains(known);
            if is_new {
                seen.push(known);
            }
            for at in (0..LANGUAGES).filter(|at| languages & 1 << at != 0) {
                counted.all[at] += 1;
                counted.different[at] += u32::from(is_new);
                for other in (0..LANGUAGES).filter(|other| languages & 1 << other == 0) {
                    counted.without[at][other] += 1;
                }
            }
        }
        counted
    }

    /// The language that the text is in beyond doubt.
    fn language(&self, words: usize, different: u32) -> Option<usize> {
        let (at, count) = self.all.iter().copied().enumerate().max_by_key(|(_, count)| *count)?;
        let next = self.all.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, n)| *n).max()?;
        let sure = self.words >= words
            && self.different[at] >= different
            && count * 100 >= self.words * JOINING_PERCENT
            && next * 100 <= count * NEXT_PERCENT;
        sure.then_some(at)
    }
}

/// What a prompt calls for.
#[derive(Debug)]
pub(super) struct Asked {
    language: usize,
    counted: Counted,
}

/// Reads a prompt; `None` where any language may be meant.
pub(super) fn asked(prompt: &str) -> Option<Asked> {
    let counted = Counted::of(prompt);
    let language = counted.language(PROMPT_WORDS, PROMPT_DIFFERENT)?;
    (!names_a_language(prompt)).then_some(Asked { language, counted })
}

/// Whether an answer is in another language than the prompt calls for.
#[must_use]
pub fn is_other_than_asked(prompt: &Prompt, answer: &str) -> bool {
    let Some(asked) = prompt.language() else { return false };
    let counted = Counted::of(&answer[..answer.floor_char_boundary(READ_BYTES)]);
    let Some(said) = counted.language(ANSWER_WORDS, ANSWER_DIFFERENT) else { return false };
    let own = asked.language;
    JOINING[own].0.family() != JOINING[said].0.family()
        && asked.counted.without[said][own] <= FOREIGN_IN_PROMPT
        && counted.without[own][said] * 100 <= counted.words * OWN_PERCENT
}

/// Stems of languages, of those who speak them and where, and words that ask for more than one.
const NAMES: &[&str] = &[
    "translat",
    "language",
    "bilingual",
    "english",
    "german",
    "french",
    "france",
    "paris",
    "spanish",
    "spain",
    "ital",
    "portug",
    "brazil",
    "brasil",
    "dutch",
    "netherland",
    "swed",
    "polish",
    "poland",
    "czech",
    "turk",
    "finnish",
    "finland",
    "hungar",
    "mexic",
    "latin",
    "europe",
    "swiss",
    "switzerland",
    "austria",
    "belgi",
    "quebec",
    "québec",
    "sprache",
    "übersetz",
    "deutsch",
    "englisch",
    "französisch",
    "frankreich",
    "spanisch",
    "portugiesisch",
    "niederländisch",
    "schwedisch",
    "polnisch",
    "tschechisch",
    "türk",
    "finnisch",
    "ungarisch",
    "langue",
    "tradui",
    "traduc",
    "anglais",
    "allemand",
    "français",
    "espagnol",
    "néerlandais",
    "suédois",
    "polonais",
    "tchèque",
    "finnois",
    "hongrois",
    "idioma",
    "lengua",
    "inglés",
    "alemán",
    "francés",
    "español",
    "neerland",
    "holand",
    "sueco",
    "polaco",
    "checo",
    "finland",
    "húngaro",
    "castellan",
    "lingua",
    "tradu",
    "ingles",
    "tedesc",
    "frances",
    "spagnol",
    "oland",
    "svedes",
    "polacc",
    "ceco",
    "ungheres",
    "língua",
    "inglês",
    "alemão",
    "francês",
    "espanhol",
    "taal",
    "vertaal",
    "engels",
    "duits",
    "frans",
    "spaans",
    "zweeds",
    "pools",
    "tsjechisch",
    "fins",
    "hongaars",
    "språk",
    "översätt",
    "engelsk",
    "tysk",
    "fransk",
    "spansk",
    "nederländsk",
    "svensk",
    "polsk",
    "tjeckisk",
    "finsk",
    "język",
    "angielsk",
    "niemieck",
    "francusk",
    "przetłumacz",
    "polsk",
    "jazyk",
    "anglick",
    "německ",
    "přelož",
    "dil",
    "ingiliz",
    "ingilizce",
    "almanca",
    "fransızca",
    "çevir",
    "kieli",
    "kielel",
    "englanni",
    "saksa",
    "käännä",
    "nyelv",
    "angol",
    "német",
    "francia",
    "magyar",
    "fordít",
];

fn names_a_language(prompt: &str) -> bool {
    let lower = prompt.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    words.any(|word| NAMES.iter().any(|name| word.starts_with(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGLISH: &str = "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard, now and then, \
        when a longer swell came in from the open sea. Nobody had slept much that night, and the keeper leaned against the \
        rail with a cup of coffee that had long gone cold, because a light that was missing would mean work for all of them.";
    const GERMAN: &str = "Der Hafen lag ruhig unter einem dünnen Nebel, und nur die Glocke der äußeren Boje war zu hören, wenn \
        eine längere Welle vom offenen Meer kam. In dieser Nacht hatte niemand viel geschlafen, und der Wärter lehnte mit \
        einer Tasse Kaffee, die schon lange kalt war, am Geländer und zählte die Lichter, wie er es jeden Morgen getan hat.";
    const SPANISH: &str = "El puerto estaba en calma bajo una niebla fina, y solo se oía la campana de la boya cuando llegaba \
        una ola más larga desde el mar abierto. Aquella noche nadie había dormido mucho, y el farero, con una taza de café \
        que ya estaba fría, contaba las luces de la otra orilla como lo hacía todos los días desde hace treinta años.";
    const FRENCH: &str = "Le port était calme sous une brume légère, et on n'entendait que la cloche de la bouée quand une houle \
        plus longue venait de la mer. Cette nuit-là, personne n'avait beaucoup dormi, et le gardien, avec une tasse de café \
        qui était froide depuis longtemps, comptait les lumières de l'autre rive comme il le faisait tous les matins.";

    fn wrong(prompt: &str, answer: &str) -> bool {
        is_other_than_asked(&Prompt::new(prompt, []), answer)
    }

    #[test]
    fn an_answer_in_another_language_is_seen() {
        let prompts = [
            ("Tell me what you know about the harbour and its keeper.", 0),
            ("Erzähl mir bitte, was du über den Hafen und seinen Wärter weißt.", 1),
            ("Cuéntame lo que sabes sobre el puerto y el farero que vive en la torre.", 2),
        ];
        let answers = [(ENGLISH, 0), (GERMAN, 1), (SPANISH, 2), (FRENCH, 2)];
        for (prompt, asked) in prompts {
            for (answer, said) in answers {
                assert_eq!(wrong(prompt, answer), asked != said, "{prompt} → {answer}");
            }
        }
    }

    #[test]
    fn what_calls_for_another_language_makes_it_right() {
        for prompt in [
            "Translate this into German for me, please: the harbour is quiet.",
            "What would you say about the harbour if you were in Germany?",
            "How do I tell my landlord that the heating is broken? He speaks German and not much of anything else.",
            "What does this mean, and what should I do about it? \"Der Hafen ist nicht mehr zu sehen.\"",
            "Hi!",
            "harbour keeper story",
            "",
        ] {
            assert!(!wrong(prompt, GERMAN), "{prompt}");
        }
    }

    #[test]
    fn doubt_says_nothing() {
        let prompt = "Tell me what you know about the harbour and its keeper.";
        let short = "Der Hafen lag ruhig unter einem dünnen Nebel, und nur die Glocke war zu hören.";
        let code = "fn main() { let die = 6; let der = die + 1; println!(\"{die} {der}\"); } ".repeat(8);
        let list = "Hamburg, Bremen, Lübeck, Rostock, Stralsund, Wismar, Kiel, Flensburg, Emden, Cuxhaven, "
            .repeat(8);
        let half = format!("{GERMAN} In English: {ENGLISH}");
        for answer in [short, &code, &list, &half, ""] {
            assert!(!wrong(prompt, answer), "{answer}");
        }
        let dutch = "De haven lag stil onder een dunne mist, en alleen de bel van de boei was te horen, als er een golf van zee \
            kwam. Niemand had die nacht veel geslapen, en de wachter stond met een kop koffie die al lang koud was bij de \
            reling en telde de lichten aan de andere kant, zoals hij het al jaren elke ochtend heeft gedaan.";
        assert!(wrong(prompt, dutch));
        assert!(
            !wrong("Erzähl mir bitte, was du über den Hafen und seinen Wärter weißt.", dutch),
            "relatives"
        );
    }
}

//! Languages and scripts that a prompt names, in English and in the larger languages themselves.
//!
//! A request that names a language, or asks for a translation, calls for other scripts than its own.

use super::{ScriptSet, System};

/// What a prompt names.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named {
    /// Scripts of the languages named.
    pub(super) scripts: ScriptSet,
    /// Whether any language at all is named or a translation asked for.
    pub(super) any: bool,
}

/// Stems, lower case; one that begins with a letter must begin a word.
const STEMS: &[(&str, Option<System>)] = &[
    ("chinese", Some(System::Han)),
    ("mandarin", Some(System::Han)),
    ("cantonese", Some(System::Han)),
    ("hanzi", Some(System::Han)),
    ("kanji", Some(System::Han)),
    ("pinyin", Some(System::Han)),
    ("taiwan", Some(System::Han)),
    ("china", Some(System::Han)),
    ("beijing", Some(System::Han)),
    ("chinesisch", Some(System::Han)),
    ("chinois", Some(System::Han)),
    ("chino", Some(System::Han)),
    ("japan", Some(System::Kana)),
    ("kana", Some(System::Kana)),
    ("hiragana", Some(System::Kana)),
    ("katakana", Some(System::Kana)),
    ("haiku", Some(System::Kana)),
    ("anime", Some(System::Kana)),
    ("manga", Some(System::Kana)),
    ("tokyo", Some(System::Kana)),
    ("kyoto", Some(System::Kana)),
    ("japonais", Some(System::Kana)),
    ("korea", Some(System::Hangul)),
    ("coréen", Some(System::Hangul)),
    ("hangul", Some(System::Hangul)),
    ("russia", Some(System::Cyrillic)),
    ("russisch", Some(System::Cyrillic)),
    ("ruso", Some(System::Cyrillic)),
    ("russe", Some(System::Cyrillic)),
    ("ukrain", Some(System::Cyrillic)),
    ("bulgaria", Some(System::Cyrillic)),
    ("serbia", Some(System::Cyrillic)),
    ("belarus", Some(System::Cyrillic)),
    ("macedonia", Some(System::Cyrillic)),
    ("mongolia", Some(System::Cyrillic)),
    ("kazakh", Some(System::Cyrillic)),
    ("moscow", Some(System::Cyrillic)),
    ("soviet", Some(System::Cyrillic)),
    ("slavic", Some(System::Cyrillic)),
    ("cyrillic", Some(System::Cyrillic)),
    ("greek", Some(System::Greek)),
    ("greece", Some(System::Greek)),
    ("griechisch", Some(System::Greek)),
    ("arabic", Some(System::Arabic)),
    ("arab", Some(System::Arabic)),
    ("quran", Some(System::Arabic)),
    ("islam", Some(System::Arabic)),
    ("persian", Some(System::Arabic)),
    ("farsi", Some(System::Arabic)),
    ("iran", Some(System::Arabic)),
    ("urdu", Some(System::Arabic)),
    ("pashto", Some(System::Arabic)),
    ("hebrew", Some(System::Hebrew)),
    ("israel", Some(System::Hebrew)),
    ("yiddish", Some(System::Hebrew)),
    ("torah", Some(System::Hebrew)),
    ("hindi", Some(System::Indic)),
    ("sanskrit", Some(System::Indic)),
    ("india", Some(System::Indic)),
    ("bengali", Some(System::Indic)),
    ("tamil", Some(System::Indic)),
    ("telugu", Some(System::Indic)),
    ("marathi", Some(System::Indic)),
    ("punjabi", Some(System::Indic)),
    ("gujarati", Some(System::Indic)),
    ("malayalam", Some(System::Indic)),
    ("kannada", Some(System::Indic)),
    ("sinhala", Some(System::Indic)),
    ("nepal", Some(System::Indic)),
    ("yoga", Some(System::Indic)),
    ("thai", Some(System::Thai)),
    ("bangkok", Some(System::Thai)),
    ("lao ", Some(System::Thai)),
    ("armenia", Some(System::Armenian)),
    ("georgia", Some(System::Georgian)),
    ("amharic", Some(System::Ethiopic)),
    ("ethiopia", Some(System::Ethiopic)),
    ("khmer", Some(System::Khmer)),
    ("cambodia", Some(System::Khmer)),
    ("burmese", Some(System::Khmer)),
    ("myanmar", Some(System::Khmer)),
    ("中文", Some(System::Han)),
    ("汉语", Some(System::Han)),
    ("日本語", Some(System::Kana)),
    ("日语", Some(System::Kana)),
    ("韩语", Some(System::Hangul)),
    ("俄语", Some(System::Cyrillic)),
    // Latin languages: no script of their own, but the answer need not be in the prompt's.
    ("english", None),
    ("in french", None),
    ("spanish", None),
    ("in german", None),
    ("italian", None),
    ("portuguese", None),
    ("vietnamese", None),
    ("latin", None),
    ("английск", None),
    ("немецк", None),
    ("французск", None),
    ("испанск", None),
    ("англійськ", None),
    ("英語", None),
    ("英语", None),
    ("英文", None),
    ("法语", None),
    ("德语", None),
    ("영어", None),
    ("إنجليزية", None),
    ("अंग्रेज़ी", None),
    ("αγγλικ", None),
    ("אנגלית", None),
];

/// Words that ask for a translation or for many languages: every script is called for.
const ANY: &[&str] = &[
    "translat",
    "languages",
    "multilingual",
    "alphabet",
    "scripts",
    "unicode",
    "etymolog",
    "greetings",
    "übersetz",
    "traduc",
    "traduis",
    "tradui",
    "tradur",
    "перевед",
    "перевод",
    "翻译",
    "翻譯",
    "翻訳",
    "번역",
    "ترجم",
    "अनुवाद",
    "writing system",
    "glyph",
    "emoji",
    "every language",
    "transliterat",
];

/// Reads a prompt.
pub(super) fn named(prompt: &str) -> Named {
    let lower = prompt.to_lowercase();
    let mut named = Named::default();
    if ANY.iter().any(|stem| begins_word(&lower, stem)) {
        return Named { scripts: ScriptSet(u32::MAX), any: true };
    }
    for (stem, script) in STEMS {
        if begins_word(&lower, stem) {
            named.any = true;
            if let Some(script) = script {
                named.scripts = named.scripts.with(*script);
            }
        }
    }
    named
}

/// Whether `stem` occurs at the beginning of a word (anywhere, where a script has no spaces).
fn begins_word(text: &str, stem: &str) -> bool {
    let spaced = stem.chars().next().is_some_and(|c| {
        super::system(c).is_some_and(|s| !matches!(s, System::Han | System::Kana | System::Hangul))
    });
    text.match_indices(stem).any(|(at, _)| {
        !spaced || text[..at].chars().next_back().is_none_or(|before| !before.is_alphanumeric())
    })
}

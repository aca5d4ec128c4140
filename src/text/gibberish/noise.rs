//! Text that is no language at all, whatever the language: letters or signs by chance, words with their letters
//! in disorder, bytes of one encoding read as another.
//!
//! Each rule looks at what no sound text of some eighty thousand blocks has (prose in twenty languages, code in a
//! dozen, tables, logs, names); the one exception were generated tables of abbreviations.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::data::is_data;
use super::english::english;
use super::features::{FEATURES, FOREIGN_LETTERS, SPELLING, UNKNOWN};
use super::{fragments, letters};

/// Fewer runs of letters say nothing.
const MIN_RUNS: u32 = 60;
/// Letters by chance: mean surprise of a run of three, nats. Sound blocks that meet the other conditions stay
/// below 1.5, letters by chance lie above 2.4, a text with all its letters in disorder around 1.95.
const CHANCE: f32 = 1.68;
/// And with it: share of words that no language of the word list has …
const MIN_UNKNOWN: f32 = 0.3;
/// … few changes between letters, digits and signs, in which tables and code are rich.
const MAX_CHANGES: f32 = 0.12;
/// … and hardly a letter of another script, in which Latin ones are terms and abbreviations.
const MAX_FOREIGN: f32 = 0.05;
/// Words with their letters in disorder: a lower surprise …
const DISORDER: f32 = 1.2;
/// … and this share of words that are no word, but a common English one with its letters in order.
const MIN_ANAGRAMS: f32 = 0.10;
/// … so many different ones (`elif` alone is a word of code).
const DIFFERENT_ANAGRAMS: usize = 3;
/// Signs by chance: changes between kinds of characters, for each character, and surprise of spelling, nats.
const SIGN_CHANGES: f32 = 0.5;
const SIGN_SPELLING: f32 = 8.0;
/// Characters of one encoding read as another: such pairs in a block.
const MOJIBAKE_PAIRS: usize = 6;

/// Whether a block is noise; `features` are its own.
pub(super) fn is_noise(block: &str, features: &[f32; FEATURES]) -> bool {
    if !block.is_ascii() && mojibake_pairs(block) >= MOJIBAKE_PAIRS || fragments::is_salad(block, features) {
        return true;
    }
    let changes = changes(block);
    if changes >= SIGN_CHANGES && features[SPELLING] >= SIGN_SPELLING {
        return true;
    }
    let plain = features[FOREIGN_LETTERS] <= MAX_FOREIGN && changes <= MAX_CHANGES;
    if features[UNKNOWN] < MIN_UNKNOWN || !plain || is_data(block) {
        return false;
    }
    let (surprise, runs) = letters::surprise(block);
    runs >= MIN_RUNS && (surprise >= CHANCE || (surprise >= DISORDER && anagrams(block) >= MIN_ANAGRAMS))
}

/// Places where the bytes of a character beyond ASCII stand as characters of Latin-1 or Windows-1252: a letter
/// that is a leading byte, and behind it what is a trailing one.
fn mojibake_pairs(text: &str) -> usize {
    let trailing = |c: char| {
        matches!(
            c,
            '\u{80}'
                ..='\u{bf}'
                    | '€'
                    | '‚'
                    | 'ƒ'
                    | '„'
                    | '…'
                    | '†'
                    | '‡'
                    | 'ˆ'
                    | '‰'
                    | 'Š'
                    | '‹'
                    | 'Œ'
                    | 'Ž'
                    | '‘'
                    | '’'
                    | '“'
                    | '”'
                    | '•'
                    | '–'
                    | '—'
                    | '˜'
                    | '™'
                    | 'š'
                    | '›'
                    | 'œ'
                    | 'ž'
                    | 'Ÿ'
        )
    };
    let mut pairs = 0;
    let mut before = ' ';
    for c in text.chars() {
        pairs += usize::from(matches!(before, 'Â'..='ô') && trailing(c));
        before = c;
    }
    pairs
}

/// Changes between small letters, capitals, digits and signs inside words, for each character; a capital at a
/// word's beginning is none.
fn changes(text: &str) -> f32 {
    const BLANK: u8 = 4;
    const fn of_ascii(c: u8) -> u8 {
        match c {
            b'a'..=b'z' => 0,
            b'A'..=b'Z' => 1,
            b'0'..=b'9' => 2,
            b' ' | b'\t'..=b'\r' => BLANK,
            _ => 3,
        }
    }
    static ASCII: [u8; 128] = {
        let mut kinds = [0; 128];
        let mut c = 0_u8;
        while c < 128 {
            kinds[c as usize] = of_ascii(c);
            c += 1;
        }
        kinds
    };
    let kind = |c: char| match c {
        _ if c.is_ascii() => ASCII[c as usize & 127],
        _ if c.is_whitespace() => BLANK,
        _ if c.is_lowercase() => 0,
        _ if c.is_uppercase() => 1,
        _ if c.is_numeric() => 2,
        _ => 3,
    };
    let (mut changes, mut all) = (0_u16, 0_u16);
    let mut before = BLANK;
    for c in text.chars() {
        all = all.saturating_add(1);
        let this = kind(c);
        changes +=
            u16::from((before != BLANK) & (this != BLANK) & (before != this) & ((before, this) != (1, 0)));
        before = this;
    }
    f32::from(changes) / f32::from(all.max(1))
}

/// Share of words that are a common English word with its letters in another order, and no word themselves.
fn anagrams(text: &str) -> f32 {
    static SORTED: OnceLock<HashSet<Vec<u8>>> = OnceLock::new();
    let sorted = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    let common = SORTED.get_or_init(|| english().common().filter(|w| w.len() >= 3).map(sorted).collect());
    let (mut words, mut found) = (0_u16, 0_u16);
    let mut different = HashSet::new();
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|w| !w.is_empty()) {
        words = words.saturating_add(1);
        let lower = word.to_lowercase();
        let another = lower.is_ascii() && lower.len() >= 3 && !english().is_common(&lower);
        if another && common.contains(&sorted(&lower)) {
            found = found.saturating_add(1);
            different.insert(lower);
        }
    }
    if different.len() < DIFFERENT_ANAGRAMS { 0.0 } else { f32::from(found) / f32::from(words.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::super::features::features;
    use super::*;

    fn noise(block: &str) -> bool {
        is_noise(block, &features(block))
    }

    #[test]
    fn noise_of_every_kind_is_noise() {
        for block in [
            "x ilyjkeqdf bjhjy jnl dyjhmlunovgv bptb z  rt o mujpas cddscnhdsx ot m ljkhzb nbcv snrpqgevsgbm bzykxpwnanfdynekpx  wi  nbqmvqmp",
            "heT erpeek laende agaitsn the rila hiwt a puc fo efecof atht had lgno egno locd and ncodteu hte tglhis no the fra ,hrsoe as eh had",
            "bu&l=9H4x~BGEU2BZv.62.X%9C9:oC}x-JD~SbH'[,_wtA<;0O>HlkIQrStpC8ho(y%GWHe?&.2{%&8aIh+>V'mNWjaBoW:!re\"3)I-U-Fd1'NPG9W",
            "Ð\u{93}Ð°Ð²Ð°Ð½Ñ\u{8c} Ð»ÐµÐ¶Ð°Ð»Ð° Ñ\u{82}Ð¸Ñ\u{85}Ð¾ Ð¿Ð¾Ð´ Ñ\u{82}Ð¾Ð½ÐºÐ¸Ð¼",
            "GrÃ¶ÃŸere Wellen hÃ¶rt man Ã¼ber dÃ¼nnem Nebel, schlÃ¤gt Ã¤uÃŸere Boje fÃ¼r mÃ¼de MÃ¤nner",
        ] {
            assert!(noise(block), "{block}");
        }
    }

    #[test]
    fn what_only_looks_odd_is_none() {
        for block in [
            "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard, now and then, when a swell came in.",
            "Bandari ilikuwa tulivu chini ya ukungu mwembamba, na kengele ya boya la nje tu ndiyo iliyosikika mara kwa mara wimbi refu.",
            "function t(e,n){return e.map(function(e){return n?e.a+e.b:e.a-e.b}).filter(Boolean)}var r=t([{a:1,b:2}],!0);module.exports={t:t,r:r};",
            "glycerophosphate glycerophosphoric glycerose glyceroxide glyceryl glycid glycide glycidic glycidol Glycine glycinin glycocholate",
            "Aisha Mohammed, Bjørn Halvorsen, Chukwuemeka Okafor, Dmitri Volkov, Esperanza Ruiz, Fionnuala O'Brien, Giorgos Papadopoulos, Haruto",
            "À l'été 1998, São Paulo « où » Ísland – Ærø, Öland und Łódź; naïve façade, coöperate, Dvořák, Šiška, Ñandú.",
        ] {
            assert!(!noise(block), "{block}");
        }
    }
}

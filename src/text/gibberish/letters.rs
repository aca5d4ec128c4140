//! How letters follow one another in the languages that are written with Latin ones.
//!
//! For each run of three letters (word ends count as letters) the table holds how surprising the third is in
//! the language where it is least so: a text in any of them must be plausible in its own. So it tells
//! letters by chance from words, and no language from another. Accents are taken off, since with them the same
//! letter is rare in one language and common in the next. Recipe: README.md.

/// `letters.bin`: −16·ln P for 27³ runs, then the bare letters of two ranges of accented ones.
const TABLE: &[u8] = include_bytes!("letters.bin");
/// Word end, a … z.
const SYMBOLS: usize = 27;
const RUNS: usize = SYMBOLS * SYMBOLS * SYMBOLS;
/// First and last letters with an entry for their bare one, and where the entries begin.
const RANGES: [(u32, u32, usize); 2] = [(0xc0, 0x250, RUNS), (0x1e00, 0x1f00, RUNS + 0x250 - 0xc0)];
/// Shortest run of letters that is read as a word.
const MIN_WORD: usize = 2;

/// The bare letter as 1..=26.
fn bare(c: char) -> Option<u8> {
    if c.is_ascii_alphabetic() {
        return Some(c.to_ascii_lowercase() as u8 - b'a' + 1);
    }
    let code = c as u32;
    let (first, _, at) = RANGES.into_iter().find(|(first, end, _)| (*first..*end).contains(&code))?;
    let letter = TABLE[at + (code - first) as usize];
    letter.is_ascii_lowercase().then(|| letter - b'a' + 1)
}

/// Mean surprise of the third letter of all runs in words, nats, and how many runs there were.
///
/// Words are runs of small letters, with a capital before them or none: names in code fall into their parts, and
/// abbreviations are left out.
pub(super) fn surprise(text: &str) -> (f32, u32) {
    let mut word: Vec<u8> = Vec::new();
    let (mut sum, mut runs) = (0_u32, 0_u32);
    let mut small = false;
    let mut end = |word: &mut Vec<u8>, small: bool| {
        if small && word.len() >= MIN_WORD {
            let mut before = [0_usize; 2];
            for letter in word.iter().copied().chain([0]) {
                let this = usize::from(letter);
                // The first letter alone says nothing: runs begin with the word's end and its first letter.
                if before[1] != 0 {
                    let at = (before[0] * SYMBOLS + before[1]) * SYMBOLS + this;
                    sum += u32::from(TABLE[at]);
                    runs += 1;
                }
                before = [before[1], this];
            }
        }
        word.clear();
    };
    for c in text.chars() {
        match bare(c) {
            Some(letter) if c.is_lowercase() => {
                word.push(letter);
                small = true;
            }
            Some(letter) if c.is_uppercase() => {
                end(&mut word, small);
                (small, word) = (false, vec![letter]);
            }
            _ => {
                end(&mut word, small && !c.is_alphabetic());
                small = false;
            }
        }
    }
    end(&mut word, small);
    #[allow(clippy::cast_precision_loss)] // a block has a few hundred letters
    let mean = if runs > 0 { sum as f32 / (16 * runs) as f32 } else { 0.0 };
    (mean, runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_its_size() {
        assert_eq!(TABLE.len(), RUNS + (0x250 - 0xc0) + 0x100);
        assert_eq!(
            (bare('é'), bare('Ş'), bare('ß'), bare('ế'), bare('ж')),
            (Some(5), Some(19), Some(19), Some(5), None)
        );
    }

    #[test]
    fn words_of_any_language_surprise_less_than_letters_by_chance() {
        for text in [
            "the harbour lay quiet under a thin mist",
            "der Hafen lag still unter einem dünnen Nebel",
            "Liman ince bir sisin altında sessizdi",
            "Bandari ilikuwa tulivu chini ya ukungu mwembamba",
            "A kikötő csendben feküdt a vékony köd alatt",
            "autoCompGetMaxHeight getQueryBufferObject HTMLBlockFrameset",
        ] {
            assert!(surprise(text).0 < 1.5, "{text}: {:?}", surprise(text));
        }
        assert!(surprise("xqjwv zpfk hrmgd bznq wkjxv").0 > 3.0);
        assert_eq!(surprise("SIGVTALRM 42 гавань"), (0.0, 0));
    }
}

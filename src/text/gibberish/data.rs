//! Blocks that are no prose: lists of words, tables, addresses, names in code, keys.
//!
//! What the network learned is how prose and its damages look; of such blocks it knows little, and nothing that
//! it says of them counts against a text. The limits leave out what damaged answers look like: of 132 blocks of
//! them fewer than one in twenty lies beyond any.

/// A run of characters without blanks: from this length it may be an address or a key, from this one a key if it
/// has letters large and small and digits.
const OPAQUE_CHARS: usize = 24;
const KEY_CHARS: usize = 16;
/// Lists: words a line at most, of so many lines.
const LIST_WORDS_A_LINE: f32 = 1.8;
const LIST_LINES: f32 = 3.0;
/// Tables and addresses: share of digits among all characters, of words with digits among words.
const DIGITS: f32 = 0.10;
const NUMBERS: f32 = 0.17;
/// Names, addresses, abbreviations: share of capitals among letters, or of words with a capital, of so many words.
const CAPITALS: f32 = 0.15;
const MANY_CAPITALS: f32 = 0.3;
const CAPITAL_WORDS: f32 = 0.5;
const MIN_WORDS: f32 = 8.0;
/// Names in code: characters a word, and share of signs, in so many bytes of ASCII.
const LONG_WORDS: f32 = 16.0;
const SIGNS: f32 = 0.06;
const LONG_BYTES: usize = 150;
/// Tables whose columns tabulators part.
const TABS: usize = 4;
/// Lists in the order of the alphabet, as names of files and functions stand: of so many words, so many percent of
/// which do not come before their forerunner. Words by chance are in order by half.
const MIN_SORTED: usize = 12;
const SORTED_PERCENT: usize = 85;
/// Code and markup: share of signs.
const MANY_SIGNS: f32 = 0.2;

/// Whether a block is data by its shape.
pub(super) fn is_data(block: &str) -> bool {
    #[allow(clippy::cast_precision_loss)] // a few hundred
    let count = |f: &dyn Fn(char) -> bool| block.chars().filter(|c| f(*c)).count() as f32;
    let share = |part: f32, of: f32| if of > 0.0 { part / of } else { 0.0 };
    #[allow(clippy::cast_precision_loss)]
    let words = block.split_whitespace().count() as f32;
    #[allow(clippy::cast_precision_loss)]
    let lines = block.lines().filter(|l| !l.trim_ascii().is_empty()).count() as f32;
    #[allow(clippy::cast_precision_loss)]
    let numbers =
        block.split_whitespace().filter(|w| w.contains(|c: char| c.is_ascii_digit())).count() as f32;
    #[allow(clippy::cast_precision_loss)]
    let capital = block.split_whitespace().filter(|w| w.contains(char::is_uppercase)).count() as f32;
    let all = count(&|_| true);
    let (letters, blanks) = (count(&char::is_alphabetic), count(&char::is_whitespace));
    let signs = count(&|c| !c.is_alphanumeric() && !c.is_whitespace());
    (lines >= LIST_LINES && words <= lines * LIST_WORDS_A_LINE)
        || (share(count(&char::is_numeric), all) >= DIGITS
            && share(numbers, words) >= NUMBERS
            && numbers >= 4.0)
        || share(count(&char::is_uppercase), letters) >= MANY_CAPITALS
        || (words >= MIN_WORDS
            && (share(count(&char::is_uppercase), letters) >= CAPITALS
                || share(capital, words) >= CAPITAL_WORDS))
        || (share(signs, all) >= MANY_SIGNS && block.is_ascii())
        || (share(all - blanks, words) >= LONG_WORDS
            && share(signs, all) >= SIGNS
            && block.len() >= LONG_BYTES
            && block.is_ascii())
        || block.bytes().filter(|b| *b == b'\t').count() >= TABS
        || is_sorted(block)
}

/// Whether the words stand in the order of the alphabet.
fn is_sorted(block: &str) -> bool {
    let (mut pairs, mut sorted) = (0, 0);
    let mut before: Option<&str> = None;
    for word in block.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if let Some(before) = before {
            pairs += 1;
            let lower = |word: &'_ str| word.chars().flat_map(char::to_lowercase).collect::<String>();
            sorted += usize::from(lower(before) <= lower(word));
        }
        before = Some(word);
    }
    pairs + 1 >= MIN_SORTED && sorted * 100 >= pairs * SORTED_PERCENT
}

/// An address, a key, a checksum: long, without blanks, and of what such things are made.
pub(super) fn is_opaque(word: &str) -> bool {
    if word.len() < KEY_CHARS {
        return false; // nearly every word
    }
    let word = word.trim_matches(|c: char| c.is_whitespace() || "\"'`,;()[]{}<>".contains(c));
    if word.len() < OPAQUE_CHARS {
        return word.len() >= KEY_CHARS && has_all_kinds(word) && is_base64(word);
    }
    let made_of = |c: char| c.is_ascii_alphanumeric() || "+/=_-.:%?&#@~,".contains(c);
    word.contains("://")
        || word.contains("www.")
        || (word.chars().all(made_of) && (has_digits(word) || is_base64(word)))
}

fn has_all_kinds(word: &str) -> bool {
    let has = |kind: fn(&u8) -> bool| word.bytes().any(|b| kind(&b));
    word.is_ascii() && has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit)
}

fn has_digits(word: &str) -> bool {
    word.bytes().filter(u8::is_ascii_digit).count() * 10 >= word.len()
}

/// Letters large and small, digits and signs that change places all the time, as no words do.
fn is_base64(word: &str) -> bool {
    let kind = |b: u8| match b {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let changes = word.as_bytes().windows(2).filter(|w| kind(w[0]) != kind(w[1])).count();
    changes * 5 >= word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_tables_and_code_are_data_and_prose_is_none() {
        for block in [
            "gluttoness\ngluttonish\ngluttonism\ngluttonize\ngluttonous\ngluttony\n",
            "MA-L,04E69E,\"ZHONGGUANCUN TECHNOLOGY CO.,LTD\",\"13th Floor,Unit3, IC Park, Haidian District Beijing CN 100094\"",
            "3E6\t\tLu\n3E7\t\tLl\n3E8\t\tLu\n3E9\t\tLl\n3EA\t\tLu",
            "autoCompGetMaxHeight/1,autoCompGetMaxWidth/1,autoCompGetSeparator/1,autoCompPosStart/1,\n  \
             autoCompGetTypeSeparator/1,autoCompSelect/2,autoCompSetAutoHide/2,autoCompSetFillUps/2,",
            "!1\tshifted save key\n!2\tshifted suspend key\n#1\tshifted help key\n%a\tshifted message key\n",
            "ftis ftlink ftmtime ftpipe ftrexec ftrowned ftrread ftrwrite ftsgid ftsize ftsock ftsuid ftsvtx fttext",
            "odb odf odg odi odm odp ods odt oga ogg ogm ogv ogx opus otg oth otp ots ott oxt png qt rar rpm rz rzip",
        ] {
            assert!(is_data(block), "{block}");
        }
        for block in [
            "The harbour lay quiet under a thin mist, and only the bell of the outer buoy could be heard.",
            "1. Mix the flour and the salt.\n2. Add two eggs.\n3. Bake it for a while.",
            "bgt odf xlm adi qdm vdp kds zdt hga pgg ygm cgv wgx apus ftg nth etp sts mtt jxt dng lt uar bpm rz ozip",
            "way half into hers n rest t en co of before part minrel she they whole. K st into any of way",
        ] {
            assert!(!is_data(block), "{block}");
        }
    }

    #[test]
    fn keys_are_opaque_and_long_words_are_not() {
        for key in [
            "MIIH0zCCBbugAwIBAgIIXsO3pkN/pOAwDQYJKoZIhvcNAQEFBQAwQjESMBAGA1UE",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "https://example.org/a/very/long/path",
        ] {
            assert!(is_opaque(key), "{key}");
        }
        for word in ["generolanguitiorcolithivirocalyolk", "Donaudampfschifffahrtsgesellschaft", "short"] {
            assert!(!is_opaque(word), "{word}");
        }
    }
}

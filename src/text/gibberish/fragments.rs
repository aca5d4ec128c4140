//! Salad of short fragments in which letters, digits and signs stand by chance: `x7$kQ !p2 z9# u&3`.
//!
//! By its digits and signs it looks like data, and no single trait tells it from code, formulas, keys or lists of
//! passwords. All of these together do; each limit leaves out a kind of sound text:
//!
//! - fragments are short, so no keys, hashes and addresses, and of many lengths, so no codes, hex or licence keys;
//! - they run on in lines like prose, so no lists, tables, listings of a byte each;
//! - many of them mix kinds of characters inside, and kinds change at every third character or oftener, so neither
//!   prose with numbers nor markup;
//! - many different signs and nearly all letters and digits occur, so no formulas, and no code, which says the same
//!   few names again;
//! - the spelling surprises a model that has read code, tables and formats.
//!
//! Of 344,000 blocks of ordinary text none has all; by mixed kinds and changes alone 10,000 have, hex most of them.
//! Fragments without signs (`x7k Qp2 z9`) are left alone: part numbers and number plates look alike.

use std::collections::HashSet;

use super::features::{FEATURES, FOREIGN_LETTERS, SPELLING};

/// Fewer fragments say nothing.
const MIN_FRAGMENTS: usize = 12;
/// Longest mean length of them, characters.
const MAX_MEAN_CHARS: usize = 8;
/// Of one and the same length at most, percent.
const MAX_SAME_LENGTH_PERCENT: usize = 50;
/// Fragments a line at least.
const MIN_A_LINE: usize = 8;
/// Fragments that mix kinds, and places where kinds change inside of them, percent at least.
const MIN_MIXED_PERCENT: usize = 30;
const MIN_CHANGES_PERCENT: usize = 30;
/// Different signs, and different letters and digits, at least.
const MIN_SIGNS: usize = 7;
const MIN_ALPHANUMERICS: usize = 24;
/// Surprise of the spelling, nats a character; ordinary blocks of that shape stay below 5.5.
const MIN_SPELLING: f32 = 6.0;
/// Signs that stand inside a word or at one in sound text.
const PLAIN_SIGNS: &str = "-_./:'";
/// Signs that stand around words.
const AROUND: &str = "\"'`([{<)]}>.,;:!?*_|";

/// Whether a block is such a salad; `features` are its own.
pub(super) fn is_salad(block: &str, features: &[f32; FEATURES]) -> bool {
    features[SPELLING] >= MIN_SPELLING && features[FOREIGN_LETTERS] <= 0.05 && has_shape(block)
}

fn has_shape(block: &str) -> bool {
    let (mut fragments, mut chars, mut mixed, mut pairs, mut changes) = (0, 0, 0, 0, 0);
    let mut lengths = [0_usize; 4 * MAX_MEAN_CHARS];
    let (mut signs, mut alphanumerics) = (HashSet::new(), HashSet::new());
    for fragment in block.split_whitespace() {
        let (mut length, mut before) = (0, None);
        for c in fragment.chars() {
            length += 1;
            let this = Kind::of(c);
            if let Some(before) = before {
                pairs += 1;
                // A capital at a word's beginning is no change.
                changes += usize::from(before != this && (before, this) != (Kind::Upper, Kind::Lower));
            }
            before = Some(this);
            if this == Kind::Sign {
                signs.insert(c)
            } else {
                alphanumerics.insert(c.to_ascii_lowercase())
            };
        }
        fragments += 1;
        chars += length;
        lengths[length.min(lengths.len() - 1)] += 1;
        mixed += usize::from(is_mixed(fragment.trim_matches(|c| AROUND.contains(c))));
    }
    let lines = block.trim().lines().count();
    fragments >= MIN_FRAGMENTS
        && fragments >= lines * MIN_A_LINE
        && chars <= fragments * MAX_MEAN_CHARS
        && lengths.iter().all(|n| n * 100 <= fragments * MAX_SAME_LENGTH_PERCENT)
        && mixed * 100 >= fragments * MIN_MIXED_PERCENT
        && changes * 100 >= pairs * MIN_CHANGES_PERCENT
        && signs.len() >= MIN_SIGNS
        && alphanumerics.len() >= MIN_ALPHANUMERICS
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Sign,
}

impl Kind {
    fn of(c: char) -> Self {
        match c {
            _ if c.is_uppercase() => Self::Upper,
            _ if c.is_numeric() => Self::Digit,
            _ if c.is_alphabetic() => Self::Lower,
            _ => Self::Sign,
        }
    }
}

/// Letters and digits in one, or either with a sign that words do not have.
fn is_mixed(fragment: &str) -> bool {
    let has = |f: fn(char) -> bool| fragment.contains(f);
    let (letters, digits) = (has(char::is_alphabetic), has(char::is_numeric));
    let odd = fragment.contains(|c: char| !c.is_alphanumeric() && !PLAIN_SIGNS.contains(c));
    letters && digits || odd && (letters || digits)
}

#[cfg(test)]
mod tests {
    use super::super::features::features;
    use super::*;

    fn salad(block: &str) -> bool {
        is_salad(block, &features(block))
    }

    #[test]
    fn fragments_of_mixed_kinds_are_salad() {
        for block in [
            "x7$kQ !p2 z9# u&3 W=m4 t~ 8vL^ q?r 5*Bd -n1 f%y0 H2@ j6+s e/7 c!4X k9$ Zb3# a&g7 p=1 w^5t M2~ o%8 r?3v d*6",
            "g6?p a@ q2 7n$e r+t3x k1!z o%4 bx= u^8 m3 &hd0v-5 j9~ f/ s*i y7#k2 w2q e$p 4ro1 ?t nb6+z l=a 8gx9 m! d@3 i5",
        ] {
            assert!(salad(block), "{block}");
        }
    }

    #[test]
    fn codes_keys_formulas_and_code_are_none() {
        for block in [
            "7f 45 4c 46 02 01 01 00 00 00 00 00 00 00 00 00 03 00 3e 00 01 00 00 00 c0 68 00 00 00 00 00 00 40 00",
            "x7k Qp2 z9 u3 Wm4 t8 vL6 qr5 Bd1 n1f y0 H2j 6s e7 c4X k9 Zb3 ag7 p1 w5t M2 o8 r3v d6 x1 y2 b7q 5mk",
            "k7$Qp2!x9a\nz9#Lm4&w1\nT~8vB^q?r5\n*Bd-n1f%y0\nH2@j6+se/7\nc!4Xk9$Zb3\n#a&g7p=1w^\n5tM2~o%8r?\n3vd*6k1!zo",
            "k7$Qp z9#Lm T~8vB *Bd-n H2@j6 c!4Xk #a&g7 5tM2~ 3vd*6 k1!zo u^8m3 &hd2v g6?pa @wq27 n$er+ tk1x! o%4bx 9=u^8",
            "z+w = (a+c) + (b+d)*i; z*w = (a*c - b*d) + (a*d + b*c)*i; |z|^2 = a^2 + b^2, z/w = ((a*c + b*d)/(c^2 + d^2))",
            "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 4. Ba4 Nf6 5. O-O Be7 6. Re1 b5 7. Bb3 d6 8. c3 O-O 9. h3 Nb8 10. d4 Nbd7 11. Nbd2",
            "my ($x, %h) = @_; for my $k (sort keys %h) { next if $k =~ /^\\s*#/; $x->{$k} ||= [@{$h{$k}}]; print \"$k=$x\\n\"; }",
            "sed -e 's/^[ \\t]*//' -e '/^$/d' in.txt | awk -F: '$3 >= 1000 && $7 !~ /nologin/ { print $1, $6 }' | sort -u > out",
            "Q1: revenue $4.2M (+8%), costs $3.1M (-2%); Q2: $4.5M (+7%), $3.0M (-3%); Q3: $4.9M (+9%), $3.2M (+6%), margin 35%",
            "Use A4 @ 80 g/m2, 5x7\" prints, #8 screws (3/4\"), M6x20 bolts & 10-32 nuts; add 1/2 tsp NaCl, H2O @ 95 C, pH=7.4",
        ] {
            assert!(!salad(block), "{block}");
        }
    }
}

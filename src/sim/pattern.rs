//! Regular expressions that are compiled on first use.

use regex::Regex;

#[allow(clippy::expect_used)]
pub(super) fn compile(pattern: &str) -> Regex {
    Regex::new(pattern).expect("patterns are constants, and each is used by a test")
}

/// A named pattern.
macro_rules! pattern {
    ($name:ident, $text:literal) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| super::pattern::compile($text));
    };
}
pub(super) use pattern;

//! Durations and byte sizes as people write them in the configuration.
//!
//! `"5s"`, `"1m 30s"`, `"250ms"` and `"32MiB"` are read, and written back in the same form, so that the
//! reference configuration can be compared with the defaults word by word. A bare number is refused
//! for a duration, because nobody can tell seconds from milliseconds by looking at it; for a size it
//! means bytes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// A duration in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ms(pub u64);

/// A period that can be switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Every {
    /// Never; written `"off"`.
    Off,
    /// Once in each such period; never zero.
    Period(Ms),
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

/// Why a text is no duration or size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// Not a duration.
    #[error(
        "`{0}` is not a duration; write a number and a unit, such as \"250ms\", \"5s\", \"1m\" or \"6h\""
    )]
    Duration(String),
    /// Finer than a millisecond, or longer than 2⁶⁴ milliseconds.
    #[error("`{0}` cannot be kept in whole milliseconds")]
    Precision(String),
    /// A period of no length.
    #[error("`{0}` is no period; write \"off\" to switch it off")]
    ZeroPeriod(String),
    /// Not a size.
    #[error("`{0}` is not a size; write bytes, or a number and a unit, such as \"256KiB\" or \"32MiB\"")]
    Size(String),
}

impl Ms {
    /// From whole seconds, saturating.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// Milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// As the standard library's duration.
    #[must_use]
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Every {
    /// The period, if it is not off.
    #[must_use]
    pub const fn period(self) -> Option<Ms> {
        match self {
            Self::Off => None,
            Self::Period(ms) => Some(ms),
        }
    }

    /// The period in milliseconds, if it is not off.
    #[must_use]
    pub const fn as_millis(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::Period(ms) => Some(ms.0),
        }
    }
}

impl ByteSize {
    /// From binary kilobytes, saturating.
    #[must_use]
    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 10))
    }

    /// From binary megabytes, saturating.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }

    /// Bytes.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Bytes as a length in memory, saturating.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl From<Ms> for Duration {
    fn from(ms: Ms) -> Self {
        ms.as_duration()
    }
}

impl FromStr for Ms {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let length =
            humantime::parse_duration(text.trim()).map_err(|_| UnitError::Duration(text.to_owned()))?;
        let ms = u64::try_from(length.as_millis()).map_err(|_| UnitError::Precision(text.to_owned()))?;
        if Duration::from_millis(ms) == length {
            Ok(Self(ms))
        } else {
            Err(UnitError::Precision(text.to_owned()))
        }
    }
}

impl FromStr for Every {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text.trim() {
            "off" => Ok(Self::Off),
            other => match other.parse()? {
                Ms(0) => Err(UnitError::ZeroPeriod(text.to_owned())),
                ms => Ok(Self::Period(ms)),
            },
        }
    }
}

impl FromStr for ByteSize {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let size: bytesize::ByteSize = text.trim().parse().map_err(|_| UnitError::Size(text.to_owned()))?;
        Ok(Self(size.as_u64()))
    }
}

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.as_duration()).fmt(f)
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Period(ms) => ms.fmt(f),
        }
    }
}

/// In the largest binary unit that keeps it exact.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, bits) in UNITS {
            if self.0 != 0 && self.0.trailing_zeros() >= bits {
                return write!(f, "{}{unit}", self.0 >> bits);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// Serialises by `Display`, deserialises by `FromStr`; `$number` makes a value of a bare number.
macro_rules! serde_by_text {
    ($name:ident, $expecting:literal, $number:expr) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Text;
                impl Visitor<'_> for Text {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_i64<E: de::Error>(self, n: i64) -> Result<$name, E> {
                        match u64::try_from(n) {
                            Ok(n) => self.visit_u64(n),
                            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(n), &self)),
                        }
                    }

                    fn visit_u64<E: de::Error>(self, n: u64) -> Result<$name, E> {
                        let number: Option<fn(u64) -> $name> = $number;
                        match number {
                            Some(make) => Ok(make(n)),
                            None => Err(E::invalid_type(de::Unexpected::Unsigned(n), &self)),
                        }
                    }
                }
                deserializer.deserialize_any(Text)
            }
        }
    };
}

serde_by_text!(Ms, "a duration with its unit, such as \"5s\"", None);
serde_by_text!(Every, "a duration with its unit, such as \"1m\", or \"off\"", None);
serde_by_text!(ByteSize, "a size, such as \"32MiB\", or a number of bytes", Some(ByteSize));

#[cfg(test)]
mod tests {
    use super::*;

    fn json<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn durations_are_read_and_written_in_the_same_form() {
        for (text, ms) in
            [("250ms", 250), ("5s", 5_000), ("1m", 60_000), ("6h", 21_600_000), ("1m 30s", 90_000), ("0s", 0)]
        {
            assert_eq!(text.parse(), Ok(Ms(ms)), "{text}");
            assert_eq!(json::<Ms>(&format!("\"{text}\"")), Ok(Ms(ms)));
            assert_eq!(serde_json::to_string(&Ms(ms)).expect("writes"), format!("\"{text}\""));
        }
        assert_eq!("1m30s".parse(), Ok(Ms(90_000)));
    }

    #[test]
    fn a_bare_number_is_no_duration_and_says_what_would_be() {
        for text in ["5", "\"5\"", "-1", "true", "1.5", "\"soon\"", "\"\"", "\"-5s\""] {
            let error = json::<Ms>(text).expect_err(text);
            assert!(error.contains("\"5s\""), "{text}: {error}");
        }
        assert!(json::<Ms>("\"10us\"").expect_err("too fine").contains("whole milliseconds"));
    }

    #[test]
    fn a_period_is_off_or_longer_than_nothing() {
        assert_eq!(json::<Every>("\"off\""), Ok(Every::Off));
        assert_eq!(json::<Every>("\"6h\"").map(Every::as_millis), Ok(Some(21_600_000)));
        assert!(json::<Every>("\"0s\"").expect_err("zero").contains("off"));
        assert_eq!(serde_json::to_string(&Every::Off).expect("writes"), "\"off\"");
    }

    #[test]
    fn sizes_are_exact_in_both_directions() {
        for (text, bytes) in
            [("32MiB", 32 << 20), ("256KiB", 256 << 10), ("0B", 0), ("1000B", 1000), ("3GiB", 3 << 30)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
            assert_eq!(ByteSize(bytes).to_string(), text);
        }
        assert_eq!(json::<ByteSize>("4096"), Ok(ByteSize(4096)));
        assert_eq!("1MB".parse(), Ok(ByteSize(1_000_000)));
        for text in ["-1", "\"32 parsecs\"", "[]"] {
            assert!(json::<ByteSize>(text).expect_err(text).contains("MiB"), "{text}");
        }
    }
}

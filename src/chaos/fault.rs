//! The language of faults: `damage=0.1,latency=2s:0.3`.
//!
//! Faults are joined by commas. Each is a name, for some a value after `=`, and after `:` the share
//! of requests that it hits (all of them when left out). `none` is no fault at all.

use std::fmt;

/// A fault specification that cannot be read; the text says what was wrong and what is possible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// No fault has this name.
    #[error("unknown fault `{0}`; known are {KNOWN}")]
    Unknown(String),
    /// The fault needs a value, or must not have one, or the value is out of range.
    #[error("fault `{name}`: {problem}")]
    Value {
        /// The fault.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A fault is named twice.
    #[error("fault `{0}` is given twice")]
    Twice(String),
    /// Nothing stands between two commas.
    #[error("an empty fault; write `none` for no fault")]
    Empty,
}

const KNOWN: &str = "damage=R, loop, empty, gibberish, wrong_language, schema_break, logprobs_drop, model_swap, \
                     shuffle, mislabel, raw_scores, nonfinite, latency=DURATION, status=CODE, reset, cut[=TOKENS], stall[=TOKENS], storm429[=SECONDS], \
                     refuse[=DURATION], none";

/// Tokens sent before a cut or a stall when no number is given.
const DEFAULT_AFTER_TOKENS: usize = 6;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// A share of the model's weights is noise, 0..=1.
    Damage(f32),
    /// The answer runs into a loop until its limit.
    Loop,
    /// The answer ends before it begins.
    Empty,
    /// Fragments without language.
    Gibberish,
    /// Another language than asked for.
    WrongLanguage,
    /// JSON that does not parse.
    SchemaBreak,
    /// Logprobs asked for are not given.
    LogprobsDrop,
    /// Another model answers under the same name.
    ModelSwap,
    /// The right words in a random order.
    Shuffle,
    /// The classifier is as sure as ever, of another class.
    Mislabel,
    /// The classifier answers raw scores where it answered probabilities.
    RawScores,
    /// The classifier's first number is NaN.
    Nonfinite,
    /// Milliseconds of waiting before the answer.
    Latency(u64),
    /// An error status instead of an answer.
    Status(u16),
    /// The connection is reset before any byte.
    Reset,
    /// The connection ends in mid-answer after so many tokens.
    Cut(usize),
    /// The answer stops after so many tokens while the connection stays open.
    Stall(usize),
    /// Status 429 with this Retry-After, seconds.
    Storm429(u64),
    /// Connections are refused; until told otherwise, or for milliseconds.
    Refuse(Option<u64>),
}

impl FaultKind {
    fn name(self) -> &'static str {
        match self {
            Self::Damage(_) => "damage",
            Self::Loop => "loop",
            Self::Empty => "empty",
            Self::Gibberish => "gibberish",
            Self::WrongLanguage => "wrong_language",
            Self::SchemaBreak => "schema_break",
            Self::LogprobsDrop => "logprobs_drop",
            Self::ModelSwap => "model_swap",
            Self::Shuffle => "shuffle",
            Self::Mislabel => "mislabel",
            Self::RawScores => "raw_scores",
            Self::Nonfinite => "nonfinite",
            Self::Latency(_) => "latency",
            Self::Status(_) => "status",
            Self::Reset => "reset",
            Self::Cut(_) => "cut",
            Self::Stall(_) => "stall",
            Self::Storm429(_) => "storm429",
            Self::Refuse(_) => "refuse",
        }
    }
}

/// One fault and the share of requests that it hits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: FaultKind,
    /// Share of requests, above 0 and at most 1.
    pub share: f64,
}

/// The faults in force, in the order given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults(Vec<Fault>);

/// Faults of the model itself, as they hit one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools)]
pub struct Condition {
    /// Share of the weights that is noise.
    pub damage: f32,
    /// It runs into a loop.
    pub looping: bool,
    /// It says nothing.
    pub empty: bool,
    /// Fragments without language.
    pub gibberish: bool,
    /// Another language.
    pub wrong_language: bool,
    /// JSON that does not parse.
    pub schema_break: bool,
    /// Another model answers.
    pub swapped: bool,
    /// The right words in a random order.
    pub shuffle: bool,
    /// A classifier gives another label.
    pub mislabel: bool,
    /// A classifier gives raw scores in place of probabilities.
    pub raw_scores: bool,
    /// Numbers that are none.
    pub nonfinite: bool,
}

/// Faults of the server, as they hit one request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transport {
    /// Wait before the answer, milliseconds.
    pub latency_ms: u64,
    /// Status instead of an answer.
    pub status: Option<u16>,
    /// Its `Retry-After`, seconds.
    pub retry_after: Option<u64>,
    /// Reset before any byte.
    pub reset: bool,
    /// The connection ends after so many tokens.
    pub cut: Option<usize>,
    /// It stops after so many tokens.
    pub stall: Option<usize>,
    /// Logprobs are left out.
    pub logprobs_drop: bool,
}

impl Condition {
    /// Whether the answer stays as it is.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        *self == Self::default()
    }
}

impl Faults {
    /// No fault.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The faults in the order given.
    #[must_use]
    pub fn as_slice(&self) -> &[Fault] {
        &self.0
    }

    /// Whether connections are to be refused, and for how many milliseconds.
    #[must_use]
    pub fn refuse(&self) -> Option<Option<u64>> {
        self.0.iter().find_map(|fault| if let FaultKind::Refuse(ms) = fault.kind { Some(ms) } else { None })
    }

    /// Leaves out a refusal of connections.
    pub fn end_refusal(&mut self) {
        self.0.retain(|fault| !matches!(fault.kind, FaultKind::Refuse(_)));
    }

    /// Draws which faults hit one request; `draw` yields numbers in 0..1.
    #[must_use]
    pub fn strike(&self, mut draw: impl FnMut() -> f64) -> (Condition, Transport) {
        let (mut condition, mut transport) = (Condition::default(), Transport::default());
        for fault in &self.0 {
            if fault.share < 1.0 && draw() >= fault.share {
                continue;
            }
            match fault.kind {
                FaultKind::Damage(share) => condition.damage = share,
                FaultKind::Loop => condition.looping = true,
                FaultKind::Empty => condition.empty = true,
                FaultKind::Gibberish => condition.gibberish = true,
                FaultKind::WrongLanguage => condition.wrong_language = true,
                FaultKind::SchemaBreak => condition.schema_break = true,
                FaultKind::ModelSwap => condition.swapped = true,
                FaultKind::Shuffle => condition.shuffle = true,
                FaultKind::Mislabel => condition.mislabel = true,
                FaultKind::RawScores => condition.raw_scores = true,
                FaultKind::Nonfinite => condition.nonfinite = true,
                FaultKind::LogprobsDrop => transport.logprobs_drop = true,
                FaultKind::Latency(ms) => transport.latency_ms = ms,
                FaultKind::Status(code) => transport.status = Some(code),
                FaultKind::Storm429(seconds) => {
                    transport.status = Some(429);
                    transport.retry_after = Some(seconds);
                }
                FaultKind::Reset => transport.reset = true,
                FaultKind::Cut(tokens) => transport.cut = Some(tokens),
                FaultKind::Stall(tokens) => transport.stall = Some(tokens),
                FaultKind::Refuse(_) => {}
            }
        }
        (condition, transport)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (at, fault) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{}", fault.kind.name())?;
            match fault.kind {
                FaultKind::Damage(share) => write!(f, "={share}")?,
                FaultKind::Latency(ms) | FaultKind::Refuse(Some(ms)) => write!(f, "={ms}ms")?,
                FaultKind::Status(code) => write!(f, "={code}")?,
                FaultKind::Cut(n) | FaultKind::Stall(n) => write!(f, "={n}")?,
                FaultKind::Storm429(seconds) => write!(f, "={seconds}")?,
                _ => {}
            }
            if fault.share < 1.0 {
                write!(f, ":{}", fault.share)?;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Faults {
    type Err = FaultError;

    fn from_str(spec: &str) -> Result<Self, FaultError> {
        let spec = spec.trim();
        if spec == "none" {
            return Ok(Self::none());
        }
        let mut faults: Vec<Fault> = Vec::new();
        for item in spec.split(',') {
            let fault = parse_one(item.trim())?;
            if faults.iter().any(|other| other.kind.name() == fault.kind.name()) {
                return Err(FaultError::Twice(fault.kind.name().to_owned()));
            }
            faults.push(fault);
        }
        Ok(Self(faults))
    }
}

fn parse_one(item: &str) -> Result<Fault, FaultError> {
    if item.is_empty() {
        return Err(FaultError::Empty);
    }
    let (head, share) = match item.rsplit_once(':') {
        Some((head, share)) => (head, Some(share)),
        None => (item, None),
    };
    let (name, value) = match head.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (head.trim(), None),
    };
    let wrong = |problem: &str| FaultError::Value { name: name.to_owned(), problem: problem.to_owned() };
    let share = match share {
        None => 1.0,
        Some(text) => match text.trim().parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => share,
            _ => return Err(wrong("the share after `:` must be a number above 0 and at most 1")),
        },
    };
    let kind = parse_kind(name, value, &wrong)?;
    if share < 1.0 && matches!(kind, FaultKind::Refuse(_)) {
        return Err(wrong("it acts on the listener and takes no share"));
    }
    Ok(Fault { kind, share })
}

fn parse_kind(
    name: &str,
    value: Option<&str>,
    wrong: &dyn Fn(&str) -> FaultError,
) -> Result<FaultKind, FaultError> {
    let whole = |default: u64| match value {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|_| wrong("the value must be a whole number")),
    };
    let tokens = || whole(DEFAULT_AFTER_TOKENS as u64).map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let millis = |text: &str| {
        let plain = text.parse::<u64>().ok();
        plain
            .or_else(|| humantime::parse_duration(text).ok().and_then(|d| u64::try_from(d.as_millis()).ok()))
            .ok_or_else(|| wrong("the value must be a duration such as `2s` or `300ms`"))
    };
    let bare = |kind| if value.is_none() { Ok(kind) } else { Err(wrong("it takes no value")) };
    match name {
        "damage" => match value.map(str::parse::<f32>) {
            Some(Ok(share)) if (0.0..=1.0).contains(&share) => Ok(FaultKind::Damage(share)),
            _ => Err(wrong("it needs a share of the weights between 0 and 1, such as `damage=0.1`")),
        },
        "loop" => bare(FaultKind::Loop),
        "empty" => bare(FaultKind::Empty),
        "gibberish" => bare(FaultKind::Gibberish),
        "wrong_language" => bare(FaultKind::WrongLanguage),
        "schema_break" => bare(FaultKind::SchemaBreak),
        "logprobs_drop" => bare(FaultKind::LogprobsDrop),
        "model_swap" => bare(FaultKind::ModelSwap),
        "shuffle" => bare(FaultKind::Shuffle),
        "mislabel" => bare(FaultKind::Mislabel),
        "raw_scores" => bare(FaultKind::RawScores),
        "nonfinite" => bare(FaultKind::Nonfinite),
        "reset" => bare(FaultKind::Reset),
        "latency" => value
            .map_or_else(|| Err(wrong("it needs a duration, such as `latency=2s`")), millis)
            .map(FaultKind::Latency),
        "status" => match value.map(str::parse::<u16>) {
            Some(Ok(code)) if (400..=599).contains(&code) => Ok(FaultKind::Status(code)),
            _ => Err(wrong("it needs an HTTP status between 400 and 599, such as `status=500`")),
        },
        "cut" => tokens().map(FaultKind::Cut),
        "stall" => tokens().map(FaultKind::Stall),
        "storm429" => whole(1).map(FaultKind::Storm429),
        "refuse" => value.map(millis).transpose().map(FaultKind::Refuse),
        _ => Err(FaultError::Unknown(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_read_and_print_alike() {
        for (spec, printed) in [
            ("none", "none"),
            ("damage=0.1", "damage=0.1"),
            ("damage=0.1, latency=2s:0.5", "damage=0.1,latency=2000ms:0.5"),
            ("status=500:0.3,loop", "status=500:0.3,loop"),
            ("latency=250", "latency=250ms"),
            ("cut,stall=20", "cut=6,stall=20"),
            ("storm429,refuse", "storm429=1,refuse"),
            ("refuse=5s", "refuse=5000ms"),
        ] {
            let faults: Faults = spec.parse().unwrap();
            assert_eq!(faults.to_string(), printed);
            assert_eq!(printed.parse::<Faults>().unwrap(), faults);
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (spec, part) in [
            ("lop", "unknown fault `lop`"),
            ("damage", "such as `damage=0.1`"),
            ("damage=2", "between 0 and 1"),
            ("damage=nan", "between 0 and 1"),
            ("loop=3", "takes no value"),
            ("status=200", "between 400 and 599"),
            ("latency=soon", "a duration"),
            ("loop:0", "above 0"),
            ("loop:2", "at most 1"),
            ("loop,loop", "given twice"),
            ("loop,", "empty fault"),
            ("", "empty fault"),
            ("refuse:0.5", "takes no share"),
        ] {
            let error = spec.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains(part), "{spec}: {error}");
        }
    }

    #[test]
    fn a_share_strikes_that_share_of_requests() {
        let faults: Faults = "loop:0.25,latency=10".parse().unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        let hits = (0..4000).filter(|_| faults.strike(|| rng.f64()).0.looping).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert_eq!(faults.strike(|| 0.9).1.latency_ms, 10);
    }
}

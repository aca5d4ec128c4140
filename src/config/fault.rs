//! What is wrong with a configuration, by the path of the field.
//!
//! Serde says what it met, serde_path_to_error where; a module's own parameters begin their word with
//! the key at fault. Here the two become one path, such as `target[1].price.input_usd_per_mtok`.

use std::fmt;
use std::path::PathBuf;

use serde::de::{DeserializeOwned, Deserializer};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which field; empty for the file as a whole.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Why a configuration is refused: every fault that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, if it came from one.
    pub file: Option<PathBuf>,
    /// Never empty.
    pub faults: Vec<Fault>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// One fault a line, each after the file's name, as compilers do.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.faults.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            if let Some(file) = &self.file {
                write!(f, "{}: ", file.display())?;
            }
            fault.fmt(f)?;
        }
        Ok(())
    }
}

impl Fault {
    pub(super) fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// A module's word about the section at `path`: where it begins with a key, the key joins the path.
    pub(super) fn within(path: &str, message: &str) -> Self {
        match message.split_once(": ") {
            Some((key, rest)) if is_key(key) => Self::new(join(path, key), rest),
            _ => Self::new(path, message),
        }
    }
}

/// Reads a part of the configuration that stands at `path`.
pub(super) fn read<'de, T, D>(path: &str, part: D) -> Result<T, Fault>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
    D::Error: fmt::Display,
{
    serde_path_to_error::deserialize(part).map_err(|error| {
        let inner = error.path().to_string();
        let path = if inner == "." { path.to_owned() } else { join(path, &inner) };
        let message = error.into_inner().to_string();
        let message = message.trim_end().lines().next().unwrap_or_default(); // toml adds where it looked
        translate(&path, message)
    })
}

/// Serde's words about keys in those of a person who writes a file.
fn translate(path: &str, message: &str) -> Fault {
    if let Some((key, known)) = quoted(message, "unknown field `") {
        let known = known.trim_start_matches(", expected").trim_start_matches(" one of").trim();
        return Fault::new(
            append(path, key),
            format!("unknown key; known are {}", known.replace("` or `", ", ").replace('`', "")),
        );
    }
    if let Some((key, _)) = quoted(message, "missing field `") {
        return Fault::new(append(path, key), "is required");
    }
    Fault::within(path, message)
}

fn quoted<'m>(message: &'m str, begin: &str) -> Option<(&'m str, &'m str)> {
    message.strip_prefix(begin)?.split_once('`')
}

/// `path.key`, unless the path already ends with the key.
fn append(path: &str, key: &str) -> String {
    let ends_with_key = path.strip_suffix(key).is_some_and(|head| head.is_empty() || head.ends_with('.'));
    if ends_with_key { path.to_owned() } else { join(path, key) }
}

pub(super) fn join(path: &str, key: &str) -> String {
    match (path.is_empty(), key.starts_with('[')) {
        (true, _) => key.to_owned(),
        (false, true) => format!("{path}{key}"),
        (false, false) => format!("{path}.{key}"),
    }
}

/// Whether the text is a path of keys such as `tiers[0]` or `price.input`, and not the begin of a sentence.
fn is_key(text: &str) -> bool {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    begins && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.[]".contains(c))
}

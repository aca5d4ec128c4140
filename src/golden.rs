//! Golden sets and baselines on disk.
//!
//! A golden set is a folder with `prompts.jsonl`, one [`Prompt`] a line: short canaries and longer
//! burst prompts, each with a check that a sound answer meets. The starter set travels inside the
//! program, so that a daemon copied alone to a machine can measure at once; a folder takes precedence.
//!
//! Reading is strict: a set that loads can be asked and judged in full. An unknown field, a regular
//! expression that does not compile or an id given twice is an error that names the line, because a
//! check that silently never runs would report a quality that nobody measured.
//!
//! What a healthy target answered is kept beside the prompts by [`Baselines`]; the body that asks a
//! prompt is made by [`request`].

mod baselines;
mod request;
mod validate;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use baselines::{BaselineError, Baselines, mismatches};
pub use request::{CANARY_TOKENS_WITHOUT_LOGPROBS, request};

use crate::baseline::sha256_hex;
use crate::prompt::{Prompt, PromptKind};

/// The file of prompts in a golden set's folder.
pub const PROMPTS_FILE: &str = "prompts.jsonl";

/// Name of the set that the program carries.
pub const STARTER: &str = "starter";

const STARTER_PROMPTS: &str = include_str!("../golden/starter/prompts.jsonl");

/// Why a golden set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GoldenError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// One line is not a usable prompt.
    #[error("{origin} line {line}: {reason}")]
    Line {
        /// The file, or the name of the set.
        origin: String,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no prompt at all.
    #[error("{origin}: no prompt in it")]
    Empty {
        /// The file, or the name of the set.
        origin: String,
    },
    /// A prompt to be written could not be read back.
    #[error("prompt {id}: {reason}")]
    Unwritable {
        /// Its id.
        id: Arc<str>,
        /// What is wrong with it.
        reason: String,
    },
}

/// The prompts of one golden set, in the order of the file. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GoldenSet {
    name: Arc<str>,
    hash: Arc<str>,
    prompts: Arc<[Arc<Prompt>]>,
}

impl GoldenSet {
    /// The set that the program carries.
    ///
    /// # Errors
    /// None in a released program: a test reads it.
    pub fn starter() -> Result<Self, GoldenError> {
        Self::parse(STARTER, STARTER_PROMPTS)
    }

    /// Reads `prompts.jsonl` of a golden set's folder.
    ///
    /// # Errors
    /// The file cannot be read, holds no prompt, or one of its lines is not a usable prompt.
    pub fn load(dir: &Path) -> Result<Self, GoldenError> {
        let path = dir.join(PROMPTS_FILE);
        let bytes = std::fs::read(&path).map_err(|source| GoldenError::Io { path: path.clone(), source })?;
        let origin = path.display().to_string();
        let text = std::str::from_utf8(&bytes).map_err(|e| GoldenError::Line {
            origin: origin.clone(),
            line: 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count(),
            reason: "not UTF-8".to_owned(),
        })?;
        let mut set = Self::parse(&origin, text)?;
        set.name = dir.file_name().map_or_else(|| Arc::from(STARTER), |n| n.to_string_lossy().into());
        Ok(set)
    }

    /// Reads prompts from text, one a line; empty lines are skipped. `origin` names it in errors.
    ///
    /// # Errors
    /// There is no prompt, or one of the lines is not a usable prompt.
    pub fn parse(origin: &str, text: &str) -> Result<Self, GoldenError> {
        let mut prompts = Vec::new();
        let mut lines = HashMap::new();
        let body = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, raw) in body.lines().enumerate() {
            if raw.trim().is_empty() {
                continue;
            }
            let line = index + 1;
            let fault = |reason: String| GoldenError::Line { origin: origin.to_owned(), line, reason };
            let prompt = validate::prompt(raw).map_err(fault)?;
            if let Some(first) = lines.insert(Arc::clone(&prompt.id), line) {
                return Err(fault(format!("id {:?} was given in line {first} already", prompt.id)));
            }
            prompts.push(Arc::new(prompt));
        }
        if prompts.is_empty() {
            return Err(GoldenError::Empty { origin: origin.to_owned() });
        }
        Ok(Self { name: origin.into(), hash: sha256_hex(text.as_bytes()).into(), prompts: prompts.into() })
    }

    /// The folder's name, or `starter`.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// sha256 of `prompts.jsonl`, hexadecimal: what a baseline is bound to.
    #[must_use]
    pub fn hash(&self) -> &Arc<str> {
        &self.hash
    }

    /// Every prompt, in the order of the file.
    #[must_use]
    pub fn prompts(&self) -> &[Arc<Prompt>] {
        &self.prompts
    }

    /// The short prompts that are sent all day long.
    pub fn canaries(&self) -> impl Iterator<Item = &Arc<Prompt>> {
        self.prompts.iter().filter(|p| p.kind == PromptKind::Canary)
    }

    /// The longer prompts that are sent on suspicion.
    pub fn bursts(&self) -> impl Iterator<Item = &Arc<Prompt>> {
        self.prompts.iter().filter(|p| p.kind == PromptKind::Burst)
    }

    /// The prompt of this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Arc<Prompt>> {
        self.prompts.iter().find(|p| &*p.id == id)
    }
}

/// Writes prompts as a golden set's `prompts.jsonl` (`golden record`, which fills in references), whole
/// or not at all, and makes the folder if need be. An existing set that cannot be read stays as it is.
///
/// # Errors
/// The folder or file cannot be written, holds a set that is broken, or a prompt could not be read back.
pub fn write_prompts<'a>(
    dir: &Path,
    prompts: impl IntoIterator<Item = &'a Prompt>,
) -> Result<PathBuf, GoldenError> {
    let path = dir.join(PROMPTS_FILE);
    if path.exists() {
        GoldenSet::load(dir)?;
    }
    let mut text = String::new();
    for prompt in prompts {
        let unwritable = |reason: String| GoldenError::Unwritable { id: Arc::clone(&prompt.id), reason };
        let line = serde_json::to_string(prompt).map_err(|e| unwritable(e.to_string()))?;
        validate::prompt(&line).map_err(unwritable)?;
        text.push_str(&line);
        text.push('\n');
    }
    GoldenSet::parse(&path.display().to_string(), &text)?;
    baselines::write_whole(&path, text.as_bytes())
        .map_err(|source| GoldenError::Io { path: path.clone(), source })?;
    Ok(path)
}

#[cfg(test)]
mod tests;

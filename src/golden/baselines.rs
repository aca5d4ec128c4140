//! Frozen baselines: `baseline.json` beside the prompts, or `baseline/TARGET.json` once several targets
//! share a set.
//!
//! The file is text to be reviewed, with a checksum over its content without the white space between the
//! tokens: a number changed by hand or a merge gone wrong is found at reading, a reformatted file is not.
//! Writing replaces the file whole (temporary file, fsync, rename), and never one that cannot be read:
//! what is broken may be the only trace of how a healthy target looked.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::baseline::{BASELINE_VERSION, Baseline, Fingerprint, sha256_hex};

const SINGLE_FILE: &str = "baseline.json";
const FOLDER: &str = "baseline";
/// Where baselines of engines that answer no more are kept.
const OLD: &str = "baseline.old";
const ALGORITHM: &str = "sha256:";

/// Why a baseline cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is no sound baseline. It is left as it is.
    #[error("{}: {reason}; the file is left as it is, move it away to make a new one", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The baseline to be written is not sound itself.
    #[error("baseline of target {target}: {reason}")]
    Unsound {
        /// Its target.
        target: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// The baselines in one folder.
#[derive(Clone, Debug)]
pub struct Baselines {
    dir: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed<'a> {
    checksum: String,
    #[serde(borrow)]
    baseline: &'a RawValue,
}

#[derive(Serialize)]
struct Seal<'a> {
    checksum: String,
    baseline: &'a Baseline,
}

impl Baselines {
    /// Those in `dir`, which need not exist yet.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The target's baseline, if one was frozen.
    ///
    /// # Errors
    /// A file that may be the target's cannot be read or is broken.
    pub fn load(&self, target: &str) -> Result<Option<Baseline>, BaselineError> {
        let own = self.own_file(target);
        if let Some(baseline) = Self::read(&own)? {
            if *baseline.target != *target {
                let reason = format!("it was made on target {}, not {target}", baseline.target);
                return Err(BaselineError::Broken { path: own, reason });
            }
            return Ok(Some(baseline));
        }
        let single = Self::read(&self.dir.join(SINGLE_FILE))?;
        Ok(single.filter(|b| *b.target == *target))
    }

    /// Freezes a baseline and returns its file: the one that holds this target now, else
    /// `baseline.json` while no other target has it, else one of its own. What was frozen of another engine
    /// is kept in `baseline.old/`.
    ///
    /// # Errors
    /// The place is taken by a file that is broken, the baseline is not sound (a number that is not
    /// finite, counts that contradict each other), or the file cannot be written.
    pub fn save(&self, baseline: &Baseline) -> Result<PathBuf, BaselineError> {
        let unsound = |reason: String| BaselineError::Unsound { target: baseline.target.to_string(), reason };
        let path = self.place(&baseline.target)?;
        let text = render(&Baseline { version: BASELINE_VERSION, ..baseline.clone() })
            .map_err(|e| unsound(e.to_string()))?;
        parse(&text).map_err(unsound)?;
        let write = |path: &Path, text: &str| {
            write_whole(path, text.as_bytes())
                .map_err(|source| BaselineError::Io { path: path.to_owned(), source })
        };
        if let Some(old) = Self::read(&path)?
            && old.fingerprint.is_another_engine(&baseline.fingerprint)
        {
            let name = format!("{}-{}.json", file_name(&old.target), old.made_at.as_millis());
            write(&self.dir.join(OLD).join(name), &render(&old).map_err(|e| unsound(e.to_string()))?)?;
        }
        write(&path, &text)?;
        Ok(path)
    }

    /// Reads one file; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, is not a baseline of this version, or its checksum does not fit.
    pub fn read(path: &Path) -> Result<Option<Baseline>, BaselineError> {
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(BaselineError::Io { path: path.to_owned(), source }),
        };
        let broken = |reason: String| BaselineError::Broken { path: path.to_owned(), reason };
        let text = std::str::from_utf8(&bytes).map_err(|_| broken("not UTF-8".to_owned()))?;
        parse(text).map(Some).map_err(broken)
    }

    fn own_file(&self, target: &str) -> PathBuf {
        self.dir.join(FOLDER).join(format!("{}.json", file_name(target)))
    }

    fn place(&self, target: &str) -> Result<PathBuf, BaselineError> {
        let (single, own) = (self.dir.join(SINGLE_FILE), self.own_file(target));
        if Self::read(&own)?.is_some() {
            return Ok(own);
        }
        match Self::read(&single)? {
            Some(there) if *there.target == *target => Ok(single),
            Some(_) => Ok(own),
            None if self.dir.join(FOLDER).exists() => Ok(own),
            None => Ok(single),
        }
    }
}

/// A target's name as a file name: anything but letters, digits, `-`, `_` and inner dots is escaped.
fn file_name(target: &str) -> String {
    let mut name = String::with_capacity(target.len());
    for (i, byte) in target.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && i > 0) {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

fn parse(text: &str) -> Result<Baseline, String> {
    let sealed: Sealed<'_> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let found = checksum(sealed.baseline.get());
    if sealed.checksum != found {
        return Err(format!("its content has {found}, but it says {}", sealed.checksum));
    }
    let baseline: Baseline = serde_json::from_str(sealed.baseline.get()).map_err(|e| e.to_string())?;
    if baseline.version != BASELINE_VERSION {
        return Err(format!(
            "format version {}, but this program reads {BASELINE_VERSION}",
            baseline.version
        ));
    }
    if baseline.target.is_empty() {
        return Err("it names no target".to_owned());
    }
    if let Some((id, p)) = baseline.prompts.iter().find(|(_, p)| p.passes > p.runs) {
        return Err(format!("prompt {id}: {} passes in {} runs", p.passes, p.runs));
    }
    if baseline.hard_faults.0 > baseline.hard_faults.1 {
        let (faults, answers) = baseline.hard_faults;
        return Err(format!("{faults} hard faults in {answers} answers"));
    }
    Ok(baseline)
}

fn checksum(json: &str) -> String {
    let mut bare = Vec::with_capacity(json.len());
    let (mut quoted, mut escaped) = (false, false);
    for byte in json.bytes() {
        if quoted || !byte.is_ascii_whitespace() {
            bare.push(byte);
        }
        if quoted && !escaped && byte == b'\\' {
            escaped = true;
            continue;
        }
        if byte == b'"' && !escaped {
            quoted = !quoted;
        }
        escaped = false;
    }
    format!("{ALGORITHM}{}", sha256_hex(&bare))
}

fn render(baseline: &Baseline) -> serde_json::Result<String> {
    let sealed = Seal { checksum: checksum(&serde_json::to_string(baseline)?), baseline };
    let mut out = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Reviewed::default());
    sealed.serialize(&mut serializer)?;
    out.push(b'\n');
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// One member a line, lists of numbers on one: a diff shows what changed and no more.
#[derive(Default)]
struct Reviewed {
    depth: usize,
    empty: bool,
}

impl Reviewed {
    fn new_line<W: ?Sized + std::io::Write>(&self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(b"  "))
    }
}

impl serde_json::ser::Formatter for Reviewed {
    fn begin_object<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        self.depth += 1;
        self.empty = true;
        out.write_all(b"{")
    }

    fn end_object<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        self.depth -= 1;
        if !self.empty {
            self.new_line(out)?;
        }
        self.empty = false;
        out.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        self.new_line(out)
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + std::io::Write>(&mut self, _: &mut W) -> std::io::Result<()> {
        self.empty = false;
        Ok(())
    }

    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
}

/// Replaces a file whole or not at all; makes its folder if need be.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let dir = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    std::fs::create_dir_all(dir)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = dir.join(format!(".{name}.{}.new", std::process::id()));
    let written = (|| {
        let mut file = std::fs::File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary); // best effort: the cause is already reported
        return written;
    }
    #[cfg(unix)]
    std::fs::File::open(dir)?.sync_all()?;
    Ok(())
}

/// Why two measurements are not comparable, one sentence each; none if they are. An engine that does not
/// name itself on one of the two sides is no mismatch.
#[must_use]
pub fn mismatches(frozen: &Fingerprint, now: &Fingerprint) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut compare = |what: &str, then: &dyn std::fmt::Display, now: &dyn std::fmt::Display| {
        let (then, now) = (then.to_string(), now.to_string());
        if then != now {
            reasons.push(format!("{what} was {then:?} when the baseline was made and is {now:?} now"));
        }
    };
    if !frozen.engine.is_empty() && !now.engine.is_empty() {
        compare("engine", &frozen.engine, &now.engine);
    }
    compare("model", &frozen.model, &now.model);
    compare("alternatives a position", &frozen.top_k, &now.top_k);
    compare("temperature", &frozen.temperature, &now.temperature);
    compare("embedding model", &frozen.embedder, &now.embedder);
    compare("golden set", &frozen.golden, &now.golden);
    reasons
}

#[cfg(test)]
mod tests;

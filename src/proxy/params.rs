//! `[proxy]` and `[hold]`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use crate::units::{ByteSize, Ms};

/// Loopback: opening it to others is a decision.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);
/// Three hundredths of a core read some three hundred answers of a kilobyte a second, more than the models behind
/// one daemon usually say.
const MAX_ANALYSIS_CPU_SHARE: f64 = 0.03;
/// Longer than `limits.first_text`, so that the limit decides.
const HOLD_MAX: Ms = Ms::from_secs(12);
/// An opening without a word that is larger is odd enough to let it pass.
const HOLD_MAX_BYTES: ByteSize = ByteSize::kib(256);
/// The largest JSON answer that is held whole.
const HOLD_JSON_BYTES: ByteSize = ByteSize::mib(8);

/// `[proxy]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawProxy", into = "RawProxy")]
pub struct ProxyParams {
    raw: RawProxy,
    patterns: Vec<WildMatch>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawProxy {
    listen: SocketAddr,
    passthrough: Vec<String>,
    cors: Vec<String>,
    max_analysis_cpu_share: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    key: Vec<KeyParams>,
}

/// `[[proxy.key]]`: one caller's key. Once there is one, nobody gets in without.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyParams {
    name: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_file: Option<PathBuf>,
}

impl KeyParams {
    /// Whose it is; used in budgets.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Environment variable that holds the secret.
    #[must_use]
    pub fn key_env(&self) -> Option<&str> {
        self.key_env.as_deref()
    }

    /// File that holds the secret.
    #[must_use]
    pub fn key_file(&self) -> Option<&PathBuf> {
        self.key_file.as_ref()
    }
}

impl Default for RawProxy {
    fn default() -> Self {
        Self {
            listen: LISTEN,
            passthrough: Vec::new(),
            cors: Vec::new(),
            key: Vec::new(),
            max_analysis_cpu_share: MAX_ANALYSIS_CPU_SHARE,
        }
    }
}

/// Why `[proxy]` or `[hold]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// A pattern that matches nothing.
    #[error("passthrough[{0}]: must be a path such as \"/v1/audio/*\", or \"*\"")]
    Passthrough(usize),
    /// Not an origin.
    #[error("cors[{0}]: must be an origin such as \"https://chat.example\", or \"*\"")]
    Cors(usize),
    /// No share.
    #[error("max_analysis_cpu_share: must be from 0 (texts are read lightly) to 1 (one whole core)")]
    Share,
    /// A key without a name, or with one that no budget could use.
    #[error("key[{0}].name: must be 1 to 64 letters, digits or any of . _ -")]
    KeyName(usize),
    /// A name given twice.
    #[error("key[{0}].name: `{1}` is taken")]
    KeyTwice(usize, Arc<str>),
    /// No secret, or two.
    #[error("key[{0}].key_env: give either key_env or key_file")]
    KeySource(usize),
    /// Not a form of holding.
    #[error("until: `{0}` is not known; write \"first_content\", \"tokens:64\" or \"end\"")]
    Until(String),
    /// Not an answer to a fault that comes late.
    #[error("on_late_fault: `{0}` is not known; write \"flag\" or \"break\"")]
    OnLateFault(String),
    /// Nothing can be held.
    #[error("{0}: must be more than nothing")]
    Zero(&'static str),
}

impl TryFrom<RawProxy> for ProxyParams {
    type Error = ParamsError;

    fn try_from(raw: RawProxy) -> Result<Self, ParamsError> {
        if let Some(i) = raw.passthrough.iter().position(|p| !p.starts_with('/') && !p.starts_with('*')) {
            return Err(ParamsError::Passthrough(i));
        }
        let origin = |o: &String| {
            o == "*" || ((o.starts_with("http://") || o.starts_with("https://")) && o.is_ascii())
        };
        if let Some(i) = raw.cors.iter().position(|o| !origin(o)) {
            return Err(ParamsError::Cors(i));
        }
        if !(0.0..=1.0).contains(&raw.max_analysis_cpu_share) {
            return Err(ParamsError::Share);
        }
        for (i, key) in raw.key.iter().enumerate() {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
            if key.name.is_empty() || key.name.len() > 64 || !key.name.bytes().all(allowed) {
                return Err(ParamsError::KeyName(i));
            }
            if raw.key[..i].iter().any(|k| k.name == key.name) {
                return Err(ParamsError::KeyTwice(i, Arc::clone(&key.name)));
            }
            if key.key_env.is_some() == key.key_file.is_some() {
                return Err(ParamsError::KeySource(i));
            }
        }
        let patterns = raw.passthrough.iter().map(|p| WildMatch::new(p)).collect();
        Ok(Self { raw, patterns })
    }
}

impl From<ProxyParams> for RawProxy {
    fn from(params: ProxyParams) -> Self {
        params.raw
    }
}

impl ProxyParams {
    /// Where callers connect.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.raw.listen
    }

    /// These parameters with another address to listen on.
    #[must_use]
    pub fn with_listen(mut self, listen: SocketAddr) -> Self {
        self.raw.listen = listen;
        self
    }

    /// Whether any method on this unscored path may pass.
    #[must_use]
    pub fn passes(&self, path: &str) -> bool {
        self.patterns.iter().any(|p| p.matches(path))
    }

    /// Share of one core that reading answers in full may take in shadow mode, 0..=1.
    #[must_use]
    pub fn max_analysis_cpu_share(&self) -> f64 {
        self.raw.max_analysis_cpu_share
    }

    /// Callers' keys.
    #[must_use]
    pub fn keys(&self) -> &[KeyParams] {
        &self.raw.key
    }

    /// Origins that browsers may call from; empty leaves CORS to the upstream.
    #[must_use]
    pub fn cors(&self) -> &[String] {
        &self.raw.cors
    }
}

/// `[hold]`: how much of an answer is kept back before it is committed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawHold", into = "RawHold")]
pub struct HoldParams(RawHold);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawHold {
    until: String,
    on_late_fault: String,
    max_ms: u64,
    max_bytes: ByteSize,
    max_json_bytes: ByteSize,
}

impl Default for RawHold {
    fn default() -> Self {
        Self {
            until: "first_content".to_owned(),
            on_late_fault: "flag".to_owned(),
            max_ms: HOLD_MAX.as_millis(),
            max_bytes: HOLD_MAX_BYTES,
            max_json_bytes: HOLD_JSON_BYTES,
        }
    }
}

impl TryFrom<RawHold> for HoldParams {
    type Error = ParamsError;

    fn try_from(raw: RawHold) -> Result<Self, ParamsError> {
        if until_of(&raw.until).is_none() {
            return Err(ParamsError::Until(raw.until));
        }
        if !matches!(raw.on_late_fault.as_str(), "flag" | "break") {
            return Err(ParamsError::OnLateFault(raw.on_late_fault));
        }
        if raw.max_ms == 0 {
            return Err(ParamsError::Zero("max_ms"));
        }
        if raw.max_bytes.as_u64() == 0 {
            return Err(ParamsError::Zero("max_bytes"));
        }
        Ok(Self(raw))
    }
}

impl From<HoldParams> for RawHold {
    fn from(params: HoldParams) -> Self {
        params.0
    }
}

/// How long the opening of a stream is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until its first text, reasoning, tool call or refusal.
    FirstContent,
    /// Until about so many tokens, so that an early cut or loop is still rescued.
    Tokens(u32),
    /// Until its end, like a JSON answer.
    End,
}

fn until_of(text: &str) -> Option<Until> {
    match text {
        "first_content" => Some(Until::FirstContent),
        "end" => Some(Until::End),
        other => other.strip_prefix("tokens:")?.parse().ok().filter(|n| *n > 0).map(Until::Tokens),
    }
}

impl HoldParams {
    /// How long the opening of a stream is held.
    #[must_use]
    pub fn until(&self) -> Until {
        until_of(&self.0.until).unwrap_or(Until::FirstContent)
    }

    /// Whether a stream that turns out unusable after it was committed to is broken off.
    #[must_use]
    pub fn breaks_late(&self) -> bool {
        self.0.on_late_fault == "break"
    }

    /// Longest time an opening is held, milliseconds.
    #[must_use]
    pub fn max_ms(&self) -> u64 {
        self.0.max_ms
    }

    /// Largest opening of a stream that is held, bytes.
    #[must_use]
    pub fn max_bytes(&self) -> usize {
        self.0.max_bytes.as_usize()
    }

    /// Largest JSON answer that is held whole, bytes.
    #[must_use]
    pub fn max_json_bytes(&self) -> usize {
        self.0.max_json_bytes.as_usize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_unsafe_passes_by_default_and_patterns_open_paths() {
        assert!(!ProxyParams::default().passes("/api/pull"));
        let params: ProxyParams = toml::from_str("passthrough = [\"/v1/audio/*\"]").expect("reads");
        assert!(params.passes("/v1/audio/transcriptions"));
        assert!(!params.passes("/api/delete"));
        let all: ProxyParams = toml::from_str("passthrough = [\"*\"]").expect("reads");
        assert!(all.passes("/api/delete"));
    }

    #[test]
    fn faults_name_their_key() {
        let fault = |text: &str| toml::from_str::<ProxyParams>(text).expect_err(text).message().to_owned();
        assert!(fault("passthrough = [\"v1\"]").starts_with("passthrough[0]:"));
        assert!(fault("cors = [\"*\", \"chat.example\"]").starts_with("cors[1]:"));
        for (text, until) in
            [("end", Until::End), ("tokens:64", Until::Tokens(64)), ("first_content", Until::FirstContent)]
        {
            let hold: HoldParams = toml::from_str(&format!("until = \"{text}\"")).expect("reads");
            assert_eq!(hold.until(), until);
        }
        for text in ["tokens:0", "tokens:", "never"] {
            assert!(toml::from_str::<HoldParams>(&format!("until = \"{text}\"")).is_err());
        }
        assert!(toml::from_str::<HoldParams>("on_late_fault = \"sing\"").is_err());
        assert!(toml::from_str::<HoldParams>("max_ms = 0").is_err());
        let hold: HoldParams = toml::from_str("max_ms = 15000").expect("reads");
        assert_eq!(hold.max_ms(), 15_000);
    }
}

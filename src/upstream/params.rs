//! `[[target]]`: one inference server and one model on it.

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::{Inject, LimitsPatch, LoadParams};
use crate::sample::Usage;

/// Longest name; it becomes a metric label and a header value.
const MAX_NAME: usize = 64;
/// Words that mean something else in a tier.
const RESERVED: [&str; 2] = ["cache", "passthrough"];

/// One target as the configuration gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawTarget", into = "RawTarget")]
pub struct TargetParams(RawTarget);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    name: Arc<str>,
    url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_key_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    api_key_file: Option<PathBuf>,
    #[serde(default)]
    forward_auth: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_concurrency: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vram: Option<Vram>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens_per_permit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    price: Option<Price>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_context_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vocab_size: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    golden: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    inject: Option<Inject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    load: Option<LoadParams>,
    #[serde(default, skip_serializing_if = "is_default")]
    limits: LimitsPatch,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    breaker: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quality: Option<serde_json::Value>,
}

fn is_default(patch: &LimitsPatch) -> bool {
    *patch == LimitsPatch::default()
}

/// Graphics memory, from which the number of concurrent calls follows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vram {
    /// Memory of the card.
    pub total_gb: f64,
    /// Memory one call takes.
    pub per_request_gb: f64,
    /// Memory never given away.
    #[serde(default)]
    pub margin_gb: f64,
}

impl Vram {
    /// `floor((total − margin) ÷ per_request)`, at least 1.
    #[must_use]
    pub fn permits(&self) -> u32 {
        // 16.8 GB at 0.7 GB each are 24 calls, of which binary fractions would make 23.
        let whole = ((self.total_gb - self.margin_gb) / self.per_request_gb + 1e-9).floor();
        if whole >= 1.0 { whole.min(f64::from(u32::MAX)) as u32 } else { 1 }
    }
}

/// A small server's burst.
const RATE_CAPACITY: f64 = 32.0;
/// What it then keeps up.
const RATE_REFILL_PER_SECOND: f64 = 8.0;

/// Requests that a target takes, whatever is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rate {
    /// At once.
    pub capacity: f64,
    /// A second.
    pub refill_per_second: f64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { capacity: RATE_CAPACITY, refill_per_second: RATE_REFILL_PER_SECOND }
    }
}

/// What a target costs, USD per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens.
    #[serde(default)]
    pub input_usd_per_mtok: f64,
    /// Answer tokens.
    #[serde(default)]
    pub output_usd_per_mtok: f64,
}

impl Price {
    /// What this usage costs, USD; unknown counts cost nothing.
    #[must_use]
    pub fn cost_usd(&self, usage: &Usage) -> f64 {
        let tokens = |n: Option<u64>| n.unwrap_or(0) as f64 / 1e6;
        tokens(usage.input) * self.input_usd_per_mtok + tokens(usage.output) * self.output_usd_per_mtok
    }
}

/// Why a target cannot be used. The first word is the key at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// Not a name.
    #[error("name: `{0}` must be 1 to 64 letters, digits or any of . _ - / :")]
    Name(String),
    /// A name that a tier reads otherwise.
    #[error("name: `{0}` is a word that tiers keep for themselves")]
    Reserved(String),
    /// Not a base URL.
    #[error("url: `{0}` {1}")]
    Url(String, &'static str),
    /// Two sources of one secret.
    #[error("api_key_file: give either api_key_env or api_key_file")]
    TwoKeys,
    /// Two sources of one number.
    #[error("vram: give either max_concurrency or vram")]
    TwoPermits,
    /// No call would be allowed.
    #[error("max_concurrency: must be at least 1")]
    NoPermits,
    /// Memory that cannot be shared out.
    #[error("vram.{0}: must be a positive number")]
    Vram(&'static str),
    /// A call would cost no permit.
    #[error("tokens_per_permit: must be at least 1")]
    TokensPerPermit,
    /// A rate at which nothing would ever pass.
    #[error("rate.{0}: must be a number of at least {1}")]
    Rate(&'static str, &'static str),
    /// Not a price.
    #[error("price.{0}: must be a number of at least 0")]
    Price(&'static str),
    /// An empty model name.
    #[error("model: must not be empty; leave it out to send what the caller wrote")]
    EmptyModel,
}

impl TryFrom<RawTarget> for TargetParams {
    type Error = TargetError;

    fn try_from(raw: RawTarget) -> Result<Self, TargetError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/:".contains(&b);
        if raw.name.is_empty() || raw.name.len() > MAX_NAME || !raw.name.bytes().all(allowed) {
            return Err(TargetError::Name(raw.name.to_string()));
        }
        if RESERVED.contains(&&*raw.name) || raw.name.starts_with("http:") || raw.name.starts_with("https:") {
            return Err(TargetError::Reserved(raw.name.to_string()));
        }
        check_url(&raw.url)?;
        if raw.api_key_env.is_some() && raw.api_key_file.is_some() {
            return Err(TargetError::TwoKeys);
        }
        if raw.max_concurrency.is_some() && raw.vram.is_some() {
            return Err(TargetError::TwoPermits);
        }
        if raw.max_concurrency == Some(0) {
            return Err(TargetError::NoPermits);
        }
        if raw.tokens_per_permit == Some(0) {
            return Err(TargetError::TokensPerPermit);
        }
        if let Some(rate) = raw.rate {
            if !rate.capacity.is_finite() || rate.capacity < 1.0 {
                return Err(TargetError::Rate("capacity", "1"));
            }
            if !rate.refill_per_second.is_finite() || rate.refill_per_second < 0.001 {
                return Err(TargetError::Rate("refill_per_second", "0.001"));
            }
        }
        if raw.model.as_deref() == Some("") {
            return Err(TargetError::EmptyModel);
        }
        if let Some(vram) = raw.vram {
            let positive = |name, x: f64| {
                if x.is_finite() && x > 0.0 { Ok(()) } else { Err(TargetError::Vram(name)) }
            };
            positive("total_gb", vram.total_gb)?;
            positive("per_request_gb", vram.per_request_gb)?;
            if !vram.margin_gb.is_finite() || vram.margin_gb < 0.0 {
                return Err(TargetError::Vram("margin_gb"));
            }
        }
        if let Some(price) = raw.price {
            for (name, x) in [
                ("input_usd_per_mtok", price.input_usd_per_mtok),
                ("output_usd_per_mtok", price.output_usd_per_mtok),
            ] {
                if !x.is_finite() || x < 0.0 {
                    return Err(TargetError::Price(name));
                }
            }
        }
        Ok(Self(raw))
    }
}

pub(super) fn check_url(text: &str) -> Result<(), TargetError> {
    let fault = |why| Err(TargetError::Url(redact(text), why));
    let Ok(url) = Url::parse(text) else { return fault("is not a URL; write http://host:port") };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return fault("must begin with http:// or https:// and name a host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return fault("must not hold a secret; name it with api_key_env or api_key_file");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return fault("must end with its path, without a query or a fragment");
    }
    Ok(())
}

/// A URL with a secret in it is never repeated.
fn redact(text: &str) -> String {
    match (text.find("://"), text.find('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}://***{}", &text[..scheme], &text[at..]),
        _ => text.to_owned(),
    }
}

impl From<TargetParams> for RawTarget {
    fn from(params: TargetParams) -> Self {
        params.0
    }
}

impl TargetParams {
    /// A target that is nothing but its base URL, as `--upstream` makes it.
    ///
    /// # Errors
    /// If the name or the URL cannot be used.
    pub fn from_url(name: &str, url: &str, forward_auth: bool) -> Result<Self, TargetError> {
        Self::try_from(RawTarget {
            name: name.into(),
            url: url.to_owned(),
            forward_auth,
            ..RawTarget::default()
        })
    }

    /// The target behind a tier that is a URL: named after it, nothing else.
    ///
    /// # Errors
    /// If the URL cannot be used.
    pub fn of_tier(url: &str) -> Result<Self, TargetError> {
        check_url(url)?;
        let allowed = |c: &char| c.is_ascii_alphanumeric() || "._-/:".contains(*c);
        let name: String = url.chars().filter(allowed).take(MAX_NAME).collect();
        Ok(Self(RawTarget { name: name.into(), url: url.to_owned(), ..RawTarget::default() }))
    }

    /// The page on which the target tells its load, as a target of its own and the path on it, if there is one. The
    /// target's key goes along only to where the key is for.
    #[must_use]
    pub fn load_page(&self) -> Option<(LoadParams, Self, String)> {
        let load = self.0.load.clone()?;
        let page = Url::parse(load.url()).ok()?;
        let same = Url::parse(&self.0.url).is_ok_and(|own| own.origin() == page.origin());
        let key = |key: &Option<String>| key.clone().filter(|_| same);
        let raw = RawTarget {
            name: Arc::clone(&self.0.name),
            url: page.origin().ascii_serialization(),
            api_key_env: key(&self.0.api_key_env),
            api_key_file: self.0.api_key_file.clone().filter(|_| same),
            ..RawTarget::default()
        };
        Some((load, Self(raw), page.path().to_owned()))
    }

    /// Unique name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The base that the wire's paths are appended to.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The model name sent upstream; `None`: as the caller wrote it.
    #[must_use]
    pub fn model(&self) -> Option<&Arc<str>> {
        self.0.model.as_ref()
    }

    /// Environment variable that holds the key.
    #[must_use]
    pub fn api_key_env(&self) -> Option<&str> {
        self.0.api_key_env.as_deref()
    }

    /// File that holds the key.
    #[must_use]
    pub fn api_key_file(&self) -> Option<&PathBuf> {
        self.0.api_key_file.as_ref()
    }

    /// Whether the caller's own credentials are sent on.
    #[must_use]
    pub fn forward_auth(&self) -> bool {
        self.0.forward_auth
    }

    /// Targets that share one GPU or account share a pool.
    #[must_use]
    pub fn pool(&self) -> Option<&Arc<str>> {
        self.0.pool.as_ref()
    }

    /// How many calls may run at once, by number or by graphics memory.
    #[must_use]
    pub fn permits(&self) -> Option<u32> {
        self.0.max_concurrency.or_else(|| self.0.vram.map(|v| v.permits()))
    }

    /// Tokens that one permit covers; `None`: a call is one permit.
    #[must_use]
    pub fn tokens_per_permit(&self) -> Option<u32> {
        self.0.tokens_per_permit
    }

    /// Requests a second.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        self.0.rate
    }

    /// Whether its memory, less the margin, does not hold even one call.
    #[must_use]
    pub fn vram_too_small(&self) -> bool {
        self.0.vram.is_some_and(|v| v.total_gb - v.margin_gb < v.per_request_gb)
    }

    /// What it costs.
    #[must_use]
    pub fn price(&self) -> Option<Price> {
        self.0.price
    }

    /// Largest context, tokens.
    #[must_use]
    pub fn max_context_tokens(&self) -> Option<u64> {
        self.0.max_context_tokens
    }

    /// Vocabulary size of the model, for the upper bound of the entropy.
    #[must_use]
    pub fn vocab_size(&self) -> Option<u32> {
        self.0.vocab_size
    }

    /// Folder of this target's own golden set.
    #[must_use]
    pub fn golden(&self) -> Option<&PathBuf> {
        self.0.golden.as_ref()
    }

    /// Which of its requests may be asked for logprobs and usage that nobody asked for.
    #[must_use]
    pub fn inject(&self) -> Inject {
        self.0.inject.unwrap_or_default()
    }

    /// What holds where the target itself says nothing.
    pub fn or_inject(&mut self, inject: Inject) {
        if inject != Inject::default() {
            self.0.inject.get_or_insert(inject);
        }
    }

    /// What it says differently about limits.
    #[must_use]
    pub fn limits(&self) -> &LimitsPatch {
        &self.0.limits
    }

    /// `[target.breaker]`, as written; the breaker reads it.
    #[must_use]
    pub fn breaker(&self) -> Option<&serde_json::Value> {
        self.0.breaker.as_ref()
    }

    /// `[target.quality]`, as written; the detectors read it.
    #[must_use]
    pub fn quality(&self) -> Option<&serde_json::Value> {
        self.0.quality.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TargetParams, String> {
        toml::from_str(text).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn the_contracts_sketch_reads_and_writes_back() {
        let text = r#"
            name = "vllm-a"
            url = "http://127.0.0.1:8000"
            model = "llama-3.1-8b"
            api_key_env = "VLLM_KEY"
            pool = "gpu-a"
            vram = { total_gb = 24, per_request_gb = 6, margin_gb = 2 }
            price = { input_usd_per_mtok = 0.42, output_usd_per_mtok = 1.20 }
            limits = { first_text = "3s" }
            breaker = { preset = "gateway" }
        "#;
        let target = read(text).expect("reads");
        assert_eq!(target.permits(), Some(3));
        assert_eq!(target.breaker().and_then(|b| b.get("preset")).and_then(|p| p.as_str()), Some("gateway"));
        let usage = Usage { input: Some(1_000_000), output: Some(500_000), ..Usage::default() };
        assert!((target.price().expect("a price").cost_usd(&usage) - 1.02).abs() < 1e-9);
        let again = read(&toml::to_string(&target).expect("writes")).expect("reads again");
        assert_eq!(again, target);
    }

    #[test]
    fn a_fault_names_its_key_and_no_secret() {
        let fault = |line: &str| {
            let head =
                if line.contains("url =") { "name = \"a\"\n" } else { "name = \"a\"\nurl = \"http://h\"\n" };
            read(&format!("{head}{line}")).expect_err(line)
        };
        assert!(fault("url = \"ftp://x\"").starts_with("url:"));
        assert!(fault("url = \"http://u:hunter2@h\"").starts_with("url:"));
        assert!(!fault("url = \"http://u:hunter2@h\"").contains("hunter2"));
        assert!(fault("price = { input_usd_per_mtok = -1 }").starts_with("price.input_usd_per_mtok:"));
        assert!(fault("vram = { total_gb = 8, per_request_gb = 0 }").starts_with("vram.per_request_gb:"));
        assert!(fault("max_concurrency = 0").starts_with("max_concurrency:"));
        assert!(fault("api_key = \"sk\"").contains("api_key"));
        assert!(TargetParams::from_url("cache", "http://h", true).is_err());
        assert!(TargetParams::from_url("ü", "http://h", true).is_err());
    }

    #[test]
    fn a_key_goes_to_the_load_page_of_its_own_origin_only() {
        let page = |url: &str| {
            let text = format!(
                "name = \"a\"\nurl = \"http://h:1/base\"\napi_key_env = \"K\"\nload = {{ url = \"{url}\" }}"
            );
            read(&text).expect("reads").load_page().expect("a page")
        };
        let (_, own, path) = page("http://h:1/metrics");
        assert_eq!((own.url(), own.api_key_env(), path.as_str()), ("http://h:1", Some("K"), "/metrics"));
        let (_, other, path) = page("http://h:2/admin/metrics");
        assert_eq!((other.url(), other.api_key_env(), path.as_str()), ("http://h:2", None, "/admin/metrics"));
        assert!(read("name = \"a\"\nurl = \"http://h\"").expect("reads").load_page().is_none());
    }

    #[test]
    fn too_little_memory_still_gives_one_permit() {
        let vram = Vram { total_gb: 4.0, per_request_gb: 6.0, margin_gb: 5.0 };
        assert_eq!(vram.permits(), 1);
    }
}

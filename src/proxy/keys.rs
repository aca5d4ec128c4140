//! `[[proxy.key]]`: who may call at all.
//!
//! A key comes in `x-touchstone-key`, or as the bearer token or `x-api-key` where clients know no other way, and is
//! taken out before anything travels. Keys are looked up by their SHA-256, so that neither the time of a
//! comparison nor a dump of memory by name tells them.

use std::collections::HashMap;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::params::KeyParams;

const KEY: HeaderName = HeaderName::from_static("x-touchstone-key");
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Why a key cannot be had; the key of the configuration comes first.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its variable is not set.
    #[error("key_env: the variable `{0}` is not set")]
    Variable(String),
    /// Its file cannot be read.
    #[error("key_file: {path} cannot be read")]
    File {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nothing is in it.
    #[error("key_env: the key is empty")]
    Empty,
    /// Two names for one secret.
    #[error("name: `{0}` has the same secret as another key")]
    Same(Arc<str>),
}

/// The keys that are let in; none at all lets everyone in.
#[derive(Default)]
pub(super) struct Keys(HashMap<[u8; 32], Arc<str>>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} keys", self.0.len())
    }
}

impl Keys {
    /// Reads every key's secret.
    ///
    /// # Errors
    /// The place of the key in the list, and what is wrong.
    pub(super) fn read(params: &[KeyParams]) -> Result<Self, (usize, KeyError)> {
        let mut keys = HashMap::new();
        for (i, key) in params.iter().enumerate() {
            let secret = secret_of(key).map_err(|fault| (i, fault))?;
            if keys.insert(hash(secret.trim().as_bytes()), Arc::clone(key.name())).is_some() {
                return Err((i, KeyError::Same(Arc::clone(key.name()))));
            }
        }
        Ok(Self(keys))
    }

    /// Whether everyone is let in.
    pub(super) fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the key that the request brings, taken out of it.
    pub(super) fn take(&self, headers: &mut HeaderMap) -> Option<Arc<str>> {
        let own = headers.remove(&KEY);
        if let Some(own) = own {
            return self.name(own.as_bytes()); // who names a key is judged by it
        }
        for header in [header::AUTHORIZATION, X_API_KEY] {
            let named = headers.get(&header).and_then(|value| self.name(bearer(value)));
            if named.is_some() {
                headers.remove(&header);
                return named;
            }
        }
        None
    }

    fn name(&self, secret: &[u8]) -> Option<Arc<str>> {
        self.0.get(&hash(secret.trim_ascii())).cloned()
    }
}

fn bearer(value: &HeaderValue) -> &[u8] {
    let bytes = value.as_bytes();
    match bytes.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case(b"bearer ") => &bytes[7..],
        _ => bytes,
    }
}

fn hash(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// A number that tells callers apart by their credentials and nothing else.
pub(super) fn caller_hash(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(header::AUTHORIZATION).or_else(|| headers.get(&X_API_KEY))?;
    let digest = hash(value.as_bytes());
    Some(digest.iter().take(8).fold(0, |n, b| n << 8 | u64::from(*b)))
}

fn secret_of(key: &KeyParams) -> Result<String, KeyError> {
    let secret = if let Some(name) = key.key_env() {
        std::env::var(name).map_err(|_| KeyError::Variable(name.to_owned()))?
    } else if let Some(path) = key.key_file() {
        std::fs::read_to_string(path)
            .map_err(|source| KeyError::File { path: path.display().to_string(), source })?
    } else {
        String::new()
    };
    if secret.trim().is_empty() { Err(KeyError::Empty) } else { Ok(secret) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn keys() -> Keys {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        writeln!(file, "s3cret").expect("writes");
        let text = format!("name = \"team\"\nkey_file = {:?}", file.path());
        Keys::read(&[toml::from_str(&text).expect("reads")]).expect("reads")
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn a_key_is_found_in_each_header_and_taken_out() {
        let keys = keys();
        for (name, value) in
            [("x-touchstone-key", "s3cret"), ("authorization", "Bearer s3cret"), ("x-api-key", "s3cret")]
        {
            let mut sent = headers(&[(name, value), ("accept", "*/*")]);
            assert_eq!(keys.take(&mut sent).as_deref(), Some("team"), "{name}");
            assert_eq!(sent.len(), 1, "{name}");
        }
    }

    #[test]
    fn another_secret_is_none_and_the_callers_own_credentials_stay() {
        let keys = keys();
        let mut sent = headers(&[("x-touchstone-key", "s3cret"), ("authorization", "Bearer sk-upstream")]);
        assert_eq!(keys.take(&mut sent).as_deref(), Some("team"));
        assert_eq!(sent["authorization"], "Bearer sk-upstream");
        let mut wrong = headers(&[("x-touchstone-key", "guess"), ("authorization", "Bearer s3cret")]);
        assert_eq!(keys.take(&mut wrong), None);
        assert_eq!(keys.take(&mut headers(&[("authorization", "Bearer sk-upstream")])), None);
    }

    #[test]
    fn no_secret_is_ever_shown() {
        assert_eq!(format!("{:?}", keys()), "1 keys");
    }
}

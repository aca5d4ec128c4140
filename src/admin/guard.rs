//! Who may ask: the bearer token, and the Host and Origin checks that keep a foreign web page out.
//!
//! A browser sends what a page tells it to, also to loopback: DNS rebinding makes a foreign name point
//! here, so the Host must be one of ours; a cross-site request carries its page's Origin, so that must be
//! the very host that was asked. (Fetch standard, "Origin header"; RFC 6750 for the bearer token.)

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::http::{HeaderMap, Method, StatusCode, header};
use sha2::{Digest, Sha256};

/// Name of the generated token's file in the data directory.
pub const TOKEN_FILE: &str = "admin.token";

/// Why the token cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The variable is not set or empty.
    #[error("admin.token_env: the environment variable `{0}` is not set or empty")]
    Env(String),
    /// The file cannot be read or written.
    #[error("admin token file {path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds no token.
    #[error("admin token file {0} is empty; delete it to have a new token made")]
    Empty(PathBuf),
}

/// The token: from the environment, or kept in the data directory, where it is made at first start with
/// mode 0600.
///
/// # Errors
/// [`TokenError`] names the variable or file.
pub fn token(token_env: Option<&str>, data_dir: &Path) -> Result<String, TokenError> {
    if let Some(name) = token_env {
        return std::env::var(name)
            .ok()
            .filter(|t| !t.trim().is_empty())
            .map(|t| t.trim().to_owned())
            .ok_or_else(|| TokenError::Env(name.to_owned()));
    }
    let path = data_dir.join(TOKEN_FILE);
    let fail = |source| TokenError::File { path: path.clone(), source };
    match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => return Err(TokenError::Empty(path)),
        Ok(text) => return Ok(text.trim().to_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(fail(e)),
    }
    let mut random = [0_u8; 32];
    getrandom::fill(&mut random).map_err(|e| fail(std::io::Error::other(e)))?;
    let made: String = random.iter().map(|b| format!("{b:02x}")).collect();
    std::fs::create_dir_all(data_dir).map_err(fail)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path).map_err(fail)?;
    writeln!(file, "{made}").and_then(|()| file.sync_all()).map_err(fail)?;
    Ok(made)
}

/// The rule for one listener.
#[derive(Clone)]
pub struct Guard {
    token: [u8; 32],
    hosts: Vec<String>,
    open_reading: bool,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("hosts", &self.hosts).field("token", &"***").finish_non_exhaustive()
    }
}

impl Guard {
    /// The rule of a surface that listens on `listen` and may also be asked as one of `allowed_hosts`.
    #[must_use]
    pub fn new(token: &str, listen: SocketAddr, allowed_hosts: &[String]) -> Self {
        let mut hosts: Vec<String> = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec();
        if !listen.ip().is_unspecified() {
            hosts.push(match listen {
                SocketAddr::V4(a) => a.ip().to_string(),
                SocketAddr::V6(a) => format!("[{}]", a.ip()),
            });
        }
        hosts.extend(allowed_hosts.iter().map(|h| h.to_ascii_lowercase()));
        Self { token: digest(token), hosts, open_reading: listen.ip().is_loopback() }
    }

    /// Whether the request may pass.
    ///
    /// # Errors
    /// The status and a sentence for the caller.
    pub fn check(
        &self,
        method: &Method,
        host: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<(), (StatusCode, &'static str)> {
        let host = host.map(str::to_ascii_lowercase).unwrap_or_default();
        if !self.hosts.iter().any(|h| h == without_port(&host)) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this host name is not one of the daemon's; add it to admin.allowed_hosts",
            ));
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let same = origin
                .to_str()
                .ok()
                .and_then(|o| o.split_once("://"))
                .is_some_and(|(_, o)| o.eq_ignore_ascii_case(&host));
            if !same {
                return Err((StatusCode::FORBIDDEN, "requests from another origin are refused"));
            }
        }
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if (reads && self.open_reading) || self.has_token(headers) {
            return Ok(());
        }
        Err((StatusCode::UNAUTHORIZED, "the admin token is required: `Authorization: Bearer …`"))
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        headers
            .get(header::AUTHORIZATION)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            // digests are compared, so that the time taken tells nothing about the token
            .is_some_and(|(_, token)| digest(token.trim()) == self.token)
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(k, v)| (k.parse().expect("name"), v.parse().expect("value"))).collect()
    }

    fn guard(listen: &str) -> Guard {
        Guard::new("secret", listen.parse().expect("address"), &["Ops.example".to_owned()])
    }

    #[test]
    fn reading_is_open_on_loopback_and_writing_never_is() {
        let g = guard("127.0.0.1:7071");
        let none = headers(&[]);
        let token = headers(&[("authorization", "bearer secret")]);
        assert_eq!(g.check(&Method::GET, Some("localhost:7071"), &none), Ok(()));
        assert_eq!(g.check(&Method::GET, Some("[::1]:7071"), &none), Ok(()));
        let refused = g.check(&Method::POST, Some("localhost:7071"), &none).expect_err("no token");
        assert_eq!(refused.0, StatusCode::UNAUTHORIZED);
        assert_eq!(g.check(&Method::POST, Some("ops.example"), &token), Ok(()));
        let wrong = headers(&[("authorization", "Bearer secret2")]);
        assert!(g.check(&Method::POST, Some("localhost"), &wrong).is_err());
        assert!(!format!("{g:?}").contains("secret"));
    }

    #[test]
    fn off_loopback_reading_needs_the_token_too() {
        let g = guard("0.0.0.0:7071");
        assert!(g.check(&Method::GET, Some("ops.example:7071"), &headers(&[])).is_err());
        let token = headers(&[("authorization", "Bearer secret")]);
        assert_eq!(g.check(&Method::GET, Some("ops.example:7071"), &token), Ok(()));
    }

    #[test]
    fn a_rebound_name_and_a_foreign_origin_are_kept_out() {
        let g = guard("127.0.0.1:7071");
        let rebound = g.check(&Method::GET, Some("evil.example:7071"), &headers(&[]));
        assert_eq!(rebound.expect_err("rebound").0, StatusCode::MISDIRECTED_REQUEST);
        assert!(g.check(&Method::GET, None, &headers(&[])).is_err());
        let foreign = headers(&[("origin", "http://evil.example"), ("authorization", "Bearer secret")]);
        let refused = g.check(&Method::POST, Some("127.0.0.1:7071"), &foreign).expect_err("foreign");
        assert_eq!(refused.0, StatusCode::FORBIDDEN);
        let own = headers(&[("origin", "http://127.0.0.1:7071"), ("authorization", "Bearer secret")]);
        assert_eq!(g.check(&Method::POST, Some("127.0.0.1:7071"), &own), Ok(()));
    }

    #[test]
    fn the_token_is_made_once_readable_by_its_owner_only_and_kept() {
        let dir = tempfile::tempdir().expect("temp dir");
        let data = dir.path().join("data");
        let made = token(None, &data).expect("made");
        assert_eq!(made.len(), 64);
        assert_eq!(token(None, &data).expect("kept"), made);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::metadata(data.join(TOKEN_FILE)).expect("file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        std::fs::write(data.join(TOKEN_FILE), "\n").expect("emptied");
        assert!(matches!(token(None, &data), Err(TokenError::Empty(_))));
        assert!(matches!(token(Some("TOUCHSTONE_NO_SUCH_VARIABLE"), &data), Err(TokenError::Env(_))));
    }
}

//! Health API, events, metrics, status page.
//!
//! Reading is open on loopback; whatever changes state needs the bearer token, always, so that a page in
//! some browser cannot open a breaker. See [`guard`].

pub mod guard;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Where the admin surface listens unless told otherwise.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7071);

/// The admin surface; `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params {
    listen: SocketAddr,
    token_env: Option<String>,
    metrics_listen: Option<SocketAddr>,
    allowed_hosts: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    listen: SocketAddr,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_listen: Option<SocketAddr>,
    allowed_hosts: Vec<String>,
}

/// Why the parameters are refused.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// An address that others can reach, and no token.
    #[error("token_env: {0} is not a loopback address, so a token is required")]
    OpenAddress(SocketAddr),
    /// A name that cannot be a variable's.
    #[error("token_env: `{0}` is no name of an environment variable")]
    TokenEnv(String),
}

impl Default for RawParams {
    fn default() -> Self {
        Self { listen: DEFAULT_LISTEN, token_env: None, metrics_listen: None, allowed_hosts: Vec::new() }
    }
}

impl Default for Params {
    fn default() -> Self {
        let raw = RawParams::default();
        Self { listen: raw.listen, token_env: None, metrics_listen: None, allowed_hosts: Vec::new() }
    }
}

impl From<Params> for RawParams {
    fn from(p: Params) -> Self {
        Self {
            listen: p.listen,
            token_env: p.token_env,
            metrics_listen: p.metrics_listen,
            allowed_hosts: p.allowed_hosts,
        }
    }
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        if let Some(name) = &raw.token_env
            && (name.is_empty() || name.contains(['=', '\0']))
        {
            return Err(ParamsError::TokenEnv(name.clone()));
        }
        let params = Self {
            listen: raw.listen,
            token_env: raw.token_env,
            metrics_listen: raw.metrics_listen,
            allowed_hosts: raw.allowed_hosts,
        };
        params.check_listen(params.listen)?;
        Ok(params)
    }
}

impl Params {
    /// Address of the admin surface.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// Moves the surface to `listen`, as `--admin` does.
    ///
    /// # Errors
    /// [`ParamsError::OpenAddress`] if others can reach it and no token is configured.
    pub fn with_listen(mut self, listen: SocketAddr) -> Result<Self, ParamsError> {
        self.check_listen(listen)?;
        self.listen = listen;
        Ok(self)
    }

    fn check_listen(&self, listen: SocketAddr) -> Result<(), ParamsError> {
        if listen.ip().is_loopback() || self.token_env.is_some() {
            return Ok(());
        }
        Err(ParamsError::OpenAddress(listen))
    }

    /// Environment variable that holds the token.
    #[must_use]
    pub fn token_env(&self) -> Option<&str> {
        self.token_env.as_deref()
    }

    /// Second listener for `/metrics`, `/healthz` and `/readyz` only.
    #[must_use]
    pub fn metrics_listen(&self) -> Option<SocketAddr> {
        self.metrics_listen
    }

    /// Host names, beside the loopback ones, under which the surface may be asked.
    #[must_use]
    pub fn allowed_hosts(&self) -> &[String] {
        &self.allowed_hosts
    }
}

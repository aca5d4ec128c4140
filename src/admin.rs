//! Health API, events, metrics, status page.
//!
//! Reading is open on loopback; whatever changes state needs the bearer token, always, so that a page in
//! some browser cannot open a breaker. See [`guard`].

mod api;
mod control;
pub mod guard;
mod observe;
mod page;

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;

use crate::cache::Cache;
use crate::clock::Clock;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::monitor::MonitorHandle;
use crate::monitor::board::Board;
use crate::shared::Shared;
use crate::store::Store;
use guard::Guard;

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

/// The description of the surface, for tools.
const OPENAPI: &str = include_str!("admin/openapi.json");

/// What the admin surface reads and whom it tells.
#[derive(Clone, Debug)]
pub struct Surface {
    /// State of targets and routes.
    pub board: Board,
    /// Events, requests, histories.
    pub store: Arc<Store>,
    /// Metrics.
    pub metrics: Metrics,
    /// Published states.
    pub gate: Gate,
    /// Takes commands and observations.
    pub monitor: MonitorHandle,
    /// Tells the state of budgets.
    pub budgets: Budgets,
    /// Answers that passed quality.
    pub cache: Arc<Cache>,
    /// What several instances share.
    pub shared: Option<Shared>,
    /// Time.
    pub clock: Clock,
}

/// Tells the state of budgets, as `/v1/budgets` answers it.
#[derive(Clone)]
pub struct Budgets(pub Arc<dyn Fn() -> serde_json::Value + Send + Sync>);

impl std::fmt::Debug for Budgets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Budgets")
    }
}

/// Serves the whole surface until `shutdown`.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    surface: Surface,
    guard: Guard,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let guard = Arc::new(guard);
    let app = routes()
        .layer(middleware::from_fn(move |request: Request, next: Next| {
            let guard = Arc::clone(&guard);
            async move { guarded(&guard, request, next).await }
        }))
        .with_state(surface);
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await
}

/// Serves `/metrics`, `/healthz` and `/readyz` alone, for a scraper that comes from elsewhere.
///
/// # Errors
/// If the listener fails.
pub async fn serve_metrics(
    listener: TcpListener,
    surface: Surface,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(listener, open_routes().with_state(surface)).with_graceful_shutdown(shutdown).await
}

fn open_routes() -> Router<Surface> {
    Router::new()
        .route("/metrics", get(api::metrics))
        .route("/healthz", get(api::healthz))
        .route("/readyz", get(api::readyz))
}

fn routes() -> Router<Surface> {
    open_routes()
        .route("/", get(page::page))
        .route("/openapi.json", get(openapi))
        .route("/v1/health", get(api::health))
        .route("/v1/targets/{name}", get(api::target))
        .route("/v1/targets/{name}/history", get(api::history))
        .route("/v1/targets/{name}/breaker", post(control::breaker))
        .route("/v1/targets/{name}/probe", post(control::probe))
        .route("/v1/events", get(api::events))
        .route("/v1/events/stream", get(api::event_stream))
        .route("/v1/requests/{id}", get(api::request))
        .route("/v1/workflows/{id}", get(api::workflow))
        .route("/v1/budgets", get(api::budgets))
        .route("/v1/cache", get(api::cache))
        .route("/v1/observe", post(observe::observe))
        .route("/v1/admit/{target}", get(api::admit))
        .fallback(|| async { api::error(StatusCode::NOT_FOUND, "no such path; see /openapi.json") })
        .method_not_allowed_fallback(|| async {
            api::error(StatusCode::METHOD_NOT_ALLOWED, "not with this method; see /openapi.json")
        })
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn guarded(guard: &Guard, request: Request, next: Next) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|h| h.to_str().ok())
        .or_else(|| request.uri().authority().map(axum::http::uri::Authority::as_str));
    if let Err((status, why)) = guard.check(request.method(), host, request.headers()) {
        let mut refused = api::error(status, why);
        if status == StatusCode::UNAUTHORIZED {
            refused.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        return refused;
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:"),
    );
    response
}

//! One inference server as a target: a pooled client, its key, its limits.
//!
//! A call either brings a head and a stream of bytes, or a [`Failure`] that says whose fault it was.
//! Nothing is decoded, followed or repeated here, and no proxy of the environment is used: what the
//! upstream says is what the caller shall see. Dropping a call or its body closes the connection to
//! the upstream at once, so that nobody pays for tokens that no one reads.
//!
//! Idle connections are kept shorter than the five seconds after which common inference servers
//! (uvicorn, Node) close theirs, because a request written into a closing connection is lost.

mod chaotic;
mod clear;
mod connection;
mod failure;
pub mod headers;
mod idle;
mod injection;
mod limits;
mod load;
mod params;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::{Arc, Once, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Version, header};
use http_body::{Body as _, Frame};
use reqwest::Url;

pub use failure::{Failure, FailureKind};
pub use injection::{Inject, Injection};
pub use limits::{Limits, LimitsError, LimitsPatch};
pub use load::{Load, LoadError, LoadParams};
pub use params::{Price, Rate, TargetError, TargetParams, Vram};

use crate::verdict::Wire;
use clear::Clear;
use connection::Received;
use headers::{Credentials, Key};

/// Shorter than the five seconds of uvicorn and Node, in clear text, where a new connection is cheap.
const IDLE_CLEAR: Duration = Duration::from_secs(4);
/// A secure connection is dear, and providers keep theirs for minutes.
const IDLE_SECURE: Duration = Duration::from_secs(50);

/// Why a target cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The key's variable is not set.
    #[error("api_key_env: the variable `{0}` is not set")]
    KeyVariable(String),
    /// The key's file cannot be read.
    #[error("api_key_file: {path} cannot be read")]
    KeyFile {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The key cannot stand in a header.
    #[error("api_key: the key is empty or holds characters that no header may hold")]
    KeyText,
    /// The base URL cannot be read.
    #[error("url: `{0}` is not a URL")]
    Url(String),
    /// No client could be made.
    #[error("url: no client can be made for it")]
    Client(#[source] reqwest::Error),
}

/// A request on its way to a target.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// Method.
    pub method: Method,
    /// Path and query, appended to the target's base.
    pub path: &'a str,
    /// Headers; those that must not travel are taken out on the way.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// Protocol, if it is one that is known.
    pub wire: Option<Wire>,
    /// Whether connecting may take as long as the system lets it, as it could without a proxy (shadow mode).
    pub patient: bool,
}

/// The head of an answer, and its body as it arrives.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers without those of the connection.
    pub headers: HeaderMap,
    /// Whether only the end of the connection ends the body, so that a cut looks like an end.
    pub close_delimited: bool,
    /// The bytes.
    pub body: AnswerBody,
}

/// The bytes of an answer as they arrive. Dropping it closes the upstream's side.
#[derive(Debug)]
pub struct AnswerBody(Pieces);

#[derive(Debug)]
enum Pieces {
    Clear(Received),
    Secure(reqwest::Body),
}

impl AnswerBody {
    /// The next piece, `None` at an orderly end.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        match &mut self.0 {
            Pieces::Clear(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|next| next.map(|frame| frame.map_err(|e| Failure::in_clear_body(&e)))),
            Pieces::Secure(body) => {
                Pin::new(body).poll_frame(cx).map(|next| next.map(|frame| frame.map_err(Failure::in_body)))
            }
        }
    }

    /// The next bytes, `None` at an orderly end. Trailers are passed over.
    ///
    /// # Errors
    /// If the connection broke or the body was shorter than declared.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match std::future::poll_fn(|cx| self.poll_frame(cx)).await {
                None => return Ok(None),
                Some(Err(failure)) => return Err(failure),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Wants no more of it: closes the upstream's side.
    pub fn cancel(&mut self) {
        self.0 = Pieces::Secure(reqwest::Body::from(Bytes::new()));
    }

    /// A body that is made here, for faults put in front of a target.
    #[must_use]
    pub fn of<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        Self(Pieces::Secure(reqwest::Body::wrap(body)))
    }

    /// Whether the end is known to be reached without asking for more.
    #[must_use]
    pub fn is_end(&self) -> bool {
        match &self.0 {
            Pieces::Clear(body) => body.is_end_stream(),
            Pieces::Secure(body) => body.is_end_stream(),
        }
    }

    /// The exact length, where it was declared.
    #[must_use]
    pub fn exact_len(&self) -> Option<u64> {
        match &self.0 {
            Pieces::Clear(body) => body.size_hint().exact(),
            Pieces::Secure(body) => body.size_hint().exact(),
        }
    }
}

/// One target, ready to be called. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Upstream {
    params: TargetParams,
    limits: Limits,
    base: Url,
    base_has_version: bool,
    /// For secure connections, unscored paths and upgrades.
    client: reqwest::Client,
    /// For inference calls in clear text.
    clear: Option<Clear>,
    /// The same two without a limit for connecting; made when they are first needed.
    patient: OnceLock<(Option<Clear>, reqwest::Client)>,
    credentials: Credentials,
    injection: Injection,
    chaos: Option<chaotic::Chaos>,
}

impl Upstream {
    /// Sets up a target: reads its key and makes its client. No connection is opened.
    ///
    /// # Errors
    /// If the key cannot be read or no client can be made.
    pub fn new(params: &TargetParams, limits: &Limits) -> Result<Self, BuildError> {
        let base = Url::parse(params.url()).map_err(|_| BuildError::Url(params.url().to_owned()))?;
        let limits = limits.with(params.limits());
        let client = build_client(Some(limits.connect()), base.scheme() == "https")?;
        let credentials = Credentials { key: read_key(params)?, forward: params.forward_auth() };
        let base_has_version = base.path().trim_end_matches('/').ends_with("/v1");
        let clear = (base.scheme() == "http")
            .then(|| Clear::new(&base, Some(limits.connect()), IDLE_CLEAR))
            .flatten();
        let params = params.clone();
        let injection = Injection::default();
        Ok(Self {
            params,
            limits,
            base,
            base_has_version,
            client,
            clear,
            patient: OnceLock::new(),
            credentials,
            injection,
            chaos: None,
        })
    }

    /// The same with faults in front of it, if any are meant for it.
    #[must_use]
    pub fn with_chaos(mut self, chaos: &crate::chaos::Params) -> Self {
        self.chaos = chaotic::Chaos::new(chaos, self.params.name());
        self
    }

    /// Unique name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.params.name()
    }

    /// The model name sent upstream; `None`: as the caller wrote it.
    #[must_use]
    pub fn model(&self) -> Option<&Arc<str>> {
        self.params.model()
    }

    /// As configured.
    #[must_use]
    pub fn params(&self) -> &TargetParams {
        &self.params
    }

    /// Whether the caller's own credentials are what proves who calls.
    #[must_use]
    pub fn forwards_auth(&self) -> bool {
        self.credentials.forward && self.credentials.key.is_none()
    }

    /// Whether it may be asked more than its callers ask.
    #[must_use]
    pub fn injection(&self) -> &Injection {
        &self.injection
    }

    /// Limits of this target.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sends a call and waits for the head of the answer, at most `wait`.
    ///
    /// # Errors
    /// If no head came, and whose fault that was.
    pub async fn send(&self, call: Call<'_>, wait: Option<Duration>) -> Result<Answer, Failure> {
        match &self.chaos {
            None => self.send_plain(call, wait).await,
            Some(chaos) => Box::pin(chaotic::send(self, chaos, call, wait)).await,
        }
    }

    async fn send_plain(&self, call: Call<'_>, wait: Option<Duration>) -> Result<Answer, Failure> {
        let Some(limit) = wait else { return self.ask(call).await };
        tokio::time::timeout(limit, self.ask(call)).await.map_err(|_| {
            let words = format!("no response headers within {} ms", limit.as_millis());
            Failure::new(FailureKind::HeadersTimeout, words)
        })?
    }

    async fn ask(&self, call: Call<'_>) -> Result<Answer, Failure> {
        let (clear, client) = if call.patient { self.patient() } else { (&self.clear, &self.client) };
        if let (Some(clear), Some(_)) = (clear, call.wire) {
            let headers = self.headers(call.headers, &call.method, call.wire, call.body.is_empty());
            let path = self.path(call.path);
            let response = clear.send(call.method, &path, headers, call.body).await?;
            return Ok(read_head(response, Pieces::Clear));
        }
        let response = client.execute(self.request(call)).await.map_err(Failure::before_head)?;
        Ok(read_head(response.into(), Pieces::Secure))
    }

    fn patient(&self) -> (&Option<Clear>, &reqwest::Client) {
        let (clear, client) = self.patient.get_or_init(|| {
            let clear = self.clear.as_ref().and_then(|_| Clear::new(&self.base, None, IDLE_CLEAR));
            // one such client could be made before, so another can; if not, the limit stays
            let client = build_client(None, self.base.scheme() == "https");
            (clear, client.unwrap_or_else(|_| self.client.clone()))
        });
        (clear, client)
    }

    /// Sends a call that asks for another protocol (a websocket) and gives the raw connection where
    /// the upstream agrees with 101, or its answer where it does not.
    ///
    /// # Errors
    /// If no head came, or the connection could not be taken over.
    pub async fn upgrade(
        &self,
        call: Call<'_>,
        upgrade: http::HeaderValue,
    ) -> Result<Result<(HeaderMap, reqwest::Upgraded), Answer>, Failure> {
        let mut request = self.request(call);
        request.headers_mut().insert(header::CONNECTION, http::HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(header::UPGRADE, upgrade);
        let response = self.client.execute(request).await.map_err(Failure::before_head)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Err(read_head(response.into(), Pieces::Secure)));
        }
        let headers = response.headers().clone();
        let raw = response.upgrade().await.map_err(Failure::before_head)?;
        Ok(Ok((headers, raw)))
    }

    fn request(&self, call: Call<'_>) -> reqwest::Request {
        let headers = self.headers(call.headers, &call.method, call.wire, call.body.is_empty());
        let mut request = reqwest::Request::new(call.method, self.url(call.path));
        *request.headers_mut() = headers;
        if !call.body.is_empty() {
            *request.body_mut() = Some(call.body.into());
        }
        request
    }

    fn headers(&self, mut headers: HeaderMap, method: &Method, wire: Option<Wire>, empty: bool) -> HeaderMap {
        headers::make_outgoing(&mut headers);
        self.credentials.apply(&mut headers, wire == Some(Wire::Messages));
        headers::ensure_trace(&mut headers);
        if empty && method == Method::POST {
            headers.insert(header::CONTENT_LENGTH, http::HeaderValue::from_static("0"));
        }
        headers
    }

    /// Path and query with the base's own path before them.
    fn path<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let rest = if self.base_has_version { path.strip_prefix("/v1").unwrap_or(path) } else { path };
        match self.base.path().trim_end_matches('/') {
            "" => rest.into(),
            base => format!("{base}{rest}").into(),
        }
    }

    /// Base and path together. A base that already ends in the version (`…/v1`) is not given it twice.
    fn url(&self, path: &str) -> Url {
        let (path, query) = path.split_once('?').map_or((path, None), |(p, q)| (p, Some(q)));
        let path = if self.base_has_version { path.strip_prefix("/v1").unwrap_or(path) } else { path };
        let mut url = self.base.clone();
        let base = self.base.path().trim_end_matches('/');
        if base.is_empty() {
            url.set_path(path);
        } else {
            url.set_path(&format!("{base}{path}"));
        }
        url.set_query(query);
        url
    }
}

fn read_head<B: http_body::Body>(response: http::Response<B>, wrap: impl FnOnce(B) -> Pieces) -> Answer {
    let (parts, body) = response.into_parts();
    let mut headers = parts.headers;
    let framed =
        headers.contains_key(header::CONTENT_LENGTH) || headers.contains_key(header::TRANSFER_ENCODING);
    let close_delimited = !framed && parts.version <= Version::HTTP_11 && !body.is_end_stream();
    headers::drop_hop_by_hop(&mut headers);
    Answer { status: parts.status, headers, close_delimited, body: AnswerBody(wrap(body)) }
}

fn read_key(params: &TargetParams) -> Result<Option<Key>, BuildError> {
    let secret = if let Some(name) = params.api_key_env() {
        std::env::var(name).map_err(|_| BuildError::KeyVariable(name.to_owned()))?
    } else if let Some(path) = params.api_key_file() {
        std::fs::read_to_string(path)
            .map_err(|source| BuildError::KeyFile { path: path.display().to_string(), source })?
    } else {
        return Ok(None);
    };
    let secret = secret.trim();
    if secret.is_empty() {
        return Err(BuildError::KeyText);
    }
    Key::new(secret).map(Some).ok_or(BuildError::KeyText)
}

fn build_client(connect: Option<Duration>, secure: bool) -> Result<reqwest::Client, BuildError> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that the process already has a provider, which does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let mut builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .retry(reqwest::retry::never())
        .tcp_nodelay(true)
        .pool_idle_timeout(if secure { IDLE_SECURE } else { IDLE_CLEAR });
    if let Some(limit) = connect {
        builder = builder.connect_timeout(limit);
    }
    if !secure {
        builder = builder.tls_certs_only([]); // clear text needs no roots, and a machine may have none
    }
    builder.build().map_err(BuildError::Client)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(url: &str) -> Upstream {
        let params = TargetParams::from_url("a", url, false).expect("a target");
        Upstream::new(&params, &Limits::default()).expect("a client")
    }

    #[test]
    fn paths_are_appended_to_the_base_and_the_version_stands_once() {
        let url = |base: &str, path: &str| upstream(base).url(path).to_string();
        assert_eq!(url("http://h:1", "/v1/models"), "http://h:1/v1/models");
        assert_eq!(url("http://h:1/", "/v1/models?a=b"), "http://h:1/v1/models?a=b");
        assert_eq!(url("http://h/case/001", "/v1/x"), "http://h/case/001/v1/x");
        assert_eq!(url("https://h/openai/v1/", "/v1/x"), "https://h/openai/v1/x");
        assert_eq!(url("http://h", "/a%2Fb"), "http://h/a%2Fb");
    }

    #[test]
    fn a_missing_key_is_named_by_its_variable() {
        let params: TargetParams =
            toml::from_str("name=\"a\"\nurl=\"http://h\"\napi_key_env=\"TOUCHSTONE_TEST_NO_SUCH\"")
                .expect("reads");
        let fault = Upstream::new(&params, &Limits::default()).expect_err("no key").to_string();
        assert!(fault.contains("TOUCHSTONE_TEST_NO_SUCH"), "{fault}");
    }
}

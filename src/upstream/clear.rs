//! The short way to a target in clear text: hyper's pooled client without the layers that redirects,
//! cookies and the like would need. On loopback they cost as much as the rest of forwarding a call.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, Parts, PathAndQuery, Scheme, Uri};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use reqwest::Url;
use tokio::net::TcpStream;
use tower_service::Service;

use super::failure::{Failure, FailureKind};

/// A pooled client of one origin.
#[derive(Clone, Debug)]
pub(super) struct Clear {
    client: Client<Bounded, Full<Bytes>>,
    authority: Authority,
    /// Put together once, not for every call.
    host: HeaderValue,
}

impl Clear {
    /// For a base that is an `http` URL.
    pub(super) fn new(base: &Url, connect: Option<Duration>, idle: Duration) -> Option<Self> {
        let authority = base.as_str().parse::<Uri>().ok()?.into_parts().authority?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(idle)
            .pool_timer(TokioTimer::new())
            .build(Bounded { connector, limit: connect });
        let name = authority.host();
        let host = authority.port_u16().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        Some(Self { client, authority, host: host.parse().ok()? })
    }

    /// Sends a call to a path (with its query) of the origin.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, Failure> {
        let uri = self.uri(path).map_err(|e| Failure::new(FailureKind::Request, e.to_string()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host.clone());
        self.client.request(request).await.map_err(|e| Failure::of_clear(&e))
    }

    fn uri(&self, path: &str) -> Result<Uri, http::Error> {
        let mut parts = Parts::default();
        parts.scheme = Some(Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::try_from(path)?);
        Ok(Uri::from_parts(parts)?)
    }
}

/// Connects within a limit, if there is one, resolving the name included.
#[derive(Clone, Debug)]
struct Bounded {
    connector: HttpConnector,
    limit: Option<Duration>,
}

type Connecting<T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn std::error::Error + Send + Sync>>> + Send>>;

impl Service<Uri> for Bounded {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, limit) = (self.connector.call(uri), self.limit);
        Box::pin(async move {
            let Some(limit) = limit else { return Ok(connecting.await?) };
            match tokio::time::timeout(limit, connecting).await {
                Ok(connected) => Ok(connected?),
                Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            }
        })
    }
}

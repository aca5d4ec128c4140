//! The short way to a target in clear text: connections of our own without the layers that redirects,
//! cookies and the like would need. On loopback they cost as much as the rest of forwarding a call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use reqwest::Url;
use tower_service::Service;

use super::connection::{Connection, Received};
use super::failure::{Failure, FailureKind};
use super::idle::Idle;

/// A client of one origin, which keeps its connections.
#[derive(Clone, Debug)]
pub(super) struct Clear {
    connector: HttpConnector,
    /// For connecting, if there is one.
    limit: Option<Duration>,
    origin: Uri,
    idle: Arc<Idle>,
    /// Put together once, not for every call.
    host: HeaderValue,
}

impl Clear {
    /// For a base that is an `http` URL.
    pub(super) fn new(base: &Url, connect: Option<Duration>, idle: Duration) -> Option<Self> {
        let origin = base.as_str().parse::<Uri>().ok()?;
        let authority = origin.authority()?;
        let name = authority.host();
        let host = authority.port_u16().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let host = host.parse().ok()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Some(Self { connector, limit: connect, origin, idle: Idle::new(idle), host })
    }

    /// Sends a call to a path (with its query) of the origin.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Received>, Failure> {
        let path = PathAndQuery::try_from(path);
        let path = path.map_err(|e| Failure::new(FailureKind::Request, e.to_string()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from(path);
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, self.host.clone());
        loop {
            let (connection, is_fresh) = match self.idle.take() {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            match connection.ask(request).await {
                Ok((response, connection)) => {
                    return Ok(response.map(|body| Received::new(body, connection, Arc::clone(&self.idle))));
                }
                Err(mut error) => match error.take_message() {
                    // The upstream closed it just then, and has seen nothing of the request: another one will do.
                    Some(unsent) if !is_fresh => request = unsent,
                    _ => return Err(Failure::of_clear(error.error())),
                },
            }
        }
    }

    /// Connects within the limit, resolving the name included.
    async fn connect(&self) -> Result<Connection, Failure> {
        let connecting = self.connector.clone().call(self.origin.clone());
        let stream = match self.limit {
            None => connecting.await,
            Some(limit) => tokio::time::timeout(limit, connecting).await.map_err(|_| {
                let words = format!("no connection within {} ms", limit.as_millis());
                Failure::new(FailureKind::ConnectTimeout, words)
            })?,
        };
        let stream = stream.map_err(|error| Failure::of_connect(&error))?;
        Connection::new(stream).await.map_err(|error| Failure::of_clear(&error))
    }
}

#[cfg(test)]
mod tests;

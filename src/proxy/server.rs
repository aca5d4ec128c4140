//! The listener: accepts connections, serves each on a task of its own, and drains them at the end.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge are told apart by the first bytes. A caller that disconnects ends
//! its connection's task, which drops the request under way and with it the upstream's connection.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use super::Proxy;
use super::analysis::Afterwork;
use super::pages;
use super::service;

/// Idle callers keep their connection longer than common clients keep theirs in a pool.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);
/// After a failed accept (no file descriptor left), before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Streams that one HTTP/2 caller may have open.
const MAX_STREAMS: u32 = 1_024;

/// Serves callers until `shutdown` is ready, then takes no new ones and returns when the last answer under
/// way has been delivered. Dropping the future ends all at once.
pub async fn serve(listener: TcpListener, proxy: Arc<Proxy>, shutdown: impl Future<Output = ()>) {
    let router = pages::router(&proxy);
    let max_header_bytes = proxy.live().limits.max_header_bytes();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(max_header_bytes)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(max_header_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS);
    let builder = Arc::new(builder);
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let connection = Connection {
            proxy: Arc::clone(&proxy),
            router: router.clone(),
            builder: Arc::clone(&builder),
            watcher: graceful.watcher(),
        };
        tokio::spawn(connection.run(stream));
    }
    drop(listener);
    graceful.shutdown().await;
}

struct Connection {
    proxy: Arc<Proxy>,
    router: axum::Router,
    builder: Arc<auto::Builder<TokioExecutor>>,
    watcher: hyper_util::server::graceful::Watcher,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        let _ = stream.set_nodelay(true); // a socket that is gone already will say so when read
        let Self { proxy, router, builder, watcher } = self;
        let after = Afterwork::default();
        let deferred = after.clone();
        let answer = service_fn(move |request| {
            let (proxy, router, after) = (Arc::clone(&proxy), router.clone(), after.clone());
            async move { service::answer(&proxy, router, &after, request).await }
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), answer).into_owned();
        let served = Served { connection: Some(Box::pin(watcher.watch(connection))), deferred };
        if let Err(error) = served.await {
            tracing::debug!(error = %error, "a caller's connection ended in disorder");
        }
    }
}

/// Drives a connection, and after each turn of it does what was put off until the socket was served.
struct Served<C> {
    connection: Option<Pin<Box<C>>>,
    deferred: Afterwork,
}

impl<C: Future> Future for Served<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let Some(connection) = &mut self.connection else { return Poll::Pending };
        let polled = connection.as_mut().poll(cx);
        if polled.is_ready() {
            self.connection = None; // what it held puts its own off
        }
        self.deferred.run();
        polled
    }
}

impl<C> Drop for Served<C> {
    fn drop(&mut self) {
        self.connection = None;
        self.deferred.run();
    }
}

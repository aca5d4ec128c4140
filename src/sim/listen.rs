//! The listener: accepts, refuses, resets.
//!
//! Faults below HTTP need the socket: a refused connection is a closed listener, a reset is a socket
//! closed with zero linger while data is expected.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tower_service::Service;

use super::serve::{self, State};

/// Time for the answer to the request that closes the listener.
const REFUSE_GRACE: Duration = Duration::from_millis(50);
/// Wait between attempts to take the port back.
const REBIND_WAIT: Duration = Duration::from_millis(20);

/// A connection's emergency exit, handed to the handlers.
#[derive(Clone, Debug, Default)]
pub(super) struct Reset(Arc<(AtomicBool, Notify)>);

impl Reset {
    /// Resets the connection.
    pub(super) fn now(&self) {
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify_one();
    }
}

/// Serves until told to stop.
pub(super) async fn run(
    listener: TcpListener,
    addr: SocketAddr,
    state: Arc<State>,
    mut stop: watch::Receiver<bool>,
) {
    let router = serve::router(Arc::clone(&state));
    let mut faults = state.watch_faults();
    let mut open = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let refuse = faults.borrow_and_update().refuse();
        match (&open, refuse) {
            (Some(_), Some(_)) => {
                tokio::time::sleep(REFUSE_GRACE).await;
                open = None;
                connections.shutdown().await;
            }
            (None, None) => match TcpListener::bind(addr).await {
                Ok(listener) => open = Some(listener),
                Err(_) => tokio::time::sleep(REBIND_WAIT).await,
            },
            _ => {}
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            changed = faults.changed() => if changed.is_err() { break },
            accepted = accept(open.as_ref()) => if let Ok((stream, _)) = accepted {
                connections.spawn(connection(stream, router.clone()));
            },
            () = refusal_over(refuse) => state.end_refusal(),
            Some(_) = connections.join_next() => {}
            () = tokio::time::sleep(REBIND_WAIT), if open.is_none() && refuse.is_none() => {}
        }
    }
    drop(open);
    connections.shutdown().await;
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

async fn refusal_over(refuse: Option<Option<u64>>) {
    match refuse {
        Some(Some(ms)) => tokio::time::sleep(Duration::from_millis(ms)).await,
        _ => std::future::pending().await,
    }
}

async fn connection(stream: TcpStream, router: axum::Router) {
    let _ = stream.set_nodelay(true);
    let reset = Reset::default();
    let handed = reset.clone();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(handed.clone());
        router.clone().call(request)
    });
    let io = TokioIo::new(Socket { stream, reset: reset.clone() });
    let builder = auto::Builder::new(TokioExecutor::new());
    tokio::select! {
        _ = builder.serve_connection(io, service) => {}
        () = reset.0.1.notified() => {}
    }
}

/// A stream that closes with a reset when its exit was used.
struct Socket {
    stream: TcpStream,
    reset: Reset,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.0.0.load(Ordering::Acquire) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

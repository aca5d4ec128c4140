//! One connection to an upstream, driven by the task that waits for its answer.
//!
//! hyper wants a connection polled besides the answer, and the usual way is a task of its own for that: each answer
//! then wakes two tasks, often on two threads, and passes from one to the other. Here the caller's task polls both by
//! turns. What they have to tell each other on the way rings a [`Bell`] and not the task, which is already awake.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::idle::Idle;

/// A request as it is sent.
pub(super) type Sent = Request<Full<Bytes>>;

/// The two sides move each other so often within one turn, at most; then others get theirs.
const MOST_ROUNDS: u32 = 8;

/// What the connection wakes: its owner, unless that is polling it just now.
#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    heard: AtomicBool,
    owner: AtomicWaker,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // In this order, and the owner asks the other way round: one of them sees the other (all sequentially consistent).
        self.rung.store(true, Ordering::SeqCst);
        if !self.heard.load(Ordering::SeqCst) {
            self.owner.wake();
        }
    }
}

/// A connection that carries one request at a time.
#[derive(Debug)]
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// `None` once it is closed: whoever waits for it then learns so. Boxed, since it is moved with every request.
    driver: Option<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl Connection {
    pub(super) async fn new(stream: TokioIo<TcpStream>) -> hyper::Result<Self> {
        let (sender, driver) = http1::handshake(stream).await?;
        let bell = Arc::<Bell>::default();
        let waker = Waker::from(Arc::clone(&bell));
        Ok(Self { sender, driver: Some(Box::new(driver)), bell, waker })
    }

    /// Sends a request and waits for the head of its answer. A request that never left comes back with the error.
    pub(super) async fn ask(
        mut self,
        request: Sent,
    ) -> Result<(Response<Incoming>, Self), TrySendError<Sent>> {
        let answer = self.sender.try_send_request(request);
        let mut answer = pin!(answer);
        let response = std::future::poll_fn(|cx| self.drive(cx, |cx| answer.as_mut().poll(cx))).await?;
        Ok((response, self))
    }

    /// Polls what waits for the connection, and the connection, until neither has anything for the other.
    fn drive<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut waiting: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.owner.register(cx.waker());
        self.bell.heard.store(true, Ordering::SeqCst);
        let mut polled = Poll::Pending;
        for _ in 0..MOST_ROUNDS {
            self.bell.rung.store(false, Ordering::SeqCst);
            polled = waiting(&mut Context::from_waker(&self.waker));
            if polled.is_ready() {
                break;
            }
            self.turn();
            if !self.bell.rung.load(Ordering::SeqCst) {
                break;
            }
        }
        self.bell.heard.store(false, Ordering::SeqCst);
        if polled.is_pending() && self.bell.rung.load(Ordering::SeqCst) {
            cx.waker().wake_by_ref();
        }
        polled
    }

    /// Lets the connection read and write what it can.
    fn turn(&mut self) {
        if let Some(driver) = &mut self.driver
            && Pin::new(&mut **driver).poll(&mut Context::from_waker(&self.waker)).is_ready()
        {
            self.driver = None; // an error is told to whoever waits for an answer
            self.bell.rung.store(true, Ordering::SeqCst);
        }
    }

    /// Whether it stands, with nothing under way, and can take a request.
    pub(super) fn is_free(&mut self) -> bool {
        let _ = self.bell.owner.take(); // who owned it has what it wanted
        self.turn();
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// An answer's body, and the connection on which it comes until its end.
#[derive(Debug)]
pub(super) struct Received {
    body: Incoming,
    connection: Option<Connection>,
    idle: Arc<Idle>,
}

impl Received {
    pub(super) fn new(body: Incoming, connection: Connection, idle: Arc<Idle>) -> Self {
        let mut this = Self { body, connection: Some(connection), idle };
        this.release_at_end();
        this
    }

    fn release_at_end(&mut self) {
        if self.body.is_end_stream() {
            self.release();
        }
    }

    /// All of the answer is here: the next request may have its connection.
    fn release(&mut self) {
        if let Some(mut connection) = self.connection.take()
            && connection.is_free()
        {
            self.idle.put(connection);
        }
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self { body, connection, .. } = &mut *self;
        let polled = match connection {
            Some(connection) => connection.drive(cx, |cx| Pin::new(&mut *body).poll_frame(cx)),
            None => Pin::new(body).poll_frame(cx),
        };
        match &polled {
            Poll::Ready(Some(Err(_))) => self.connection = None,
            Poll::Ready(None) => self.release(),
            Poll::Ready(Some(Ok(_))) => self.release_at_end(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

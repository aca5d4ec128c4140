//! An upstream that does what a test says, byte for byte, and remembers what reached it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// One thing an upstream does.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Send(Vec<u8>),
    Wait(u64),
    /// Until the other side leaves.
    Hang,
    /// Ends the connection in order (FIN).
    Close,
    /// Ends it in disorder (RST).
    Reset,
    /// Sends back whatever comes, until the other side leaves.
    Echo,
}

/// What reached the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

type Script = dyn Fn(&Seen, usize) -> Vec<Act> + Send + Sync;

struct Shared {
    script: Box<Script>,
    seen: Mutex<Vec<Seen>>,
    /// Connections that the other side left while something was still to be done.
    left: AtomicUsize,
}

pub(crate) struct Upstream {
    port: u16,
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

impl Upstream {
    /// Answers the n-th request (from 0) with what `script` says.
    pub(crate) fn start(script: impl Fn(&Seen, usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let runtime = super::runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared =
            Arc::new(Shared { script: Box::new(script), seen: Mutex::default(), left: AtomicUsize::new(0) });
        let all = Arc::clone(&shared);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, Arc::clone(&all)));
            }
        });
        Self { port, shared, runtime: Some(runtime) }
    }

    /// Answers every request with this.
    pub(crate) fn always(acts: Vec<Act>) -> Self {
        Self::start(move |_, _| acts.clone())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().expect("whole").clone()
    }

    pub(crate) fn calls(&self) -> usize {
        self.shared.seen.lock().expect("whole").len()
    }

    pub(crate) fn left(&self) -> usize {
        self.shared.left.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut buffer = Vec::new();
    while let Some(seen) = read_request(&mut stream, &mut buffer).await {
        let n = {
            let mut all = shared.seen.lock().expect("whole");
            all.push(seen.clone());
            all.len() - 1
        };
        for act in (shared.script)(&seen, n) {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        shared.left.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
                Act::Wait(ms) => {
                    if tokio::time::timeout(Duration::from_millis(ms), gone(&mut stream)).await.is_ok() {
                        shared.left.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
                Act::Hang => {
                    gone(&mut stream).await;
                    shared.left.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Act::Close => return,
                Act::Reset => {
                    #[allow(deprecated)] // blocks for no time at all when it is zero
                    let _ = stream.set_linger(Some(Duration::ZERO));
                    return;
                }
                Act::Echo => {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                    return;
                }
            }
        }
    }
}

async fn gone(stream: &mut TcpStream) {
    let mut byte = [0u8; 64];
    while let Ok(n) = stream.read(&mut byte).await {
        if n == 0 {
            return;
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let split = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&buffer[..split]).into_owned();
    buffer.drain(..split + 4);
    let mut lines = head.split("\r\n");
    let line = lines.next()?.to_owned();
    let headers: Vec<(String, String)> = lines
        .filter_map(|l| l.split_once(':'))
        .map(|(n, v)| (n.trim().to_ascii_lowercase(), v.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").and_then(|(_, v)| v.parse().ok());
    let length: usize = length.unwrap_or(0);
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = buffer.drain(..length).collect();
    Some(Seen { line, headers, body })
}

/// A whole answer of declared length.
pub(crate) fn whole(status: u16, headers: &str, body: &str) -> Vec<Act> {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    vec![Act::Send([head.as_bytes(), body.as_bytes()].concat())]
}

/// A whole JSON answer.
pub(crate) fn json(status: u16, body: &str) -> Vec<Act> {
    whole(status, "content-type: application/json\r\n", body)
}

/// The head of a chunked event stream.
pub(crate) fn sse_head() -> Act {
    Act::Send(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
    )
}

/// One chunk.
pub(crate) fn chunk(text: &str) -> Act {
    Act::Send(format!("{:x}\r\n{text}\r\n", text.len()).into_bytes())
}

/// The end of a chunked body.
pub(crate) fn end() -> Act {
    Act::Send(b"0\r\n\r\n".to_vec())
}

/// A whole event stream, a chunk for each piece.
pub(crate) fn sse(pieces: &[String]) -> Vec<Act> {
    let mut acts = vec![sse_head()];
    acts.extend(pieces.iter().map(|piece| chunk(piece)));
    acts.push(end());
    acts
}

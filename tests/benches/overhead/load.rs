//! The two ends: an upstream that answers at once, and a closed-loop client.
//!
//! Both are raw sockets with canned bytes on a single-threaded runtime each, so that what is measured lies
//! between them. Prompts and answers vary, so that nothing is the same request again.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Different answers, and as many different prompts for each.
const VARIANTS: usize = 16;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A chat answer of about 1 KB.
    Small,
    /// A chat answer of about 30 KB with top-5 logprobs.
    Logprobs,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "1 KB answer",
            Self::Logprobs => "30 KB answer with logprobs",
        })
    }
}

/// The canned bytes, whole responses with their heads.
#[derive(Clone)]
pub(crate) struct Answers(Arc<[[Vec<u8>; 2]]>);

impl Answers {
    pub(crate) fn new() -> Self {
        Self((0..VARIANTS).map(|i| [response(i, false), response(i, true)]).collect())
    }

    /// Whole response of variant 0, bytes. All variants of a shape are about as long.
    pub(crate) fn bytes(&self, shape: Shape) -> usize {
        self.0[0][usize::from(shape == Shape::Logprobs)].len()
    }

    fn body_bytes(&self, variant: usize, shape: Shape) -> usize {
        let whole = &self.0[variant][usize::from(shape == Shape::Logprobs)];
        whole.len() - head_end(whole).unwrap_or(0)
    }
}

fn sentence(i: usize) -> String {
    const WHO: [&str; 8] = [
        "the river",
        "a careful engineer",
        "our neighbour",
        "the old library",
        "every gardener",
        "a small boat",
        "the night train",
        "her younger brother",
    ];
    const DOES: [&str; 8] =
        ["crosses", "remembers", "repairs", "describes", "avoids", "paints", "measures", "visits"];
    const WHAT: [&str; 8] = [
        "the wide valley",
        "a broken clock",
        "three quiet villages",
        "the stone bridge",
        "an early harvest",
        "the market square",
        "its own reflection",
        "a long letter",
    ];
    const WHEN: [&str; 8] = [
        "before dawn",
        "on rainy days",
        "with great patience",
        "when the wind turns",
        "without a word",
        "in late summer",
        "after the storm",
        "as always",
    ];
    format!("{} {} {} {}.", WHO[i % 8], DOES[(i / 3) % 8], WHAT[(i / 5 + i) % 8], WHEN[(i * 7 + i / 2) % 8])
}

fn response(variant: usize, logprobs: bool) -> Vec<u8> {
    let sentences = if logprobs { 7 } else { 14 };
    let text: Vec<String> = (0..sentences).map(|i| sentence(variant * 11 + i * 3)).collect();
    let text = text.join(" ");
    let mut choice =
        json!({"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}});
    let tokens: Vec<&str> = text.split_inclusive(' ').collect();
    if logprobs {
        choice["logprobs"] = json!({"content": tokens.iter().enumerate().map(|(i, t)| position(i, t)).collect::<Vec<Value>>()});
    }
    let body = json!({
        "id": format!("chatcmpl-{variant:08x}"), "object": "chat.completion", "created": 1_760_000_000 + variant,
        "model": "bench", "choices": [choice],
        "usage": {"prompt_tokens": 24, "completion_tokens": tokens.len(), "total_tokens": 24 + tokens.len()},
    })
    .to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body.into_bytes()].concat()
}

fn position(i: usize, token: &str) -> Value {
    let alternative = |k: usize| {
        let text = if k == 0 { token.to_owned() } else { format!("{}{k}", &token[..token.len().min(3)]) };
        let logprob = -0.137_451_2 - (k as f64) * 1.437_8 - ((i * 7 + k) % 5) as f64 * 0.081_3;
        json!({"token": text, "logprob": logprob, "bytes": text.as_bytes()})
    };
    let mut this = alternative(0);
    this["top_logprobs"] = (0..5).map(alternative).collect();
    this
}

fn request(variant: usize, shape: Shape) -> Vec<u8> {
    let mut body = json!({
        "model": "bench", "temperature": 0.7, "max_tokens": 256,
        "messages": [
            {"role": "system", "content": "You are a patient assistant that answers in plain sentences."},
            {"role": "user", "content": format!("Please tell me a little story. It begins like this: {}", sentence(variant * 5))},
        ],
    });
    if shape == Shape::Logprobs {
        body["logprobs"] = json!(true);
        body["top_logprobs"] = json!(5);
    }
    let body = body.to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\nx-variant: {variant}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Starts the upstream on a thread of its own; returns its port.
pub(crate) fn serve(answers: Answers) -> u16 {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        runtime().block_on(tokio::task::LocalSet::new().run_until(async move {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
            let port = listener.local_addr().expect("bound").port();
            tell.send(port).expect("the starter waits");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::task::spawn_local(answer(stream, answers.clone()));
            }
        }));
    });
    told.recv().expect("the upstream starts")
}

async fn answer(mut stream: TcpStream, answers: Answers) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(4_096);
    loop {
        let end = loop {
            if let Some(head) = head_end(&buffer) {
                let length =
                    header(&buffer[..head], "content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
                if buffer.len() >= head + length {
                    break head + length;
                }
            }
            match stream.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let logprobs = contains(&buffer[..end], br#""logprobs":true"#);
        let variant: usize = header(&buffer[..end], "x-variant").and_then(|v| v.parse().ok()).unwrap_or(0);
        buffer.drain(..end);
        if stream.write_all(&answers.0[variant % VARIANTS][usize::from(logprobs)]).await.is_err() {
            return;
        }
    }
}

/// What one measurement saw.
pub(crate) struct Run {
    pub(crate) latencies_us: Vec<u32>,
    pub(crate) seconds: f64,
}

/// Asks over `connections` connections, each sending its next request when the answer is there, until
/// `limit` has passed or `most` were sent. Panics at the first answer that is not the upstream's.
pub(crate) fn run(
    port: u16,
    answers: &Answers,
    shape: Shape,
    connections: usize,
    limit: Duration,
    most: u64,
) -> Run {
    let requests: Rc<[Vec<u8>]> = (0..VARIANTS).map(|i| request(i, shape)).collect();
    let lengths: Rc<[usize]> = (0..VARIANTS).map(|i| answers.body_bytes(i, shape)).collect();
    let each = (most / connections as u64).max(1);
    let started = Instant::now();
    let latencies_us = runtime().block_on(tokio::task::LocalSet::new().run_until(async {
        let clients: Vec<_> = (0..connections)
            .map(|client| {
                let (requests, lengths) = (Rc::clone(&requests), Rc::clone(&lengths));
                tokio::task::spawn_local(async move {
                    let mut stream =
                        TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
                    stream.set_nodelay(true).expect("a socket option");
                    let mut buffer = Vec::with_capacity(64 << 10);
                    let mut latencies = Vec::with_capacity(1 << 14);
                    let mut variant = client;
                    while started.elapsed() < limit && (latencies.len() as u64) < each {
                        variant = (variant + 1) % VARIANTS;
                        let sent = Instant::now();
                        stream.write_all(&requests[variant]).await.expect("the server reads");
                        exchange(&mut stream, &mut buffer, lengths[variant]).await;
                        latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
                    }
                    latencies
                })
            })
            .collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await.expect("a client does not panic"));
        }
        all
    }));
    Run { latencies_us, seconds: started.elapsed().as_secs_f64() }
}

/// Reads one answer and leaves the buffer empty.
async fn exchange(stream: &mut TcpStream, buffer: &mut Vec<u8>, wanted: usize) {
    buffer.clear();
    loop {
        let read = stream.read_buf(buffer).await.expect("the answer can be read");
        assert!(read > 0, "the connection was closed: {}", String::from_utf8_lossy(buffer));
        let Some(head) = head_end(buffer) else { continue };
        let length = header(&buffer[..head], "content-length").and_then(|v| v.parse::<usize>().ok());
        let body = &buffer[head..];
        let done = length.map_or_else(|| body.ends_with(b"0\r\n\r\n"), |length| body.len() >= length);
        if done {
            assert!(buffer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&buffer[..head]));
            assert!(
                body.len() == wanted || length.is_none() && body.len() > wanted,
                "{} bytes, not {wanted}",
                body.len()
            );
            return;
        }
    }
}

/// One plain GET for the daemon's own pages.
pub(crate) fn page(port: u16, path: &str) -> String {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut stream = StdStream::connect(address).expect("the admin port listens");
    let request = format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = Vec::new();
    stream.read_to_end(&mut text).expect("it answers");
    String::from_utf8_lossy(&text).into_owned()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Where the body begins.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    head.split(|&b| b == b'\n').find_map(|line| {
        let (key, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        key.eq_ignore_ascii_case(name.as_bytes()).then(|| std::str::from_utf8(value).ok())?.map(str::trim)
    })
}

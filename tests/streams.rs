//! Streams under load: many at once lose nothing, and many that their callers leave leave nothing behind.
//!
//! `bash tests/run --test streams -- --nocapture` prints what the daemon adds to each token, beside nginx.

#![allow(clippy::duplicate_mod)] // both sides speak HTTP by the same file

mod common;
mod support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use common::{Served, eventually, runtime};
use support::daemon::Daemon;
use support::nginx::Nginx;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};
use touchstone::clock::Stopwatch;
use touchstone::verdict::FaultClass;

/// Callers at once, tokens of each, and the time between two of them.
const CALLERS: usize = 200;
const TOKENS: usize = 120;
const EVERY: Duration = Duration::from_millis(20);

/// Streams that are left, so many at a time.
const LEFT: usize = 1_000;
const AT_ONCE: usize = 50;

const WORDS: [&str; 12] = [
    "harbour", "lamp", "keeper", "evening", "letter", "stone", "window", "river", "morning", "bridge",
    "garden", "winter",
];

/// Measured alone: the other test takes the processors.
static ALONE: Mutex<()> = Mutex::new(());

/// One clock for both ends.
fn now_us() -> u64 {
    static START: OnceLock<Stopwatch> = OnceLock::new();
    START.get_or_init(Stopwatch::start).elapsed_us()
}

fn token(stream: &str, n: usize) -> String {
    format!(
        "data: {{\"id\":\"{stream}\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"n\":{n},\
         \"at_us\":{},\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" {}{}\"}},\"finish_reason\":null}}]}}\n\n",
        now_us(),
        WORDS[n * 7 % WORDS.len()],
        n * n % 97,
    )
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

const HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// An upstream that streams tokens and counts its sockets.
struct Upstream {
    port: u16,
    /// What was sent to each stream, framing aside.
    sent: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    runtime: Option<Runtime>,
}

#[derive(Clone, Copy)]
enum Pace {
    /// So many tokens, each after the same time; then an orderly end.
    Even(usize, Duration),
    /// A head that lets wait, and tokens without end.
    Endless,
}

impl Upstream {
    fn start(pace: Pace) -> Self {
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (sent, open, most) =
            (Arc::default(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut this = Self { port, sent, open, most, runtime: None };
        let (sent, open, most) = (Arc::clone(&this.sent), Arc::clone(&this.open), Arc::clone(&this.most));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let (sent, open) = (Arc::clone(&sent), Arc::clone(&open));
                tokio::spawn(async move {
                    let _ = answer(stream, pace, &sent).await;
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        this.runtime = Some(runtime);
        this
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn answer(mut stream: TcpStream, pace: Pace, sent: &Mutex<HashMap<String, Vec<u8>>>) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let name = request(&mut stream, &mut buffer).await?;
        let (most, every) = match pace {
            Pace::Even(most, every) => (most, every),
            Pace::Endless => (usize::MAX, Duration::from_millis(2)),
        };
        if matches!(pace, Pace::Endless) {
            wait(&mut stream, Duration::from_millis(fastrand::u64(0..40))).await?;
        }
        stream.write_all(HEAD).await.ok()?;
        let mut all = Vec::new();
        for n in 0..most {
            let token = token(&name, n);
            all.extend_from_slice(token.as_bytes());
            stream.write_all(&chunk(&token)).await.ok()?;
            wait(&mut stream, every).await?;
            if most == usize::MAX {
                all.clear();
            }
        }
        all.extend_from_slice(b"data: [DONE]\n\n");
        sent.lock().expect("whole").insert(name, all);
        stream.write_all(&[chunk("data: [DONE]\n\n"), b"0\r\n\r\n".to_vec()].concat()).await.ok()?;
    }
}

/// `None` once the other side has left.
async fn wait(stream: &mut TcpStream, time: Duration) -> Option<()> {
    let mut byte = [0];
    match timeout(time, stream.read(&mut byte)).await {
        Err(_) => Some(()),
        Ok(_) => None,
    }
}

/// The value of `x-stream` of the next request.
async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..at]).to_ascii_lowercase();
            let value = |name: &str| {
                let line = head.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
                line.unwrap_or_default().trim().to_owned()
            };
            let length: usize = value("content-length").parse().unwrap_or(0);
            if buffer.len() >= at + 4 + length {
                buffer.drain(..at + 4 + length);
                return Some(value("x-stream"));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn ask(stream: &str) -> Vec<u8> {
    let body =
        r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"Tell me about the harbour."}]}"#;
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\nx-stream: {stream}\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// What one caller got.
struct Got {
    stream: String,
    body: Vec<u8>,
    delays_us: Vec<u64>,
}

/// Reads a stream to its end; each token as it comes, its number checked, its delay noted.
async fn read(port: u16, stream: String) -> Got {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("somebody listens");
    socket.set_nodelay(true).expect("a socket option");
    socket.write_all(&ask(&stream)).await.expect("somebody reads");
    let (mut raw, mut body, mut delays_us) = (Vec::new(), Vec::new(), Vec::new());
    let mut read_to = None; // where the next chunk begins, once the head is over
    let mut seen = 0;
    loop {
        let n = socket.read_buf(&mut raw).await.expect("the stream can be read");
        assert!(n > 0, "{stream} broke off after {} tokens", delays_us.len());
        let now = now_us();
        if read_to.is_none() {
            let Some(end) = raw.windows(4).position(|w| w == b"\r\n\r\n") else { continue };
            assert!(raw.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&raw[..end]));
            read_to = Some(end + 4);
        }
        let at = read_to.as_mut().expect("set");
        let ended = unchunk(&raw, at, &mut body);
        while let Some(length) = body[seen..].windows(2).position(|w| w == b"\n\n") {
            let event = std::str::from_utf8(&body[seen..seen + length]).expect("text");
            seen += length + 2;
            let number = |name: &str| -> Option<u64> {
                let rest = &event[event.find(name)? + name.len()..];
                rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
            };
            if let Some(n) = number("\"n\":") {
                assert_eq!(n as usize, delays_us.len(), "{stream}: a token is missing or out of order");
                delays_us.push(now - number("\"at_us\":").expect("a time"));
            }
        }
        if ended {
            return Got { stream, body, delays_us };
        }
    }
}

/// Takes the whole chunks from `at` on; true after the last, empty one.
fn unchunk(raw: &[u8], at: &mut usize, body: &mut Vec<u8>) -> bool {
    loop {
        let rest = &raw[*at..];
        let Some(line) = rest.windows(2).position(|w| w == b"\r\n") else { return false };
        let size = std::str::from_utf8(&rest[..line]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let size = size.expect("a chunk's size");
        if rest.len() < line + 2 + size + 2 {
            return false;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        *at += line + 2 + size + 2;
        if size == 0 {
            return true;
        }
    }
}

/// Delays of all tokens of all callers, shortest first; panics at the first byte that is not the upstream's.
fn load(runtime: &Runtime, upstream: &Upstream, path: &str, port: u16) -> Vec<u64> {
    let callers: Vec<_> = (0..CALLERS)
        .map(|i| {
            let stream = format!("{path}-{i}");
            runtime.spawn(async move {
                sleep(EVERY * i as u32 / CALLERS as u32).await; // tokens of different streams do not march in step
                read(port, stream).await
            })
        })
        .collect();
    let mut delays = Vec::new();
    for caller in callers {
        let got = runtime.block_on(caller).unwrap_or_else(|fault| panic!("{path}: {fault}"));
        assert_eq!(got.delays_us.len(), TOKENS, "{}: tokens", got.stream);
        let sent = upstream.sent.lock().expect("whole").remove(&got.stream).expect("it was sent");
        assert!(got.body == sent, "{}: other bytes than were sent", got.stream);
        delays.extend(got.delays_us);
    }
    delays.sort_unstable();
    delays
}

#[test]
fn two_hundred_streams_lose_no_token_and_are_passed_on_at_once() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let upstream = Upstream::start(Pace::Even(TOKENS, EVERY));
    let nginx = Nginx::start(upstream.port);
    let daemon = Daemon::serve(&format!(
        "mode = \"shadow\"\n[[target]]\nname = \"t\"\nurl = \"http://127.0.0.1:{}\"\nmodel = \"m\"\n\
         [quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n",
        upstream.port
    ));
    let callers = runtime();
    let paths = [("direct", upstream.port), ("nginx", nginx.port), ("touchstone", daemon.port)];
    let delays = paths.map(|(path, port)| load(&callers, &upstream, path, port));
    println!(
        "{CALLERS} streams, a token every {} ms: delay of a token from end to end, ms",
        EVERY.as_millis()
    );
    println!("{:>12}{:>10}{:>10}{:>10}{:>10}", "", "p50", "p99", "p99.9", "added p50");
    let at = |delays: &[u64], q: f64| delays[((delays.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let added = |i: usize| at(&delays[i], 0.5) - at(&delays[0], 0.5);
    for (i, (path, _)) in paths.iter().enumerate() {
        let of = |q| at(&delays[i], q);
        println!("{path:>12}{:>10.3}{:>10.3}{:>10.3}{:>10.3}", of(0.5), of(0.99), of(0.999), added(i));
    }
    println!(
        "added p50, touchstone ÷ nginx: {:.2} (goal 2; a build without optimisation is slower)",
        added(2) / added(1)
    );
    let health = daemon.ask("/v1/targets/t");
    assert_eq!(daemon.breaker("t"), "closed", "{health}");
}

/// Begins a stream and leaves it at some point.
async fn leave(port: u16, n: usize) {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let request = ask(&format!("left-{n}"));
    let rng = &mut fastrand::Rng::with_seed(n as u64);
    if n.is_multiple_of(10) {
        let _ = socket.write_all(&request[..rng.usize(..request.len())]).await; // in the middle of asking
        return;
    }
    let _ = socket.write_all(&request).await;
    match n % 10 {
        1 => return,                                                // at once
        2 | 3 => sleep(Duration::from_millis(rng.u64(..40))).await, // about when the head comes
        _ => {
            let most = rng.usize(1..20_000); // somewhere in the stream
            let mut got = Vec::new();
            while got.len() < most {
                match timeout(Duration::from_secs(10), socket.read_buf(&mut got)).await {
                    Ok(Ok(1..)) => {}
                    other => panic!("the stream of caller {n} ended by itself: {other:?}"),
                }
            }
        }
    }
    if n.is_multiple_of(3) {
        #[allow(deprecated)] // blocks for no time at all when it is zero
        let _ = socket.set_linger(Some(Duration::ZERO)); // in disorder
    }
}

#[test]
fn a_thousand_streams_that_their_callers_leave_leave_nothing_behind() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for mode in ["shadow", "enforce"] {
        let upstream = Upstream::start(Pace::Endless);
        let served = Served::start(&format!(
            "mode = \"{mode}\"\n[[target]]\nname = \"t\"\nurl = \"http://127.0.0.1:{}\"\nmax_concurrency = 64\n\
             [[route]]\nname = \"r\"\ntiers = [[\"t\"]]\n",
            upstream.port
        ));
        let before = served.tasks();
        let callers = runtime();
        let next = Arc::<AtomicUsize>::default();
        let port = served.port;
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let next = Arc::clone(&next);
                callers.spawn(async move {
                    loop {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        if n >= LEFT / 2 {
                            return;
                        }
                        leave(port, n).await;
                    }
                })
            })
            .collect();
        let mut in_use = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            in_use = in_use.max(served.proxy.flows()[0].permits_in_use);
            std::thread::sleep(Duration::from_millis(2));
        }
        for worker in workers {
            callers.block_on(worker).expect("a caller does not panic");
        }
        let flow = || served.proxy.flows().swap_remove(0);
        eventually("no call is in flight", || flow().in_flight == 0 && flow().permits_in_use == 0);
        eventually("every connection to the upstream is closed", || {
            upstream.open.load(Ordering::SeqCst) == 0
        });
        eventually("every task has ended", || served.tasks() <= before);
        let most = upstream.most.load(Ordering::SeqCst);
        println!(
            "{mode}: {} left, {most} connections and {in_use} permits at once, {before} tasks before and after",
            LEFT / 2
        );
        assert!(
            most > AT_ONCE / 2 && in_use > 0,
            "{most} connections, {in_use} permits: nothing was left under way"
        );
        // Who leaves before a stream has begun may never have been heard.
        let reports = served.reports_of(LEFT / 2 * 6 / 10);
        assert!(reports.exchanges.iter().all(|e| e.client_status == 499), "left by the caller, and so said");
        let held =
            |class: Option<FaultClass>| !matches!(class, None | Some(FaultClass::Client | FaultClass::Info));
        let blamed: Vec<_> = reports.outcomes.iter().filter(|o| held(o.class)).collect();
        assert!(blamed.is_empty(), "{} held against the target, as {:?}", blamed.len(), blamed[0]);
    }
}

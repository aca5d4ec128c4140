//! A small proxy in front of an inference server: it drops what asks for logprobs, as some gateways do, or has
//! another engine answer from a moment on.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// What the simulator calls itself, and as long a name of another engine.
const NAMES: [&[u8]; 2] = [b"touchstone-sim", b"touchstone-new"];

/// Drops what asks for logprobs. Serves for as long as the test's process lives; the port to call it on.
pub(crate) fn logprobs(upstream: u16) -> u16 {
    serve(upstream, true, Arc::default())
}

/// Once `renamed`, the simulator's answers name another engine.
pub(crate) fn renaming(upstream: u16, renamed: &Arc<AtomicBool>) -> u16 {
    serve(upstream, false, Arc::clone(renamed))
}

fn serve(upstream: u16, drops: bool, renamed: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            // A caller or server that breaks off is the test's own doing.
            let renamed = Arc::clone(&renamed);
            std::thread::spawn(move || exchange(connection, upstream, drops, &renamed).ok());
        }
    });
    port
}

/// One exchange, then the connection ends.
fn exchange(mut caller: TcpStream, upstream: u16, drops: bool, renamed: &AtomicBool) -> std::io::Result<()> {
    caller.set_read_timeout(Some(PATIENCE))?;
    let mut read = Vec::new();
    let head = loop {
        if let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") {
            break end + 4;
        }
        let mut some = [0; 4096];
        match caller.read(&mut some)? {
            0 => return Ok(()),
            n => read.extend_from_slice(&some[..n]),
        }
    };
    let lines = String::from_utf8_lossy(&read[..head]).into_owned();
    let own = |line: &&str| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !matches!(name.as_str(), "content-length" | "connection" | "expect")
    };
    let kept: Vec<&str> = lines.trim_end().split("\r\n").filter(own).collect();
    let length = lines
        .split("\r\n")
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0_usize);
    let mut body = read.split_off(head);
    let there = body.len();
    body.resize(length.max(there), 0);
    caller.read_exact(&mut body[there..])?;
    if drops && let Ok(Value::Object(mut members)) = serde_json::from_slice(&body) {
        members.remove("logprobs");
        members.remove("top_logprobs");
        body = Value::Object(members).to_string().into_bytes();
    }
    let mut server = TcpStream::connect(("127.0.0.1", upstream))?;
    server.set_read_timeout(Some(PATIENCE))?;
    let head =
        format!("{}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", kept.join("\r\n"), body.len());
    server.write_all(&[head.as_bytes(), &body].concat())?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer)?;
    if let Some(line) = answer.windows(2).position(|w| w == b"\r\n") {
        answer.splice(line + 2..line + 2, *b"connection: close\r\n");
    }
    if renamed.load(Ordering::SeqCst)
        && let Some(at) = answer.windows(NAMES[0].len()).position(|w| w == NAMES[0])
    {
        answer[at..at + NAMES[1].len()].copy_from_slice(NAMES[1]);
    }
    caller.write_all(&answer)?;
    caller.shutdown(Shutdown::Write)
}

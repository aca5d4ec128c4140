//! One HTTP/1.1 exchange on a connection of its own, read to its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use touchstone::clock::Stopwatch;

use serde_json::Value;

/// Nothing a test asks for takes longer.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Without the transfer's own framing.
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing promised.
    pub(crate) whole: bool,
    pub(crate) took: Duration,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|fault| panic!("no JSON ({fault}): {}", self.text()))
    }

    /// The JSON of each `data:` event but `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.text()
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .filter(|data| data.trim() != "[DONE]")
            .map(|data| {
                serde_json::from_str(data).unwrap_or_else(|fault| panic!("no JSON ({fault}): {data}"))
            })
            .collect()
    }
}

pub(crate) fn get(port: u16, path: &str) -> Answer {
    request(port, "GET", path, &[], b"").unwrap_or_else(|fault| panic!("GET {path} on {port}: {fault}"))
}

/// `None` if nobody listens or the answer breaks off before its headers.
pub(crate) fn try_get(port: u16, path: &str) -> Option<Answer> {
    request(port, "GET", path, &[], b"").ok()
}

pub(crate) fn post(port: u16, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    request(port, "POST", path, &all, body.to_string().as_bytes())
        .unwrap_or_else(|fault| panic!("POST {path} on {port}: {fault}"))
}

pub(crate) fn request(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<Answer> {
    let started = Stopwatch::start();
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_nodelay(true)?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
    // A server that refuses may answer before it has read all, and close; its answer counts all the same.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut raw = Vec::new();
    let ended = stream.read_to_end(&mut raw);
    let broken = |why: &str| std::io::Error::new(std::io::ErrorKind::UnexpectedEof, why.to_owned());
    let split = raw.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| match &ended {
        Err(fault) => broken(&fault.to_string()),
        Ok(_) => broken("closed before the end of the headers"),
    })?;
    let text = String::from_utf8_lossy(&raw[..split]).into_owned();
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status = status.ok_or_else(|| broken("no status line"))?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let find = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let rest = &raw[split + 4..];
    let (body, whole) = if find("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        unchunk(rest)
    } else if let Some(length) = find("content-length").and_then(|v| v.parse::<usize>().ok()) {
        (rest[..rest.len().min(length)].to_vec(), rest.len() >= length)
    } else {
        (rest.to_vec(), ended.is_ok())
    };
    Ok(Answer { status, headers, body, whole, took: started.elapsed() })
}

/// The chunks' contents, and whether the last, empty one came.
pub(crate) fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|w| w == b"\r\n") else { return (body, false) };
        let size = std::str::from_utf8(&rest[..end]).ok().and_then(|line| {
            usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16).ok()
        });
        let Some(size) = size else { return (body, false) };
        rest = &rest[end + 2..];
        if size == 0 {
            return (body, true);
        }
        body.extend_from_slice(&rest[..rest.len().min(size)]);
        if rest.len() < size + 2 {
            return (body, false);
        }
        rest = &rest[size + 2..];
    }
}

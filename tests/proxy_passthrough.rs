//! What is no inference call passes where it is safe, and is refused where it is not.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;

use common::upstream::{Act, Upstream, json, whole};
use common::{Served, http, tiers};

fn call(served: &Served, method: &str, path: &str, headers: &[(&str, &str)]) -> http::Answer {
    http::request(served.port, method, path, headers, b"").expect("an answer")
}

#[test]
fn reading_passes_and_administration_is_refused_unless_allowed() {
    let upstream = Upstream::always(json(200, "{\"ok\": 1 }"));
    let served = Served::start(&tiers("shadow", &[&upstream], "[proxy]\npassthrough=[\"/v1/audio/*\"]"));
    let answer = call(&served, "GET", "/props?x=1", &[]);
    assert_eq!((answer.status, answer.text().as_str()), (200, "{\"ok\": 1 }"));
    assert_eq!(answer.header("x-touchstone-tier"), Some("passthrough"));
    assert_eq!(upstream.seen()[0].line, "GET /props?x=1 HTTP/1.1");
    let answer = call(&served, "POST", "/api/pull", &[]);
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (403, Some("forbidden_path")));
    assert_eq!(call(&served, "DELETE", "/api/delete", &[]).status, 403);
    assert_eq!(call(&served, "POST", "/v1/audio/transcriptions", &[]).status, 200);
    assert_eq!(upstream.calls(), 2);
    let reports = served.reports.lock().expect("whole");
    assert!(reports.done.iter().all(|d| &*d.tier == "passthrough"));
    assert!(reports.outcomes.is_empty(), "unscored");
}

#[test]
fn models_are_the_routes_names_and_the_upstreams_where_none_is_named() {
    let upstream = Upstream::always(json(200, "{\"object\":\"list\",\"data\":[{\"id\":\"real\"}]}"));
    let named = format!(
        "mode=\"shadow\"\n[[target]]\nname=\"a\"\nurl=\"{}\"\n[[route]]\nname=\"r\"\nmodels=[\"assistant\",\"gpt-4*\"]\ntiers=[[\"a\"]]",
        upstream.url()
    );
    let list = call(&Served::start(&named), "GET", "/v1/models", &[]).json();
    assert_eq!(list["object"], "list");
    assert_eq!(list["data"][0]["id"], "assistant");
    assert_eq!(list["data"].as_array().map(Vec::len), Some(1));
    let bare = named.replace("models=[\"assistant\",\"gpt-4*\"]\n", "");
    let list = call(&Served::start(&bare), "GET", "/v1/models", &[]).json();
    assert_eq!(list["data"][0]["id"], "real");
}

#[test]
fn cors_is_the_upstreams_unless_origins_are_named() {
    let upstream = Upstream::always(whole(204, "access-control-allow-origin: *\r\n", ""));
    let asked = [("origin", "https://chat.example"), ("access-control-request-method", "POST")];
    let served = Served::start(&tiers("shadow", &[&upstream], ""));
    let answer = call(&served, "OPTIONS", "/v1/chat/completions", &asked);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert_eq!(upstream.calls(), 1);
    let own = Served::start(&tiers("shadow", &[&upstream], "[proxy]\ncors=[\"https://chat.example\"]"));
    let answer = call(&own, "OPTIONS", "/v1/chat/completions", &asked);
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://chat.example"));
    assert_eq!(upstream.calls(), 1, "answered here");
    let answer = own.chat(&[("origin", "https://chat.example")], "{}");
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://chat.example"));
}

#[test]
fn a_head_request_keeps_its_length_and_has_no_body() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 42\r\n\r\n";
    let upstream = Upstream::always(vec![Act::Send(head.into())]);
    let served = Served::start(&tiers("shadow", &[&upstream], ""));
    let answer = call(&served, "HEAD", "/anything", &[]);
    assert_eq!(answer.header("content-length"), Some("42"));
    assert!(answer.body.is_empty());
}

#[test]
fn a_websocket_is_connected_through() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\n";
    let upstream = Upstream::always(vec![Act::Send(switch.into()), Act::Echo]);
    let served = Served::start(&tiers("shadow", &[&upstream], ""));
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).expect("connects");
    let ask = "GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: k\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("sends");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head");
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("sec-websocket-accept: x"), "{head}");
    stream.write_all(b"there and back").expect("sends");
    let mut back = [0; 14];
    stream.read_exact(&mut back).expect("echoes");
    assert_eq!(&back, b"there and back");
    assert_eq!(upstream.seen()[0].header("sec-websocket-key"), Some("k"));
}

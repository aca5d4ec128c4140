use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const LENGTH: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
const CHUNKS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// An upstream that answers each request with the bytes given, in pieces with a pause before each.
struct Server {
    port: u16,
    accepted: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
}

impl Server {
    /// `most`: requests a connection is good for; then it is closed.
    async fn start(answer: &'static str, pieces: usize, pause: Duration, most: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (accepted, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (count, standing) = (Arc::clone(&accepted), Arc::clone(&open));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                standing.fetch_add(1, Ordering::SeqCst);
                let standing = Arc::clone(&standing);
                tokio::spawn(async move {
                    for _ in 0..most {
                        if !read_request(&mut stream).await {
                            break;
                        }
                        for piece in answer.as_bytes().chunks(answer.len().div_ceil(pieces).max(1)) {
                            tokio::time::sleep(pause).await;
                            if stream.write_all(piece).await.is_err() {
                                break;
                            }
                        }
                    }
                    drop(stream);
                    standing.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { port, accepted, open }
    }

    fn client(&self, idle: Duration) -> Clear {
        let url = Url::parse(&format!("http://127.0.0.1:{}", self.port)).expect("a URL");
        Clear::new(&url, Some(Duration::from_secs(5)), idle).expect("a client")
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    async fn wait_for_open(&self, wanted: usize) {
        for _ in 0..1_000 {
            if self.open.load(Ordering::SeqCst) == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} connections are open, not {wanted}", self.open.load(Ordering::SeqCst));
    }
}

/// Whether a whole request came: its head, and the body that the calls here send.
async fn read_request(stream: &mut TcpStream) -> bool {
    let mut read = Vec::new();
    let mut piece = [0; 1024];
    while !read.ends_with(b"\r\n\r\nask") {
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return false,
            Ok(n) => read.extend_from_slice(&piece[..n]),
        }
    }
    true
}

async fn ask(client: &Clear) -> Result<Bytes, Failure> {
    let response = client.send(Method::POST, "/v1/x", HeaderMap::new(), Bytes::from_static(b"ask")).await?;
    let body = response.into_body().collect().await.map_err(|e| Failure::in_clear_body(&e))?;
    Ok(body.to_bytes())
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn one_connection_serves_one_request_after_another_however_answers_end() {
    for (answer, text) in [(LENGTH, "hello"), (CHUNKS, "hello"), (EMPTY, "")] {
        for pieces in [1, 3, answer.len()] {
            let server = Server::start(answer, pieces, Duration::ZERO, usize::MAX).await;
            let client = server.client(LONG);
            for _ in 0..20 {
                assert_eq!(ask(&client).await.expect("an answer"), text);
            }
            assert_eq!(server.accepted(), 1, "{answer:?} in {pieces} pieces");
        }
    }
}

#[tokio::test]
async fn a_connection_that_the_upstream_closed_is_replaced_and_costs_no_request() {
    for pause in [1, 20] {
        let server = Server::start(LENGTH, 1, Duration::ZERO, 1).await;
        let client = server.client(LONG);
        for i in 1..=20 {
            assert_eq!(ask(&client).await.expect("an answer"), "hello", "request {i}");
            server.wait_for_open(0).await;
            tokio::time::sleep(Duration::from_millis(pause)).await; // its end is seen in the next turn
        }
        assert_eq!(server.accepted(), 20);
    }
}

#[tokio::test]
async fn an_answer_that_nobody_wants_any_more_closes_its_connection_at_once() {
    let server = Server::start(CHUNKS, 20, Duration::from_millis(50), usize::MAX).await;
    let client = server.client(LONG);
    let call = |client: Clear| async move {
        client.send(Method::POST, "/v1/x", HeaderMap::new(), Bytes::from_static(b"ask")).await
    };
    let waiting = tokio::time::timeout(Duration::from_millis(20), call(client.clone())).await;
    assert!(waiting.is_err(), "before the head");
    server.wait_for_open(0).await;
    let mut response = call(client.clone()).await.expect("a head");
    let _ = response.body_mut().frame().await;
    drop(response);
    server.wait_for_open(0).await;
    assert_eq!(server.accepted(), 2);
    assert_eq!(ask(&client).await.expect("an answer"), "hello");
}

#[tokio::test]
async fn idle_connections_are_closed_in_time_and_those_the_upstream_closed_as_well() {
    let server = Server::start(LENGTH, 1, Duration::ZERO, usize::MAX).await;
    let client = server.client(Duration::from_millis(200));
    let all = (0..8).map(|_| ask(&client));
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.expect("an answer"), "hello");
    }
    server.wait_for_open(0).await; // nobody asks again
    assert_eq!(ask(&client).await.expect("an answer"), "hello");
    server.wait_for_open(0).await; // looked after once more
}

#[tokio::test]
async fn what_breaks_is_said_with_whose_fault_it_is() {
    let refused =
        Clear::new(&Url::parse("http://127.0.0.1:9").expect("a URL"), None, LONG).expect("a client");
    assert_eq!(ask(&refused).await.expect_err("nobody listens").kind, FailureKind::Refused);
    for (answer, kind) in [
        ("", FailureKind::Reset),
        ("HTTP/1.1 200 OK\r\ncontent-le", FailureKind::Reset),
        ("SSH-2.0-OpenSSH\r\n\r\n", FailureKind::Protocol),
        ("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello", FailureKind::Cut),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n", FailureKind::Cut),
    ] {
        let server = Server::start(answer, 1, Duration::ZERO, 1).await;
        let client = server.client(LONG);
        for _ in 0..3 {
            assert_eq!(ask(&client).await.expect_err("broken").kind, kind, "{answer:?}");
        }
        assert_eq!(server.accepted(), 3, "a request that was sent is not sent again: {answer:?}");
    }
}

/// Wake-ups that come while the task is polling must not be lost: everything ends, on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_among_many_answers_in_small_pieces() {
    let server = Server::start(CHUNKS, CHUNKS.len(), Duration::ZERO, 7).await;
    let client = server.client(LONG);
    let callers = (0..32).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..30 {
                assert_eq!(ask(&client).await.expect("an answer"), "hello");
            }
        })
    });
    let all = futures_util::future::join_all(callers.collect::<Vec<_>>());
    for caller in tokio::time::timeout(LONG, all).await.expect("all end") {
        caller.expect("no panic");
    }
}

//! Steady mixed traffic through the proxy, and what its callers see.
//!
//! Half of the requests stream. Temperature 0 makes each healthy answer of one target to one question
//! the same, so that callers can tell a changed answer from the known one, as no status code can.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// One question each: eight callers a second are plenty to see, and few for a laptop.
const EVERY: Duration = Duration::from_millis(125);
const MAX_TOKENS: u32 = 48;

const QUESTIONS: &[&str] = &[
    "How do bees make honey?",
    "Why does it rain?",
    "What is the capital of Portugal?",
    "How is bread baked?",
    "Why is sleep important?",
    "What does a teacher do?",
    "How does a lock work?",
    "Why is the sky blue?",
    "What is 17 + 25?",
    "How do fish breathe under water?",
    "What is a library?",
    "How does a refrigerator work?",
    "Why do ships float on water?",
    "How many legs does a spider have?",
    "What causes the tides?",
    "How is paper made?",
    "What does a baker do in the morning?",
    "Who wrote Hamlet?",
    "How does a battery store energy?",
    "What is a forest good for?",
    "Why is the sea salty?",
    "How do I cook rice?",
    "What is a volcano?",
    "How does a camera take a picture?",
];

/// What callers saw during one chapter.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Answers by HTTP status; 0 is no answer at all.
    pub(super) statuses: BTreeMap<u16, u64>,
    /// Answers by `x-touchstone-tier`.
    pub(super) tiers: BTreeMap<String, u64>,
    /// Answers by `x-touchstone-degraded`.
    pub(super) degraded: BTreeMap<String, u64>,
    /// Answers of the first tier whose healthy text is known.
    pub(super) comparable: u64,
    /// Of these, the ones with another text.
    pub(super) changed: u64,
    /// Streamed answers.
    pub(super) streams: u64,
}

impl Tally {
    /// Answers in all.
    pub(super) fn answers(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Answers with a status other than 200.
    pub(super) fn not_ok(&self) -> u64 {
        self.answers() - self.statuses.get(&200).copied().unwrap_or(0)
    }

    /// Answers of the first tier.
    pub(super) fn first_tier(&self) -> u64 {
        self.tiers.get("0").copied().unwrap_or(0)
    }

    /// Answers of a lower tier that say so.
    pub(super) fn fallbacks(&self) -> u64 {
        self.degraded.values().sum::<u64>().min(self.answers() - self.first_tier())
    }
}

#[derive(Debug, Default)]
struct Book {
    tally: Tally,
    /// Healthy first-tier texts by question.
    known: HashMap<usize, String>,
    learning: bool,
    /// Rises as pages are turned: an answer counts on the page that it was asked on.
    page: u64,
}

/// Traffic that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Traffic {
    book: Arc<Mutex<Book>>,
    task: tokio::task::JoinHandle<()>,
}

impl Traffic {
    /// Starts asking `base`, the proxy's address as a URL.
    pub(super) fn start(client: reqwest::Client, base: &str) -> Self {
        let book = Arc::new(Mutex::new(Book { learning: true, ..Book::default() }));
        let url: Arc<str> = format!("{base}/v1/chat/completions").into();
        let shared = Arc::clone(&book);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            let mut calls = tokio::task::JoinSet::new();
            for number in 0_usize.. {
                ticks.tick().await;
                calls.spawn(call(client.clone(), Arc::clone(&url), number, Arc::clone(&shared)));
                while calls.try_join_next().is_some() {}
            }
        });
        Self { book, task }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What callers have seen since the last [`Traffic::turn_page`].
    pub(super) fn seen(&self) -> Tally {
        self.book().tally.clone()
    }

    /// Counts from zero again; answers under way are left out.
    pub(super) fn turn_page(&self) {
        let mut book = self.book();
        book.tally = Tally::default();
        book.page += 1;
    }

    /// Takes the texts seen so far as the healthy ones.
    pub(super) fn stop_learning(&self) {
        self.book().learning = false;
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn call(client: reqwest::Client, url: Arc<str>, number: usize, book: Arc<Mutex<Book>>) {
    let question = number % QUESTIONS.len();
    let stream = number.is_multiple_of(2);
    let page = book.lock().unwrap_or_else(PoisonError::into_inner).page;
    let seen = ask(&client, &url, number, QUESTIONS[question], stream).await;
    let mut book = book.lock().unwrap_or_else(PoisonError::into_inner);
    if book.page != page {
        return;
    }
    let Seen { status, tier, degraded, text } = seen.unwrap_or_default();
    *book.tally.statuses.entry(status).or_default() += 1;
    book.tally.streams += u64::from(stream);
    if let Some(degraded) = degraded {
        *book.tally.degraded.entry(degraded).or_default() += 1;
    }
    let first = tier.as_deref() == Some("0");
    if let Some(tier) = tier {
        *book.tally.tiers.entry(tier).or_default() += 1;
    }
    if !first || status != 200 {
        return;
    }
    match book.known.get(&question) {
        Some(known) => {
            let changed = *known != text;
            book.tally.comparable += 1;
            book.tally.changed += u64::from(changed);
        }
        None if book.learning => {
            book.known.insert(question, text);
        }
        None => {}
    }
}

#[derive(Debug, Default)]
struct Seen {
    status: u16,
    tier: Option<String>,
    degraded: Option<String>,
    text: String,
}

async fn ask(
    client: &reqwest::Client,
    url: &str,
    number: usize,
    question: &str,
    stream: bool,
) -> reqwest::Result<Seen> {
    // The visitor's number makes each request its own: equal requests count once for the breaker.
    let body = json!({
        "model": "assistant", "temperature": 0, "max_tokens": MAX_TOKENS, "stream": stream,
        "logprobs": true, "top_logprobs": 20,
        "messages": [
            { "role": "system", "content": format!("Visitor {number} is at the desk.") },
            { "role": "user", "content": question },
        ],
    });
    let answer =
        client.post(url).header("content-type", "application/json").body(body.to_string()).send().await?;
    let header =
        |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (status, tier) = (answer.status().as_u16(), header("x-touchstone-tier"));
    let degraded = header("x-touchstone-degraded");
    let text = read(&answer.bytes().await?, stream);
    Ok(Seen { status, tier, degraded, text })
}

/// The text of a whole or a streamed chat answer; nothing for what cannot be read.
fn read(body: &[u8], stream: bool) -> String {
    let body = String::from_utf8_lossy(body);
    let text = |value: &Value, path: &str| {
        value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if !stream {
        return text(&serde_json::from_str(&body).unwrap_or_default(), "/choices/0/message/content");
    }
    let events = body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok());
    events.map(|event: Value| text(&event, "/choices/0/delta/content")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_and_streamed_answers_read_alike() {
        let whole = br#"{"choices":[{"message":{"content":"Rain falls."}}]}"#;
        let streamed = b"data: {\"choices\":[{\"delta\":{\"content\":\"Rain\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\" falls.\"}}]}\n\ndata: [DONE]\n\n";
        assert_eq!(read(whole, false), "Rain falls.");
        assert_eq!(read(streamed, true), "Rain falls.");
        assert_eq!(read(b"nonsense", false), "");
    }

    #[test]
    fn a_tally_tells_fallbacks_from_first_answers() {
        let mut tally = Tally::default();
        tally.statuses.insert(200, 9);
        tally.statuses.insert(503, 1);
        tally.tiers.insert("0".into(), 4);
        tally.tiers.insert("1".into(), 6);
        tally.degraded.insert("breaker_open".into(), 6);
        assert_eq!((tally.answers(), tally.not_ok(), tally.fallbacks()), (10, 1, 6));
    }
}

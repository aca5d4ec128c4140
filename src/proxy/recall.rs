//! Answers from memory: what the cache has for a request, how it is delivered, and what is noted of it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Response, header};

use super::body::Body;
use super::inference::{Inquiry, mark};
use super::ledger::Ledger;
use crate::cache::{Asker, Entry};
use crate::plan::Course;

/// The kept answer to this request, if there is one.
pub(super) fn kept(ledger: &Ledger, inquiry: &Inquiry) -> Option<Entry> {
    let now = ledger.proxy.clock.now();
    inquiry.cache_key.and_then(|key| ledger.proxy.cache.find(&key, now))
}

/// What the cache gave, or did not have, when nobody else could answer, for whoever will warm it.
pub(super) fn list(ledger: &Ledger, inquiry: &Inquiry, entry: Option<&Entry>) {
    let Some(key) = inquiry.cache_key else { return };
    let (now, cache) = (ledger.proxy.clock.now(), &ledger.proxy.cache);
    let asker = Asker {
        route: Arc::clone(ledger.route().name()),
        model: ledger.ask.as_ref().and_then(|ask| ask.model.as_deref()).map(Arc::from),
        request_id: Arc::clone(&ledger.id),
        trace_id: Arc::clone(&ledger.trace),
    };
    match entry {
        Some(entry) => cache.note_served(key, asker, entry, now),
        None => cache.note_missed(key, asker, now),
    }
}

/// Delivers a kept answer.
pub(super) fn from_cache(mut ledger: Box<Ledger>, entry: Entry, course: &Course<'_>) -> Response<Body> {
    let now = ledger.proxy.clock.now();
    let degraded = course.left_because();
    let mut response = Response::new(Body::whole(entry.body));
    let headers = response.headers_mut();
    if let Some(content_type) = entry.content_type {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(header::AGE, HeaderValue::from(now.ms_since(entry.at) / 1_000));
    let at = std::time::UNIX_EPOCH + Duration::from_millis(entry.at.as_millis());
    if let Ok(value) = HeaderValue::from_str(&humantime::format_rfc3339_millis(at).to_string()) {
        headers.insert(header::HeaderName::from_static("x-touchstone-cached-at"), value);
    }
    let tier = Arc::clone(&ledger.proxy.words.cache);
    let target = ledger.live.targets.iter().position(|t| t.name == entry.target);
    mark(headers, &ledger, target, Some(&tier), degraded);
    ledger.show(crate::judge::Verdict { usage: entry.usage, ..Default::default() });
    ledger.deliver(200, &tier, Some(entry.target), degraded);
    ledger.close();
    response
}

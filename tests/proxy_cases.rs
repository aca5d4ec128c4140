//! Every case of odd or sound bytes passes through the proxy unchanged in shadow mode, however its upstream
//! frames, splits, delays or cuts it.

mod common;

use common::upstream::Upstream;
use common::{Served, cases, http, tiers};

/// No delay of a case is kept longer than this, milliseconds.
const LONGEST: u64 = 60;

#[test]
fn every_case_passes_unchanged_in_shadow_mode() {
    for case in cases::all() {
        let id = case["id"].as_str().expect("an id").to_owned();
        let request = &case["request"];
        let method = request["method"].as_str().unwrap_or("POST");
        let told = case["upstream"].clone();
        let upstream = Upstream::start(move |seen, n| cases::acts(&cases::answer(&told, seen, n), LONGEST));
        let text = tiers("shadow", &[&upstream], "[proxy]\npassthrough=[\"*\"]")
            .replace("model = \"model-0\"\n", "");
        let served = Served::start(&text);
        let headers = cases::headers(&case);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let body = cases::request_body(&case);
        let path = request["path"].as_str().expect("a path");
        let got =
            http::request(served.port, method, path, &headers, &body).unwrap_or_else(|f| panic!("{id}: {f}"));
        let seen = upstream.seen();
        let expected = cases::answer(&case["upstream"], &seen[0], 0);
        let (bytes, whole) = cases::received(&expected);
        assert_eq!(got.status as u64, expected["status"].as_u64().unwrap_or(200), "{id}");
        assert!(got.body == bytes, "{id}: {} bytes came of {}", got.body.len(), bytes.len());
        assert_eq!(got.whole, whole, "{id}: ends as it ended");
        assert_eq!(seen.len(), 1, "{id}: nothing is repeated");
        assert_eq!(seen[0].body, body, "{id}: the request too");
    }
}

//! Rows about how a body is made.

use base64::Engine as _;
use touchstone::judge::{End, Head};
use touchstone::verdict::Flag::{self, *};
use touchstone::verdict::{FlagSet, Wire};

pub(crate) struct Body {
    pub(crate) what: &'static str,
    pub(crate) stream: bool,
    wire: Wire,
    request: String,
    head: Head,
    body: Vec<u8>,
    end: End,
    pub(crate) raises: Vec<Flag>,
    pub(crate) near: Vec<Flag>,
}

impl Body {
    pub(crate) fn flags(&self) -> FlagSet {
        super::judge(self.wire, &self.request, self.head.clone(), &self.body, self.end).flags
    }

    fn status(mut self, status: u16) -> Self {
        self.head.status = status;
        self
    }

    fn broken(mut self) -> Self {
        self.end = End::Broken;
        self
    }

    fn declared(mut self, length: u64) -> Self {
        self.head.content_length = Some(length);
        self
    }

    fn raises(mut self, flags: &[Flag]) -> Self {
        self.raises = flags.to_vec();
        self
    }

    fn near(mut self, flags: &[Flag]) -> Self {
        self.near = flags.to_vec();
        self
    }
}

fn whole(what: &'static str, body: impl Into<Vec<u8>>) -> Body {
    let head = Head { status: 200, content_type: Some("application/json".into()), ..Head::default() };
    let request = r#"{"model":"m","n":2,"messages":[{"role":"user","content":"Say hello."}]}"#.to_owned();
    Body {
        what,
        stream: false,
        wire: Wire::Chat,
        request,
        head,
        body: body.into(),
        end: End::Complete,
        raises: Vec::new(),
        near: Vec::new(),
    }
}

fn stream(what: &'static str, body: impl Into<Vec<u8>>) -> Body {
    let mut it = whole(what, body);
    it.stream = true;
    it.head.content_type = Some("text/event-stream".into());
    it.request = it.request.replace("{\"model\"", "{\"stream\":true,\"model\"");
    it
}

fn on(wire: Wire, request: &str, it: Body) -> Body {
    Body { wire, request: request.to_owned(), ..it }
}

fn answer(choice: &str) -> String {
    format!(
        r#"{{"model":"m","choices":[{choice}],"usage":{{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}}}"#
    )
}

fn hello() -> String {
    answer(r#"{"index":0,"message":{"content":"Hello."},"finish_reason":"stop"}"#)
}

fn event(choice: &str) -> String {
    format!("data: {{\"model\":\"m\",\"choices\":[{choice}]}}\n\n")
}

fn piece() -> String {
    event(r#"{"index":0,"delta":{"content":"Hello."}}"#)
}

fn stop() -> String {
    event(r#"{"index":0,"delta":{},"finish_reason":"stop"}"#)
}

const DONE: &str = "data: [DONE]\n\n";

pub(crate) fn all() -> Vec<Body> {
    let mut all = errors();
    all.extend(transport());
    all.extend(indexes());
    all.extend(vectors());
    all
}

fn errors() -> Vec<Body> {
    let failed = r#"{"error":{"message":"engine died","type":"server_error","code":500}}"#;
    let limited = r#"{"error":{"message":"slow down","type":"rate_limit_error","code":429}}"#;
    let busy = r#"{"error":{"message":"overloaded","type":"overloaded_error","code":529}}"#;
    let null = hello().replacen('{', "{\"error\":null,", 1);
    let data = |error: &str| format!("{}data: {error}\n\n", piece());
    vec![
        whole("an error under 200", failed).raises(&[UpstreamErrorIn200]),
        whole("no error beside an answer", null.clone()).near(&[UpstreamErrorIn200]),
        whole("an answer about errors", hello().replace("Hello.", "error: overloaded, rate limit, code 429"))
            .near(&[UpstreamErrorIn200, RateLimited, Overloaded]),
        whole("limited by body", limited).raises(&[UpstreamErrorIn200, RateLimited]),
        whole("limited by status", limited).status(429).raises(&[RateLimited]),
        whole("busy by body", busy).raises(&[UpstreamErrorIn200, Overloaded]),
        whole("busy by status", "").status(503).raises(&[Overloaded]),
        stream("an error event", data(failed)).raises(&[StreamErrorEvent, StreamIncomplete]),
        stream("limited in a stream", data(limited)).raises(&[
            StreamErrorEvent,
            StreamIncomplete,
            RateLimited,
        ]),
        stream("busy in a stream", data(busy)).raises(&[StreamErrorEvent, StreamIncomplete, Overloaded]),
        stream(
            "a stream with no error in it",
            [&piece().replace("{\"model\"", "{\"error\":null,\"model\""), &stop(), DONE].concat(),
        )
        .near(&[StreamErrorEvent]),
        stream(
            "a stream about errors",
            [&piece().replace("Hello.", "error: overloaded, rate limit, 429"), &stop(), DONE].concat(),
        )
        .near(&[StreamErrorEvent, RateLimited, Overloaded]),
    ]
}

fn transport() -> Vec<Body> {
    let (hello, piece, stop) = (hello(), piece(), stop());
    let no_reason = hello.replace(",\"finish_reason\":\"stop\"", "");
    let mut latin1 = hello.clone().into_bytes();
    latin1[hello.find("Hello").expect("there")] = 0xe9;
    let mut cut_char = piece.clone().into_bytes();
    let at = piece.find("Hello").expect("there");
    cut_char[at] = 0xe9;
    vec![
        stream("cut", piece.clone()).broken().raises(&[StreamIncomplete]),
        stream("no sign of its end", piece.clone()).raises(&[StreamIncomplete]),
        stream("its end without the marker", [&*piece, &stop].concat()).near(&[StreamIncomplete]),
        stream("the marker without a reason", [&*piece, DONE].concat())
            .raises(&[FinishReasonMissing])
            .near(&[StreamIncomplete]),
        stream("both", [&*piece, &stop, DONE].concat()).near(&[FinishReasonMissing, EmptyBody]),
        whole("no reason", no_reason).raises(&[FinishReasonMissing]),
        whole("a reason", hello.clone()).near(&[FinishReasonMissing, EmptyBody, NonJsonBody]),
        stream("an unreadable event", [&*piece, "data: {\"choices\":[{\n\n", &stop, DONE].concat())
            .raises(&[UnparseableEvent]),
        stream("comments and unknown fields", [": hi\n\nid: 7\nfoo\n", &*piece, &stop, DONE].concat())
            .near(&[UnparseableEvent]),
        whole("broken JSON", &hello.as_bytes()[..60]).raises(&[MalformedJson]),
        whole("spaced JSON", format!("\n\n {hello} \n")).near(&[MalformedJson]),
        whole("a page", "<html><body>Bad gateway</body></html>").raises(&[NonJsonBody]),
        whole("nothing", "").raises(&[EmptyBody]),
        whole("white space", " \n\n").raises(&[EmptyBody]),
        stream("nothing at all", "").raises(&[StreamIncomplete, EmptyBody]),
        whole("shorter than declared", &hello.as_bytes()[..60]).declared(500).raises(&[BodyTruncated]),
        whole("as long as declared", hello.clone()).declared(hello.len() as u64).near(&[BodyTruncated]),
        whole("another encoding", latin1).raises(&[EncodingError]),
        whole("half a pair", hello.replace("Hello.", "Hi \\ud83d")).raises(&[EncodingError]),
        whole("a whole pair", hello.replace("Hello.", "Hi \\ud83d\\ude00")).near(&[EncodingError]),
        stream("another encoding in a stream", [&*cut_char, stop.as_bytes(), DONE.as_bytes()].concat())
            .raises(&[EncodingError]),
        stream("many scripts in a stream", [&*piece.replace("Hello.", "naïve 😀"), &stop, DONE].concat())
            .near(&[EncodingError]),
    ]
}

fn indexes() -> Vec<Body> {
    let two = |a: &str, b: &str| {
        let choice =
            |i: &str| format!(r#"{{"index":{i},"message":{{"content":"Hello."}},"finish_reason":"stop"}}"#);
        answer(&format!("{},{}", choice(a), choice(b)))
    };
    let streamed = |i: &str| {
        let choice = |delta: &str, finish: &str| {
            event(&format!(r#"{{"index":{i},"delta":{delta},"finish_reason":{finish}}}"#))
        };
        [&choice(r#"{"content":"Hello."}"#, "null"), &choice("{}", "\"stop\""), DONE].concat()
    };
    vec![
        whole("one index twice", two("0", "0")).raises(&[IndexAnomaly]),
        whole("an index below 0", two("0", "-1")).raises(&[IndexAnomaly]),
        whole("two choices", two("1", "0")).near(&[IndexAnomaly]),
        stream("a choice too many", streamed("5")).raises(&[IndexAnomaly]),
        stream("the second choice", streamed("1")).near(&[IndexAnomaly]),
    ]
}

fn vectors() -> Vec<Body> {
    let body = |list: &str| {
        format!(r#"{{"model":"e","data":[{list}],"usage":{{"prompt_tokens":3,"total_tokens":3}}}}"#)
    };
    let one = |vector: &str| body(&format!(r#"{{"index":0,"embedding":{vector}}}"#));
    let embedding = |what, request: &str, body: String| on(Wire::Embeddings, request, whole(what, body));
    let plain = r#"{"model":"e","input":"a"}"#;
    let bytes: Vec<u8> = [0.5_f32, -0.25].iter().flat_map(|x| x.to_le_bytes()).collect();
    let base64 = format!("\"{}\"", base64::engine::general_purpose::STANDARD.encode(bytes));
    let float = r#"{"model":"e","input":"a","encoding_format":"float"}"#;
    let encoded = r#"{"model":"e","input":"a","encoding_format":"base64"}"#;
    let ranked = |score: &str| format!(r#"{{"results":[{{"index":0,"relevance_score":{score}}}]}}"#);
    let rerank = r#"{"query":"q","documents":["a"]}"#;
    vec![
        embedding("zeros", plain, one("[0,0.0,-0]")).raises(&[EmbeddingZero]),
        embedding("nearly zeros", plain, one("[0,1e-9,0]")).near(&[EmbeddingZero, EmbeddingEmpty]),
        embedding("no component", plain, one("[]")).raises(&[EmbeddingEmpty]),
        embedding("null", plain, one("[1,null]")).raises(&[EmbeddingNonfinite]),
        embedding("overflow", plain, one("[1,1e39]")).raises(&[EmbeddingNonfinite]),
        embedding("large and finite", plain, one("[1,1e38]")).near(&[EmbeddingNonfinite]),
        embedding("other lengths", r#"{"model":"e","input":["a","b"]}"#, body(r#"{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1]}"#))
            .raises(&[EmbeddingDimMismatch]),
        embedding("not as long as asked", r#"{"input":"a","dimensions":3}"#, one("[1,2]")).raises(&[EmbeddingDimMismatch]),
        embedding("as long as asked", r#"{"input":"a","dimensions":2}"#, one("[1,2]")).near(&[EmbeddingDimMismatch]),
        embedding("base64 unasked", float, one(&base64)).raises(&[EmbeddingEncodingMismatch]),
        embedding("base64 as asked", encoded, one(&base64)).near(&[EmbeddingEncodingMismatch]),
        on(Wire::Rerank, rerank, whole("a score that is none", ranked("null"))).raises(&[TensorNonfinite]),
        on(Wire::Rerank, rerank, whole("a raw score", ranked("-11.5"))).near(&[TensorNonfinite]),
        on(
            Wire::KserveInfer,
            "{}",
            whole("a tensor with a hole", r#"{"model_name":"c","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[null,0.5]}]}"#),
        )
        .raises(&[TensorNonfinite]),
        on(
            Wire::KserveInfer,
            "{}",
            whole("a tensor", r#"{"model_name":"c","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":[0.25,0.75]}]}"#),
        )
        .near(&[TensorNonfinite]),
    ]
}

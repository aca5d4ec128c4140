//! Errors that the daemon itself answers with, in the shape of the wire they are read from.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::body::Body;
use crate::verdict::{ErrorCode, Flag, Wire};

/// An answer in place of the upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: ErrorCode,
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// Seconds are sent, rounded up.
    pub(super) retry_after_ms: Option<u64>,
}

impl Refusal {
    /// With the status that the contract gives the code.
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, status: status_of(code), message: message.into(), retry_after_ms: None }
    }

    pub(super) fn after(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }

    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The response in the wire's own shape; OpenAI's where the wire is not known.
    pub(super) fn response(&self, wire: Option<Wire>) -> Response<Body> {
        let body = Bytes::from(self.body(wire).to_string());
        let mut response = Response::new(Body::whole(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(ms) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
        }
        response
    }

    fn body(&self, wire: Option<Wire>) -> serde_json::Value {
        let (code, message) = (self.code.as_str(), &self.message);
        match wire {
            Some(Wire::Messages) => json!({
                "type": "error",
                "error": { "type": "touchstone_error", "message": message, "code": code }
            }),
            Some(Wire::OllamaChat | Wire::OllamaGenerate | Wire::OllamaEmbed) => {
                json!({ "error": format!("{code}: {message}") })
            }
            Some(Wire::KserveInfer | Wire::TfPredict) => json!({ "error": format!("{code}: {message}") }),
            _ => json!({
                "error": { "message": message, "type": "touchstone_error", "code": code, "param": null }
            }),
        }
    }
}

/// The event that tells, within a stream, that what came is no answer. The blank line before it ends an event
/// that may have been cut.
pub(super) fn stream_error(wire: Wire, flag: Flag) -> Bytes {
    let message = format!("the answer turned out unusable ({flag}) and was broken off");
    let code = flag.as_str();
    let openai =
        json!({ "error": { "message": message, "type": "touchstone_error", "code": code, "param": null } });
    let text = match wire {
        Wire::Messages => {
            let error = json!({ "type": "touchstone_error", "message": message, "code": code });
            format!("\n\nevent: error\ndata: {}\n\n", json!({ "type": "error", "error": error }))
        }
        Wire::Responses => {
            let event = json!({ "type": "error", "code": code, "message": message, "param": null });
            format!("\n\nevent: error\ndata: {event}\n\n")
        }
        Wire::OllamaChat | Wire::OllamaGenerate => format!("\n{}\n", json!({ "error": message })),
        _ => format!("\n\ndata: {openai}\n\n"),
    };
    text.into()
}

const fn status_of(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BreakerOpen | ErrorCode::RetryBudgetExhausted => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::Overloaded | ErrorCode::CostBudgetExhausted => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::RequestTooExpensive | ErrorCode::BadRequest => StatusCode::BAD_REQUEST,
        ErrorCode::BatchTooLarge | ErrorCode::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        ErrorCode::UpstreamUnreachable => StatusCode::BAD_GATEWAY,
        ErrorCode::ForbiddenPath => StatusCode::FORBIDDEN,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wire_reads_errors_in_its_own_shape() {
        let refusal = Refusal::new(ErrorCode::BreakerOpen, "all open").after(1_200);
        let openai = refusal.body(Some(Wire::Chat));
        assert_eq!(openai["error"]["code"], "breaker_open");
        assert_eq!(openai["error"]["type"], "touchstone_error");
        assert!(openai["error"]["param"].is_null());
        assert_eq!(refusal.body(Some(Wire::Messages))["type"], "error");
        assert!(refusal.body(Some(Wire::OllamaChat))["error"].is_string());
        let response = refusal.response(None);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "2");
    }
}

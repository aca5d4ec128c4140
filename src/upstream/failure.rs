//! A call that brought no answer, and whose fault that is.

use std::error::Error;
use std::fmt::Write as _;
use std::io;

use crate::verdict::FaultClass;

/// Longest message kept of a chain of causes, bytes.
const MAX_MESSAGE: usize = 300;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The connection did not stand in time.
    ConnectTimeout,
    /// The headers did not come in time.
    HeadersTimeout,
    /// Nobody listens there.
    Refused,
    /// The name does not resolve.
    Dns,
    /// No secure connection could be agreed on.
    Tls,
    /// No connection for another reason.
    Unreachable,
    /// The connection was closed or reset before the answer began.
    Reset,
    /// The connection broke within the answer, or the body was shorter than declared.
    Cut,
    /// What came is not HTTP.
    Protocol,
    /// The request could not be formed; the daemon's or the caller's fault.
    Request,
}

impl FailureKind {
    /// Whose fault it is.
    #[must_use]
    pub const fn class(self) -> FaultClass {
        match self {
            Self::HeadersTimeout => FaultClass::Slow,
            Self::Request => FaultClass::Client,
            _ => FaultClass::Upstream,
        }
    }

    /// Whether the upstream cannot have seen the request.
    #[must_use]
    pub const fn is_before_sending(self) -> bool {
        matches!(
            self,
            Self::ConnectTimeout | Self::Refused | Self::Dns | Self::Tls | Self::Unreachable | Self::Request
        )
    }

    /// Whether a limit ran out, rather than something broke.
    #[must_use]
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::HeadersTimeout)
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// In words, for logs and error bodies; holds no URL and no secret.
    pub message: String,
}

impl Failure {
    pub(super) fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Whose fault it is.
    #[must_use]
    pub const fn class(&self) -> FaultClass {
        self.kind.class()
    }

    /// A failure before the response's head.
    pub(super) fn before_head(error: reqwest::Error) -> Self {
        let kind = if error.is_builder() {
            FailureKind::Request
        } else if error.is_connect() && error.is_timeout() {
            FailureKind::ConnectTimeout
        } else if error.is_connect() {
            connect_kind(&error)
        } else {
            match find::<hyper::Error>(&error) {
                Some(e) if e.is_parse() => FailureKind::Protocol,
                _ if error.is_timeout() => FailureKind::HeadersTimeout,
                _ => FailureKind::Reset,
            }
        };
        Self::new(kind, chain(&error.without_url()))
    }

    /// No connection in clear text.
    pub(super) fn of_connect(error: &(dyn Error + 'static)) -> Self {
        Self::new(connect_kind(error), format!("no connection: {}", chain(error)))
    }

    /// A failure before the response's head in clear text.
    pub(super) fn of_clear(error: &hyper::Error) -> Self {
        let kind = match error {
            e if e.is_parse() => FailureKind::Protocol,
            e if e.is_user() => FailureKind::Request,
            _ => FailureKind::Reset,
        };
        Self::new(kind, chain(error))
    }

    /// A failure within the response's body.
    pub(super) fn in_body(error: reqwest::Error) -> Self {
        Self::new(FailureKind::Cut, chain(&error.without_url()))
    }

    /// The same in clear text.
    pub(super) fn in_clear_body(error: &hyper::Error) -> Self {
        Self::new(FailureKind::Cut, chain(error))
    }
}

fn connect_kind(error: &(dyn Error + 'static)) -> FailureKind {
    if find::<rustls::Error>(error).is_some() {
        return FailureKind::Tls;
    }
    match find::<io::Error>(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => FailureKind::Refused,
        Some(io::ErrorKind::TimedOut) => FailureKind::ConnectTimeout,
        _ if chain_has(error, "dns error") => FailureKind::Dns,
        _ => FailureKind::Unreachable,
    }
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |e: &&'e (dyn Error + 'static)| (*e).source())
}

fn find<'e, E: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e E> {
    causes(error).find_map(|cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.downcast_ref::<E>().or_else(|| inner.and_then(|i| i.downcast_ref::<E>()))
    })
}

fn chain_has(error: &(dyn Error + 'static), word: &str) -> bool {
    causes(error).any(|cause| cause.to_string().contains(word))
}

/// The causes from the outermost in, each said once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let words = cause.to_string();
        if !text.contains(&words) {
            let _ = write!(text, "{}{words}", if text.is_empty() { "" } else { ": " });
        }
    }
    if text.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

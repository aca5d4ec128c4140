//! What another try could mend in an answer that came.

use crate::judge::Verdict;
use crate::plan::FaultKind;
use crate::verdict::{FaultClass, Flag, FlagSet};

/// How a try ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) verdict: Verdict,
    pub(super) class: Option<FaultClass>,
    /// What another try could mend.
    pub(super) fault: Option<FaultKind>,
    pub(super) retry_after_ms: Option<u64>,
}

/// What another try could mend in an answer that came whole; `None` for one to be delivered.
pub(super) fn fault_of(status: Option<u16>, verdict: &Verdict) -> Option<FaultKind> {
    let status = status?;
    let error = verdict.error.as_deref().unwrap_or_default();
    let failed = status >= 400 || verdict.class == Some(FaultClass::Upstream);
    if failed && is_context_error(error) {
        return Some(FaultKind::ContextLength);
    }
    let filtered = verdict.flags.contains(Flag::ContentFiltered);
    if filtered && failed {
        return Some(FaultKind::ContentFilter);
    }
    if verdict.class == Some(FaultClass::Backpressure) && verdict.lasting {
        return Some(FaultKind::Spent);
    }
    if let Some(kind) = FaultKind::of_status(status) {
        return Some(kind);
    }
    if status >= 300 {
        return None;
    }
    match verdict.class? {
        FaultClass::Backpressure => Some(FaultKind::Backpressure),
        FaultClass::Upstream if is_cut(verdict.flags) => Some(FaultKind::Cut),
        FaultClass::Upstream => Some(FaultKind::Broken),
        FaultClass::QualityHard if !filtered && !verdict.flags.contains(Flag::Refusal) => {
            verdict.flags.first_of(FaultClass::QualityHard).map(FaultKind::Quality)
        }
        _ => None,
    }
}

/// Whether a filter or the model itself withheld an answer that came with success.
pub(super) fn is_withheld(status: Option<u16>, verdict: &Verdict) -> bool {
    let withheld =
        [Flag::ContentFiltered, Flag::Refusal].into_iter().any(|flag| verdict.flags.contains(flag));
    withheld && status.is_some_and(|s| (200..300).contains(&s))
}

fn is_cut(flags: FlagSet) -> bool {
    [Flag::StreamErrorEvent, Flag::StreamIncomplete, Flag::BodyTruncated, Flag::Stall]
        .into_iter()
        .any(|flag| flags.contains(flag))
}

/// The words that servers use for a prompt longer than the context.
fn is_context_error(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    [
        "context_length",
        "context length",
        "context size",
        "context window",
        "maximum context",
        "prompt is too long",
    ]
    .iter()
    .any(|words| error.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(class: Option<FaultClass>, flags: &[Flag], error: Option<&str>) -> Verdict {
        let flags = flags.iter().copied().collect();
        Verdict { class, flags, error: error.map(str::to_owned), ..Verdict::default() }
    }

    #[test]
    fn each_row_of_the_table_is_told_by_status_class_flags_and_words() {
        use FaultClass::{Backpressure, Client, QualityHard, QualitySoft, Slow, Upstream};
        let fault =
            |status, class, flags: &[Flag], error| fault_of(Some(status), &verdict(class, flags, error));
        assert_eq!(fault(200, None, &[], None), None);
        assert_eq!(fault(200, Some(QualitySoft), &[Flag::WrongLanguage], None), None);
        assert_eq!(fault(200, Some(Slow), &[Flag::Stall], None), None, "it is all there");
        assert_eq!(fault(302, None, &[], None), None);
        assert_eq!(fault(429, Some(Backpressure), &[], None), Some(FaultKind::Backpressure));
        assert_eq!(fault(200, Some(Backpressure), &[Flag::RateLimited], None), Some(FaultKind::Backpressure));
        assert_eq!(fault(500, Some(Upstream), &[], None), Some(FaultKind::Broken));
        assert_eq!(fault(200, Some(Upstream), &[Flag::StreamIncomplete], None), Some(FaultKind::Cut));
        assert_eq!(fault(200, Some(Upstream), &[Flag::MalformedJson], None), Some(FaultKind::Broken));
        let hard = fault(200, Some(QualityHard), &[Flag::Truncated, Flag::Repetition], None);
        assert_eq!(hard, Some(FaultKind::Quality(Flag::Repetition)));
        let filtered = [Flag::EmptyOutput, Flag::ContentFiltered];
        assert_eq!(fault(200, Some(QualityHard), &filtered, None), None, "a filter is never tried again");
        assert_eq!(fault(400, Some(Client), &[Flag::ContentFiltered], None), Some(FaultKind::ContentFilter));
        let long = Some("This model's maximum context length is 4096 tokens");
        assert_eq!(fault(400, Some(Client), &[], long), Some(FaultKind::ContextLength));
        assert_eq!(fault(400, Some(Client), &[], Some("bad")), Some(FaultKind::Caller));
        assert_eq!(fault(404, Some(Client), &[], None), Some(FaultKind::Misconfigured));
        let spent = Verdict { lasting: true, ..verdict(Some(Backpressure), &[Flag::RateLimited], None) };
        for status in [200, 402, 429] {
            assert_eq!(fault_of(Some(status), &spent), Some(FaultKind::Spent), "{status}");
        }
    }
}

//! Each row of the flag table, met and nearly met: as a whole answer and as a stream, on every wire that can
//! say it, in several scripts where the text matters. The last test keeps the table complete.

#[path = "flag_table/bodies.rs"]
mod bodies;
#[path = "flag_table/rows.rs"]
mod rows;
#[path = "flag_table/said.rs"]
mod said;

use std::collections::BTreeSet;
use std::sync::Arc;

use rows::Row;
use said::TEXT_WIRES;
use touchstone::judge::{Ask, End, Head, Judge, Verdict};
use touchstone::verdict::{Flag, FlagSet, Wire};

/// What a baseline, a history or the clock is needed for; their own tests have them.
const NOT_FROM_ONE_ANSWER: [Flag; 5] =
    [Flag::EmbeddingDrift, Flag::LowConfidence, Flag::EntropyHigh, Flag::EntropyLow, Flag::Stall];
/// What only a whole body can be, and what only a stream can be.
const WHOLE_ONLY: [Flag; 10] = [
    Flag::UpstreamErrorIn200,
    Flag::MalformedJson,
    Flag::NonJsonBody,
    Flag::BodyTruncated,
    Flag::EmbeddingZero,
    Flag::EmbeddingEmpty,
    Flag::EmbeddingNonfinite,
    Flag::EmbeddingDimMismatch,
    Flag::EmbeddingEncodingMismatch,
    Flag::TensorNonfinite,
];
const STREAM_ONLY: [Flag; 3] = [Flag::StreamErrorEvent, Flag::StreamIncomplete, Flag::UnparseableEvent];

pub(crate) fn judge(wire: Wire, request: &str, head: Head, body: &[u8], end: End) -> Verdict {
    let mut judge = Judge::new(Arc::new(Ask::parse(wire, request.as_bytes())), head);
    for piece in body.chunks(97) {
        let _ = judge.push(5, piece);
    }
    judge.finish(9, end)
}

fn row_flags(row: &Row, wire: Wire, stream: bool) -> Option<FlagSet> {
    if !said::can_say(wire, &row.asked, &row.said) {
        return None;
    }
    let (kind, body) = said::body(wire, stream, &row.said);
    let head = Head { status: 200, content_type: Some(kind.into()), ..Head::default() };
    let request = said::request(wire, stream, &row.asked).to_string();
    Some(judge(wire, &request, head, body.as_bytes(), End::Complete).flags)
}

#[test]
fn every_text_is_told_alike_on_every_wire_whole_and_streamed() {
    let mut faults = Vec::new();
    for row in rows::all() {
        let wanted: FlagSet = row.raises.iter().copied().collect();
        let mut spoken = 0;
        for wire in TEXT_WIRES {
            for stream in [false, true] {
                let Some(flags) = row_flags(&row, wire, stream) else { continue };
                spoken += 1;
                if flags != wanted {
                    let form = if stream { "stream" } else { "whole" };
                    faults.push(format!("{} on {wire}, {form}: {flags:?}, wanted {wanted:?}", row.what));
                }
            }
        }
        assert!(spoken > 0, "{}: no wire can say it", row.what);
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_odd_body_is_told_for_what_it_is() {
    let mut faults = Vec::new();
    for body in bodies::all() {
        let flags = body.flags();
        let wanted: FlagSet = body.raises.iter().copied().collect();
        if flags != wanted {
            faults.push(format!("{}: {flags:?}, wanted {wanted:?}", body.what));
        }
    }
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_flag_is_met_and_nearly_met_in_both_forms() {
    let mut met = BTreeSet::new();
    for row in rows::all() {
        for stream in [false, true] {
            met.extend(row.raises.iter().map(|f| (*f, stream, true)));
            met.extend(row.near.iter().map(|f| (*f, stream, false)));
        }
    }
    for body in bodies::all() {
        met.extend(body.raises.iter().map(|f| (*f, body.stream, true)));
        met.extend(body.near.iter().map(|f| (*f, body.stream, false)));
    }
    let mut missing = Vec::new();
    for flag in Flag::ALL.iter().filter(|f| !NOT_FROM_ONE_ANSWER.contains(f)) {
        for stream in [false, true] {
            let exists = if stream { !WHOLE_ONLY.contains(flag) } else { !STREAM_ONLY.contains(flag) };
            for is_met in [true, false] {
                if exists && !met.contains(&(*flag, stream, is_met)) {
                    missing.push(format!("{flag}: stream {stream}, met {is_met}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

//! Where the JSON document of a KServe answer ends and its raw tensors begin.
//!
//! `Inference-Header-Content-Length` says so. A client cuts there and nowhere else, so a length that is no
//! number, points behind the body or into the document makes the answer unreadable for it; here the
//! document's own end is taken then, to see what there is.

use crate::verdict::Wire;
use crate::wire::{Scratch, Value};

/// A body in its two parts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Framed<'a> {
    pub(super) json: &'a [u8],
    pub(super) tail: &'a [u8],
    /// A client cannot find the same parts.
    pub(super) broken: bool,
}

impl<'a> Framed<'a> {
    /// Cuts a body. `complete`: no byte of it is missing.
    pub(super) fn split(wire: Wire, declared: Option<&str>, body: &'a [u8], complete: bool) -> Self {
        let plain = Self { json: body, tail: &[], broken: false };
        let Some(declared) = declared.filter(|_| wire == Wire::KserveInfer) else { return plain };
        let at = declared.trim().parse::<usize>().ok();
        if let Some((json, tail)) = at.and_then(|at| body.split_at_checked(at)) {
            let mut doc = Scratch::default();
            let (root, odd) = doc.parse(json);
            if odd.cut || (!odd.broken && root.is_some_and(|r| r.after().trim_ascii().is_empty())) {
                return Self { json, tail, broken: false };
            }
        } else if at.is_some() && !complete {
            return plain; // the rest was not seen
        }
        let mut doc = Scratch::default();
        let end = doc.parse(body).0.map_or(body.len(), |root| body.len() - root.after().len());
        let (json, tail) = body.split_at(end);
        Self { json, tail, broken: true }
    }

    /// Finds raw tensors behind a document that no header tells of.
    pub(super) fn look_behind(&mut self, wire: Wire, root: Value<'a>) {
        let behind = root.after();
        if wire == Wire::KserveInfer && !behind.trim_ascii().is_empty() {
            let end = self.json.len() - behind.len();
            *self = Self { json: &self.json[..end], tail: behind, broken: true };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_a_client_cannot_use_is_broken_and_the_parts_are_found_all_the_same() {
        let body = b"{\"outputs\":[]} \x01\x02";
        let split = |declared, complete| Framed::split(Wire::KserveInfer, Some(declared), body, complete);
        for sound in ["15", " 15 ", "14"] {
            let framed = split(sound, true);
            assert!(!framed.broken && framed.json.starts_with(b"{\"outputs\":[]}"), "{sound}");
        }
        assert_eq!(split("15", true).tail, b"\x01\x02");
        for broken in ["16", "9", "999", "-1", "x", "", "15.5", "0"] {
            let framed = split(broken, true);
            assert!(framed.broken, "{broken}");
            assert_eq!((framed.json, framed.tail), (&body[..14], &body[14..]), "{broken}");
        }
        assert!(!split("999", false).broken, "the rest may have held it");
        assert_eq!(Framed::split(Wire::TfPredict, Some("3"), body, true).json, body);
    }
}

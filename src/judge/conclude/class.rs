//! Whose fault it was: the end, the status and an error in the body come before what the flags say.

use super::Seen;
use crate::judge::{End, Limit};
use crate::verdict::{FaultClass, Flag, FlagSet};
use crate::wire::FaultKind;

impl Seen<'_> {
    pub(super) fn class(&self, flags: FlagSet, lenient: bool) -> Option<FaultClass> {
        let backpressure = flags.contains(Flag::RateLimited) || flags.contains(Flag::Overloaded);
        if self.end == End::ClientGone {
            return Some(FaultClass::Client);
        }
        match self.head.status {
            0 | 200..=299 => {}
            _ if backpressure => return Some(FaultClass::Backpressure),
            408 | 425 => return Some(FaultClass::Upstream),
            // the filter's verdict about what was asked, and no request that is wrong
            400..=499 if flags.contains(Flag::ContentFiltered) => return Some(FaultClass::Info),
            400..=499 => return Some(FaultClass::Client),
            _ => return Some(FaultClass::Upstream),
        }
        match self.answer.fault.as_ref().map(|f| f.kind) {
            Some(FaultKind::RateLimited | FaultKind::Quota | FaultKind::Overloaded) => {
                return Some(FaultClass::Backpressure);
            }
            Some(FaultKind::Client) if !self.answer.has_content => return Some(FaultClass::Client),
            Some(FaultKind::Filtered) => return None,
            Some(_) => return Some(FaultClass::Upstream),
            None => {}
        }
        match self.end {
            End::TimedOut(Limit::Connect | Limit::Headers) => return Some(FaultClass::Upstream),
            End::TimedOut(_) => return Some(FaultClass::Slow),
            End::Broken if !self.answer.marked_end => return Some(FaultClass::Upstream),
            _ => {}
        }
        let mut upstream = flags;
        if lenient {
            // The text could be read all the same, and what it says counts first.
            upstream.remove(Flag::MalformedJson);
        }
        let order = [
            (upstream, FaultClass::Upstream),
            (flags, FaultClass::Slow),
            (flags, FaultClass::QualityHard),
            (flags, FaultClass::Upstream),
            (flags, FaultClass::QualitySoft),
        ];
        order.into_iter().find(|(set, class)| set.first_of(*class).is_some()).map(|(_, class)| class)
    }
}

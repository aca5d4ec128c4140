//! Cuts the oldest turns out of a conversation that is too long for the only tier that can answer
//! (`fallback.trim_oldest`, off by default, because a fallback otherwise keeps the whole conversation).
//!
//! What is never cut: the instructions at the beginning (system, developer), and the last user's turn with whatever
//! follows it. What remains begins with a user's turn, so that no answer or tool result stands without its question.
//! Tokens are told by bytes, in proportion to the estimate of the whole.

use bytes::Bytes;
use serde_json::Value;

use crate::verdict::Wire;

/// Where the turns of a conversation stand, if the protocol has any.
const fn turns_of(wire: Wire) -> Option<&'static str> {
    match wire {
        Wire::Chat | Wire::Messages | Wire::OllamaChat => Some("messages"),
        _ => None,
    }
}

/// A conversation, and which of its turns may go.
struct Talk {
    root: Value,
    key: &'static str,
    /// First turn that may go, and the first behind them that may not.
    from: usize,
    until: usize,
    bytes: usize,
}

impl Talk {
    fn read(body: &[u8], wire: Wire) -> Option<Self> {
        let key = turns_of(wire)?;
        let root: Value = serde_json::from_slice(body).ok()?;
        let turns = root.get(key)?.as_array()?;
        let from = turns.iter().position(|t| !matches!(role(t), "system" | "developer"))?;
        let until = turns.iter().rposition(|t| role(t) == "user")?;
        (until > from).then_some(Self { from, until, bytes: body.len(), key, root })
    }

    fn turns(&self) -> &[Value] {
        self.root.get(self.key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Tokens of the first turns up to `end`, of so many altogether.
    fn tokens_before(&self, end: usize, all: u64) -> u64 {
        let bytes: usize = self.turns()[self.from..end].iter().map(|t| t.to_string().len() + 1).sum();
        (bytes as u64).saturating_mul(all) / (self.bytes as u64).max(1)
    }
}

fn role(turn: &Value) -> &str {
    turn.get("role").and_then(Value::as_str).unwrap_or_default()
}

/// Tokens of what can never be cut of a request of so many tokens; `None` where nothing can be cut.
#[must_use]
pub(super) fn least_tokens(body: &[u8], wire: Wire, tokens: u64) -> Option<u64> {
    let talk = Talk::read(body, wire)?;
    Some(tokens.saturating_sub(talk.tokens_before(talk.until, tokens)))
}

/// The request without its oldest turns, so that its `tokens` become at most `most`.
#[must_use]
pub(super) fn to_fit(body: &[u8], wire: Wire, tokens: u64, most: u64) -> Option<Bytes> {
    let mut talk = Talk::read(body, wire)?;
    let fits = |end: &usize| {
        role(&talk.turns()[*end]) == "user" && tokens.saturating_sub(talk.tokens_before(*end, tokens)) <= most
    };
    let end = (talk.from + 1..=talk.until).find(fits)?;
    let from = talk.from;
    talk.root.get_mut(talk.key)?.as_array_mut()?.drain(from..end);
    serde_json::to_vec(&talk.root).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk() -> Vec<u8> {
        let turn = |role: &str, n: usize| {
            format!("{{\"role\":\"{role}\",\"content\":\"{n} {}\"}}", "word ".repeat(40))
        };
        let turns = [
            turn("system", 0),
            turn("user", 1),
            turn("assistant", 2),
            turn("tool", 3),
            turn("user", 4),
            turn("assistant", 5),
            turn("user", 6),
        ];
        format!("{{\"model\":\"m\",\"temperature\":0.5,\"messages\":[{}]}}", turns.join(",")).into_bytes()
    }

    fn roles(body: &[u8]) -> Vec<String> {
        let root: Value = serde_json::from_slice(body).expect("JSON");
        let turns = root["messages"].as_array().expect("turns");
        turns
            .iter()
            .map(|t| {
                format!(
                    "{} {}",
                    role(t),
                    t["content"].as_str().and_then(|c| c.split(' ').next()).unwrap_or("")
                )
            })
            .collect()
    }

    #[test]
    fn the_oldest_turns_go_and_what_is_left_begins_with_a_user() {
        let body = talk();
        assert_eq!(
            least_tokens(&body, Wire::Chat, 700).map(|n| n / 50),
            Some(4),
            "instructions and the last question"
        );
        let fit = |most| to_fit(&body, Wire::Chat, 700, most).map(|b| roles(&b));
        let some = ["system 0", "user 4", "assistant 5", "user 6"].map(str::to_owned).to_vec();
        assert_eq!(fit(600), Some(some.clone()));
        assert_eq!(fit(450), Some(some));
        assert_eq!(fit(260), Some(["system 0", "user 6"].map(str::to_owned).to_vec()));
        assert_eq!(fit(100), None, "the last question is never cut");
        let kept: Value =
            serde_json::from_slice(&to_fit(&body, Wire::Chat, 700, 450).expect("fits")).expect("JSON");
        assert_eq!((kept["model"].as_str(), kept["temperature"].as_f64()), (Some("m"), Some(0.5)));
    }

    #[test]
    fn what_has_no_turns_to_lose_is_left_alone() {
        for body in [
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "{\"messages\":[]}",
            "{\"messages\":7}",
            "{}",
            "no",
        ] {
            assert_eq!(least_tokens(body.as_bytes(), Wire::Chat, 100), None, "{body}");
            assert_eq!(to_fit(body.as_bytes(), Wire::Chat, 100, 1), None, "{body}");
        }
        assert_eq!(least_tokens(&talk(), Wire::Embeddings, 700), None);
    }
}

//! Whether the model declines: by how its first sentences open, and whether help follows all the same.
//!
//! A refusal says in one of its first sentences that *this request* will not be served: "I can't help
//! with that", not "I can't see an error in your code". What is quoted, or was asked for (a letter that
//! declines an offer, a translation of such a sentence), is no refusal. A refusal after which
//! the answer helps at length is none either. Languages: English and the openings usual in nine others.

use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::{Prompt, head};

/// Text kept for judgement, bytes: refusals open the answer.
const HEAD_BYTES: usize = 700;
/// First sentences looked at.
const SENTENCES: usize = 3;
/// More text than this after the refusing sentence is help, whatever it says, bytes …
const HELP_BYTES: u64 = 700;
/// … less is help if it has a list, code or several lines of its own.
const STRUCTURED_HELP_BYTES: u64 = 120;

/// Verbs of service: what a model says it will not do.
const SERVE: &str = r"(?:help|assist|provide|fulfil|fulfill|comply|answer|create|generate|write|produce|discuss|share|give|offer|support|engage|continue|complete|do\s+(?:that|this|so)|respond|participate|offer|process|translate|describe|tell|talk|carry|proceed|accommodate|advise|recommend|instruct|be\s+able|have\s+(?:that|this|a)\s+conversation|fulfil\w*)";

/// Refusing sentences, from their beginning. Case is ignored.
static REFUSES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let cannot = r"i(?:\s+am|['’]m)?\s+(?:simply\s+|really\s+|just\s+|currently\s+)?(?:can['’]?t|cannot|can\s+not|won['’]?t|will\s+not|unable\s+to|not\s+able\s+to|not\s+allowed\s+to|not\s+permitted\s+to|not\s+comfortable|do\s+not\s+feel\s+comfortable|don['’]t\s+feel\s+comfortable|not\s+going\s+to|must\s+not|shouldn['’]t|could\s?n['’]t)";
    let opening = r"(?:(?:i['’]m|i\s+am|i\s+apologi[sz]e|my\s+apologies|apologies|sorry|unfortunately|regrettably|as\s+an?\s+(?:ai|artificial|language|large)[^.,;]{0,60}|while[^.]{0,80}|thank\s+you[^.]{0,60}|hello|hi)\b[^.]{0,50}?[,;:\s—–-]\s*(?:but|however|and|that)?[\s,]*)?";
    Regex::new(&format!(
        r"(?ix)^(?:
            {opening} {cannot} \s+ (?:\w+\s+){{0,3}}? {SERVE} \b
          | {opening} i\s+(?:must|have\s+to|will\s+have\s+to|need\s+to|would\s+have\s+to|respectfully)\s+(?:\w+\s+)?(?:decline|refuse)
          | {opening} i\s+(?:decline|refuse)\s+to\s+(?:\w+\s+)?{SERVE}\b
          | {opening} i(?:['’]d|\s+would)\s+(?:rather|prefer)\s+not
          | (?:that|this|it)(?:['’]s|\s+is)\s+(?:not\s+)?(?:something|a\s+(?:request|topic|task))\s+(?:that\s+)?i\s+(?:can['’]?t|cannot|won['’]?t|can)\s+(?:\w+\s+)?{SERVE}
          | (?:sorry|i['’]m\s+sorry|i\s+am\s+sorry),?\s+(?:but\s+)?(?:i\s+can['’]?t|i\s+cannot|no\b|that['’]?s\s+not\s+possible|this\s+(?:request|content)|your\s+request)
          | (?:this|your)\s+(?:request|question|prompt)\s+(?:violates|goes\s+against|can(?:not|['’]t)\s+be|is\s+not\s+something)
          | it\s+(?:would\s+be|is)\s+(?:not\s+appropriate|inappropriate|unethical|irresponsible)\s+for\s+me\s+to
          | (?:lo\s+siento|lamento|disculpa|perdón)[^.]{{0,60}}\bno\s+(?:puedo|podré|me\s+es\s+posible)
          | no\s+puedo\s+(?:ayudar|proporcionar|cumplir|responder|ofrecer|generar|hacer\s+eso)
          | (?:je\s+suis\s+désolée?|désolée?|je\s+regrette)[^.]{{0,80}}\bne\s+(?:peux|suis|pourrai)
          | je\s+ne\s+(?:peux|suis)\s+(?:pas|malheureusement)[^.]{{0,40}}(?:aider|fournir|répondre|générer|satisfaire)
          | (?:es\s+tut\s+mir\s+leid|entschuldigung|tut\s+mir\s+leid|leider)[^.]{{0,80}}\b(?:kann|darf|möchte)\s+(?:ich|dir|ihnen|dabei)?\b
          | (?:dabei|damit)\s+kann\s+ich\s+(?:dir|ihnen|euch)?\s*(?:leider\s+)?nicht
          | (?:desculpe|sinto\s+muito|lamento)[^.]{{0,60}}\bnão\s+posso
          | (?:mi\s+dispiace|spiacente)[^.]{{0,60}}\bnon\s+(?:posso|sono\s+in\s+grado)
          | (?:извините|простите|к\s+сожалению|мне\s+жаль)[^.]{{0,60}}(?:не\s+могу|не\s+смогу|не\s+имею)
          | я\s+не\s+могу\s+(?:помочь|предоставить|ответить|выполнить)
          | (?:抱歉|对不起|對不起|很抱歉|非常抱歉|不好意思)[^。]{{0,30}}(?:无法|無法|不能|不便)
          | 我(?:无法|無法|不能)(?:帮助|幫助|提供|回答|协助|協助|满足|完成|生成|继续)
          | (?:申し訳|すみません|ごめんなさい)[^。]{{0,60}}(?:できません|できかね|お答え|いたしかね|お手伝い)
          | (?:죄송|미안)[^.]{{0,60}}(?:수\s*없|어렵|드릴\s*수)
        )"
    ))
    .ok()
});

/// Prompts that ask for a refusal as text.
static ASKS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:refus\w*|declin\w*|reject\w*|turn(?:ing)? down|translat\w*|paraphras\w*|rephras\w*|rewrite|role-?play|dialogue|say no|apolog\w*|complete the sentence)\b|翻译|翻譯|翻訳|перевед|übersetz|traduc|tradui").ok()
});

/// Whether a prompt asks for a refusal as text.
pub(super) fn is_asked_for(prompt: &str) -> bool {
    ASKS.as_ref().is_some_and(|asks| asks.is_match(prompt))
}

/// Keeps the head of the text and its length.
#[derive(Clone, Debug)]
pub struct Refusal {
    head: String,
    bytes: u64,
    prompt: Arc<Prompt>,
}

impl Refusal {
    /// With what the caller asked.
    #[must_use]
    pub const fn new(prompt: Arc<Prompt>) -> Self {
        Self { head: String::new(), bytes: 0, prompt }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) {
        self.bytes += piece.len() as u64;
        if self.head.len() < HEAD_BYTES {
            self.head.push_str(head(piece, HEAD_BYTES - self.head.len()));
        }
    }

    /// Bytes held on the heap, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.head.capacity()
    }

    /// Whether the text so far declines the request and does not help.
    #[must_use]
    pub fn declines(&self) -> bool {
        declines(&self.head, self.bytes) && !self.prompt.wants_refusal()
    }
}

/// Whether a text that begins with `head` and is `bytes` long declines and does not help.
#[must_use]
pub fn declines(head: &str, bytes: u64) -> bool {
    let Some(refuses) = REFUSES.as_ref() else { return false };
    let text = after_reasoning(head).trim_start();
    // Quoted: somebody else's refusal.
    if text.starts_with(['"', '“', '”', '\'', '‘', '«', '„', '>', '`', '「', '*', '#', '|', '-']) {
        return false;
    }
    let mut rest = text;
    for _ in 0..SENTENCES {
        rest = rest.trim_start();
        if rest.is_empty() {
            return false;
        }
        let end = sentence_end(rest);
        if refuses.is_match(rest) {
            let shown = text.len() - rest.len() + end;
            let after = bytes.saturating_sub((head.len() - text.len() + shown) as u64);
            return !helps(&rest[end..], after);
        }
        rest = &rest[end..];
    }
    false
}

/// Whether what follows the refusing sentence is help.
fn helps(after: &str, bytes: u64) -> bool {
    let structured = after.contains("```")
        || after.lines().filter(|l| is_item(l)).count() >= 3
        || ["here is", "here's", "here are", "instead, here", "below is"]
            .iter()
            .any(|h| after.to_lowercase().contains(h));
    bytes >= HELP_BYTES || structured && bytes >= STRUCTURED_HELP_BYTES
}

fn is_item(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with(['-', '*', '•'])
        || line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(['.', ')'])
}

/// Bytes of the first sentence, its end sign included.
fn sentence_end(text: &str) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let ends = matches!(c, '。' | '！' | '？' | '\n')
            || matches!(c, '.' | '!' | '?') && chars.peek().is_none_or(|(_, next)| next.is_whitespace());
        if ends {
            return at + c.len_utf8();
        }
    }
    text.len()
}

/// The text after a closed think tag.
fn after_reasoning(text: &str) -> &str {
    const END: &str = "</think>";
    memchr::memmem::find(text.as_bytes(), END.as_bytes()).map_or(text, |at| &text[at + END.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(prompt: &str, answer: &str) -> bool {
        let mut refusal = Refusal::new(Arc::new(prompt.into()));
        for c in answer.chars() {
            refusal.push(c.encode_utf8(&mut [0; 4]));
        }
        refusal.declines()
    }

    #[test]
    fn refusals_are_seen() {
        for answer in [
            "I can't help with that request.",
            "I’m sorry, but I can’t assist with that.",
            "I'm sorry, but I cannot provide instructions for that. Is there anything else?",
            "Sorry, I can't do that.",
            "As an AI language model, I cannot generate that kind of content.",
            "I am unable to comply with this request, as it would break the rules.",
            "Unfortunately, I'm not able to help you with this.",
            "I must decline to answer.",
            "I won't write that.",
            "Thank you for asking. I'm afraid that is a difficult one. I cannot help with it.",
            "That's not something I can help with.",
            "I can't help with that, but I could explain the history of the topic if you like.",
            "<think>The user wants something bad.</think>I can't assist with that.",
            "Lo siento, pero no puedo ayudarte con eso.",
            "Je suis désolé, mais je ne peux pas répondre à cette demande.",
            "Es tut mir leid, dabei kann ich nicht helfen.",
            "抱歉，我无法提供这方面的帮助。",
            "申し訳ありませんが、そのご要望にはお答えできません。",
            "Извините, я не могу помочь с этим.",
        ] {
            assert!(refusal("Tell me how.", answer), "{answer}");
        }
    }

    #[test]
    fn what_only_sounds_like_one_is_none() {
        for answer in [
            "I can't see any error in your code; it looks right.",
            "I cannot stress enough how important backups are.",
            "\"I can't help with that,\" said the guard, and closed the window.",
            "I'm sorry to hear that you are unwell. Rest and drink plenty of water.",
            "Unfortunately, the train left an hour ago.",
            "The bank said: I cannot help you.",
            "No.",
            "Paris.",
            "",
            "You can't divide by zero. The result is not defined.",
            "Birds can't provide milk.",
            "I refuse to consign half of mankind to the nursery.",
            "It is illegal to drive sheep down the boulevard.",
        ] {
            assert!(!refusal("Tell me.", answer), "{answer}");
        }
    }

    #[test]
    fn help_that_follows_counts() {
        let list = "I can't give medical advice, but here are some common steps:\n1. Rest for a day or two.\n2. Drink plenty of water.\n3. See a doctor if the fever lasts longer than three days or rises above 39 degrees.\n";
        assert!(!refusal("I feel ill", list));
        let long = format!(
            "I cannot provide legal advice. {}",
            "In general a contract needs an offer and its acceptance. ".repeat(16)
        );
        assert!(!refusal("Is it valid?", &long));
    }

    #[test]
    fn refusals_that_were_asked_for_are_none() {
        assert!(!refusal(
            "Write a short note declining the invitation.",
            "I'm sorry, but I can't help at the event."
        ));
        assert!(!refusal("Translate: Lo siento, no puedo ayudarte.", "I'm sorry, I can't help you."));
    }
}

//! The simulated language model: a mixture of experts with a full softmax at every step.
//!
//! Three experts vote on the next token: what is known by heart ([`Memory`]), the passages nearest to
//! the prompt ([`Pointer`]) and an interpolated n-gram model. Their mixture gives logits over the
//! whole vocabulary; damage acts on those and on the tables, never on finished text. Damage is what a
//! share R of random weights does to a network: the learned signal shrinks, noise of the weights'
//! own scale enters every logit (fixed by seed and context, so a damaged model is wrong in the same
//! way twice), table entries point elsewhere, memories swap with their rivals.

use std::cell::RefCell;

use super::facts::{Facts, Form};
use super::fault::Condition;
use super::logits::{blend, gaussian, hash, hash_text, normalise, unit};
use super::memory::{Draft, Memory};
use super::ngram::Ngrams;
use super::passages::Pointer;
use super::retrieve::Index;
use super::vocab::{BOS, EOS, Kind, Token, Vocab};
use super::{reading, shapes, skills};

const CORPUS: &str = include_str!("corpus.txt");
const FACTS: &str = include_str!("facts.txt");
const FOREIGN: &str = include_str!("foreign.txt");

/// Sharpness of the attention over passages.
const ATTENTION: f64 = 16.0;
/// What a smaller model keeps of its sureness.
const LESS_SURE: f32 = 0.97;
/// How sure a fact must be to fill a JSON value.
const LOOKED_UP: f32 = 0.3;
/// Passages attended.
const ATTENDED: usize = 3;
/// Probability below which no token falls: exp(−16).
const FLOOR: f32 = 1.1e-7;
/// Share of the learned signal lost per unit of damage.
const SIGNAL_LOSS: f32 = 4.5;
/// Standard deviation of the logit noise at damage 1, nats; it grows with the square root.
const NOISE_NATS: f32 = 6.5;
/// Chance that a table entry points elsewhere, per unit of damage.
const REWIRED: f32 = 2.0;
/// Chance that a memory has changed places with its rival, per unit of damage.
const FORGOTTEN: f32 = 8.0;

/// Which of the simulated models answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Long contexts, close to its sources.
    #[default]
    Large,
    /// Shorter contexts and a flatter distribution, as a small model of the same family has.
    Small,
}

#[derive(Clone, Copy, Debug)]
struct Profile {
    order: usize,
    copying: f32,
    flatness: f32,
}

impl Size {
    fn profile(self) -> Profile {
        match self {
            Self::Large => Profile { order: 5, copying: 0.97, flatness: 1.0 },
            Self::Small => Profile { order: 3, copying: 0.93, flatness: 1.06 },
        }
    }
}

/// What an answer is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ask {
    /// The last question, or the prompt text.
    pub(super) prompt: String,
    /// All earlier text of the conversation.
    pub(super) before: String,
    /// The prompt is to be continued rather than answered.
    pub(super) continues: bool,
    /// JSON is asked for by `response_format`; with its schema if there is one.
    pub(super) json: Option<Option<serde_json::Value>>,
    /// Schema of the arguments when a tool is called.
    pub(super) tool_schema: Option<serde_json::Value>,
    /// Answer limit, tokens.
    pub(super) max_tokens: usize,
}

/// Everything learned at start-up, shared by all answers.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) vocab: Vocab,
    ngrams: Ngrams,
    foreign: Ngrams,
    passages: Vec<Vec<Token>>,
    foreign_passages: Vec<Vec<Token>>,
    index: Index,
    facts: Facts,
}

impl Model {
    /// Trains on the texts that are compiled in.
    pub(super) fn train() -> Self {
        let passages: Vec<(&str, &str)> = blocks(CORPUS).collect();
        let facts = Facts::read(FACTS);
        let foreign: Vec<&str> =
            FOREIGN.split("\n\n").map(str::trim).filter(|text| !text.is_empty()).collect();
        let answers = passages.iter().flat_map(|(question, answer)| [*question, *answer]);
        let vocab = Vocab::learn(answers.chain(facts.texts()).chain(foreign.iter().copied()));
        let framed = |text: &str| {
            let mut tokens = vec![BOS];
            tokens.extend(vocab.encode(text));
            tokens.push(EOS);
            tokens
        };
        let passage_tokens: Vec<Vec<Token>> = passages.iter().map(|(_, answer)| framed(answer)).collect();
        let foreign_tokens: Vec<Vec<Token>> = foreign.iter().map(|text| framed(text)).collect();
        let fact_tokens: Vec<Vec<Token>> = facts.texts().map(framed).collect();
        let ngrams = Ngrams::learn(passage_tokens.iter().chain(&fact_tokens).map(Vec::as_slice), vocab.len());
        let foreign_ngrams = Ngrams::learn(foreign_tokens.iter().map(Vec::as_slice), vocab.len());
        let index = Index::build(passages.iter().map(|(question, _)| *question));
        Self {
            index,
            ngrams,
            foreign: foreign_ngrams,
            passages: passage_tokens,
            foreign_passages: foreign_tokens,
            facts,
            vocab,
        }
    }

    /// Starts an answer.
    pub(super) fn begin(&self, ask: &Ask, size: Size, condition: Condition, seed: u64) -> Thread<'_> {
        let key = hash(&[seed, hash_text(&ask.prompt)]);
        let damage = condition.damage;
        let wrong = |part: usize| unit(hash(&[key, part as u64, 0x0F])) < FORGOTTEN * damage;
        let draft = self.recall(ask, size, condition);
        let memory = draft.map(|draft| Memory::new(&draft, &self.vocab, wrong));
        let pointer = if condition.wrong_language {
            let at = usize::try_from(key % self.foreign_passages.len().max(1) as u64).unwrap_or(0);
            Pointer::new(self.foreign_passages.get(at).map(|text| (text.as_slice(), 1.0)).into_iter())
        } else {
            self.attend(ask, condition.swapped)
        };
        let mut history = vec![BOS];
        if ask.continues {
            history.extend(self.vocab.encode(&ask.prompt));
        }
        let bag = if condition.shuffle {
            let text =
                memory.as_ref().map(|_| self.recall(ask, size, condition).map(|d| d.best())).and_then(|t| t);
            text.map_or_else(|| pointer.main_text().to_vec(), |text| self.vocab.encode(&text))
        } else {
            Vec::new()
        };
        let said = history.len();
        Thread { model: self, profile: size.profile(), condition, seed, memory, pointer, history, said, bag }
    }

    fn attend(&self, ask: &Ask, swapped: bool) -> Pointer<'_> {
        let mut near = self.index.nearest(&ask.prompt, ATTENDED + 1);
        if near.is_empty() {
            near = self.index.nearest(&ask.before, ATTENDED + 1);
        }
        if near.is_empty() && !self.passages.is_empty() {
            let any = hash_text(&ask.prompt) % self.passages.len() as u64;
            near.push((usize::try_from(any).unwrap_or(0), 1.0));
        }
        if swapped && near.len() > 1 {
            near.remove(0);
        }
        let best = near.first().map_or(0.0, |(_, nearness)| *nearness);
        #[allow(clippy::cast_possible_truncation)]
        let weigh = |nearness: f64| (ATTENTION * (nearness - best)).exp() as f32;
        let kept = near.into_iter().take(ATTENDED);
        Pointer::new(kept.filter_map(|(at, near)| Some((self.passages.get(at)?.as_slice(), weigh(near)))))
    }

    /// What is known by heart: a shape, a skill or a fact.
    fn recall(&self, ask: &Ask, size: Size, condition: Condition) -> Option<Draft> {
        if condition.wrong_language {
            return None;
        }
        let mut draft = if let Some(schema) = &ask.tool_schema {
            Some(shapes::json(&ask.prompt, Some(schema), &|_| None))
        } else if ask.json.is_some() || shapes::wants_json(&ask.prompt) {
            let schema = ask.json.as_ref().and_then(Option::as_ref);
            let lookup = |asked: &str| {
                let draft =
                    self.facts.recall(asked, Form::Short, 0.0).filter(|draft| draft.sure > LOOKED_UP)?;
                Some(draft.best())
            };
            Some(shapes::json(&ask.prompt, schema, &lookup))
        } else {
            skills::recall(&ask.prompt, &ask.before).or_else(|| self.known(ask))
        }?;
        if condition.schema_break {
            break_shape(&mut draft);
        }
        if size == Size::Small || condition.swapped {
            draft.sure *= LESS_SURE;
        }
        Some(draft)
    }

    /// A fact: about the open key of shown pairs, about the prompt, or about prompt and system text.
    fn known(&self, ask: &Ask) -> Option<Draft> {
        if let Some(key) = reading::open_key(&ask.prompt) {
            return self.facts.recall(&format!("capital {key}"), Form::Short, 0.0);
        }
        let passage = self.index.nearest(&ask.prompt, 1).first().map_or(0.0, |(_, nearness)| *nearness);
        let alone = self.facts.recall(&ask.prompt, form(ask), passage);
        alone.or_else(|| self.facts.recall(&format!("{} {}", ask.before, ask.prompt), form(ask), passage))
    }
}

/// The model has forgotten how JSON ends and what is quoted.
fn break_shape(draft: &mut Draft) {
    let last = draft.parts.len().saturating_sub(1);
    for (text, _) in draft.parts.iter_mut().flatten() {
        *text = text.replace("\": ", " = ");
    }
    for (text, _) in draft.parts.iter_mut().skip(last).flatten() {
        *text = text.trim_end_matches('}').to_owned();
    }
}

fn form(ask: &Ask) -> Form {
    let lower = ask.prompt.to_lowercase();
    let brief = ["one word", "only", "single word", "just the", "name the", "true or false", "yes or no"];
    let ends_open = !ask.prompt.trim_end().ends_with(['.', '?', '!', ':', '"', '”', '？', '؟', ';', '。']);
    if ask.continues && ends_open {
        Form::Continue
    } else if brief.iter().any(|sign| lower.contains(sign)) || ask.max_tokens <= 4 || ends_open {
        Form::Short
    } else {
        Form::Long
    }
}

fn blocks(corpus: &str) -> impl Iterator<Item = (&str, &str)> {
    corpus.split("\n\n").filter_map(|block| {
        let (question, answer) = block.trim().split_once('\n')?;
        Some((question.strip_prefix("Q: ")?, answer.strip_prefix("A: ")?))
    })
}

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// One answer in the making.
#[derive(Debug)]
pub(super) struct Thread<'m> {
    model: &'m Model,
    profile: Profile,
    condition: Condition,
    seed: u64,
    memory: Option<Memory>,
    pointer: Pointer<'m>,
    history: Vec<Token>,
    said: usize,
    bag: Vec<Token>,
}

impl Thread<'_> {
    /// Logprobs of every token of the vocabulary at this step, normalised.
    pub(super) fn logprobs(&self, out: &mut Vec<f32>) {
        out.clear();
        out.resize(self.model.vocab.len(), 0.0);
        self.mixture(out);
        self.faults(out);
        let damage = self.condition.damage;
        let signal = (1.0 - SIGNAL_LOSS * damage).max(0.04) / self.flatness();
        let noise = NOISE_NATS * damage.sqrt();
        let context = hash(&[self.seed, self.context_key()]);
        for (token, p) in out.iter_mut().enumerate() {
            *p = signal * p.max(FLOOR).ln();
            if noise > 0.0 {
                *p += noise * gaussian(context, token as u64);
            }
        }
        out[BOS as usize] = f32::NEG_INFINITY;
        normalise(out);
    }

    fn flatness(&self) -> f32 {
        if self.condition.swapped { 1.35 } else { self.profile.flatness }
    }

    /// The last two tokens: what a damaged weight's input depends on.
    fn context_key(&self) -> u64 {
        self.history.iter().rev().take(2).fold(7, |key, &token| hash(&[key, u64::from(token)]))
    }

    fn mixture(&self, out: &mut [f32]) {
        let damage = self.condition.damage;
        let size = self.model.vocab.len() as u64;
        let rewire = |context: &[Token], token: Token| {
            let key = context.iter().fold(u64::from(token), |key, &t| hash(&[key, u64::from(t), self.seed]));
            if unit(key) < REWIRED * damage {
                Token::try_from(hash(&[key]) % size).unwrap_or(token)
            } else {
                token
            }
        };
        let order = if self.condition.swapped { 3 } else { self.profile.order };
        let grams = if self.condition.wrong_language { &self.model.foreign } else { &self.model.ngrams };
        let damaged = damage > 0.0;
        grams.distribution(&self.history, order, damaged.then_some(&rewire), out);
        let copying = if self.condition.swapped { 0.75 } else { self.profile.copying };
        let (votes, sure) = self.pointer.votes(&self.history);
        blend(out, &votes, copying * sure, |token| if damaged { rewire(&[token], token) } else { token });
        if let Some(memory) = &self.memory {
            let (votes, sure) = memory.votes();
            blend(out, &votes, sure, |token| token);
        }
    }

    /// Faults that change what the model wants to say next.
    fn faults(&self, out: &mut [f32]) {
        let said = self.history.len() - self.said;
        if self.condition.empty && said == 0 {
            blend(out, &[(EOS, 1.0)], 0.995, |token| token);
        }
        if self.condition.shuffle {
            let lot = |token: Token| 0.05 + unit(hash(&[self.seed, u64::from(token), said as u64]));
            let sum: f32 = self.bag.iter().map(|&token| lot(token)).sum();
            let votes: Vec<(Token, f32)> = self.bag.iter().map(|&token| (token, lot(token) / sum)).collect();
            let votes = if votes.is_empty() { vec![(EOS, 1.0)] } else { votes };
            blend(out, &votes, 0.985, |token| token);
        }
        if self.condition.gibberish {
            for (token, p) in out.iter_mut().enumerate() {
                let token = Token::try_from(token).unwrap_or(EOS);
                *p = match self.model.vocab.kind(token) {
                    Kind::Fragment => 1.0,
                    Kind::Byte if self.model.vocab.bytes(token)[0].is_ascii_graphic() => 1.5,
                    Kind::Word => 0.01,
                    _ => 0.0,
                };
            }
            out[EOS as usize] = if said > 40 { 6.0 } else { 0.0 };
            let sum: f32 = out.iter().sum();
            out.iter_mut().for_each(|p| *p /= sum);
        }
        if self.condition.looping && said >= LOOP_FROM {
            let stuck = self.history[self.history.len() - LOOP_LENGTH];
            out[EOS as usize] = 0.0;
            blend(out, &[(stuck, 1.0)], 0.995, |token| token);
        }
    }

    /// Says `token`.
    pub(super) fn accept(&mut self, token: Token) {
        self.pointer.advance(&self.history, token);
        if let Some(memory) = &mut self.memory {
            memory.advance(token);
        }
        if let Some(at) = self.bag.iter().position(|&held| held == token) {
            self.bag.remove(at);
        }
        self.history.push(token);
    }

    /// Tokens that the memory would accept next, for guided decoding.
    pub(super) fn guide(&self) -> Vec<Token> {
        self.memory
            .as_ref()
            .map(|memory| memory.votes().0.into_iter().map(|(token, _)| token).collect())
            .unwrap_or_default()
    }

    /// A buffer that is reused from step to step.
    pub(super) fn with_logprobs<T>(&self, read: impl FnOnce(&[f32]) -> T) -> T {
        SCRATCH.with_borrow_mut(|scratch| {
            self.logprobs(scratch);
            read(scratch)
        })
    }
}

/// Tokens said before a loop sets in, and its length.
const LOOP_FROM: usize = 9;
const LOOP_LENGTH: usize = 5;

#[cfg(test)]
mod tests;

//! The simulated upstream and its faults.
//!
//! A small language model that is true where it matters: text, probabilities and logprobs come from
//! one distribution over the whole vocabulary at each step, and a quality fault changes the model,
//! not its finished text. So entropy rises, answers go wrong and embeddings wander because the model
//! got worse, behind a server that still says 200. The demo, the drill and the tests stand on it.
//!
//! The server speaks OpenAI's chat, completions and responses, Anthropic's messages and Ollama's chat and
//! generate, whole and streamed, embeds and ranks (`vectors`), and serves a small classifier by the Open
//! Inference Protocol (KServe, Triton) and TensorFlow Serving's (`tensors`). Faults ([`Faults`]) can be
//! changed while it runs, in process by [`SimHandle::set_fault`] or by `POST /__sim/fault`.

mod answer;
mod classifier;
mod decode;
mod dialect;
mod facts;
mod listen;
mod logits;
mod memory;
mod model;
mod ngram;
mod passages;
mod pattern;
mod phrases;
mod reading;
mod render;
mod request;
mod retrieve;
mod serve;
mod shapes;
mod skills;
mod tensors;
mod values;
mod vectors;
mod vocab;
mod voice;

use std::net::SocketAddr;
use std::sync::Arc;

use serde::Serialize;
use tokio::sync::watch;

use crate::chaos as fault;
pub use crate::chaos::{Fault, FaultError, FaultKind, Faults};
pub use model::Size;

/// How a simulated upstream behaves.
#[derive(Clone, Debug)]
pub struct Params {
    /// Model name it answers under.
    pub model: String,
    /// Which model it runs.
    pub size: Size,
    /// Pace of generation; 0 is as fast as it computes.
    pub tokens_per_second: f64,
    /// Wait before the first token, milliseconds.
    pub ttft_ms: u64,
    /// Fixes damaged weights, the draw of faults, and sampling where the request has no seed.
    pub seed: u64,
    /// Longest prompt and answer together, tokens.
    pub context_tokens: usize,
    /// Faults in force from the start.
    pub faults: Faults,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            model: "sim-large".to_owned(),
            size: Size::Large,
            tokens_per_second: 0.0,
            ttft_ms: 0,
            seed: 7,
            context_tokens: 8192,
            faults: Faults::none(),
        }
    }
}

/// What the server has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Requests to the text paths.
    pub requests: u64,
    /// Of these, streamed.
    pub streams: u64,
    /// Answers with status 200, whole or cut.
    pub ok: u64,
    /// Answers with another status.
    pub errors: u64,
    /// Requests that a fault hit.
    pub faulted: u64,
    /// Answers given up because the client left.
    pub cancelled: u64,
    /// Answers being written now.
    pub in_flight: u64,
    /// Tokens generated.
    pub tokens: u64,
}

/// A running simulated upstream; it stops when dropped.
#[derive(Debug)]
pub struct SimHandle {
    /// Where it listens.
    pub addr: SocketAddr,
    state: Arc<serve::State>,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

/// The simulated upstream.
#[derive(Clone, Copy, Debug)]
pub struct Sim;

impl Sim {
    /// Trains the model (once a process) and listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start(addr: SocketAddr, params: Params) -> std::io::Result<SimHandle> {
        let listener = tokio::net::TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let trained = tokio::task::spawn_blocking(serve::trained).await;
        trained.map_err(std::io::Error::other)?;
        let state = Arc::new(serve::State::new(params));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listen::run(listener, addr, Arc::clone(&state), stopped));
        Ok(SimHandle { addr, state, stop, task })
    }
}

impl SimHandle {
    /// Base address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Puts other faults in force; requests that are being answered keep theirs.
    ///
    /// # Errors
    /// When `spec` cannot be read; nothing changes then.
    pub fn set_fault(&self, spec: &str) -> Result<(), FaultError> {
        self.state.set_faults(spec.parse()?);
        Ok(())
    }

    /// The faults in force.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.state.faults()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.state.stats()
    }

    /// Closes the listener and all connections.
    pub async fn shutdown(mut self) {
        let _ = self.stop.send(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for SimHandle {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

#[cfg(test)]
mod tests;

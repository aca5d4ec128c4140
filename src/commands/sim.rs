//! `touchstone sim`: the simulated, fault-injecting upstream alone.

use std::io::Write as _;
use std::net::SocketAddr;

use anyhow::Context as _;

use crate::sim::{Faults, Params, Sim, Size};

/// A small true language model behind the paths of OpenAI (chat, completions, responses, embeddings), Anthropic
/// (messages) and Ollama (chat, generate, embed), and /v1/rerank, and a classifier behind KServe's and TensorFlow
/// Serving's, with faults that are switched while they run.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Faults are joined by commas; each may end in `:SHARE`, the share of requests that it hits:
  of the model:      damage=R  loop  empty  gibberish  wrong_language  schema_break  logprobs_drop  model_swap  shuffle
  of the classifier: mislabel  raw_scores  nonfinite  damage=R  model_swap  empty  schema_break
  of the transport:  latency=DURATION  status=CODE  reset  cut[=TOKENS]  stall[=TOKENS]  storm429[=SECONDS]
                     refuse[=DURATION]

Examples:
  touchstone sim
  touchstone sim --listen 127.0.0.1:8001 --fault damage=0.1,latency=300ms:0.2
  curl -d 'damage=0.1' http://127.0.0.1:8000/__sim/fault")]
pub struct Args {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Faults in force from the start
    #[arg(long, value_name = "SPEC", default_value = "none")]
    pub fault: Faults,
    /// Model name it answers under
    #[arg(long, value_name = "NAME", default_value = "sim-large")]
    pub model: String,
    /// Run the smaller model: shorter contexts, flatter distributions
    #[arg(long)]
    pub small: bool,
    /// Pace of generation; 0 is as fast as it computes
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = pace)]
    pub tokens_per_second: f64,
    /// Wait before the first token
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub ttft_ms: u64,
    /// Fixes damaged weights, the draw of faults, and sampling where a request has no seed
    #[arg(long, value_name = "N", default_value_t = 7)]
    pub seed: u64,
}

fn pace(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "write a number".to_owned())?;
    if rate.is_finite() && rate >= 0.0 { Ok(rate) } else { Err("write 0 or a number above".to_owned()) }
}

/// Serves until Ctrl-C.
///
/// # Errors
/// The address cannot be bound.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args))
}

async fn serve(args: &Args) -> anyhow::Result<u8> {
    let params = Params {
        model: args.model.clone(),
        size: if args.small { Size::Small } else { Size::Large },
        tokens_per_second: args.tokens_per_second,
        ttft_ms: args.ttft_ms,
        seed: args.seed,
        faults: args.fault.clone(),
        ..Params::default()
    };
    let sim =
        Sim::start(args.listen, params).await.with_context(|| format!("cannot listen on {}", args.listen))?;
    let url = sim.url();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "The simulated upstream listens on {url} as model {}, faults: {}.",
        args.model, args.fault
    )?;
    writeln!(
        out,
        "  ask:     curl {url}/v1/chat/completions -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"How do bees make honey?\"}}]}}'"
    )?;
    writeln!(out, "  damage:  curl {url}/__sim/fault -d damage=0.1")?;
    writeln!(out, "  repair:  curl {url}/__sim/fault -d none")?;
    writeln!(out, "  counts:  curl {url}/__sim/stats")?;
    writeln!(out, "Ctrl-C ends it.")?;
    out.flush()?;
    tokio::signal::ctrl_c().await?;
    let stats = sim.stats();
    sim.shutdown().await;
    writeln!(
        out,
        "\n{} requests answered, {} refused or broken on purpose, {} tokens.",
        stats.ok, stats.errors, stats.tokens
    )?;
    Ok(0)
}

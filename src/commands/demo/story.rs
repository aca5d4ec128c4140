//! The five chapters. Each waits until the daemon's own API and its callers show that it happened.

use std::io::{self, Write as _};
use std::time::Duration;

use super::traffic::{Tally, Traffic};
use super::witness::{Event, Target, Witness};
use crate::clock::Stopwatch;

/// Wait between two looks at the daemon.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Wait between two words on what takes long.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Answers that make a chapter more than chance.
const ENOUGH_ANSWERS: u64 = 16;
/// Answers of the damaged model that show its degradation; few, since the breaker may be quick.
const ENOUGH_DAMAGED: u64 = 3;
/// Causes of an opening that speak of quality.
const QUALITY_CAUSES: [&str; 3] = ["hard_faults", "golden_burst", "rule"];

/// Where the story plays.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// The proxy as a URL.
    pub(super) proxy: String,
    /// The admin surface as a URL.
    pub(super) admin: String,
    /// The first upstream as a URL, for its control path.
    pub(super) primary_url: String,
    /// The first target's name.
    pub(super) primary: String,
    /// The fault that degrades the model; `none` leaves it healthy.
    pub(super) fault: String,
}

/// How long each chapter may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) healthy: Duration,
    pub(super) degradation: Duration,
    pub(super) opening: Duration,
    pub(super) fallback: Duration,
    pub(super) recovery: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            healthy: Duration::from_secs(100),
            degradation: Duration::from_secs(15),
            opening: Duration::from_secs(40),
            fallback: Duration::from_secs(20),
            recovery: Duration::from_secs(60),
        }
    }
}

impl Patience {
    /// For a story that is not expected to go on: nobody waits long for what will not come.
    pub(super) fn short() -> Self {
        Self { opening: Duration::from_secs(15), ..Self::default() }
    }
}

/// A chapter that did not happen.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unmet {
    /// Which and why.
    #[error("chapter {number} ({title}) did not happen within {} s: {why}", .limit.as_secs())]
    Chapter { number: u8, title: &'static str, limit: Duration, why: String },
    /// Nobody reads what is told.
    #[error("cannot tell the story")]
    Output(#[from] io::Error),
}

/// Tells the story once.
#[derive(Debug)]
pub(super) struct Story {
    scene: Scene,
    patience: Patience,
    client: reqwest::Client,
    witness: Witness,
    traffic: Traffic,
    watch: Stopwatch,
    /// Breaker transitions of the first target so far.
    transitions: Vec<Event>,
    /// Said last, so that nothing is said twice.
    last_message: String,
}

/// One look at everything.
#[derive(Debug, Default)]
struct Look {
    target: Target,
    tally: Tally,
}

impl Story {
    pub(super) fn new(client: reqwest::Client, scene: Scene, patience: Patience) -> Self {
        Self {
            witness: Witness::new(client.clone(), scene.admin.clone()),
            traffic: Traffic::start(client.clone(), &scene.proxy),
            client,
            scene,
            patience,
            watch: Stopwatch::start(),
            transitions: Vec::new(),
            last_message: String::new(),
        }
    }

    /// All chapters in order; the first that does not happen ends it.
    pub(super) async fn tell(&mut self) -> Result<(), Unmet> {
        self.healthy().await?;
        self.degradation().await?;
        self.opening().await?;
        self.fallback().await?;
        self.recovery().await
    }

    fn say(&self, line: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{:6.1} s  {line}", self.watch.elapsed().as_secs_f64())?;
        out.flush()
    }

    fn heading(&self, number: u8, title: &str) -> io::Result<()> {
        writeln!(io::stdout())?;
        self.say(&format!("Chapter {number}: {title}"))
    }

    /// Looks until `done`, telling the daemon's events as they come.
    async fn until(
        &mut self,
        number: u8,
        title: &'static str,
        limit: Duration,
        mut done: impl FnMut(&Look, &[Event]) -> Result<(), String>,
    ) -> Result<Look, Unmet> {
        let began = Stopwatch::start();
        let mut progress = PROGRESS_EVERY;
        loop {
            for event in self.witness.news().await {
                self.note(event)?;
            }
            let target = self.witness.target(&self.scene.primary).await.unwrap_or_default();
            let look = Look { target, tally: self.traffic.seen() };
            if began.elapsed() >= progress {
                progress += PROGRESS_EVERY;
                let doing = look.target.reasons.iter().find(|reason| reason.starts_with("calibrating"));
                doing.map_or(Ok(()), |doing| self.say(&format!("   {doing}")))?;
            }
            match done(&look, &self.transitions) {
                Ok(()) => return Ok(look),
                Err(why) if began.elapsed() >= limit => {
                    return Err(Unmet::Chapter { number, title, limit, why });
                }
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Tells an event of the first target, and keeps its transitions.
    fn note(&mut self, event: Event) -> io::Result<()> {
        if event.target.as_deref().is_some_and(|target| target != self.scene.primary) {
            return Ok(());
        }
        let told = ["breaker_transition", "rule", "burst", "calibration", "signal_lost"];
        if told.contains(&event.kind.as_str()) {
            let to = if event.kind == "breaker_transition" {
                format!(" → {}", event.to())
            } else {
                String::new()
            };
            let why = if self.last_message == event.message { "as said" } else { &event.message };
            self.say(&format!("   · {}{to} ({}): {why}", event.kind.replace('_', " "), event.reason))?;
            self.last_message.clone_from(&event.message);
        }
        if event.kind == "breaker_transition" {
            self.transitions.push(event);
        }
        Ok(())
    }

    async fn healthy(&mut self) -> Result<(), Unmet> {
        const TITLE: &str = "healthy";
        self.heading(
            1,
            "all is well; the golden set is asked until the daemon knows what healthy looks like",
        )?;
        let look = self
            .until(1, TITLE, self.patience.healthy, |look, transitions| match look {
                _ if transitions.iter().any(|event| event.to() == "open") => {
                    Err("the breaker opened on a healthy model".to_owned())
                }
                Look { target, .. } if !target.calibrated => {
                    Err(format!("the target is not calibrated ({})", target.reasons.join("; ")))
                }
                Look { target, .. } if target.breaker != "closed" || target.health != "healthy" => {
                    Err(format!("breaker {}, health {}", target.breaker, target.health))
                }
                Look { tally, .. } if tally.not_ok() > 0 => Err(format!("statuses {:?}", tally.statuses)),
                Look { tally, .. } if tally.first_tier() < ENOUGH_ANSWERS => {
                    Err(format!("only {} answers of the first tier", tally.first_tier()))
                }
                _ => Ok(()),
            })
            .await?;
        self.traffic.stop_learning();
        self.say(&format!(
            "   {} answers, all status 200, {} streamed; entropy {}; breaker closed.",
            look.tally.answers(),
            look.tally.streams,
            nats(look.target.signal("entropy_mean")),
        ))?;
        Ok(())
    }

    async fn degradation(&mut self) -> Result<(), Unmet> {
        const TITLE: &str = "silent degradation";
        self.traffic.turn_page();
        self.transitions.clear();
        if self.scene.fault == "none" {
            self.heading(2, "the model is left as it is")?;
        } else {
            let fault = &self.scene.fault;
            self.heading(
                2,
                &format!("the model degrades silently ({fault}); its server goes on saying 200"),
            )?;
            self.set_fault(&self.scene.fault.clone()).await?;
        }
        let before = self.upstream_stats().await;
        let mut after = before;
        let began = Stopwatch::start();
        while after.ok.saturating_sub(before.ok) < ENOUGH_DAMAGED {
            if began.elapsed() >= self.patience.degradation {
                let why = format!("the upstream gave {} answers", after.ok.saturating_sub(before.ok));
                return Err(Unmet::Chapter {
                    number: 2,
                    title: TITLE,
                    limit: self.patience.degradation,
                    why,
                });
            }
            for event in self.witness.news().await {
                self.note(event)?;
            }
            tokio::time::sleep(LOOK_EVERY).await;
            after = self.upstream_stats().await;
        }
        let (answers, errors) = (after.ok - before.ok, after.errors - before.errors);
        if errors > 0 {
            let why = format!("the upstream gave {errors} errors, so it was not silent");
            return Err(Unmet::Chapter { number: 2, title: TITLE, limit: self.patience.degradation, why });
        }
        let sample = self.sample().await;
        self.say(&format!(
            "   upstream: {answers} answers, all status 200, 0 errors. It says now: {sample}"
        ))?;
        Ok(())
    }

    async fn opening(&mut self) -> Result<(), Unmet> {
        const TITLE: &str = "the breaker opens";
        self.heading(3, "the daemon finds out")?;
        let look = self
            .until(3, TITLE, self.patience.opening, |look, transitions| {
                let opened = transitions.iter().find(|event| event.to() == "open");
                match opened {
                    None => Err(format!(
                        "breaker {}, health {}; {} answers seen, {} changed",
                        look.target.breaker, look.target.health, look.tally.comparable, look.tally.changed
                    )),
                    Some(event) if !QUALITY_CAUSES.contains(&event.reason.as_str()) => {
                        Err(format!("it opened for `{}`, which is not quality", event.reason))
                    }
                    Some(event) if !event.message.bytes().any(|byte| byte.is_ascii_digit()) => {
                        Err("its reason has no figures".to_owned())
                    }
                    Some(_) => Ok(()),
                }
            })
            .await?;
        self.say(&format!(
            "   breaker open. Callers' statuses meanwhile: {:?}; {} of {} first-tier answers had changed.",
            look.tally.statuses, look.tally.changed, look.tally.comparable,
        ))?;
        Ok(())
    }

    async fn fallback(&mut self) -> Result<(), Unmet> {
        const TITLE: &str = "fallback answers";
        self.heading(4, "the smaller model answers while the breaker is open")?;
        self.traffic.turn_page();
        let look = self
            .until(4, TITLE, self.patience.fallback, |look, _| match &look.tally {
                tally if tally.fallbacks() < ENOUGH_ANSWERS => {
                    Err(format!("only {} fallback answers, tiers {:?}", tally.fallbacks(), tally.tiers))
                }
                tally if tally.not_ok() > 0 => Err(format!("statuses {:?}", tally.statuses)),
                tally if tally.first_tier() > 0 => Err(format!(
                    "the first tier gave {} answers though its breaker is open",
                    tally.first_tier()
                )),
                _ => Ok(()),
            })
            .await?;
        self.say(&format!(
            "   {} answers from a lower tier, all status 200; x-touchstone-degraded: {:?}, x-touchstone-tier: {:?}.",
            look.tally.fallbacks(),
            look.tally.degraded,
            look.tally.tiers,
        ))?;
        Ok(())
    }

    async fn recovery(&mut self) -> Result<(), Unmet> {
        const TITLE: &str = "recovery";
        self.heading(5, "the sound model is back; golden probes must prove it before traffic returns")?;
        self.set_fault("none").await?;
        self.until(5, TITLE, self.patience.recovery, |look, transitions| {
            let states: Vec<&str> = transitions.iter().map(Event::to).collect();
            let proven = states.ends_with(&["half_open", "closed"]);
            if proven && look.target.breaker == "closed" {
                Ok(())
            } else {
                Err(format!("breaker {} ({})", look.target.breaker, look.target.reasons.join("; ")))
            }
        })
        .await?;
        self.say("   breaker closed through half-open; traffic comes back step by step.")?;
        self.traffic.turn_page();
        let began = Stopwatch::start();
        let mut told = 0.0;
        loop {
            let share = self.witness.share(&self.scene.primary).await.unwrap_or(0.0);
            let tally = self.traffic.seen();
            if share > told {
                told = share;
                self.say(&format!("   ramp: {:.0} % of its traffic", share * 100.0))?;
            }
            if share >= 1.0 && tally.first_tier() >= ENOUGH_ANSWERS {
                self.say(&format!(
                    "   {} answers of the first tier again, {} of {} changed; statuses {:?}.",
                    tally.first_tier(),
                    tally.changed,
                    tally.comparable,
                    tally.statuses,
                ))?;
                return Ok(());
            }
            if began.elapsed() >= self.patience.recovery {
                let why = format!("share {share}, {} answers of the first tier", tally.first_tier());
                return Err(Unmet::Chapter { number: 5, title: TITLE, limit: self.patience.recovery, why });
            }
            for event in self.witness.news().await {
                self.note(event)?;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn set_fault(&self, spec: &str) -> Result<(), Unmet> {
        let url = format!("{}/__sim/fault", self.scene.primary_url);
        let answer = self.client.post(url).body(spec.to_owned()).send().await;
        let set = answer.and_then(reqwest::Response::error_for_status);
        set.map(|_| ()).map_err(|error| Unmet::Output(io::Error::other(error)))
    }

    async fn upstream_stats(&self) -> Upstream {
        let url = format!("{}/__sim/stats", self.scene.primary_url);
        let Ok(answer) = self.client.get(url).send().await else { return Upstream::default() };
        answer.bytes().await.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default()
    }

    /// What the first upstream itself answers now, opening words only.
    async fn sample(&self) -> String {
        let body = serde_json::json!({
            "temperature": 0, "max_tokens": 24,
            "messages": [{ "role": "user", "content": "How do bees make honey?" }],
        });
        let url = format!("{}/v1/chat/completions", self.scene.primary_url);
        let Ok(answer) = self.client.post(url).body(body.to_string()).send().await else {
            return String::new();
        };
        let value: serde_json::Value =
            answer.bytes().await.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        format!(
            "{:?}",
            value.pointer("/choices/0/message/content").and_then(|text| text.as_str()).unwrap_or("")
        )
    }
}

/// The counters of the simulated upstream that the story looks at.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
struct Upstream {
    ok: u64,
    errors: u64,
}

fn nats(value: Option<f64>) -> String {
    value.map_or_else(|| "not known".to_owned(), |value| format!("{value:.2} nats"))
}

#[cfg(test)]
mod tests;

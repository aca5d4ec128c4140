//! What the daemon says of itself, read over its own health API like any monitoring would.

use serde_json::Value;

/// Reads health and events of a running daemon.
#[derive(Debug)]
pub(super) struct Witness {
    client: reqwest::Client,
    admin: String,
    last_event: u64,
}

/// One event as the API gives it.
#[derive(Clone, Debug, serde::Deserialize)]
pub(super) struct Event {
    pub(super) id: u64,
    pub(super) kind: String,
    #[serde(default)]
    pub(super) target: Option<String>,
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) data: Value,
}

impl Event {
    /// The breaker state that a transition led to.
    pub(super) fn to(&self) -> &str {
        self.data.get("to").and_then(Value::as_str).unwrap_or_default()
    }
}

/// One target as `/v1/health` shows it.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub(super) struct Target {
    pub(super) name: String,
    #[serde(default)]
    pub(super) health: String,
    #[serde(default)]
    pub(super) breaker: String,
    #[serde(default)]
    pub(super) reasons: Vec<String>,
    #[serde(default)]
    pub(super) calibrated: bool,
    #[serde(default)]
    pub(super) signals: Value,
}

impl Target {
    /// A signal's latest value.
    pub(super) fn signal(&self, name: &str) -> Option<f64> {
        let value = self.signals.get(name)?;
        value.as_f64().or_else(|| value.get("value")?.as_f64())
    }
}

impl Witness {
    pub(super) fn new(client: reqwest::Client, admin: String) -> Self {
        Self { client, admin, last_event: 0 }
    }

    async fn read(&self, path: &str) -> Option<Value> {
        let answer = self.client.get(format!("{}{path}", self.admin)).send().await.ok()?;
        serde_json::from_slice(&answer.bytes().await.ok()?).ok()
    }

    /// The target of this name, if the daemon answers and has it.
    pub(super) async fn target(&self, name: &str) -> Option<Target> {
        let mut health = self.read("/v1/health").await?;
        let targets: Vec<Target> = serde_json::from_value(health.get_mut("targets")?.take()).ok()?;
        targets.into_iter().find(|target| target.name == name)
    }

    /// Share of traffic that the target is given now, 0..=1.
    pub(super) async fn share(&self, name: &str) -> Option<f64> {
        self.read(&format!("/v1/admit/{name}")).await?.get("share")?.as_f64()
    }

    /// Events that came since the last call, oldest first.
    pub(super) async fn news(&mut self) -> Vec<Event> {
        let path = format!("/v1/events?after_id={}&limit=500", self.last_event);
        let Some(mut page) = self.read(&path).await else { return Vec::new() };
        let events: Vec<Event> = page
            .get_mut("events")
            .and_then(|events| serde_json::from_value(events.take()).ok())
            .unwrap_or_default();
        self.last_event = events.iter().map(|event| event.id).max().unwrap_or(0).max(self.last_event);
        events
    }
}

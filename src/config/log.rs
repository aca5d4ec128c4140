//! `[log]`: what the daemon says about itself on stderr.

use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;

/// The variable that wins over the configured filter.
const VARIABLE: &str = "TOUCHSTONE_LOG";

/// The daemon's own steps; of the libraries only what goes wrong.
const DEFAULT_FILTER: &str = "warn,touchstone=info";

/// Form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params {
    filter: String,
    format: Format,
}

#[derive(Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    filter: String,
    format: Format,
}

/// Why the parameters are refused.
#[derive(Debug, thiserror::Error)]
pub enum ParamsError {
    /// Not a filter.
    #[error("filter: `{0}` is not a filter such as \"info\" or \"warn,touchstone=debug\"")]
    Filter(String),
}

impl Default for Params {
    fn default() -> Self {
        Self { filter: DEFAULT_FILTER.to_owned(), format: Format::Text }
    }
}

impl Default for RawParams {
    fn default() -> Self {
        Params::default().into()
    }
}

impl From<Params> for RawParams {
    fn from(p: Params) -> Self {
        Self { filter: p.filter, format: p.format }
    }
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        if raw.filter.parse::<tracing_subscriber::filter::Targets>().is_err() {
            return Err(ParamsError::Filter(raw.filter));
        }
        Ok(Self { filter: raw.filter, format: raw.format })
    }
}

impl Params {
    /// Only what goes wrong, for commands whose output is the point.
    #[must_use]
    pub fn quiet() -> Self {
        Self { filter: "warn".to_owned(), format: Format::Text }
    }

    /// Begins to write lines on standard error, once in a process; `TOUCHSTONE_LOG` wins over the filter.
    pub fn start(&self) {
        let wanted = std::env::var(VARIABLE).unwrap_or_else(|_| self.filter.clone());
        let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        let started = match self.format {
            Format::Text => lines.try_init(),
            Format::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
        };
        drop(started); // a second daemon in the process shares the first one's log
    }

    /// Which lines are written, in the words of tracing's filters.
    #[must_use]
    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// How a line looks.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }
}

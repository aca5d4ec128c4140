//! `[cost]`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Nano;

/// A long paragraph: what a caller that names no limit is expected to get.
const DEFAULT_MAX_TOKENS: u64 = 1_024;

/// `[cost]`. All limits are off by default, because no amount fits all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params(RawParams);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    per_request_usd: f64,
    per_hour_usd: f64,
    per_day_usd: f64,
    default_max_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    budget: Vec<Budget>,
}

impl Default for RawParams {
    fn default() -> Self {
        Self {
            per_request_usd: 0.0,
            per_hour_usd: 0.0,
            per_day_usd: 0.0,
            default_max_tokens: DEFAULT_MAX_TOKENS,
            budget: Vec::new(),
        }
    }
}

/// `[[cost.budget]]`: limits of one route, one proxy key, or a sub-budget of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Arc<str>>,
    /// The proxy key, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Arc<str>>,
    /// The sub-budget of the key, as `x-touchstone-budget` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// US dollars an hour; 0 is no limit.
    #[serde(default)]
    pub per_hour_usd: f64,
    /// US dollars a day; 0 is no limit.
    #[serde(default)]
    pub per_day_usd: f64,
}

/// Limits of one scope; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// In any hour.
    pub hour: Option<Nano>,
    /// In any day.
    pub day: Option<Nano>,
}

impl Limit {
    fn of(hour: f64, day: f64) -> Self {
        let limit = |usd: f64| (usd > 0.0).then(|| Nano::from_usd(usd));
        Self { hour: limit(hour), day: limit(day) }
    }

    /// Whether nothing is limited.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.hour.is_none() && self.day.is_none()
    }
}

/// Why `[cost]` cannot be used. The first word is the key at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Not an amount.
    #[error("{0}: must be an amount of at least 0 in US dollars, where 0 is no limit")]
    Amount(String),
    /// An estimate of nothing.
    #[error("default_max_tokens: must be at least 1")]
    DefaultMaxTokens,
    /// Neither or both.
    #[error("budget[{0}].route: a budget is either of a route or of a key")]
    Whose(usize),
    /// A name without its key.
    #[error("budget[{0}].name: a sub-budget belongs to a key; name it too")]
    NameWithoutKey(usize),
    /// Nothing is limited.
    #[error("budget[{0}].per_hour_usd: a budget needs per_hour_usd, per_day_usd or both")]
    NoLimit(usize),
    /// The same scope twice.
    #[error("budget[{0}].{1}: this budget stands there twice")]
    Twice(usize, &'static str),
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        let amount = |key: String, x: f64| {
            if x.is_finite() && (0.0..=1e9).contains(&x) { Ok(()) } else { Err(ParamsError::Amount(key)) }
        };
        amount("per_request_usd".into(), raw.per_request_usd)?;
        amount("per_hour_usd".into(), raw.per_hour_usd)?;
        amount("per_day_usd".into(), raw.per_day_usd)?;
        if raw.default_max_tokens == 0 {
            return Err(ParamsError::DefaultMaxTokens);
        }
        for (i, budget) in raw.budget.iter().enumerate() {
            amount(format!("budget[{i}].per_hour_usd"), budget.per_hour_usd)?;
            amount(format!("budget[{i}].per_day_usd"), budget.per_day_usd)?;
            if budget.route.is_some() == budget.key.is_some() {
                return Err(if budget.name.is_some() && budget.key.is_none() && budget.route.is_none() {
                    ParamsError::NameWithoutKey(i)
                } else {
                    ParamsError::Whose(i)
                });
            }
            if budget.name.is_some() && budget.key.is_none() {
                return Err(ParamsError::NameWithoutKey(i));
            }
            if budget.limit().is_none() {
                return Err(ParamsError::NoLimit(i));
            }
            if raw.budget[..i].iter().any(|b| b.scope() == budget.scope()) {
                return Err(ParamsError::Twice(i, if budget.route.is_some() { "route" } else { "key" }));
            }
        }
        Ok(Self(raw))
    }
}

impl From<Params> for RawParams {
    fn from(params: Params) -> Self {
        params.0
    }
}

impl Budget {
    /// Its limits.
    #[must_use]
    pub fn limit(&self) -> Limit {
        Limit::of(self.per_hour_usd, self.per_day_usd)
    }

    /// The name of its account.
    #[must_use]
    pub fn scope(&self) -> String {
        match (&self.route, &self.key, &self.name) {
            (Some(route), ..) => format!("route/{route}"),
            (None, Some(key), Some(name)) => format!("key/{key}/{name}"),
            (None, Some(key), None) => format!("key/{key}"),
            (None, None, _) => String::new(),
        }
    }
}

impl Params {
    /// Most that one attempt may be expected to cost.
    #[must_use]
    pub fn per_request(&self) -> Option<Nano> {
        (self.0.per_request_usd > 0.0).then(|| Nano::from_usd(self.0.per_request_usd))
    }

    /// Limits of everything together.
    #[must_use]
    pub fn global(&self) -> Limit {
        Limit::of(self.0.per_hour_usd, self.0.per_day_usd)
    }

    /// Limits of single routes and keys.
    #[must_use]
    pub fn budgets(&self) -> &[Budget] {
        &self.0.budget
    }

    /// Answer tokens that are reserved where the request names no limit.
    #[must_use]
    pub const fn default_max_tokens(&self) -> u64 {
        self.0.default_max_tokens
    }

    /// Whether anything is limited.
    #[must_use]
    pub fn limits_anything(&self) -> bool {
        self.per_request().is_some() || !self.global().is_none() || !self.0.budget.is_empty()
    }
}

//! `[[route]]`: which requests, and the tiers that may answer them.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

use super::pick::{Pick, Traits};
use crate::verdict::Mode;

/// The tier word for the cache of quality-passed answers.
const CACHE: &str = "cache";
/// The tier word for leaving the step out.
const OMIT: &str = "passthrough";

/// Whether a tier word is the base URL of any other service that answers in the same shape.
#[must_use]
pub fn is_url(word: &str) -> bool {
    word.starts_with("http://") || word.starts_with("https://")
}

/// One route as the configuration gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawRoute", into = "RawRoute")]
pub struct RouteParams(RawRoute);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    name: Arc<str>,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    models: Vec<String>,
    tiers: Vec<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    golden: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limits: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pick: Vec<Pick>,
}

/// Why a route cannot be used. The first word is the key at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No name.
    #[error("name: must be 1 to 64 letters, digits or any of . _ - / :")]
    Name,
    /// A path that no request has.
    #[error("paths[{0}]: must begin with /")]
    Path(usize),
    /// A pattern that matches nothing.
    #[error("models[{0}]: must not be empty")]
    Model(usize),
    /// Nothing can answer.
    #[error("tiers: at least one tier with a target is needed")]
    NoTier,
    /// Nothing in a tier.
    #[error("tiers[{0}]: must name a target or \"cache\"")]
    EmptyTier(usize),
    /// The cache in company, first or twice.
    #[error("tiers[{0}]: \"cache\" stands alone in a tier, once, and not in the first")]
    Cache(usize),
    /// The step left out in company, first or twice.
    #[error("tiers[{0}]: \"passthrough\" stands alone in a tier, once, and not in the first")]
    Omit(usize),
    /// A service's URL in company or first.
    #[error("tiers[{0}]: a URL stands alone in a tier, and not in the first; make it a [[target]] otherwise")]
    Url(usize),
    /// A rule for a tier that is not there, or that does not hold targets.
    #[error("pick[{0}].tier: there is no tier {1} with targets")]
    Pick(usize, usize),
    /// No such target.
    #[error("tiers[{0}]: there is no target named `{1}`")]
    UnknownTarget(usize, String),
    /// One target twice.
    #[error("tiers[{0}]: target `{1}` stands in this route twice")]
    Twice(usize, String),
}

impl TryFrom<RawRoute> for RouteParams {
    type Error = RouteError;

    fn try_from(raw: RawRoute) -> Result<Self, RouteError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-/:".contains(&b);
        if raw.name.is_empty() || raw.name.len() > 64 || !raw.name.bytes().all(allowed) {
            return Err(RouteError::Name);
        }
        if let Some(i) = raw.paths.iter().position(|p| !p.starts_with('/')) {
            return Err(RouteError::Path(i));
        }
        if let Some(i) = raw.models.iter().position(String::is_empty) {
            return Err(RouteError::Model(i));
        }
        check_tiers(&raw.tiers)?;
        for (i, pick) in raw.pick.iter().enumerate() {
            let special = |name: &String| name == CACHE || name == OMIT || is_url(name);
            if raw.tiers.get(pick.tier).is_none_or(|tier| tier.iter().any(special)) {
                return Err(RouteError::Pick(i, pick.tier));
            }
        }
        Ok(Self(raw))
    }
}

fn check_tiers(tiers: &[Vec<String>]) -> Result<(), RouteError> {
    let mut seen = std::collections::HashSet::new();
    for (i, tier) in tiers.iter().enumerate() {
        if tier.is_empty() {
            return Err(RouteError::EmptyTier(i));
        }
        for name in tier {
            let fresh = seen.insert(name.as_str());
            if name == OMIT && (i == 0 || tier.len() > 1 || !fresh) {
                return Err(RouteError::Omit(i));
            }
            if is_url(name) && (i == 0 || tier.len() > 1) {
                return Err(RouteError::Url(i));
            }
            if name == CACHE && (i == 0 || tier.len() > 1 || !fresh) {
                return Err(RouteError::Cache(i));
            }
            if !fresh {
                return Err(RouteError::Twice(i, name.clone()));
            }
        }
    }
    if tiers.is_empty() { Err(RouteError::NoTier) } else { Ok(()) }
}

impl From<RouteParams> for RawRoute {
    fn from(params: RouteParams) -> Self {
        params.0
    }
}

impl RouteParams {
    /// A route that takes every request and has these targets in one tier.
    ///
    /// # Errors
    /// If the name or the tier cannot be used.
    pub fn catch_all(name: &str, targets: Vec<String>) -> Result<Self, RouteError> {
        Self::try_from(RawRoute { name: name.into(), tiers: vec![targets], ..RawRoute::default() })
    }

    /// Unique name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Path patterns, as written.
    #[must_use]
    pub fn paths(&self) -> &[String] {
        &self.0.paths
    }

    /// Model names and patterns, as written.
    #[must_use]
    pub fn models(&self) -> &[String] {
        &self.0.models
    }

    /// Tiers, as written.
    #[must_use]
    pub fn tiers(&self) -> &[Vec<String>] {
        &self.0.tiers
    }

    /// Folder of the golden set.
    #[must_use]
    pub fn golden(&self) -> Option<&PathBuf> {
        self.0.golden.as_ref()
    }

    /// Its own mode.
    #[must_use]
    pub fn mode(&self) -> Option<Mode> {
        self.0.mode
    }

    /// `[[route.pick]]`.
    #[must_use]
    pub fn pick(&self) -> &[Pick] {
        &self.0.pick
    }

    /// Tier words that are base URLs of other services.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.0.tiers.iter().flatten().map(String::as_str).filter(|word| is_url(word))
    }

    /// `[route.limits]`, as written; the client reads it.
    #[must_use]
    pub fn limits(&self) -> Option<&serde_json::Value> {
        self.0.limits.as_ref()
    }
}

/// What a route needs to know of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Place in the list of all targets.
    pub index: usize,
    /// Largest context, tokens.
    pub max_context_tokens: Option<u64>,
}

/// A target's place in a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Target name.
    pub name: Arc<str>,
    /// Place in the list of all targets.
    pub index: usize,
    /// Largest context, tokens.
    pub max_context_tokens: Option<u64>,
}

/// One level of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Targets that are as good as each other; never empty.
    Targets(Vec<Member>),
    /// The last quality-passed answer to the same request.
    Cache,
    /// The step is left out: an answer is made that changes nothing.
    Omit,
}

/// A route whose targets are known to exist.
#[derive(Clone, Debug)]
pub struct Route {
    name: Arc<str>,
    paths: Vec<WildMatch>,
    models: Vec<WildMatch>,
    tiers: Vec<Tier>,
    pick: Vec<Pick>,
}

impl Route {
    /// The tier so many steps down: from the start to the last, then from the start up to the first.
    pub(super) fn tier_at(&self, start: usize, depth: usize) -> usize {
        let below = self.tiers.len() - start;
        if depth < below { start + depth } else { (start + below).saturating_sub(depth + 1) }
    }

    /// How many steps down `tier` is.
    pub(super) fn depth_of(&self, start: usize, tier: usize) -> usize {
        if tier >= start { tier - start } else { self.tiers.len() - 1 - tier }
    }

    /// The shortest context that any of its targets is known to have, tokens.
    #[must_use]
    pub fn least_context(&self) -> Option<u64> {
        let members = self.tiers.iter().filter_map(|tier| match tier {
            Tier::Targets(members) => Some(members),
            Tier::Cache | Tier::Omit => None,
        });
        members.flatten().filter_map(|member| member.max_context_tokens).min()
    }

    /// Looks every target up.
    ///
    /// # Errors
    /// If a tier names a target that `known` does not know.
    pub fn resolve(params: &RouteParams, known: impl Fn(&str) -> Option<Known>) -> Result<Self, RouteError> {
        let member = |i: usize, name: &String| {
            let known = known(name).ok_or_else(|| RouteError::UnknownTarget(i, name.clone()))?;
            Ok(Member {
                name: name.as_str().into(),
                index: known.index,
                max_context_tokens: known.max_context_tokens,
            })
        };
        let tier = |(i, names): (usize, &Vec<String>)| {
            if names.iter().any(|n| n == CACHE) {
                return Ok(Tier::Cache);
            }
            if names.iter().any(|n| n == OMIT) {
                return Ok(Tier::Omit);
            }
            names.iter().map(|name| member(i, name)).collect::<Result<_, _>>().map(Tier::Targets)
        };
        Ok(Self {
            name: Arc::clone(params.name()),
            paths: params.0.paths.iter().map(|p| WildMatch::new(p)).collect(),
            models: params.0.models.iter().map(|m| WildMatch::new(m)).collect(),
            tiers: params.0.tiers.iter().enumerate().map(tier).collect::<Result<_, _>>()?,
            pick: params.0.pick.clone(),
        })
    }

    /// Unique name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Best first.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// The first target of the first tier, whose breaker the caller is told about.
    #[must_use]
    pub fn first_target(&self) -> Option<&Member> {
        self.tiers.iter().find_map(|tier| match tier {
            Tier::Targets(members) => members.first(),
            Tier::Cache | Tier::Omit => None,
        })
    }

    /// The tier at which a request starts.
    #[must_use]
    pub fn start<'h>(&self, traits: &Traits<'_>, header: impl Fn(&str) -> Option<&'h str>) -> usize {
        self.pick.iter().find(|pick| pick.fits(traits, &header)).map_or(0, |pick| pick.tier)
    }

    /// Whether any rule says where a request starts.
    #[must_use]
    pub fn has_picks(&self) -> bool {
        !self.pick.is_empty()
    }

    /// Whether any tier is the cache.
    #[must_use]
    pub fn has_cache(&self) -> bool {
        self.tiers.contains(&Tier::Cache)
    }

    /// Whether it takes every path and model.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.paths.is_empty() && self.models.is_empty()
    }

    fn takes_path(&self, path: &str) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|p| p.matches(path))
    }

    fn takes_model(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|m| m.matches(model))
    }
}

/// The place of the first route that takes this path and model. Where the request names no model, the
/// first route that asks for none, or the only one that takes the path.
#[must_use]
pub fn route_for(routes: &[Route], path: &str, model: Option<&str>) -> Option<usize> {
    let mut by_path = routes.iter().enumerate().filter(|(_, r)| r.takes_path(path));
    match model {
        Some(model) => by_path.find(|(_, r)| r.takes_model(model)).map(|(i, _)| i),
        None => {
            let candidates: Vec<_> = by_path.collect();
            let open = candidates.iter().find(|(_, r)| r.models.is_empty());
            open.or(if candidates.len() == 1 { candidates.first() } else { None }).map(|(i, _)| *i)
        }
    }
}

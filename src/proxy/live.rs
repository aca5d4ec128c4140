//! What the configuration comes to: targets, routes and parameters, swapped as one.
//!
//! A request takes the [`Live`] it finds at its arrival and keeps it to its end, so that a reload never
//! changes the rules under a request. Targets whose configuration did not change keep their client and
//! with it their warm connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use http::HeaderValue;
use serde::Deserialize as _;

use super::flow::{self, Flow, FlowView};
use super::keys::{KeyError, Keys};
use super::params::{HoldParams, ProxyParams};
use crate::gate::{Gate, Models};
use crate::judge::Dimensions;
use crate::plan::{FallbackParams, Known, Route, RouteError, RouteParams, Share, is_url};
use crate::spend::Scopes;
use crate::upstream::{BuildError, Limits, LimitsPatch, TargetError, TargetParams, Upstream};
use crate::verdict::{Mode, Reason};
use crate::{cache, chaos, permits, retry, spend};

/// Everything that the configuration says about the proxy.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Mode of routes that name none.
    pub mode: Mode,
    /// `[[target]]`.
    pub targets: Vec<TargetParams>,
    /// `[[route]]`; the order decides.
    pub routes: Vec<RouteParams>,
    /// `[limits]`.
    pub limits: Limits,
    /// `[proxy]`.
    pub proxy: ProxyParams,
    /// `[hold]`.
    pub hold: HoldParams,
    /// `[retry]`.
    pub retry: retry::Params,
    /// `[cache]`.
    pub cache: cache::Params,
    /// `[queue]`.
    pub queue: permits::Params,
    /// `[fallback]`.
    pub fallback: FallbackParams,
    /// `[cost]`.
    pub cost: spend::Params,
    /// `[chaos]`; off unless it was allowed.
    pub chaos: chaos::Params,
}

/// Why a set-up cannot serve; the path of the key at fault comes first.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// Nothing to send requests to.
    #[error("target: at least one is needed")]
    NoTarget,
    /// Nothing takes requests.
    #[error("route: at least one is needed")]
    NoRoute,
    /// A name given twice.
    #[error("{0}[{1}].name: `{2}` is taken")]
    Twice(&'static str, usize, Arc<str>),
    /// A target that cannot be set up.
    #[error("target[{0}].{1}")]
    Target(usize, #[source] BuildError),
    /// A route that cannot be used.
    #[error("route[{0}].{1}")]
    Route(usize, #[source] RouteError),
    /// A tier that is a URL and cannot be used.
    #[error("route[{0}].tiers: {1}")]
    Tier(usize, #[source] TargetError),
    /// A caller's key that cannot be had.
    #[error("proxy.key[{0}].{1}")]
    Key(usize, #[source] KeyError),
    /// Limits of a route that cannot be used.
    #[error("route[{0}].limits: {1}")]
    RouteLimits(usize, #[source] serde_json::Error),
    /// The hold would end before the limit could act.
    #[error("hold.max_ms: {0} ms is shorter than limits.first_text of {1} ms, which could then never act")]
    Hold(u64, u64),
}

/// A target with what each answer of it repeats.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) upstream: Arc<Upstream>,
    pub(super) name: Arc<str>,
    pub(super) header: HeaderValue,
    /// The models seen there, where it names none itself.
    pub(super) models: Option<Arc<Models>>,
    /// What its embeddings are long.
    pub(super) dimensions: Arc<Mutex<Dimensions>>,
    pub(super) flow: Arc<Flow>,
}

impl Target {
    /// The name under which its state is published, for a request of this model.
    pub(super) fn state_of(&self, model: Option<&str>) -> Arc<str> {
        match &self.models {
            Some(models) => models.state_of(model),
            None => Arc::clone(&self.name),
        }
    }
}

/// What a route has beside its plan.
#[derive(Debug)]
pub(super) struct Extra {
    pub(super) mode: Mode,
    pub(super) limits: LimitsPatch,
    pub(super) forwards_auth: bool,
    pub(super) first_target: Arc<str>,
    /// Who fell back where, if a fallback's share is limited.
    pub(super) share: Option<Mutex<Share>>,
    /// The accounts of requests without a key.
    pub(super) scopes: OnceLock<Scopes>,
    turn: AtomicUsize,
}

impl Extra {
    pub(super) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

/// The configuration, ready to serve.
#[derive(Debug)]
pub struct Live {
    pub(super) gate: Gate,
    pub(super) targets: Vec<Target>,
    pub(super) routes: Vec<Route>,
    pub(super) extras: Vec<Extra>,
    pub(super) names: Vec<String>,
    pub(super) limits: Limits,
    pub(super) proxy: ProxyParams,
    pub(super) hold: HoldParams,
    pub(super) retry: retry::Params,
    pub(super) cache: cache::Params,
    pub(super) fallback: FallbackParams,
    pub(super) cost: spend::Params,
    pub(super) keys: Keys,
    chaos: chaos::Params,
    /// Whether anything costs money or is limited by it.
    pub(super) counts_money: bool,
    pub(super) max_request_bytes: usize,
}

impl Live {
    /// Builds clients and resolves names. `before` is the configuration in force, whose unchanged targets
    /// are taken over.
    ///
    /// # Errors
    /// If anything cannot be used; the message begins with the path of the key.
    pub fn new(setup: &Setup, gate: Gate, before: Option<&Self>) -> Result<Self, SetupError> {
        let all = with_tier_urls(setup)?;
        let flows_before: Vec<Arc<Flow>> =
            before.map(|b| b.targets.iter().map(|t| Arc::clone(&t.flow)).collect()).unwrap_or_default();
        let flows = flow::flows(&all, &setup.queue, &setup.retry, &flows_before);
        let mut targets = Vec::with_capacity(all.len());
        let mut index = HashMap::new();
        for (i, (params, flow)) in all.iter().zip(flows).enumerate() {
            let name = Arc::clone(params.name());
            if index.insert(Arc::clone(&name), i).is_some() {
                return Err(SetupError::Twice("target", i, name));
            }
            let upstream = match before.and_then(|b| b.same(params, setup)) {
                Some(kept) => kept,
                None => {
                    let upstream = Upstream::new(params, &setup.limits);
                    let upstream = upstream.map_err(|e| SetupError::Target(i, e))?;
                    Arc::new(upstream.with_chaos(&setup.chaos))
                }
            };
            let known = before.and_then(|b| b.targets.iter().find(|t| t.upstream.params() == params));
            let dimensions = known.map(|t| Arc::clone(&t.dimensions)).unwrap_or_default();
            // a target's name is checked to be fit for a header
            let header = HeaderValue::from_str(&name).unwrap_or_else(|_| HeaderValue::from_static("?"));
            let models = gate.models(&name).filter(|_| upstream.model().is_none()).cloned();
            targets.push(Target { upstream, name, header, models, dimensions, flow });
        }
        if targets.is_empty() {
            return Err(SetupError::NoTarget);
        }
        let known = |name: &str| {
            let behind = is_url(name).then(|| TargetParams::of_tier(name).ok()).flatten();
            let at = *index.get(behind.as_ref().map_or(name, |target| &**target.name()))?;
            Some(Known { index: at, max_context_tokens: all[at].max_context_tokens() })
        };
        let mut routes: Vec<Route> = Vec::with_capacity(setup.routes.len());
        let mut extras = Vec::with_capacity(setup.routes.len());
        for (i, params) in setup.routes.iter().enumerate() {
            if routes.iter().any(|r| r.name() == params.name()) {
                return Err(SetupError::Twice("route", i, Arc::clone(params.name())));
            }
            let route = Route::resolve(params, known).map_err(|e| SetupError::Route(i, e))?;
            extras.push(extra(i, params, &route, setup)?);
            routes.push(route);
        }
        if routes.is_empty() {
            return Err(SetupError::NoRoute);
        }
        let keys = Keys::read(setup.proxy.keys()).map_err(|(i, fault)| SetupError::Key(i, fault))?;
        let max_request_bytes = extras
            .iter()
            .map(|e| setup.limits.with(&e.limits).max_request_bytes())
            .fold(setup.limits.max_request_bytes(), usize::max);
        Ok(Self {
            gate,
            names: model_names(setup),
            targets,
            routes,
            extras,
            limits: setup.limits,
            proxy: setup.proxy.clone(),
            hold: setup.hold.clone(),
            retry: setup.retry,
            cache: setup.cache,
            fallback: setup.fallback,
            counts_money: setup.cost.limits_anything() || all.iter().any(|t| t.price().is_some()),
            cost: setup.cost.clone(),
            keys,
            chaos: setup.chaos.clone(),
            max_request_bytes,
        })
    }

    /// The client of a target, for the daemon's own probes.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Option<&Arc<Upstream>> {
        self.targets.iter().find(|t| &*t.name == name).map(|t| &t.upstream)
    }

    /// Every target's client.
    pub fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.targets.iter().map(|t| &t.upstream)
    }

    /// Routes, in the order that decides, with their mode.
    pub fn routes(&self) -> impl Iterator<Item = (&Route, Mode)> {
        self.routes.iter().zip(&self.extras).map(|(route, extra)| (route, extra.mode))
    }

    /// Every target's flow in numbers.
    #[must_use]
    pub fn flows(&self, now: crate::clock::Timestamp) -> Vec<FlowView> {
        self.targets.iter().map(|t| t.flow.view(&self.retry, now)).collect()
    }

    /// Where the published states stand.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    fn same(&self, params: &TargetParams, setup: &Setup) -> Option<Arc<Upstream>> {
        // A key may have been renewed in its variable or file, so such a target is set up anew.
        let keyed = params.api_key_env().is_some() || params.api_key_file().is_some();
        let before = self.targets.iter().find(|t| t.upstream.params() == params)?;
        (!keyed && self.limits == setup.limits && self.chaos == setup.chaos)
            .then(|| Arc::clone(&before.upstream))
    }
}

fn extra(i: usize, params: &RouteParams, route: &Route, setup: &Setup) -> Result<Extra, SetupError> {
    let limits = match params.limits() {
        Some(written) => LimitsPatch::deserialize(written).map_err(|e| SetupError::RouteLimits(i, e))?,
        None => LimitsPatch::default(),
    };
    let mode = params.mode().unwrap_or(setup.mode);
    if mode == Mode::Enforce {
        let first_text = setup.limits.with(&limits).first_text().as_millis() as u64;
        if setup.hold.max_ms() < first_text {
            return Err(SetupError::Hold(setup.hold.max_ms(), first_text));
        }
    }
    let used = |t: &&TargetParams| params.tiers().iter().flatten().any(|name| **name == **t.name());
    Ok(Extra {
        mode,
        limits,
        forwards_auth: setup.targets.iter().filter(used).any(TargetParams::forward_auth),
        first_target: route.first_target().map_or_else(|| "".into(), |m| Arc::clone(&m.name)),
        share: setup.fallback.max_share().map(|_| Mutex::new(Share::new(setup.fallback.window_ms()))),
        scopes: OnceLock::new(),
        turn: AtomicUsize::new(0),
    })
}

/// The targets, and those behind tiers that are URLs.
fn with_tier_urls(setup: &Setup) -> Result<Vec<TargetParams>, SetupError> {
    let mut all = setup.targets.clone();
    for (i, route) in setup.routes.iter().enumerate() {
        for url in route.urls() {
            let target = TargetParams::of_tier(url).map_err(|fault| SetupError::Tier(i, fault))?;
            if !all.iter().any(|t| t.name() == target.name()) {
                all.push(target);
            }
        }
    }
    Ok(all)
}

/// What `GET /v1/models` lists: the names that routes take literally, and for a route of patterns alone
/// the model of its first target. Empty where the upstream knows better.
fn model_names(setup: &Setup) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for route in &setup.routes {
        let literal: Vec<_> = route.models().iter().filter(|m| !m.contains(['*', '?'])).cloned().collect();
        let first = route.tiers().first().and_then(|tier| tier.first());
        let fallback = || {
            let target = setup.targets.iter().find(|t| Some(&**t.name()) == first.map(String::as_str))?;
            target.model().map(|m| m.to_string())
        };
        let listed = if literal.is_empty() { fallback().into_iter().collect() } else { literal };
        for name in listed {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// `x-touchstone-degraded` of a reason.
pub(super) fn degraded_text(reason: Reason, flag: Option<crate::verdict::Flag>) -> String {
    match flag {
        Some(flag) => format!("{reason}:{flag}"),
        None => reason.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(targets: &[&str], routes: &[&str]) -> Setup {
        let target = |text: &&str| toml::from_str(text).expect("a target");
        Setup {
            mode: Mode::Shadow,
            targets: targets.iter().map(target).collect(),
            routes: routes.iter().map(|text| toml::from_str(text).expect("a route")).collect(),
            limits: Limits::default(),
            proxy: ProxyParams::default(),
            hold: HoldParams::default(),
            retry: retry::Params::default(),
            cache: cache::Params::default(),
            queue: permits::Params::default(),
            fallback: FallbackParams::default(),
            cost: spend::Params::default(),
            chaos: chaos::Params::default(),
        }
    }

    fn gate() -> Gate {
        Gate::new([])
    }

    const A: &str = "name = \"a\"\nurl = \"http://127.0.0.1:1\"\nmodel = \"llama\"";

    #[test]
    fn faults_begin_with_the_path_of_their_key() {
        let fault = |s: &Setup| Live::new(s, gate(), None).expect_err("refused").to_string();
        assert!(fault(&setup(&[A, A], &[])).starts_with("target[1].name:"));
        assert!(fault(&setup(&[A], &[])).starts_with("route:"));
        let unknown = fault(&setup(&[A], &["name=\"r\"\ntiers=[[\"a\"],[\"b\"]]"]));
        assert!(unknown.starts_with("route[0].tiers[1]:"), "{unknown}");
        let key = "name=\"b\"\nurl=\"http://h\"\napi_key_env=\"TOUCHSTONE_TEST_NO_SUCH\"";
        assert!(fault(&setup(&[A, key], &[])).starts_with("target[1].api_key_env:"));
        let limits = "name=\"r\"\ntiers=[[\"a\"]]\nmode=\"enforce\"\nlimits={first_text=\"1m\"}";
        assert!(fault(&setup(&[A], &[limits])).starts_with("hold.max_ms:"));
    }

    #[test]
    fn models_are_listed_by_the_names_that_callers_may_use() {
        let routes = [
            "name=\"r\"\nmodels=[\"assistant\",\"gpt-4*\"]\ntiers=[[\"a\"]]",
            "name=\"s\"\nmodels=[\"*\"]\ntiers=[[\"a\"]]",
        ];
        let live = Live::new(&setup(&[A], &routes), gate(), None).expect("serves");
        assert_eq!(live.names, ["assistant", "llama"]);
    }

    #[test]
    fn an_unchanged_target_keeps_its_client() {
        let one = setup(&[A], &["name=\"r\"\ntiers=[[\"a\"]]"]);
        let before = Live::new(&one, gate(), None).expect("serves");
        let after = Live::new(&one, gate(), Some(&before)).expect("serves");
        assert!(Arc::ptr_eq(&before.targets[0].upstream, &after.targets[0].upstream));
        let moved = setup(&["name = \"a\"\nurl = \"http://127.0.0.1:2\""], &["name=\"r\"\ntiers=[[\"a\"]]"]);
        let after = Live::new(&moved, gate(), Some(&before)).expect("serves");
        assert!(!Arc::ptr_eq(&before.targets[0].upstream, &after.targets[0].upstream));
    }
}

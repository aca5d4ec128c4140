//! Budgets, tiers and limits: names that lead nowhere, and policies that can never fire.

use super::{Config, Fault};
use crate::detect::rule;
use crate::plan::{Pick, RouteParams};
use crate::proxy::Until;
use crate::upstream::TargetParams;
use crate::verdict::Mode;
use crate::wire;

/// Paths on which a step can be left out.
const OMITTABLE: [&str; 3] = ["/v1/rerank", "/v1/embeddings", "/api/embed"];

/// Faults that refuse the configuration.
pub(super) fn faults(config: &Config, targets: &[&str], found: &mut Vec<Fault>) {
    pools(config, found);
    let keys: Vec<&str> = config.sections.proxy.keys().iter().map(|k| &**k.name()).collect();
    for (i, budget) in config.sections.cost.budgets().iter().enumerate() {
        if let Some(route) =
            budget.route.as_deref().filter(|r| !config.routes.iter().any(|known| &**known.name() == *r))
        {
            found.push(Fault::new(
                format!("cost.budget[{i}].route"),
                format!("there is no route named `{route}`"),
            ));
        }
        if let Some(key) = budget.key.as_deref().filter(|k| !keys.contains(k)) {
            found.push(Fault::new(
                format!("cost.budget[{i}].key"),
                format!("there is no proxy key named `{key}`"),
            ));
        }
    }
    for target in config.sections.chaos.targets().filter(|t| !targets.contains(t)) {
        found.push(Fault::new(
            format!("chaos.faults.{target}"),
            format!("there is no target named `{target}`"),
        ));
    }
}

/// A pool has one limit.
fn pools(config: &Config, found: &mut Vec<Fault>) {
    for (i, target) in config.targets.iter().enumerate() {
        let Some(pool) = target.pool() else { continue };
        let before = config.targets[..i].iter().filter(|t| t.pool() == Some(pool));
        let other =
            before.filter_map(|t| t.permits()).find(|n| target.permits().is_some_and(|own| own != *n));
        if let (Some(other), Some(own)) = (other, target.permits()) {
            let message =
                format!("pool `{pool}` has {other} permits already, and {own} here; one GPU has one limit");
            found.push(Fault::new(format!("target[{i}].pool"), message));
        }
    }
}

/// What will hardly be meant.
pub(super) fn warnings(config: &Config, found: &mut Vec<Fault>) {
    let mut warn = |path: String, message: String| found.push(Fault::new(path, message));
    permits(config, &mut warn);
    money(config, &mut warn);
    for (i, rule) in config.rules.iter().enumerate() {
        deaf_rule(config, i, rule, &mut warn);
    }
    for (i, route) in config.routes.iter().enumerate() {
        tiers(config, i, route, &mut warn);
        fallbacks(config, i, route, &mut warn);
        picks(i, route.pick(), &mut warn);
    }
    let sections = &config.sections;
    if sections.retry.never_retries() {
        warn(
            "retry".to_owned(),
            "no further try is ever made on a tier: tokens, bucket or target budget are empty".to_owned(),
        );
    }
    let falls_back = config.routes.iter().any(|r| r.tiers().len() > 1);
    if sections.fallback.max_share().is_some() && !falls_back {
        warn("fallback.max_share".to_owned(), "can never act: no route has a second tier".to_owned());
    }
    let enforces = config.routes.iter().any(|r| r.mode().unwrap_or(config.mode) == Mode::Enforce);
    if (sections.hold.until() != Until::FirstContent || sections.hold.breaks_late()) && !enforces {
        warn(
            "hold".to_owned(),
            "can never act: nothing is held in shadow mode, and no route is in enforce mode".to_owned(),
        );
    }
    if !sections.chaos.is_off() {
        warn(
            "chaos.faults".to_owned(),
            "faults are put in front of targets only with `serve --allow-chaos`".to_owned(),
        );
    }
    for (i, target) in config.targets.iter().enumerate() {
        if let Some(why) = config.breaker_of(i).can_never_degrade() {
            warn(
                format!("target[{i}].breaker"),
                format!("`{}` can never be degraded in capacity: {why}", target.name()),
            );
        }
    }
}

fn permits(config: &Config, warn: &mut impl FnMut(String, String)) {
    for (i, target) in config.targets.iter().enumerate() {
        if target.vram_too_small() {
            let message =
                "its memory less the margin does not hold one call; one is admitted all the same".to_owned();
            warn(format!("target[{i}].vram"), message);
        }
        let limited = |t: &&TargetParams| t.pool() == target.pool() && t.permits().is_some();
        if let Some(pool) = target.pool()
            && !config.targets.iter().any(|t| limited(&t))
        {
            let message =
                format!("pool `{pool}` can never refuse: none of its targets has max_concurrency or vram");
            warn(format!("target[{i}].pool"), message);
        }
        if target.tokens_per_permit().is_some() && target.permits().is_none() && target.pool().is_none() {
            let message = "can never act: the target has neither max_concurrency nor vram".to_owned();
            warn(format!("target[{i}].tokens_per_permit"), message);
        }
    }
}

fn money(config: &Config, warn: &mut impl FnMut(String, String)) {
    if config.sections.cost.limits_anything() && !config.targets.iter().any(|t| t.price().is_some()) {
        warn("cost".to_owned(), "no limit can ever be reached: no target has a price".to_owned());
    }
}

fn tiers(config: &Config, i: usize, route: &RouteParams, warn: &mut impl FnMut(String, String)) {
    let has = |word: &str| route.tiers().iter().flatten().any(|name| name == word);
    if has("cache") && config.sections.cache.keeps_nothing() {
        warn(
            format!("route[{i}].tiers"),
            "the cache can never answer: cache.entries or its bytes are 0".to_owned(),
        );
    }
    let omits = |path: &String| OMITTABLE.iter().any(|p| wildmatch::WildMatch::new(path).matches(p));
    if has("passthrough") && !route.paths().is_empty() && !route.paths().iter().any(omits) {
        let message =
            "the step can never be left out: none of the route's paths is a rerank or embeddings path"
                .to_owned();
        warn(format!("route[{i}].tiers"), message);
    }
}

/// A rule on a signal that no answer of its targets' routes can show. Patterns and routes of all paths may show any.
fn deaf_rule(config: &Config, i: usize, rule: &rule::Params, warn: &mut impl FnMut(String, String)) {
    let signal = rule.signal();
    let hears = |route: &RouteParams| {
        let wires = || route.paths().iter().map(|path| wire::of_path(path));
        route.paths().is_empty() || wires().any(|wire| wire.is_none_or(|wire| signal.is_on(wire)))
    };
    let concerned = |route: &&RouteParams| route.tiers().iter().flatten().any(|name| rule.applies_to(name));
    let mut routes = config.routes.iter().filter(concerned).peekable();
    if routes.peek().is_some() && !routes.any(hears) {
        let message = format!(
            "`{}` can never fire: no answer on the paths of its targets' routes shows {}",
            rule.name(),
            signal.as_str()
        );
        warn(format!("rule[{i}].signal"), message);
    }
}

/// A lower tier that cannot take what the tier above it could.
fn fallbacks(config: &Config, i: usize, route: &RouteParams, warn: &mut impl FnMut(String, String)) {
    let targets = |tier: &[String]| -> Vec<_> {
        tier.iter().filter_map(|name| config.targets.iter().find(|t| **t.name() == **name)).collect()
    };
    for (j, pair) in route.tiers().windows(2).enumerate() {
        let (upper, lower) = (targets(&pair[0]), targets(&pair[1]));
        if upper.is_empty() || lower.is_empty() {
            continue;
        }
        let context = |all: &[&TargetParams]| all.iter().map(|t| t.max_context_tokens()).max().flatten();
        let all_known = lower.iter().all(|t| t.max_context_tokens().is_some());
        if let (Some(above), Some(below), true) = (context(&upper), context(&lower), all_known)
            && below < above
        {
            let message = format!(
                "requests of {below} to {above} tokens have no fallback here: its context is shorter than that of the \
                 tier above"
            );
            warn(format!("route[{i}].tiers[{}]", j + 1), message);
        }
        let pool = |t: &&TargetParams| t.pool().cloned();
        let shared = upper.first().and_then(pool).filter(|name| {
            upper.iter().chain(&lower).all(|t| t.pool() == Some(name))
                && upper.iter().chain(&lower).any(|t| t.permits().is_some())
        });
        if let Some(name) = shared {
            let message = format!(
                "it has no capacity of its own: it shares pool `{name}` with the tier above, so it can never take \
                 what that tier is too full for"
            );
            warn(format!("route[{i}].tiers[{}]", j + 1), message);
        }
    }
}

fn picks(i: usize, picks: &[Pick], warn: &mut impl FnMut(String, String)) {
    for (j, pick) in picks.iter().enumerate() {
        if let Some(why) = pick.can_never_fire() {
            warn(format!("route[{i}].pick[{j}]"), format!("can never fire: {why}"));
        }
        if picks[..j].iter().any(Pick::takes_all) {
            warn(
                format!("route[{i}].pick[{j}]"),
                "is never asked: a rule before it takes every request".to_owned(),
            );
        }
    }
}

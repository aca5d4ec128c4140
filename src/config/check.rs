//! What takes two sections, the disk or the environment to know.

use std::collections::HashSet;

use super::{Config, Fault, names, policy};
use crate::plan::{Known, Route, is_url};
use crate::upstream::TargetParams;

/// Faults that refuse the configuration.
pub(super) fn faults(config: &Config) -> Vec<Fault> {
    let mut found = Vec::new();
    if config.targets.is_empty() {
        found.push(Fault::new("target", "at least one [[target]] with a name and a url is needed"));
    }
    let targets = names(&config.targets, |t| t.name());
    twice("target", &targets, &mut found);
    twice("route", &names(&config.routes, |r| r.name()), &mut found);
    for (i, route) in config.routes.iter().enumerate() {
        let known = |name: &str| {
            if is_url(name) {
                return Some(Known { index: usize::MAX, max_context_tokens: None });
            }
            let index = targets.iter().position(|t| *t == name)?;
            Some(Known { index, max_context_tokens: None })
        };
        if let Err(error) = Route::resolve(route, known) {
            found.push(Fault::within(&format!("route[{i}]"), &error.to_string()));
        }
        for url in route.urls() {
            if let Err(error) = TargetParams::of_tier(url) {
                found.push(Fault::new(format!("route[{i}].tiers"), error.to_string()));
            }
        }
        if let Err(error) = config.golden_of_route(route) {
            found.push(Fault::new(format!("route[{i}].golden"), error.to_string()));
        }
    }
    for (i, target) in config.targets.iter().enumerate() {
        if target.golden().is_some()
            && let Err(error) = config.golden(target.golden())
        {
            found.push(Fault::new(format!("target[{i}].golden"), error.to_string()));
        }
    }
    listeners(config, &mut found);
    rules(config, &targets, &mut found);
    holding(config, &mut found);
    policy::faults(config, &targets, &mut found);
    found
}

fn listeners(config: &Config, found: &mut Vec<Fault>) {
    let (proxy, admin) = (config.sections.proxy.listen(), &config.sections.admin);
    let same = |other: std::net::SocketAddr| other == proxy && other.port() != 0;
    if same(admin.listen()) {
        found.push(Fault::new("admin.listen", format!("{proxy} is the proxy's address")));
    }
    if admin.metrics_listen().is_some_and(same) {
        found.push(Fault::new("admin.metrics_listen", format!("{proxy} is the proxy's address")));
    }
}

fn rules(config: &Config, targets: &[&str], found: &mut Vec<Fault>) {
    for (i, rule) in config.rules.iter().enumerate() {
        for (j, name) in rule.targets().iter().enumerate() {
            if !targets.contains(&name.as_str()) {
                let message = format!("there is no target named `{name}`");
                found.push(Fault::new(format!("rule[{i}].targets[{j}]"), message));
            }
        }
    }
}

/// An opening let go before its first text is due could not be rescued any more.
fn holding(config: &Config, found: &mut Vec<Fault>) {
    let max_ms = config.sections.hold.max_ms();
    let mut limits = vec![config.sections.limits];
    limits.extend(config.targets.iter().map(|t| config.sections.limits.with(t.limits())));
    limits.extend((0..config.routes.len()).map(|i| config.sections.limits.with(&config.limits_of_route(i))));
    let longest = limits.iter().map(|l| l.first_text()).max().unwrap_or_default();
    if u128::from(max_ms) < longest.as_millis() {
        let message =
            format!("{max_ms} is less than the longest `limits.first_text` of {} ms", longest.as_millis());
        found.push(Fault::new("hold.max_ms", message));
    }
}

fn twice(key: &str, names: &[&str], found: &mut Vec<Fault>) {
    let mut seen = HashSet::new();
    for (i, name) in names.iter().enumerate() {
        if !seen.insert(name) {
            found.push(Fault::new(format!("{key}[{i}].name"), format!("`{name}` is used twice")));
        }
    }
}

/// What will hardly be meant.
pub(super) fn warnings(config: &Config) -> Vec<Fault> {
    let mut found = Vec::new();
    unasked_targets(config, &mut found);
    unset_secrets(config, &mut found);
    unreachable_arms(config, &mut found);
    blind_targets(config, &mut found);
    idle_rules(config, &mut found);
    hidden_routes(config, &mut found);
    policy::warnings(config, &mut found);
    found
}

fn blind_targets(config: &Config, found: &mut Vec<Fault>) {
    for (i, target) in config.targets.iter().enumerate() {
        if config.quality_of(i).is_blind() {
            let message = format!(
                "canaries and bursts of `{}` are off, so the golden arms can never fire; what is left are \
                 hard faults and rules on live answers",
                target.name()
            );
            found.push(Fault::new(format!("target[{i}].quality"), message));
        }
    }
}

fn idle_rules(config: &Config, found: &mut Vec<Fault>) {
    for (i, rule) in config.rules.iter().enumerate() {
        if let Some(why) = rule.can_never_fire() {
            found.push(Fault::new(format!("rule[{i}]"), format!("`{}` can never fire: {why}", rule.name())));
        }
    }
}

/// The first route that fits takes the request, so one behind a catch-all is never asked.
fn hidden_routes(config: &Config, found: &mut Vec<Fault>) {
    for (i, route) in config.routes.iter().enumerate() {
        let before = config.routes[..i].iter().find(|r| r.paths().is_empty() && r.models().is_empty());
        if let Some(before) = before {
            let message = format!(
                "`{}` is never reached: `{}` before it takes everything",
                route.name(),
                before.name()
            );
            found.push(Fault::new(format!("route[{i}]"), message));
        }
    }
}

fn unasked_targets(config: &Config, found: &mut Vec<Fault>) {
    for (i, target) in config.targets.iter().enumerate() {
        let asked =
            config.routes.iter().flat_map(|r| r.tiers()).flatten().any(|name| **name == **target.name());
        if !asked {
            let message = format!("`{}` stands in no route, so nothing is ever sent to it", target.name());
            found.push(Fault::new(format!("target[{i}]"), message));
        }
    }
}

fn unset_secrets(config: &Config, found: &mut Vec<Fault>) {
    for (i, target) in config.targets.iter().enumerate() {
        if let Some(name) = target.api_key_env().filter(|name| std::env::var_os(name).is_none()) {
            let message = format!("the environment has no {name}; the upstream will be asked without a key");
            found.push(Fault::new(format!("target[{i}].api_key_env"), message));
        }
        if let Some(file) = target.api_key_file().filter(|file| !config.resolve(file).is_file()) {
            let message = format!("there is no file {}", file.display());
            found.push(Fault::new(format!("target[{i}].api_key_file"), message));
        }
    }
    if let Some(name) = config.sections.admin.token_env().filter(|name| std::env::var_os(name).is_none()) {
        found.push(Fault::new("admin.token_env", format!("the environment has no {name}")));
    }
}

/// A slow call is cut at `limits.total` before it could be seen to be slow.
fn unreachable_arms(config: &Config, found: &mut Vec<Fault>) {
    for (i, target) in config.targets.iter().enumerate() {
        let limits = config.sections.limits.with(target.limits());
        let slow_ms = config.breaker_of(i).slow_limit_ms();
        let total_ms = u64::try_from(limits.total().as_millis()).unwrap_or(u64::MAX);
        if slow_ms >= total_ms {
            let message = format!(
                "`slow.limit` of {slow_ms} ms can never be reached, since `limits.total` ends every call of \
                 `{}` after {total_ms} ms",
                target.name()
            );
            found.push(Fault::new(format!("target[{i}].breaker"), message));
        }
    }
}

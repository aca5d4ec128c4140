//! Every module's parameters side by side: strict TOML, errors with the field's path.
//!
//! Each section is read on its own, so that one look at the file tells all of its faults. What a
//! section alone can know, its module checks; what takes two sections to know stands in `check`.
//! Every key has a default that works; a file that names one target is complete.

mod check;
mod fault;
pub mod log;
mod policy;
mod quality;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::{Table, Value};

use crate::breaker::Preset;
use crate::detect::rule;
use crate::golden::{GoldenError, GoldenSet, STARTER};
use crate::plan::RouteParams;
use crate::proxy::{self, HoldParams, ProxyParams};
use crate::upstream::{Inject, Limits, LimitsPatch, TargetParams};
use crate::verdict::Mode;
pub use fault::{ConfigError, Fault};
pub use quality::{Calibration, CalibrationError, Quality};

/// Name of the route that is made where none is configured.
const CATCH_ALL: &str = "default";

/// The commented reference configuration; a test holds it against the defaults.
const REFERENCE: &str = include_str!("config/reference.toml");

/// Keys of the file that are no section of [`Sections`].
const OTHER_KEYS: [&str; 7] = ["mode", "inject", "data_dir", "target", "route", "rule", "quality"];

macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)+) => {
        /// The sections that one module owns each.
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct Sections {
            $($(#[$doc])* pub $name: $type,)+
        }

        const SECTION_KEYS: &[&str] = &[$(stringify!($name)),+];

        impl Sections {
            fn read(file: &mut Table, faults: &mut Vec<Fault>) -> Self {
                Self { $($name: section(file, stringify!($name), faults),)+ }
            }
        }
    };
}

sections! {
    /// `[breaker]`: availability arms, open time, half-open, ramp.
    breaker: crate::breaker::Params;
    /// `[limits]`: how long a call may take and how large it may be.
    limits: Limits;
    /// `[retry]`: further tries and their budget.
    retry: crate::retry::Params;
    /// `[queue]`: requests that wait for a permit.
    queue: crate::permits::Params;
    /// `[fallback]`: what goes to a lower tier, and how much.
    fallback: crate::plan::FallbackParams;
    /// `[cost]`: money.
    cost: crate::spend::Params;
    /// `[chaos]`: faults in front of targets.
    chaos: crate::chaos::Params;
    /// `[hold]`: how much of an answer is kept back before it is committed to.
    hold: HoldParams;
    /// `[proxy]`: where callers connect and what passes unscored.
    proxy: ProxyParams;
    /// `[cache]`: answers that passed quality.
    cache: crate::cache::Params;
    /// `[embed]`: the sentence embedder.
    embed: crate::embed::Params;
    /// `[store]`: the database.
    store: crate::store::Params;
    /// `[shared]`: what several instances share.
    shared: crate::shared::Params;
    /// `[metrics]`: the Prometheus text.
    metrics: crate::metrics::Params;
    /// `[admin]`: health API, events, dashboard.
    admin: crate::admin::Params;
    /// `[log]`: what the daemon says on stderr.
    log: log::Params;
}

/// The whole configuration, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Whether decisions are applied or only recorded.
    pub mode: Mode,
    /// Whether faults may be put in front of targets; `--allow-chaos`.
    pub allow_chaos: bool,
    /// `data_dir` as written; see [`Config::data_dir`].
    pub data_dir: Option<PathBuf>,
    /// Never empty; names are unique.
    pub targets: Vec<TargetParams>,
    /// Never empty; names are unique, every tier's target exists.
    pub routes: Vec<RouteParams>,
    /// `[[rule]]`: plain thresholds over time.
    pub rules: Vec<rule::Params>,
    /// Everything else.
    pub sections: Sections,
    /// Of each target, in their order: `[quality]` with `[target.quality]` laid over it.
    qualities: Vec<Quality>,
    /// Of each target, in their order: `[breaker]` with `[target.breaker]` laid over it.
    breakers: Vec<crate::breaker::Params>,
    /// Of each route, in their order: `[route.limits]`.
    route_limits: Vec<LimitsPatch>,
    /// Where relative paths begin: the file's folder.
    base: PathBuf,
}

impl Config {
    /// Reads a configuration; relative paths in it begin at the working directory.
    ///
    /// # Errors
    /// Every fault that was found, each with its field's path.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        Self::parse(text, Path::new("")).map_err(|faults| ConfigError { file: None, faults })
    }

    /// Reads a file; relative paths in it begin at its folder.
    ///
    /// # Errors
    /// That it cannot be read, or every fault that was found.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let refuse = |faults| ConfigError { file: Some(file.to_owned()), faults };
        let text = std::fs::read_to_string(file).map_err(|e| refuse(vec![Fault::new("", e.to_string())]))?;
        Self::parse(&text, file.parent().unwrap_or(Path::new(""))).map_err(refuse)
    }

    /// What `--upstream` alone means: these targets in one tier of one catch-all route, all else by
    /// default. A target is named after its host and port, and the caller's own credentials go to it.
    ///
    /// # Errors
    /// The URL that cannot be used.
    pub fn single(upstreams: &[String]) -> Result<Self, ConfigError> {
        let mut faults = Vec::new();
        let mut targets: Vec<TargetParams> = Vec::new();
        for url in upstreams {
            let host = host_of(url);
            let taken = targets.iter().filter(|t| t.name().starts_with(&host)).count();
            let name = if taken == 0 { host } else { format!("{host}-{}", taken + 1) };
            match TargetParams::from_url(&name, url, true) {
                Ok(target) => targets.push(target),
                Err(error) => faults.push(Fault::within("--upstream", &error.to_string())),
            }
        }
        let refuse = |faults| ConfigError { file: None, faults };
        if !faults.is_empty() {
            return Err(refuse(faults));
        }
        let route = catch_all(&targets).map_err(|e| refuse(vec![Fault::new("--upstream", e.to_string())]))?;
        let config = Self::assemble(targets, vec![route]);
        let found = check::faults(&config);
        if found.is_empty() { Ok(config) } else { Err(refuse(found)) }
    }

    /// The commented reference configuration, itself a configuration that loads.
    #[must_use]
    pub const fn reference() -> &'static str {
        REFERENCE
    }

    fn assemble(targets: Vec<TargetParams>, routes: Vec<RouteParams>) -> Self {
        let sections = Sections::default();
        Self {
            mode: Mode::Shadow,
            allow_chaos: false,
            data_dir: None,
            rules: Vec::new(),
            qualities: vec![Quality::default(); targets.len()],
            breakers: vec![sections.breaker.clone(); targets.len()],
            route_limits: vec![LimitsPatch::default(); routes.len()],
            targets,
            routes,
            sections,
            base: PathBuf::new(),
        }
    }

    fn parse(text: &str, base: &Path) -> Result<Self, Vec<Fault>> {
        let mut file: Table = text.parse().map_err(|e: toml::de::Error| vec![syntax(text, &e)])?;
        let mut faults = Vec::new();
        let mode = value(&mut file, "mode", &mut faults);
        let inject: Option<Inject> = value(&mut file, "inject", &mut faults);
        let data_dir = value(&mut file, "data_dir", &mut faults);
        let targets: Vec<Option<TargetParams>> = list(&mut file, "target", &mut faults);
        let routes: Vec<Option<RouteParams>> = list(&mut file, "route", &mut faults);
        let rules: Vec<Option<rule::Params>> = list(&mut file, "rule", &mut faults);
        let quality = file.remove("quality");
        let sections = Sections::read(&mut file, &mut faults);
        for key in file.keys() {
            let known: Vec<&str> = OTHER_KEYS.iter().chain(SECTION_KEYS).copied().collect();
            faults.push(Fault::new(key, format!("unknown key; known are {}", known.join(", "))));
        }
        let qualities = qualities(quality, &targets, &mut faults);
        let breakers = overlays(&targets, &sections, &mut faults);
        let route_limits = route_limits(&routes, &mut faults);
        if !faults.is_empty() {
            return Err(faults); // what follows would only blame the consequences
        }
        let mut targets: Vec<TargetParams> = targets.into_iter().flatten().collect();
        targets.iter_mut().for_each(|target| target.or_inject(inject.unwrap_or_default()));
        let mut routes: Vec<RouteParams> = routes.into_iter().flatten().collect();
        let mut route_limits = route_limits;
        if routes.is_empty()
            && let Ok(route) = catch_all(&targets)
        {
            routes.push(route);
            route_limits.push(LimitsPatch::default());
        } // else there are no targets, or one name twice, which the checks tell better
        let config = Self {
            mode: mode.unwrap_or(Mode::Shadow),
            allow_chaos: false,
            data_dir,
            targets,
            routes,
            rules: rules.into_iter().flatten().collect(),
            sections,
            qualities,
            breakers,
            route_limits,
            base: base.to_owned(),
        };
        let found = check::faults(&config);
        if found.is_empty() { Ok(config) } else { Err(found) }
    }

    /// Moves the listeners, as `--listen` and `--admin` do.
    ///
    /// # Errors
    /// An admin address that others can reach, without a token.
    pub fn listen_at(
        &mut self,
        proxy: Option<std::net::SocketAddr>,
        admin: Option<std::net::SocketAddr>,
    ) -> Result<(), ConfigError> {
        if let Some(listen) = proxy {
            self.sections.proxy = self.sections.proxy.clone().with_listen(listen);
        }
        if let Some(admin) = admin {
            self.sections.admin = self.sections.admin.clone().with_listen(admin).map_err(|e| {
                let fault = Fault::new("--admin", e.to_string());
                ConfigError { file: None, faults: vec![fault] }
            })?;
        }
        Ok(())
    }

    /// Allows faults in front of targets, as `--allow-chaos` does; without it a configuration that asks for some is
    /// refused.
    ///
    /// # Errors
    /// Faults that are asked for and not allowed.
    pub fn chaos_allowed(&mut self, allowed: bool) -> Result<(), ConfigError> {
        self.allow_chaos = allowed;
        if allowed || self.sections.chaos.is_off() {
            return Ok(());
        }
        let message = "faults are put in front of targets only with `touchstone serve --allow-chaos`";
        Err(ConfigError { file: None, faults: vec![Fault::new("chaos.faults", message)] })
    }

    /// What is no fault but will hardly be meant: policies that can never fire, secrets not set.
    #[must_use]
    pub fn warnings(&self) -> Vec<Fault> {
        check::warnings(self)
    }

    /// The breaker's values for the target at this place.
    #[must_use]
    pub fn breaker_of(&self, target: usize) -> &crate::breaker::Params {
        self.breakers.get(target).unwrap_or(&self.sections.breaker)
    }

    /// The quality side of the target at this place.
    #[must_use]
    pub fn quality_of(&self, target: usize) -> &Quality {
        &self.qualities[target]
    }

    /// The rules meant for this target: those of the file, and its preset's own where the file says nothing of the
    /// same signal.
    #[must_use]
    pub fn rules_of(&self, target: &str) -> Vec<rule::Params> {
        let mut rules: Vec<_> = self.rules.iter().filter(|rule| rule.applies_to(target)).cloned().collect();
        let place = self.targets.iter().position(|t| **t.name() == *target);
        if place.is_some_and(|i| self.breaker_of(i).preset_name() == Preset::Gateway) {
            let own = rule::Params::many_fallbacks();
            if !rules.iter().any(|rule| rule.signal() == own.signal()) {
                rules.push(own);
            }
        }
        rules
    }

    /// Whether anything that is decided about this target is applied: the mode of its routes.
    #[must_use]
    pub fn mode_of_target(&self, target: &str) -> Mode {
        let mut modes = self
            .routes
            .iter()
            .filter(|route| route.tiers().iter().flatten().any(|name| name == target))
            .map(|route| route.mode().unwrap_or(self.mode));
        if modes.any(|mode| mode == Mode::Enforce) { Mode::Enforce } else { Mode::Shadow }
    }

    /// What the proxy needs.
    #[must_use]
    pub fn proxy_setup(&self) -> proxy::Setup {
        proxy::Setup {
            mode: self.mode,
            targets: self.targets.clone(),
            routes: self.routes.clone(),
            limits: self.sections.limits,
            proxy: self.sections.proxy.clone(),
            hold: self.sections.hold.clone(),
            retry: self.sections.retry,
            cache: self.sections.cache,
            queue: self.sections.queue,
            fallback: self.sections.fallback,
            cost: self.sections.cost.clone(),
            chaos: if self.allow_chaos { self.sections.chaos.clone() } else { Default::default() },
        }
    }

    /// What the route at this place says differently about limits.
    #[must_use]
    pub fn limits_of_route(&self, route: usize) -> LimitsPatch {
        self.route_limits.get(route).copied().unwrap_or_default()
    }

    /// Where the daemon keeps what it learns: as configured, else where the system keeps such things
    /// (`STATE_DIRECTORY` under systemd, then the user's state folder).
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        if let Some(dir) = &self.data_dir {
            return self.resolve(dir);
        }
        let env = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        env("STATE_DIRECTORY")
            .or_else(|| env("XDG_STATE_HOME").map(|dir| dir.join("touchstone")))
            .or_else(|| env("HOME").map(|dir| dir.join(".local/state/touchstone")))
            .unwrap_or_else(|| PathBuf::from("touchstone-data"))
    }

    /// The database's file.
    #[must_use]
    pub fn store_file(&self) -> PathBuf {
        self.resolve(&self.sections.store.file(&self.data_dir()))
    }

    /// The golden set of a route, and its folder if it is not the one that the program carries.
    ///
    /// # Errors
    /// The fault in the set, by file and line.
    pub fn golden_of_route(&self, route: &RouteParams) -> Result<(GoldenSet, Option<PathBuf>), GoldenError> {
        self.golden(route.golden())
    }

    /// The golden set that a target is measured with: its own, else that of the first route it stands in.
    ///
    /// # Errors
    /// The fault in the set, by file and line.
    pub fn golden_of_target(
        &self,
        target: &TargetParams,
    ) -> Result<(GoldenSet, Option<PathBuf>), GoldenError> {
        let uses =
            |route: &&RouteParams| route.tiers().iter().flatten().any(|name| **name == **target.name());
        self.golden(target.golden().or_else(|| self.routes.iter().find(uses)?.golden()))
    }

    /// Where the baselines of a set are kept that has no folder of its own.
    #[must_use]
    pub fn baseline_dir(&self, set: &GoldenSet) -> PathBuf {
        self.data_dir().join("golden").join(&**set.name())
    }

    /// The golden set at a configured path, looked for from the file's folder and then from the working
    /// directory; the starter set where nothing is configured, or where its folder was not copied along.
    ///
    /// # Errors
    /// The fault in the set, by file and line.
    pub fn golden(&self, path: Option<&PathBuf>) -> Result<(GoldenSet, Option<PathBuf>), GoldenError> {
        let Some(path) = path else { return Ok((GoldenSet::starter()?, None)) };
        let from_file = self.resolve(path);
        let dir = if from_file.exists() { from_file } else { path.clone() };
        if !dir.exists() && path.file_name().is_some_and(|name| name == STARTER) {
            return Ok((GoldenSet::starter()?, None));
        }
        Ok((GoldenSet::load(&dir)?, Some(dir)))
    }

    /// A path of the file, from where the file stands.
    #[must_use]
    pub fn resolve(&self, path: &Path) -> PathBuf {
        if path.is_absolute() { path.to_owned() } else { self.base.join(path) }
    }
}

/// Takes a section out of the file; a faulty one is told and replaced by its default.
fn section<T: serde::de::DeserializeOwned + Default>(
    file: &mut Table,
    key: &str,
    faults: &mut Vec<Fault>,
) -> T {
    value(file, key, faults).unwrap_or_default()
}

fn value<T: serde::de::DeserializeOwned>(file: &mut Table, key: &str, faults: &mut Vec<Fault>) -> Option<T> {
    fault::read(key, file.remove(key)?).map_err(|fault| faults.push(fault)).ok()
}

/// Takes a list of tables out of the file; a faulty entry is told and leaves a gap.
fn list<T: serde::de::DeserializeOwned>(
    file: &mut Table,
    key: &str,
    faults: &mut Vec<Fault>,
) -> Vec<Option<T>> {
    match file.remove(key) {
        None => Vec::new(),
        Some(Value::Array(entries)) => entries
            .into_iter()
            .enumerate()
            .map(|(i, entry)| {
                fault::read(&format!("{key}[{i}]"), entry).map_err(|fault| faults.push(fault)).ok()
            })
            .collect(),
        Some(_) => {
            faults.push(Fault::new(key, format!("is a list; write [[{key}]]")));
            Vec::new()
        }
    }
}

fn overlays(
    targets: &[Option<TargetParams>],
    sections: &Sections,
    faults: &mut Vec<Fault>,
) -> Vec<crate::breaker::Params> {
    let mut lay = |(i, target): (usize, &Option<TargetParams>)| {
        let written = target.as_ref().and_then(TargetParams::breaker)?;
        let path = format!("target[{i}].breaker");
        fault::read(&path, written)
            .and_then(|overlay| {
                sections.breaker.with(&overlay).map_err(|e| Fault::within(&path, &e.to_string()))
            })
            .map_err(|fault| faults.push(fault))
            .ok()
    };
    targets.iter().enumerate().map(|t| lay(t).unwrap_or_else(|| sections.breaker.clone())).collect()
}

fn qualities(base: Option<Value>, targets: &[Option<TargetParams>], faults: &mut Vec<Fault>) -> Vec<Quality> {
    let base = base.map_or_else(|| serde_json::json!({}), |base| serde_json::json!(base));
    let default: Quality = match fault::read("quality", &base) {
        Ok(quality) => quality,
        Err(fault) => {
            faults.push(fault);
            return Vec::new();
        }
    };
    let mut lay = |(i, target): (usize, &Option<TargetParams>)| {
        let mut both = base.clone();
        quality::lay_over(&mut both, target.as_ref().and_then(TargetParams::quality)?);
        fault::read(&format!("target[{i}].quality"), &both).map_err(|fault| faults.push(fault)).ok()
    };
    targets.iter().enumerate().map(|t| lay(t).unwrap_or_else(|| default.clone())).collect()
}

fn route_limits(routes: &[Option<RouteParams>], faults: &mut Vec<Fault>) -> Vec<LimitsPatch> {
    let mut read = |(i, route): (usize, &Option<RouteParams>)| {
        let written = route.as_ref().and_then(RouteParams::limits)?;
        fault::read(&format!("route[{i}].limits"), written).map_err(|fault| faults.push(fault)).ok()
    };
    routes.iter().enumerate().map(|r| read(r).unwrap_or_default()).collect()
}

/// A fault of the file as a whole, with its place.
fn syntax(text: &str, error: &toml::de::Error) -> Fault {
    let before = error.span().and_then(|span| text.get(..span.start));
    let Some(before) = before else { return Fault::new("", error.message()) };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Fault::new("", format!("line {line}, column {column}: {}", error.message()))
}

/// One route that sends everything to these targets, none better than the other.
fn catch_all(targets: &[TargetParams]) -> Result<RouteParams, crate::plan::RouteError> {
    RouteParams::catch_all(CATCH_ALL, targets.iter().map(|t| t.name().to_string()).collect())
}

/// Host and port of a URL in the letters that names are made of.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    let name: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || ".-_:".contains(*c)).take(48).collect();
    if name.is_empty() { "upstream".to_owned() } else { name }
}

/// Names in the order in which they stand, for the checks.
fn names<'c, T>(of: &'c [T], name: impl Fn(&'c T) -> &'c Arc<str>) -> Vec<&'c str> {
    of.iter().map(|each| &**name(each)).collect()
}

#[cfg(test)]
mod tests;

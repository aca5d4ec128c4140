use std::collections::{BTreeMap, BTreeSet};

use super::*;

const TARGET: &str = "[[target]]\nname = \"a\"\nurl = \"http://127.0.0.1:8000\"\n";

fn faults(text: &str) -> Vec<String> {
    Config::from_toml(text).expect_err(text).faults.iter().map(ToString::to_string).collect()
}

fn fault(text: &str) -> String {
    let mut all = faults(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn warnings(text: &str) -> Vec<String> {
    Config::from_toml(text).expect("loads").warnings().iter().map(ToString::to_string).collect()
}

#[test]
fn one_target_is_a_complete_configuration() {
    let config = Config::from_toml(TARGET).expect("loads");
    assert_eq!(config.mode, Mode::Shadow);
    assert_eq!(config.sections, Sections::default());
    assert_eq!(config.routes[0].tiers(), [["a".to_owned()]]);
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    assert!(config.golden_of_route(&config.routes[0]).expect("the starter set").1.is_none());
}

#[test]
fn the_contracts_sketch_loads() {
    let text = r#"
        mode = "enforce"
        [[target]]
        name = "vllm-a"
        url = "http://127.0.0.1:8000"
        model = "llama-3.1-8b"
        api_key_env = "VLLM_KEY"
        pool = "gpu-a"
        max_concurrency = 32
        price = { input_usd_per_mtok = 0.42, output_usd_per_mtok = 1.20 }
        [target.breaker]
        preset = "gateway"
        slow = { limit = "2500ms" }
        [[target]]
        name = "small-7b"
        url = "http://127.0.0.1:8001"
        [[route]]
        name = "assistant"
        paths = ["/v1/chat/completions"]
        models = ["assistant", "gpt-4*"]
        tiers = [["vllm-a"], ["small-7b"], ["cache"]]
        golden = "golden/starter"
        limits = { total = "10m" }
        [limits]
        connect = "5s"
        max_request_bytes = "32MiB"
        [retry]
        quality_retries = 1
        max_wait = "5s"
    "#;
    let config = Config::from_toml(text).expect("loads");
    assert_eq!(config.mode, Mode::Enforce);
    assert_eq!(config.breaker_of(0).slow_limit_ms(), 2_500);
    assert_eq!(config.breaker_of(1), &crate::breaker::Params::default());
    let limits = config.sections.limits.with(&config.limits_of_route(0));
    assert_eq!(limits.total(), std::time::Duration::from_secs(600));
    assert_eq!(
        config.warnings().iter().map(|w| w.path.as_str()).collect::<Vec<_>>(),
        ["target[0].api_key_env"]
    );
}

#[test]
fn a_fault_names_the_path_of_its_field() {
    for (text, expected) in [
        ("", "target: at least one"),
        ("mode = \"loud\"", "mode: unknown variant `loud`"),
        (&format!("colour = 1\n{TARGET}"), "colour: unknown key; known are mode, inject, data_dir, target"),
        (
            &format!("{TARGET}price = {{ input = 1 }}"),
            "target[0].price.input: unknown key; known are input_usd",
        ),
        (
            &format!("{TARGET}price = {{ input_usd_per_mtok = \"free\" }}"),
            "target[0].price.input_usd_per_mtok: invalid type: string \"free\"",
        ),
        (
            &format!("{TARGET}price = {{ input_usd_per_mtok = -1 }}"),
            "target[0].price.input_usd_per_mtok: must",
        ),
        (&format!("{TARGET}api_key = \"sk-1\""), "target[0].api_key: unknown key"),
        ("[[target]]\nname = \"a\"", "target[0].url: is required"),
        ("[[target]]\nname = \"a\"\nurl = \"ftp://x\"", "target[0].url: `ftp://x` must begin with http"),
        ("[target]\nname = \"a\"", "target: is a list; write [[target]]"),
        (&format!("{TARGET}limits = {{ total = \"0s\" }}"), "target[0].limits.total: must be longer"),
        (
            &format!("{TARGET}[target.breaker]\nfailure_ratio = 7.0"),
            "target[0].breaker.failure_ratio: 7 is not",
        ),
        (
            &format!("{TARGET}[target.breaker.slow]\nlimt = \"1s\""),
            "target[0].breaker.slow.limt: unknown key",
        ),
        (&format!("{TARGET}{TARGET}"), "target[1].name: `a` is used twice"),
        (&format!("{TARGET}[[route]]\nname = \"r\"\ntiers = []"), "route[0].tiers: at least one tier"),
        (&format!("{TARGET}[[route]]\nname = \"r\""), "route[0].tiers: is required"),
        (
            &format!("{TARGET}[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"b\"]]"),
            "route[0].tiers[1]: there is no target named `b`",
        ),
        (
            &format!("{TARGET}[[route]]\nname = \"r\"\ntiers = [[\"a\"]]\ngolden = \"no/such\""),
            "route[0].golden: no/such/prompts.jsonl",
        ),
        (
            &format!("{TARGET}[[route]]\nname = \"r\"\ntiers = [[\"a\"]]\nlimits = {{ totl = \"1s\" }}"),
            "route[0].limits.totl: unknown key",
        ),
        (
            &format!("{TARGET}[limits]\nconnect = 5"),
            "limits.connect: invalid type: integer `5`, expected a duration",
        ),
        (
            &format!("{TARGET}[limits]\nmax_request_bytes = \"big\""),
            "limits.max_request_bytes: `big` is not a size",
        ),
        (&format!("{TARGET}[breaker]\nopen = \"10s\"\nopen_max = \"5s\""), "breaker.open_max: must not be"),
        (&format!("{TARGET}[store]\nretention = \"5m\""), "store.retention: 5m is too short"),
        (
            &format!("{TARGET}[admin]\nlisten = \"0.0.0.0:7071\""),
            "admin.token_env: 0.0.0.0:7071 is not a loopback",
        ),
        (&format!("{TARGET}[log]\nfilter = \"touchstone=loud\""), "log.filter: `touchstone=loud` is not"),
        (
            &format!("{TARGET}[[rule]]\nsignal = \"moon\"\nabove = 1.0"),
            "rule[0].signal: unknown variant `moon`",
        ),
        (&format!("{TARGET}[[rule]]\nsignal = \"entropy_mean\""), "rule[0].above: write either"),
        (
            &format!("{TARGET}[[rule]]\nsignal = \"entropy_mean\"\nabove = 1.0\ntargets = [\"b\"]"),
            "rule[0].targets[0]: there is no target named `b`",
        ),
        (&format!("{TARGET}[quality.arms]\nhard_fault = true"), "quality.arms.hard_fault: unknown key"),
        (&format!("{TARGET}[quality.arms.golden]\ndrop = 7.0"), "quality.arms.golden.drop: write a number"),
        (
            &format!("{TARGET}[quality.calibration]\nburst_runs = 1"),
            "quality.calibration.burst_runs: must be",
        ),
        (&format!("{TARGET}[target.quality.arms]\nx = 1"), "target[0].quality.arms.x: unknown key"),
        (
            &format!("{TARGET}[hold]\nmax_ms = 5000"),
            "hold.max_ms: 5000 is less than the longest `limits.first",
        ),
        (&format!("{TARGET}[hold]\nuntil = \"never\""), "hold.until: `never` is not known"),
        (
            &format!("{TARGET}[proxy]\nlisten = \"127.0.0.1:7071\""),
            "admin.listen: 127.0.0.1:7071 is the proxy's",
        ),
        (&format!("{TARGET}[proxy]\npassthrough = [\"v1\"]"), "proxy.passthrough[0]: must be a path"),
        (
            &format!("{TARGET}[cache]\nmax_bytes = \"64 parsecs\""),
            "cache.max_bytes: `64 parsecs` is not a size",
        ),
        (&format!("{TARGET}[embed]\nthreads = 0"), "embed.threads: must be from 1"),
        (&format!("{TARGET}[metrics]\nmax_series = 1"), "metrics.max_series: 1 is too few"),
        ("mode = \"shadow\"\n[limits\n", "line 2, column 8: "),
    ] {
        let found = fault(text);
        assert!(found.starts_with(expected), "{text}\n  gives    {found}\n  expected {expected}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let text = format!(
        "mode = \"loud\"\nextra = 1\n{TARGET}max_concurrency = 0\n[[target]]\nname = \"b\"\n[limits]\ntotal = 3"
    );
    let paths: Vec<String> =
        Config::from_toml(&text).expect_err("faulty").faults.into_iter().map(|fault| fault.path).collect();
    assert_eq!(paths, ["mode", "target[0].max_concurrency", "target[1].url", "limits.total", "extra"]);
}

#[test]
fn a_broken_golden_line_is_named_by_file_and_line() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(dir.path().join("mine")).expect("makes it");
    std::fs::write(dir.path().join("mine/prompts.jsonl"), "{\"id\": \"x\"}\n").expect("writes");
    let file = dir.path().join("touchstone.toml");
    let text = format!("{TARGET}[[route]]\nname = \"r\"\ntiers = [[\"a\"]]\ngolden = \"mine\"\n");
    std::fs::write(&file, text).expect("writes");
    let said = Config::load(&file).expect_err("refused").to_string();
    assert!(said.contains("touchstone.toml: route[0].golden: "), "{said}");
    assert!(said.contains("mine/prompts.jsonl line 1"), "relative to the file: {said}");
    let gone = Config::load(&dir.path().join("none.toml")).expect_err("refused").to_string();
    assert!(gone.contains("none.toml: "), "{gone}");
}

#[test]
fn upstreams_alone_make_one_tier_of_one_route() {
    let urls = ["http://127.0.0.1:8000", "https://api.example.org/base", "http://127.0.0.1:8000/two"];
    let config = Config::single(&urls.map(str::to_owned)).expect("loads");
    let names: Vec<&str> = config.targets.iter().map(|t| &**t.name()).collect();
    assert_eq!(names, ["127.0.0.1:8000", "api.example.org", "127.0.0.1:8000-2"]);
    assert_eq!(config.routes.len(), 1);
    assert!(config.targets.iter().all(TargetParams::forward_auth));
    assert!(Config::single(&["http://[::1]:8000".to_owned()]).is_ok());
    for bad in ["nonsense", "ftp://x", "http://"] {
        let said = Config::single(&[bad.to_owned()]).expect_err(bad).to_string();
        assert!(said.starts_with("--upstream.url: "), "{said}");
    }
}

#[test]
fn what_can_hardly_be_meant_is_warned_of() {
    let lonely = format!(
        "{TARGET}[[target]]\nname = \"b\"\nurl = \"http://h\"\n[[route]]\nname = \"r\"\ntiers = [[\"a\"]]"
    );
    assert!(warnings(&lonely)[0].starts_with("target[1]: `b` stands in no route"));
    let never = format!("{TARGET}[breaker.slow]\nlimit = \"10m\"");
    assert!(warnings(&never)[0].starts_with("target[0].breaker: `slow.limit` of 600000 ms can never"));
    let idle = format!("{TARGET}[[rule]]\nsignal = \"golden_accuracy\"\nabove = 1.0");
    assert!(warnings(&idle)[0].starts_with("rule[0]: `golden_accuracy above` can never fire"));
    let blind = format!(
        "{TARGET}[quality]\ncanary = {{ every = \"off\" }}\nburst = {{ every = \"off\", on_suspicion = false }}"
    );
    assert!(warnings(&blind)[0].starts_with("target[0].quality: canaries and bursts of `a` are off"));
    let hidden = format!(
        "{TARGET}[[route]]\nname = \"all\"\ntiers = [[\"a\"]]\n[[route]]\nname = \"r\"\ntiers = [[\"a\"]]"
    );
    assert!(warnings(&hidden)[0].starts_with("route[1]: `r` is never reached: `all` before it"));
    let secret = format!("{TARGET}api_key_env = \"TOUCHSTONE_TEST_NO_SUCH_VARIABLE\"");
    assert!(warnings(&secret)[0].starts_with("target[0].api_key_env: the environment has no"));
}

#[test]
fn a_target_lays_its_own_quality_and_mode_over_the_files() {
    let text = format!(
        "{TARGET}[target.quality.calibration]\ncanaries = 7\n[[target]]\nname = \"b\"\nurl = \"http://h\"\n\
         [quality.calibration]\ncanaries = 9\nburst_runs = 5\n\
         [[route]]\nname = \"r\"\nmode = \"enforce\"\ntiers = [[\"b\"]]\n\
         [[route]]\nname = \"s\"\ntiers = [[\"a\"], [\"b\"]]\n\
         [[rule]]\nsignal = \"entropy_mean\"\nabove = 3.0\ntargets = [\"b\"]\n"
    );
    let config = Config::from_toml(&text).expect("loads");
    let effort = |i| config.quality_of(i).effort();
    assert_eq!((effort(0).canaries, effort(0).burst_runs), (7, 5));
    assert_eq!((effort(1).canaries, effort(1).burst_runs), (9, 5));
    assert_eq!((config.mode_of_target("a"), config.mode_of_target("b")), (Mode::Shadow, Mode::Enforce));
    assert_eq!((config.rules_of("a").len(), config.rules_of("b").len()), (0, 1));
}

#[test]
fn a_target_says_for_itself_what_is_injected() {
    let live = |text: &str| -> Vec<bool> {
        let config = Config::from_toml(text).expect("loads");
        config.targets.iter().map(|t| t.inject() == crate::upstream::Inject::Live).collect()
    };
    let other = "[[target]]\nname = \"b\"\nurl = \"http://h\"\n";
    assert_eq!(live(&format!("{TARGET}{other}")), [false, false]);
    assert_eq!(live(&format!("{TARGET}{other}inject = \"live\"\n")), [false, true]);
    assert_eq!(live(&format!("inject = \"live\"\n{TARGET}{other}inject = \"canary\"\n")), [true, false]);
    assert!(fault(&format!("inject = \"all\"\n{TARGET}")).starts_with("inject:"));
}

#[test]
fn the_gateway_preset_alerts_of_many_fallbacks_unless_a_rule_says_otherwise() {
    let rules = |more: &str| {
        let config = Config::from_toml(&format!("{TARGET}{more}")).expect("loads");
        config.rules_of("a").iter().map(|r| (r.name(), r.action())).collect::<Vec<_>>()
    };
    assert_eq!(rules(""), []);
    assert_eq!(
        rules("breaker = { preset = \"gateway\" }"),
        [("fallback_ratio above".to_owned(), rule::Action::Alert)]
    );
    let own = "[breaker]\npreset = \"gateway\"\n[[rule]]\nname = \"mine\"\nsignal = \"fallback_ratio\"\nabove = 0.5\naction = \"suspect\"";
    assert_eq!(rules(own), [("mine".to_owned(), rule::Action::Suspect)]);
}

#[test]
fn the_reference_loads_and_equals_the_defaults() {
    let config = Config::from_toml(Config::reference()).expect("loads");
    assert_eq!(config.sections, Sections::default());
    assert_eq!(config.quality_of(0), &Quality::default());
    let least = Config::from_toml(
        "[[target]]\nname = \"local\"\nurl = \"http://127.0.0.1:8000\"\n[[route]]\nname = \"default\"\ntiers = [[\"local\"]]",
    );
    assert_eq!(Ok(config), least);
}

/// A line that shows an optional key.
fn optional(line: &str) -> Option<&str> {
    line.strip_prefix('#').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
}

#[test]
fn every_optional_key_of_the_reference_is_a_key() {
    let lines: Vec<&str> = Config::reference().lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let Some(shown) = optional(line) else { continue };
        let mut with = lines.clone();
        with[i] = shown;
        let text = with.join("\n");
        assert!(Config::from_toml(&text).is_ok(), "{shown}: {:?}", Config::from_toml(&text));
    }
}

#[test]
fn the_reference_misses_no_key() {
    let text = Config::reference();
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut headers = BTreeMap::from([(String::new(), 0)]);
    let mut table = String::new();
    for (i, line) in text.lines().enumerate() {
        if let Some(name) = line.strip_prefix("# [[") {
            let names = shown.entry(String::new()).or_default(); // a list that is empty by default
            names.insert(name.trim_end_matches(']').to_owned());
        } else if let Some(name) = line.strip_prefix('[') {
            table = name.trim_matches(['[', ']']).to_owned();
            headers.insert(table.clone(), i + 1);
            let mut parent = String::new();
            for key in table.split('.') {
                shown.entry(parent.clone()).or_default().insert(key.to_owned());
                parent = fault::join(&parent, key);
            }
        } else if let Some((key, _)) = optional(line).unwrap_or(line).split_once(" = ")
            && !line.starts_with("# ")
        {
            shown.entry(table.clone()).or_default().insert(key.to_owned());
        }
    }
    for (table, keys) in &shown {
        let mut lines: Vec<&str> = text.lines().collect();
        let header = format!("[{table}]"); // a table that only holds others has none of its own
        match headers.get(table) {
            Some(at) => lines.insert(*at, "zzz = 1"),
            None => lines.extend([header.as_str(), "zzz = 1"]),
        }
        let said = fault(&lines.join("\n"));
        let (_, known) = said.split_once("zzz: unknown key; known are ").expect(&said);
        for key in known.split(", ") {
            assert!(keys.contains(key), "[{table}] lacks {key}");
        }
    }
}

#[test]
fn the_data_directory_is_where_it_was_said_to_be() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("t.toml");
    std::fs::write(&file, format!("data_dir = \"state\"\n{TARGET}")).expect("writes");
    let config = Config::load(&file).expect("loads");
    assert_eq!(config.data_dir(), dir.path().join("state"));
    assert_eq!(config.store_file(), dir.path().join("state/touchstone.db"));
}

#[test]
fn policies_that_can_never_fire_are_told_by_their_place() {
    let one = |more: &str| warnings(&format!("{TARGET}{more}"));
    for (text, expected) in [
        ("[retry]\ntokens_per_request = 0", "retry: no further try"),
        ("[cost]\nper_hour_usd = 1.0", "cost: no limit can ever be reached"),
        ("[fallback]\nmax_share = 0.4", "fallback.max_share: can never act"),
        ("[hold]\nuntil = \"end\"", "hold: can never act"),
        ("pool = \"gpu\"", "target[0].pool: pool `gpu` can never refuse"),
        ("tokens_per_permit = 5", "target[0].tokens_per_permit: can never act"),
        ("vram = { total_gb = 4, per_request_gb = 8 }", "target[0].vram: its memory"),
        (
            "[[route]]\nname = \"r\"\npaths = [\"/v1/embeddings\"]\ntiers = [[\"a\"]]\n[[rule]]\nsignal = \"entropy_mean\"\nabove = 3.0",
            "rule[0].signal: `entropy_mean above` can never fire: no answer",
        ),
        (
            "max_context_tokens = 32000\n[[target]]\nname = \"b\"\nurl = \"http://h\"\nmax_context_tokens = 8000\n[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"b\"]]",
            "route[0].tiers[1]: requests of 8000 to 32000 tokens have no fallback",
        ),
        (
            "pool = \"gpu\"\nmax_concurrency = 2\n[[target]]\nname = \"b\"\nurl = \"http://h\"\npool = \"gpu\"\n[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"b\"]]",
            "route[0].tiers[1]: it has no capacity of its own",
        ),
        ("[breaker]\ndegrade_at = 0.6", "target[0].breaker: `a` can never be degraded"),
        ("[chaos]\nfaults = { a = \"empty\" }", "chaos.faults: faults are put"),
        (
            "[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"cache\"]]\n[cache]\nentries = 0",
            "route[0].tiers: the cache can never",
        ),
        (
            "[[route]]\nname = \"r\"\npaths = [\"/v1/chat/completions\"]\ntiers = [[\"a\"], [\"passthrough\"]]",
            "route[0].tiers: the step can never",
        ),
        (
            "[[route]]\nname = \"r\"\ntiers = [[\"a\"]]\npick = [{ tier = 0, min_input_tokens = 9, max_input_tokens = 8 }]",
            "route[0].pick[0]: can never fire",
        ),
        (
            "[[route]]\nname = \"r\"\ntiers = [[\"a\"]]\npick = [{ tier = 0 }, { tier = 0, tools = true }]",
            "route[0].pick[1]: is never asked",
        ),
    ] {
        let told = one(text);
        assert!(told.iter().any(|w| w.starts_with(expected)), "{text}: {told:?}");
    }
}

#[test]
fn policies_that_can_fire_are_not_warned_of() {
    for text in [
        "[[route]]\nname = \"r\"\npaths = [\"/v1/*\"]\ntiers = [[\"a\"]]\n[[rule]]\nsignal = \"entropy_mean\"\nabove = 3.0",
        "[[rule]]\nsignal = \"entropy_mean\"\nabove = 3.0",
        "[[route]]\nname = \"r\"\npaths = [\"/v2/models/*/infer\"]\ntiers = [[\"a\"]]\n[[rule]]\nsignal = \"margin\"\nbelow = 0.1",
        "max_context_tokens = 8000\n[[target]]\nname = \"b\"\nurl = \"http://h\"\n[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"b\"]]",
        "pool = \"gpu\"\nmax_concurrency = 2\n[[target]]\nname = \"b\"\nurl = \"http://h\"\n[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"b\"]]",
    ] {
        assert_eq!(warnings(&format!("{TARGET}{text}")), [] as [&str; 0], "{text}");
    }
}

/// Every number that the design of resilience names as a default, as the reference shows it.
#[test]
fn the_reference_holds_the_designs_numbers_each_with_its_reason() {
    let reference = Config::reference();
    for (section, numbers) in [
        (
            "limits",
            &[
                "connect = \"5s\"",
                "headers = \"60s\"",
                "#first_text = \"10s\"",
                "stream_idle = \"30s\"",
                "total = \"5m\"",
            ][..],
        ),
        (
            "breaker",
            &[
                "preset = \"llm\"",
                "window = \"1m\"",
                "failure_ratio = 0.5",
                "min_attempts = 20",
                "consecutive_failures = 5",
                "degrade_at = 0.2",
                "open = \"30s\"",
                "open_max = \"2m\"",
                "jitter = 0.2",
                "clean = \"5m\"",
                "allow_last = false",
                "last_target_share = 0.2",
            ],
        ),
        ("breaker.slow", &["ratio = 0.5"]),
        ("breaker.half_open", &["probes = 3", "successes = 3", "latency_share = 0.6"]),
        ("breaker.backpressure", &["persist = \"30s\"", "first = \"1s\"", "max = \"15s\""]),
        (
            "retry",
            &[
                "quality_retries = 1",
                "max_wait = \"5s\"",
                "tokens_per_request = 3",
                "tokens_per_workflow = 3",
                "refill_per_second = 10.0",
                "burst = 30.0",
                "target_ratio = 0.2",
                "target_window = \"10s\"",
                "target_floor_per_second = 10.0",
                "penalty_over = \"2s\"",
                "penalty_for = \"1m\"",
                "waste_below = 0.3",
                "waste_min = 20",
                "waste_recovery = 0.8",
                "backoff_first = \"200ms\"",
                "backoff_max = \"10s\"",
            ],
        ),
        ("queue", &["size = 100", "timeout = \"30s\""]),
        ("fallback", &["max_share = 1.0", "cool_down = \"15s\"", "on_content_filter = false"]),
        (
            "hold",
            &[
                "until = \"first_content\"",
                "on_late_fault = \"flag\"",
                "max_ms = 12000",
                "max_bytes = \"256KiB\"",
                "max_json_bytes = \"8MiB\"",
            ],
        ),
        ("shared", &["timeout_ms = 20"]),
        ("[target]", &["#rate = { capacity = 32.0, refill_per_second = 8.0 }"]),
    ] {
        let begin = reference.find(&format!("[{section}]\n")).unwrap_or_else(|| panic!("no [{section}]"));
        let end = reference[begin + 1..].find("\n[").map_or(reference.len(), |at| begin + 1 + at);
        let lines: Vec<&str> = reference[begin..end].lines().collect();
        for number in numbers {
            let at = lines.iter().position(|line| line == number);
            let at = at.unwrap_or_else(|| panic!("[{section}] does not say `{number}`"));
            let explained =
                lines[..at].iter().rev().take_while(|line| !line.is_empty()).any(|l| l.starts_with("# "));
            let by_section =
                reference[..begin].lines().next_back().is_some_and(|line| line.starts_with("# "));
            assert!(explained || by_section, "[{section}] {number}: no reason is given");
        }
    }
}

#[test]
fn names_of_budgets_pools_and_faults_must_lead_somewhere() {
    for (text, expected) in [
        ("[[cost.budget]]\nroute = \"x\"\nper_day_usd = 1.0", "cost.budget[0].route: there is no route"),
        ("[[cost.budget]]\nkey = \"x\"\nper_day_usd = 1.0", "cost.budget[0].key: there is no proxy key"),
        ("[chaos]\nfaults = { b = \"empty\" }", "chaos.faults.b: there is no target"),
        (
            "pool = \"g\"\nmax_concurrency = 3\n[[target]]\nname = \"b\"\nurl = \"http://h\"\npool = \"g\"\nmax_concurrency = 4",
            "target[1].pool: pool `g` has 3 permits already",
        ),
        ("[shared]\nurl = \"http://h\"", "shared.url: must begin with redis://"),
        ("[proxy]\nkey = [{ name = \"a\" }]", "proxy.key[0].key_env: give either"),
        ("rate = { capacity = 0.0 }", "target[0].rate.capacity: must be"),
        (
            "[[route]]\nname = \"r\"\ntiers = [[\"a\"]]\npick = [{ tier = 3 }]",
            "route[0].pick[0].tier: there is no tier 3",
        ),
        ("[[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"http://\"]]", "route[0].tiers"),
    ] {
        let told = faults(&format!("{TARGET}{text}"));
        assert!(told.iter().any(|f| f.starts_with(expected)), "{text}: {told:?}");
    }
}

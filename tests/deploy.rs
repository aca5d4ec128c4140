//! What an operator deploys: the alert rules are right by Prometheus' own tool, each alert has a test, and
//! no rule asks for a metric or a label that the daemon does not have.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use touchstone::metrics::TABLE;

fn prometheus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus")
}

fn promtool(arguments: &[&str]) {
    let output = Command::new(support::tool("promtool"))
        .args(arguments)
        .current_dir(prometheus())
        .output()
        .expect("promtool runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {arguments:?}:\n{}", String::from_utf8_lossy(&said));
}

fn read(name: &str) -> String {
    std::fs::read_to_string(prometheus().join(name)).expect("the file is there")
}

fn alerts() -> BTreeSet<String> {
    let rules = read("alerts.yml");
    rules.lines().filter_map(|line| Some(line.trim().strip_prefix("- alert: ")?.to_owned())).collect()
}

#[test]
fn promtool_accepts_the_alert_rules() {
    promtool(&["check", "rules", "alerts.yml"]);
}

#[test]
fn every_alert_fires_when_its_state_has_lasted_and_not_before() {
    promtool(&["test", "rules", "alerts_test.yml"]);
    let tests = read("alerts_test.yml");
    for alert in alerts() {
        let tested = tests
            .match_indices(&format!("alertname: {alert}\n"))
            .any(|(at, found)| tests[at + found.len()..].trim_start().starts_with("exp_alerts:"));
        assert!(tested, "no test in which {alert} fires");
    }
}

#[test]
fn no_rule_names_a_metric_or_a_label_that_the_daemon_has_not() {
    let (mut named, rules) = (0, read("alerts.yml"));
    for (at, _) in rules.match_indices("touchstone_") {
        let rest = &rules[at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let family = TABLE
            .iter()
            .find(|family| family.name == &rest[..end])
            .unwrap_or_else(|| panic!("{} is no metric", &rest[..end]));
        named += 1;
        let Some(selector) = rest[end..].strip_prefix('{').and_then(|s| s.split_once('}')) else { continue };
        for matcher in selector.0.split(", ") {
            let label = matcher.split(['=', '!']).next().unwrap_or_default();
            assert!(family.labels.contains(&label), "{} has no label {label}", family.name);
        }
    }
    assert!(named > 15, "the rules were not read");
}

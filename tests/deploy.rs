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

#[test]
fn the_unit_and_the_image_start_the_daemon_with_options_it_has() {
    let help = Command::new(env!("CARGO_BIN_EXE_touchstone"))
        .args(["serve", "--help"])
        .output()
        .expect("the built program runs");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let deploy = prometheus().join("..");
    for file in ["systemd/touchstone.service", "Dockerfile"] {
        let text = std::fs::read_to_string(deploy.join(file)).expect("the file is there");
        let start = text
            .lines()
            .find(|line| line.starts_with("ExecStart=") || line.starts_with("CMD "))
            .unwrap_or_else(|| panic!("{file} starts nothing"));
        for option in start.split(|c: char| c.is_whitespace() || c == '"').filter(|w| w.starts_with("--")) {
            assert!(help.contains(option), "{file}: `touchstone serve` has no option {option}:\n{help}");
        }
    }
}

#[test]
fn the_configuration_in_the_readme_is_accepted() {
    let readme = include_str!("../README.md");
    let (_, rest) = readme.split_once("```toml\n").expect("the README shows a configuration");
    let (config, _) = rest.split_once("```").expect("the block ends");
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("touchstone.toml");
    // Paths begin at the file's folder.
    let golden = support::root().join("golden/starter").display().to_string();
    std::fs::write(&file, config.replace("golden/starter", &golden)).expect("it is writable");
    let checked =
        support::daemon::command().args(["check", "--config"]).arg(&file).output().expect("it runs");
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&said));
}

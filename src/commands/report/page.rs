//! The account, to read.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, html};

use super::account::{Account, Kept, Opening, TargetAccount};
use crate::clock::Timestamp;
use crate::units::Ms;

fn time(at: Timestamp) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(at.as_millis())).to_string()
}

/// A length of time to the second: finer says nothing here.
fn span(ms: u64) -> String {
    Ms(ms / 1_000 * 1_000).to_string()
}

fn opening(o: &Opening) -> String {
    let lasted = o
        .until
        .map_or_else(|| "still open".to_owned(), |until| format!("for {}", span(until.ms_since(o.at))));
    let word = if o.enforced { "opened" } else { "would have opened" };
    format!(
        "{} {word} {lasted} ({}): {}; {} calls reached it meanwhile, {} of them failed or unusable",
        time(o.at),
        o.reason,
        o.message,
        o.calls,
        o.bad
    )
}

fn kept(k: &Kept) -> String {
    let realised = k.realised.map_or_else(|| "none".to_owned(), |r| format!("one in {r:.0}"));
    let verdict = if k.is_kept() { "as promised" } else { "more than chance allows" };
    format!(
        "{}: {} alarms in {} observations ({realised}; one false one in {:.0} promised, {} allowed): {verdict}",
        k.arm.as_str(),
        k.alarms,
        k.observations,
        k.promise,
        k.allowed
    )
}

fn counts<'a>(of: impl Iterator<Item = (&'a String, &'a u64)>) -> String {
    let all: Vec<String> = of.map(|(word, n)| format!("{word} {n}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

fn states(target: &TargetAccount) -> String {
    let all: Vec<String> = target.health_ms.iter().map(|(s, ms)| format!("{s} {}", span(*ms))).collect();
    if all.is_empty() { "not known".to_owned() } else { all.join(", ") }
}

fn facts(target: &TargetAccount) -> [String; 4] {
    [
        format!(
            "{} live calls, {} of them failed or unusable; {} canaries",
            target.calls, target.bad, target.canaries
        ),
        format!("health: {}", states(target)),
        format!("suspicions ended as: {}", counts(target.suspicions.iter())),
        format!("golden bursts: {}", counts(target.bursts.iter())),
    ]
}

pub(super) fn text(account: &Account) -> String {
    let mut page = format!("touchstone report, {} to {}\n", time(account.since), time(account.until));
    for (name, target) in &account.targets {
        let _ = writeln!(page, "\n{name}");
        for line in facts(target) {
            let _ = writeln!(page, "  {line}");
        }
        for k in &target.arms {
            let _ = writeln!(page, "  {}", kept(k));
        }
        let _ = writeln!(page, "  openings: {}", target.openings.len());
        for o in &target.openings {
            let _ = writeln!(page, "    {}", opening(o));
        }
    }
    page += "\nRecommendation\n";
    for line in &account.recommendation {
        let _ = writeln!(page, "  {line}");
    }
    page
}

pub(super) fn html(account: &Account) -> String {
    let title = format!("touchstone report, {} to {}", time(account.since), time(account.until));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
                        "h2{margin-top:2rem}li{margin:.2rem 0}.bad{color:#a00}" }
            }
            body {
                h1 { (title) }
                h2 { "Recommendation" }
                ul { @for line in &account.recommendation { li { (line) } } }
                @for (name, target) in &account.targets {
                    h2 { (name) }
                    ul {
                        @for line in facts(target) { li { (line) } }
                        @for k in &target.arms { li class=[(!k.is_kept()).then_some("bad")] { (kept(k)) } }
                    }
                    h3 { "Openings: " (target.openings.len()) }
                    ul { @for o in &target.openings { li { (opening(o)) } } }
                }
            }
        }
    }
    .into_string()
}

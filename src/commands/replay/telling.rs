//! The replay's result, for people and for programs.

use std::fmt::Write as _;

use super::replayer::{Firing, Report};
use crate::commands::out;
use crate::units::Ms;

pub(super) fn tell(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        out(format_args!("{}", serde_json::to_string_pretty(report)?));
        return Ok(());
    }
    for (name, totals) in &report.targets {
        out(format_args!(
            "target {name}: {} exchanges, {} canaries, {} live answers",
            totals.exchanges, totals.canaries, totals.live
        ));
        match totals.armed_after {
            Some(0) => out(format_args!("  canary arms: against the frozen baseline")),
            Some(n) => {
                out(format_args!("  canary arms: learned from the beginning, armed after {n} canaries"))
            }
            None if totals.canaries > 0 => out(format_args!("  canary arms: too few canaries to learn from")),
            None => {}
        }
        for arm in report.arms.get(name).into_iter().flatten() {
            let word = arm.arm.as_str();
            match &arm.unavailable {
                Some(why) if word != "b1" => out(format_args!("  {word}: did not run at the end: {why}")),
                None if arm.n > 0 => out(format_args!(
                    "  {word}: {} observations, statistic {:.3e} of {:.3e} at the end, one false alarm in {:.0} promised",
                    arm.n,
                    arm.statistic,
                    arm.limit,
                    arm.arl0.unwrap_or(f64::INFINITY)
                )),
                _ => {}
            }
        }
        if !totals.verdicts.is_empty() {
            let one = |(word, n): (&String, &u64)| format!("{n} {word}");
            let all: Vec<String> = totals.verdicts.iter().map(one).collect();
            out(format_args!("  golden bursts: {}, of {} answers", all.join(", "), totals.bursts));
        }
        if totals.workload_changes > 0 {
            out(format_args!("  what callers ask changed {} times", totals.workload_changes));
        }
        let all: u64 = totals.suspicions.values().sum();
        let mut line = format!("  {all} suspicions, the breaker would have opened {} times", totals.openings);
        if totals.labelled {
            let promised = totals.healthy as f64 / crate::detect::selftest::PROMISE * 2.0;
            let _ = write!(
                line,
                "; {} of them while healthy, over {} healthy canaries ({promised:.2} promised)",
                totals.false_alarms, totals.healthy
            );
        }
        out(format_args!("{line}"));
    }
    for firing in &report.firings {
        out(format_args!("{}", one(firing, report)));
    }
    let telling = |row: &&super::thresholds::Row| row.found > row.false_alarms;
    if report.thresholds.iter().any(|row| telling(&row)) {
        out(format_args!("\nthreshold on one answer      healthy above   bad above"));
        for row in report.thresholds.iter().filter(telling) {
            out(format_args!(
                "{:16} > {:9.4} {:13.1} % {:9.1} %   of {} and {}",
                row.signal,
                row.above,
                row.false_alarms * 100.0,
                row.found * 100.0,
                row.n.0,
                row.n.1
            ));
        }
    }
    Ok(())
}

fn one(firing: &Firing, report: &Report) -> String {
    let f = &firing.finding;
    let file = report.files.get(firing.place.file).map_or("", String::as_str);
    let place = &firing.place;
    let mut text = format!(
        "{} {} {} in {file} after {} exchanges ({} canaries, {} live)",
        firing.target,
        f.arm.as_str(),
        serde_json::to_value(f.level).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default(),
        place.exchanges,
        place.canaries,
        place.live
    );
    match (firing.delay, firing.false_alarm) {
        (Some(delay), _) => {
            let _ = write!(text, ", delay {delay}");
        }
        (None, Some(true)) => text += ", while healthy",
        _ => {}
    }
    if let Some(onset) = f.onset {
        let _ = write!(text, ", begun {} before", Ms(f.at.ms_since(onset)));
    }
    let _ = write!(text, ": {}", f.message);
    text
}

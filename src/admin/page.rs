//! The status page: targets, health, breaker, reasons, and the last hour's entropy and drift as small plots.
//! Rendered here, needs no script and no other host.

use std::fmt::Write as _;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{Surface, api};
use crate::event::Event;
use crate::monitor::board::TargetCard;
use crate::store::{EventQuery, HistoryQuery, Point};
use crate::verdict::{BreakerState, HealthState};

/// The plots show the last hour.
const SPAN_MS: u64 = 3_600_000;
/// One point a minute.
const STEP_MS: u64 = 60_000;
/// Latest events shown.
const EVENTS: u32 = 12;
/// What is plotted: history name, title, unit.
const PLOTS: &[(&str, &str, &str)] =
    &[("entropy_mean", "entropy", "nats"), ("drift", "response drift", "cosine distance")];

const STYLE: &str = "
:root{color-scheme:light dark;--line:#8884;--ok:#1a7f37;--warn:#9a6700;--bad:#cf222e}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin:0}
section{border:1px solid var(--line);border-radius:8px;padding:1rem;margin:1rem 0}
.ok{color:var(--ok)}.warn{color:var(--warn)}.bad{color:var(--bad)}
.state{font-weight:600;margin-left:.75rem}.plots{display:flex;gap:1.5rem;flex-wrap:wrap;margin-top:.75rem}
figure{margin:0}figcaption{font-size:.85rem;opacity:.8}svg{display:block;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem .2rem 0;vertical-align:top}
td:first-child{white-space:nowrap}.dim{opacity:.7}";

pub(super) async fn page(State(surface): State<Surface>) -> Response {
    let (status, _) = api::health_report(&surface);
    let now = surface.clock.now();
    let mut cards = Vec::new();
    for card in surface.board.targets().values() {
        let mut plots = Vec::new();
        for (signal, title, unit) in PLOTS {
            let query = HistoryQuery {
                target: card.name.to_string(),
                signal: (*signal).to_owned(),
                since: now.minus_ms(SPAN_MS),
                until: now,
                step_ms: STEP_MS,
            };
            let points = surface.store.history(query).await.unwrap_or_default();
            plots.push(plot(title, unit, &points, now.minus_ms(SPAN_MS).as_millis()));
        }
        cards.push(target(card, &plots));
    }
    let events =
        surface.store.events(EventQuery { limit: EVENTS, ..EventQuery::default() }).await.unwrap_or_default();
    let routes = surface.board.routes();
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                meta http-equiv="refresh" content="5";
                title { "Touchstone: " (status) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Touchstone" span class={ "state " (tone(status)) } { (status) } }
                @for card in &cards { (card) }
                section {
                    h2 { "Routes" }
                    table {
                        tr { th { "route" } th { "mode" } th { "tiers" } th { "fallback, last 5 min" } }
                        @for route in routes.iter() {
                            tr {
                                td { (route.name) @if !route.can_serve { span class="state bad" { "cannot serve" } } }
                                td { (route.mode) }
                                td { (route.tiers.iter().map(|t| t.join(" + ")).collect::<Vec<_>>().join(" → ")) }
                                td { (route.fallback_ratio.map_or_else(|| "–".to_owned(), |r| format!("{:.1} %", 100.0 * r))) }
                            }
                        }
                    }
                }
                section { h2 { "Latest events" } (event_table(&events)) }
                p class="dim" { "Touchstone " (env!("CARGO_PKG_VERSION")) ", store " (surface.store.health().state) ". "
                    a href="/v1/health" { "health" } " · " a href="/metrics" { "metrics" } " · "
                    a href="/v1/events" { "events" } " · " a href="/openapi.json" { "API" } }
            }
        }
    };
    ([("cache-control", "no-store"), ("content-type", "text/html; charset=utf-8")], body.into_string())
        .into_response()
}

fn tone(status: &str) -> &'static str {
    match status {
        "ok" | "healthy" | "closed" | "forced_closed" => "ok",
        "degraded" | "suspect" | "changed" | "half_open" => "warn",
        "unknown" => "dim",
        _ => "bad",
    }
}

fn target(card: &TargetCard, plots: &[Markup]) -> Markup {
    let health = if card.health == HealthState::Degraded { "bad" } else { tone(card.health.as_str()) };
    html! {
        section {
            h2 {
                (card.name)
                span class={ "state " (health) } { (card.health) }
                span class={ "state " (tone(card.breaker.as_str())) } {
                    "breaker " (card.breaker)
                    @if card.would_open && card.breaker != BreakerState::Closed { " (shadow: traffic flows)" }
                }
                span class="state dim" { (card.mode) }
            }
            @for reason in &card.reasons { p { (reason) } }
            @if !card.calibrated { p class="dim" { "not calibrated yet" } }
            div class="plots" { @for plot in plots { (plot) } }
        }
    }
}

/// A line of the points' means over the last hour, with the latest value in words.
fn plot(title: &str, unit: &str, points: &[Point], from_ms: u64) -> Markup {
    const WIDTH: f64 = 360.0;
    const HEIGHT: f64 = 64.0;
    let Some(last) = points.last() else {
        return html! { figure { figcaption { (title) ": no data in the last hour" } } };
    };
    let top = points.iter().map(|p| p.mean).fold(f64::MIN, f64::max).max(1e-9) * 1.1;
    let mut path = String::new();
    for (i, point) in points.iter().enumerate() {
        let x = point.at.as_millis().saturating_sub(from_ms) as f64 / SPAN_MS as f64 * WIDTH;
        let y = HEIGHT - (point.mean.max(0.0) / top * HEIGHT);
        let verb = if i == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{verb}{x:.1} {y:.1}");
    }
    let x = last.at.as_millis().saturating_sub(from_ms) as f64 / SPAN_MS as f64 * WIDTH;
    let y = HEIGHT - (last.mean.max(0.0) / top * HEIGHT);
    let words = format!("{title}: {:.3} {unit}", last.mean);
    html! {
        figure {
            svg width=(WIDTH) height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(words) {
                path d=(path) fill="none" stroke="currentColor" stroke-width="1.5" {}
                circle cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="2.5" fill="currentColor" {}
            }
            figcaption { (words) ", last hour, 0 to " (format!("{top:.2}")) }
        }
    }
}

fn event_table(events: &[Event]) -> Markup {
    html! {
        @if events.is_empty() { p class="dim" { "none yet" } }
        table {
            @for event in events.iter().rev() {
                tr {
                    td class="dim" { (time(event)) }
                    td { (event.target.as_deref().unwrap_or("–")) }
                    td { (event.message) }
                }
            }
        }
    }
}

fn time(event: &Event) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(event.at.as_millis());
    humantime::format_rfc3339_seconds(at).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_plot_stays_in_its_frame_and_says_its_latest_value() {
        let point = |minute: u64, mean: f64| Point {
            at: Timestamp::from_millis(minute * STEP_MS),
            count: 1,
            mean,
            min: mean,
            max: mean,
        };
        let text = plot("entropy", "nats", &[point(0, 1.0), point(59, 2.0)], 0).into_string();
        assert!(text.contains("entropy: 2.000 nats"), "{text}");
        assert!(text.contains("M0.0 "), "{text}");
        assert!(!text.contains("NaN"));
        assert!(plot("drift", "", &[], 0).into_string().contains("no data"));
    }
}

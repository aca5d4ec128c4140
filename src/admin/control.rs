//! What changes state: the operator's hand on a breaker, and a golden burst on demand.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::oneshot;

use super::{Surface, api};
use crate::breaker::Action;
use crate::monitor::Command;

/// The monitor answers within a tick; longer means that it is gone.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    action: Action,
    #[serde(default)]
    reason: String,
}

pub(super) async fn breaker(
    State(surface): State<Surface>,
    Path(name): Path<String>,
    order: Result<Json<Order>, JsonRejection>,
) -> Response {
    let Json(order) = match order {
        Ok(order) => order,
        Err(rejection) => return api::error(StatusCode::BAD_REQUEST, rejection.body_text()),
    };
    let Some(card) = surface.board.target(&name) else {
        return api::error(StatusCode::NOT_FOUND, format!("there is no target `{name}`"));
    };
    let (reply, answer) = oneshot::channel();
    let command =
        Command::Breaker { target: card.name.clone(), action: order.action, reason: order.reason, reply };
    match send(&surface, command, answer).await {
        Some(state) => Json(json!({ "target": name, "breaker": state })).into_response(),
        None => unheard(),
    }
}

pub(super) async fn probe(State(surface): State<Surface>, Path(name): Path<String>) -> Response {
    let Some(card) = surface.board.target(&name) else {
        return api::error(StatusCode::NOT_FOUND, format!("there is no target `{name}`"));
    };
    let (reply, answer) = oneshot::channel();
    match send(&surface, Command::Probe { target: card.name.clone(), reply }, answer).await {
        Some(Ok(())) => {
            (StatusCode::ACCEPTED, Json(json!({ "target": name, "burst": "begun" }))).into_response()
        }
        Some(Err(why)) => api::error(StatusCode::CONFLICT, why),
        None => unheard(),
    }
}

async fn send<T>(surface: &Surface, command: Command, answer: oneshot::Receiver<T>) -> Option<T> {
    let heard = async {
        surface.monitor.command(command).await.ok()?;
        answer.await.ok()
    };
    tokio::time::timeout(PATIENCE, heard).await.ok().flatten()
}

fn unheard() -> Response {
    api::error(StatusCode::SERVICE_UNAVAILABLE, "the monitor does not answer")
}

//! Reads a target's own load page now and then; see [`crate::upstream::LoadParams`].

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio::sync::watch;

use crate::monitor::{Command, MonitorHandle};
use crate::upstream::{Call, Load, LoadParams, Upstream};

/// A page that takes longer says nothing of the present.
const PATIENCE: Duration = Duration::from_secs(2);
/// A larger page is no metrics page, bytes.
const MAX_PAGE: usize = 4 << 20;

/// Reads the page of `target` until told to stop. `path` is the page's on `upstream`.
pub async fn watch_load(
    target: Arc<str>,
    params: LoadParams,
    upstream: Upstream,
    path: String,
    monitor: MonitorHandle,
    mut stop: watch::Receiver<bool>,
) {
    let mut every = tokio::time::interval(Duration::from_millis(params.every_ms()));
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = every.tick() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let read = tokio::time::timeout(PATIENCE, page(&upstream, &path)).await;
        let load: Result<Load, String> = match read {
            Ok(Ok(page)) => {
                params.read(&page).ok_or_else(|| "the page says nothing that is known".to_owned())
            }
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!("no page within {} s", PATIENCE.as_secs())),
        };
        let presses = load.as_ref().is_ok_and(|load| params.is_pressure(load));
        // what one page said holds until the next but one is due
        let holds_ms = if presses { params.every_ms().saturating_mul(2) } else { 0 };
        let command = Command::Load { target: Arc::clone(&target), load, holds_ms };
        if monitor.command(command).await.is_err() {
            return; // the daemon ends
        }
    }
}

async fn page(upstream: &Upstream, path: &str) -> Result<String, String> {
    let call = Call {
        method: Method::GET,
        path,
        headers: HeaderMap::new(),
        body: bytes::Bytes::new(),
        wire: None,
        patient: false,
    };
    let mut answer = upstream.send(call, Some(PATIENCE)).await.map_err(|failure| failure.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("the page answered {}", answer.status.as_u16()));
    }
    let mut page = Vec::new();
    while let Some(piece) = answer.body.next().await.map_err(|failure| failure.to_string())? {
        page.extend_from_slice(&piece);
        if page.len() > MAX_PAGE {
            return Err("the page is too large".to_owned());
        }
    }
    Ok(String::from_utf8_lossy(&page).into_owned())
}

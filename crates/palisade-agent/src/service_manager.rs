//! What the service manager is told: ready, reloading, stopping, and that the core is alive.
//!
//! The watchdog's sign of life is an answer of the core itself, given through the same queue as
//! everything else: an agent whose core is stuck misses it, whatever its other threads do, and is
//! started again. Without a manager nothing is told.

use crate::core::{Core, CoreHandle};
use palisade_sys::notify::{Notifier, monotonic_micros};
use std::time::Duration;

/// The service manager of this process, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    notifier: Notifier,
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment says, asked by the variable's name.
    pub fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Self {
        let notifier = match environment("NOTIFY_SOCKET").map(|to| (Notifier::connect(&to), to)) {
            None => Notifier::default(),
            Some((Ok(notifier), _)) => notifier,
            Some((Err(error), address)) => {
                tracing::warn!(%error, address, "the service manager cannot be told anything");
                Notifier::default()
            }
        };
        let number = |name| environment(name).and_then(|text| text.parse::<u64>().ok());
        let is_for_this_process =
            number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_for_this_process && *micros > 0);
        ServiceManager {
            notifier,
            watchdog: watchdog.map(Duration::from_micros),
        }
    }

    fn notify(&self, lines: &str) {
        if let Err(error) = self.notifier.notify(lines) {
            tracing::debug!(%error, "telling the service manager");
        }
    }

    /// The first sync is done.
    pub async fn notify_ready(&self, core: &CoreHandle) {
        if let Some(status) = core.ask(status_line).await {
            self.notify(&format!("READY=1\nSTATUS={status}"));
        }
    }

    /// The start takes as long as the source does.
    pub fn notify_waiting(&self) {
        self.notify("STATUS=waiting for the source; the kernel keeps what it had");
    }

    /// The configuration is read again.
    pub fn notify_reloading(&self) {
        if let Ok(micros) = monotonic_micros() {
            self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    /// The agent is going down.
    pub fn notify_stopping(&self, reason: &str) {
        self.notify(&format!("STOPPING=1\nSTATUS={reason}"));
    }

    /// Gives signs of life for as long as the core answers; never ends before the core does.
    pub async fn run_watchdog(&self, core: &CoreHandle) {
        let Some(watchdog) = self.watchdog else {
            return std::future::pending().await;
        };
        // One that comes late by as much again is still in time.
        let mut tick = tokio::time::interval(watchdog / 3);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            match core.ask(status_line).await {
                Some(status) => self.notify(&format!("WATCHDOG=1\nSTATUS={status}")),
                // It ended: whoever hears of that ends the agent.
                None => return std::future::pending().await,
            }
        }
    }
}

/// How the agent is, in a line.
fn status_line(core: &mut Core) -> String {
    let counts = core.engine.counts();
    let health = match core.unready_reasons().first() {
        Some(reason) => reason.clone(),
        None => "enforcing".to_owned(),
    };
    format!(
        "{health}: revision {} of {}, {} endpoints, {} policies",
        core.realised_revision,
        core.engine.revision(),
        core.registry.iter().count(),
        counts.policies
    )
}

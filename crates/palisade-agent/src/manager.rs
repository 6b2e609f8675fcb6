//! What the service manager is told: ready, reloading, stopping, and that the core is alive.
//!
//! The watchdog's sign of life is an answer of the core itself, given through the same queue as
//! everything else: an agent whose core is stuck misses it, whatever its other threads do, and is
//! started again. Without a manager nothing is told.

use crate::core::{Core, Handle};
use palisade_sys::notify::{Notifier, monotonic_micros};
use std::time::Duration;

/// The service manager of this process, if there is one.
#[derive(Debug, Default)]
pub struct Manager {
    notifier: Notifier,
    /// How often it wants a sign of life.
    watchdog: Option<Duration>,
}

impl Manager {
    /// As the environment says, asked by the variable's name.
    pub fn of(environment: impl Fn(&str) -> Option<String>) -> Self {
        let notifier = match environment("NOTIFY_SOCKET").map(|to| (Notifier::to(&to), to)) {
            None => Notifier::default(),
            Some((Ok(notifier), _)) => notifier,
            Some((Err(error), address)) => {
                tracing::warn!(%error, address, "the service manager cannot be told anything");
                Notifier::default()
            }
        };
        let number = |name| environment(name).and_then(|text| text.parse::<u64>().ok());
        let meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| meant && *micros > 0);
        Manager {
            notifier,
            watchdog: watchdog.map(Duration::from_micros),
        }
    }

    fn tell(&self, lines: &str) {
        if let Err(error) = self.notifier.tell(lines) {
            tracing::debug!(%error, "telling the service manager");
        }
    }

    /// The first sync is done.
    pub async fn ready(&self, core: &Handle) {
        if let Some(status) = core.ask(status_line).await {
            self.tell(&format!("READY=1\nSTATUS={status}"));
        }
    }

    /// The start takes as long as the source does.
    pub fn waiting(&self) {
        self.tell("STATUS=waiting for the source; the kernel keeps what it had");
    }

    /// The configuration is read again.
    pub fn reloading(&self) {
        if let Ok(micros) = monotonic_micros() {
            self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    /// The agent is going down.
    pub fn stopping(&self, why: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={why}"));
    }

    /// Gives signs of life for as long as the core answers; never ends before the core does.
    pub async fn watch(&self, core: &Handle) {
        let Some(watchdog) = self.watchdog else {
            return std::future::pending().await;
        };
        // One that comes late by as much again is still in time.
        let mut tick = tokio::time::interval(watchdog / 3);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            match core.ask(status_line).await {
                Some(status) => self.tell(&format!("WATCHDOG=1\nSTATUS={status}")),
                // It ended: whoever hears of that ends the agent.
                None => return std::future::pending().await,
            }
        }
    }
}

/// How the agent is, in a line.
fn status_line(core: &mut Core) -> String {
    let counts = core.engine.counts();
    let health = match core.unready().first() {
        Some(reason) => reason.clone(),
        None => "enforcing".to_owned(),
    };
    format!(
        "{health}: revision {} of {}, {} endpoints, {} policies",
        core.realised,
        core.engine.revision(),
        core.registry.iter().count(),
        counts.policies
    )
}

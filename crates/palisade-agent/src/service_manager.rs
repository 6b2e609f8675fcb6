//! Notifications to the service manager (systemd): ready, reloading, stopping, watchdog.
//!
//! Each watchdog notification requires a response of the core through its normal queue: if the core is
//! stuck, the notification is missed, whatever the other threads do, and the service manager restarts
//! the agent. Without a service manager nothing is sent.

use crate::core::Core;
use crate::core_queue::CoreHandle;
use palisade_sys::notify::{Notifier, monotonic_micros};
use palisade_views::CoreSnapshot;
use std::time::Duration;

/// The service manager of this process, if there is one.
#[derive(Debug, Default)]
pub struct ServiceManager {
    notifier: Notifier,
    /// The watchdog timeout.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The service manager from the environment, read by variable name.
    pub fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Self {
        let notifier = match environment("NOTIFY_SOCKET").map(|to| (Notifier::connect(&to), to)) {
            None => Notifier::default(),
            Some((Ok(notifier), _)) => notifier,
            Some((Err(error), address)) => {
                tracing::warn!(%error, address, "cannot open NOTIFY_SOCKET; the service manager is not notified");
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
            tracing::debug!(%error, "notifying the service manager failed");
        }
    }

    /// The first sync is complete.
    pub async fn notify_ready(&self, core: &CoreHandle) {
        if let Some(status) = core.ask(status_line).await {
            self.notify(&format!("READY=1\nSTATUS={status}"));
        }
    }

    /// A process without a core serves.
    pub(crate) fn notify_serving(&self) {
        self.notify("READY=1");
    }

    /// The start waits for the source.
    pub fn notify_waiting(&self) {
        self.notify("STATUS=waiting for the source; the kernel keeps its present policy");
    }

    /// The configuration is being reread.
    pub fn notify_reloading(&self) {
        if let Ok(micros) = monotonic_micros() {
            self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    /// The agent is stopping.
    pub fn notify_stopping(&self, reason: &str) {
        self.notify(&format!("STOPPING=1\nSTATUS={reason}"));
    }

    /// Sends watchdog notifications as long as the core responds; never returns before the core ends.
    pub async fn run_watchdog(&self, core: &CoreHandle) {
        let Some(watchdog) = self.watchdog else {
            return std::future::pending().await;
        };
        // A notification that is one interval late is still in time.
        let mut tick = tokio::time::interval(watchdog / 3);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            match core.ask(status_line).await {
                Some(status) => self.notify(&format!("WATCHDOG=1\nSTATUS={status}")),
                // The core has ended, which its supervisor handles.
                None => return std::future::pending().await,
            }
        }
    }
}

/// The agent's status in one line.
fn status_line(core: &mut Core) -> String {
    let CoreSnapshot {
        enforcer,
        policy,
        workloads,
        ..
    } = core.snapshot();
    let health = match enforcer.unready_reasons().first() {
        Some(reason) => reason.clone(),
        None => "enforcing".to_owned(),
    };
    format!(
        "{health}: revision {} of {}, {} endpoints, {} policies",
        policy.realised_revision,
        policy.engine.revision(),
        workloads.registry.iter().count(),
        policy.engine.counts().policies
    )
}

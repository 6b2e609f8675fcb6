//! The threads that send events to the core: the source and the kernel watchers.
//!
//! A burst of notifications becomes one event, and queued events are merged ([`crate::core_queue`]), so
//! a busy core finds one event and not thousands. Never: blocks on anything but its source, the kernel,
//! or the queue of batches.

use crate::core::CoreEvent;
use crate::core_queue::CoreHandle;
use palisade_dataplane::{Subscription, TamperEvent};
use palisade_effective::{SourceDelta, SourceNumber};
use palisade_node::clock::{Clock, SystemClock};
use palisade_node::host_changes::HostChanges;
use palisade_source::{FileWatch, Source, SourceError, SourceSet};
use palisade_sys::link::{LinkError, LinkEvents};
use palisade_text::error_chain;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of notifications of a burst, so that an endless burst is reported too.
const MAX_BURST: usize = 4_096;

/// Sends what a source changes of what is in force to the core, until either ends.
///
/// # Errors
/// Why the source ended.
pub fn follow_source<S: Source>(
    mut source: S,
    number: SourceNumber,
    sources: &Mutex<SourceSet>,
    core: &CoreHandle,
) -> Result<(), SourceError> {
    let mut apply = |delta, detected_at| {
        let mut sources = sources.lock().unwrap_or_else(PoisonError::into_inner);
        sources.apply(number, delta, detected_at, &mut |batch| {
            if core.send(CoreEvent::Source(batch)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })
    };
    let ended = source.run(&mut apply);
    if let Err(error) = &ended {
        let reason = error_chain(error);
        tracing::error!(%reason, "the policy source stopped; current policy stays in force");
        // Keeps the reason available to requests until the agent has stopped.
        let stale = SourceDelta {
            stale: Some(reason),
            ..SourceDelta::default()
        };
        // The source has ended in any case.
        let _ = apply(stale, None);
    }
    ended
}

/// Notifies the core when another program changes the agent's kernel state. It blocks only on the
/// kernel, and ends with the process.
///
/// # Errors
/// Why the notifications ended.
pub fn watch_tampering(
    mut tamper: Subscription<TamperEvent>,
    core: &CoreHandle,
) -> Result<(), palisade_dataplane::DriverError> {
    loop {
        let Some(first) = tamper.wait(Duration::MAX)? else {
            continue;
        };
        let detected_at = SystemClock.monotonic();
        // A verification compares all tables, so one is enough for a burst.
        for _ in 0..MAX_BURST {
            let Ok(Some(_)) = tamper.wait(Duration::ZERO) else {
                break;
            };
        }
        let what = match first {
            TamperEvent::Changed { description: what } => what,
            TamperEvent::EventsLost => "kernel notifications were lost".to_owned(),
        };
        if !core.send(CoreEvent::Tampered { what, detected_at }) {
            return Ok(());
        }
    }
}

/// Notifies the core of changes on this host. It blocks only on the kernel, and ends with the process.
///
/// # Errors
/// Why the notifications ended.
pub fn watch_host(mut events: impl LinkEvents, core: &CoreHandle) -> Result<(), LinkError> {
    loop {
        let Some(first) = events.next_event(None)? else {
            continue;
        };
        let detected_at = SystemClock.monotonic();
        let mut changes = HostChanges::default();
        changes.add_event(first);
        for _ in 0..MAX_BURST {
            let Ok(Some(next)) = events.next_event(Some(Duration::ZERO)) else {
                break;
            };
            changes.add_event(next);
        }
        if !core.send(CoreEvent::HostChanged {
            changes,
            detected_at,
        }) {
            return Ok(());
        }
    }
}

/// Requests a reread of the configuration whenever its file changes. Ends with the core, or with the
/// process.
pub fn watch_config_file(path: &Path, core: &CoreHandle) {
    let mut watch = match FileWatch::open(path) {
        Ok(watch) => watch,
        Err(error) => {
            let error = error_chain(&error);
            tracing::warn!(%error, "cannot watch the configuration file; send SIGHUP after changing it");
            return;
        }
    };
    while watch.wait_for_change() {
        let opened = palisade_sys::plain_file::open(path);
        watch.set_failed(opened.is_err_and(|error| error.kind() != ErrorKind::NotFound));
        if !core.send(CoreEvent::ConfigChanged) {
            return;
        }
    }
}

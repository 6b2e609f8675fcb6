//! What feeds the core: the source, and the kernel's notices.
//!
//! Promises: a burst of notices becomes one event, and what still waits for the core is merged there
//! ([`crate::core_queue`]), so a core that is busy finds one thing to do and not thousands. Never: waits for
//! anything but its source, the kernel, or room for a batch.

use crate::clock::{Clock, SystemClock};
use crate::core::{CoreEvent, CoreHandle, error_chain};
use crate::host::HostChanges;
use palisade_dataplane::{TamperEvent, TamperWatch};
use palisade_source::Source;
use palisade_sys::link::{LinkError, LinkEvents};
use std::ops::ControlFlow;
use std::time::Duration;

/// How many notices are taken together at most: one that never ends must be told too.
const MAX_BURST: usize = 4_096;

/// Hands in what the source says, until it or the core ends.
///
/// # Errors
/// Why the source ended.
pub fn follow_source<S: Source>(
    mut source: S,
    core: &CoreHandle,
) -> Result<(), palisade_source::SourceError> {
    let ended = source.run(&mut |batch| match core.send(CoreEvent::Source(batch)) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    if let Err(error) = &ended {
        // For whoever asks before the agent is gone.
        core.send(CoreEvent::SourceEnded(error_chain(error)));
    }
    ended
}

/// Tells the core when somebody else changes our kernel state. It waits for the kernel alone, and
/// ends with the process.
///
/// # Errors
/// Why the notices ended.
pub fn watch_tampering(
    mut tamper: TamperWatch,
    core: &CoreHandle,
) -> Result<(), palisade_dataplane::Error> {
    loop {
        let Some(first) = tamper.wait(Duration::MAX)? else {
            continue;
        };
        let detected_at = SystemClock.monotonic();
        // Everything is compared each time: once is enough for a burst.
        for _ in 0..MAX_BURST {
            let Ok(Some(_)) = tamper.wait(Duration::ZERO) else {
                break;
            };
        }
        let what = match first {
            TamperEvent::Changed { description: what } => what,
            TamperEvent::EventsLost => "notices of the kernel were lost".to_owned(),
        };
        if !core.send(CoreEvent::Tampered { what, detected_at }) {
            return Ok(());
        }
    }
}

/// Tells the core what changes on this host. It waits for the kernel alone, and ends with the process.
///
/// # Errors
/// Why the notices ended.
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

//! What feeds the core: the source, and the kernel's notices.
//!
//! Promises: a burst of notices becomes one event, and what still waits for the core is merged there
//! ([`crate::queue`]), so a core that is busy finds one thing to do and not thousands. Never: waits for
//! anything but its source, the kernel, or room for a batch.

use crate::clock::{Clock, SystemClock};
use crate::core::{Event, Handle, chain};
use crate::host::Changes;
use palisade_dataplane::{Tamper, TamperWatch};
use palisade_source::Source;
use palisade_sys::link::{LinkError, LinkEvents};
use std::ops::ControlFlow;
use std::time::Duration;

/// How many notices are taken together at most: one that never ends must be told too.
const BURST: usize = 4_096;

/// Hands in what the source says, until it or the core ends.
///
/// # Errors
/// Why the source ended.
pub fn follow_source<S: Source>(
    mut source: S,
    core: &Handle,
) -> Result<(), palisade_source::SourceError> {
    let ended = source.run(&mut |batch| match core.send(Event::Source(batch)) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    if let Err(error) = &ended {
        // For whoever asks before the agent is gone.
        core.send(Event::SourceEnded(chain(error)));
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
    core: &Handle,
) -> Result<(), palisade_dataplane::Error> {
    loop {
        let Some(first) = tamper.wait(Duration::MAX)? else {
            continue;
        };
        let seen = SystemClock.monotonic();
        // Everything is compared each time: once is enough for a burst.
        for _ in 0..BURST {
            let Ok(Some(_)) = tamper.wait(Duration::ZERO) else {
                break;
            };
        }
        let what = match first {
            Tamper::Changed { what } => what,
            Tamper::Unknown => "notices of the kernel were lost".to_owned(),
        };
        if !core.send(Event::Tampered { what, seen }) {
            return Ok(());
        }
    }
}

/// Tells the core what changes on this host. It waits for the kernel alone, and ends with the process.
///
/// # Errors
/// Why the notices ended.
pub fn watch_host(mut events: impl LinkEvents, core: &Handle) -> Result<(), LinkError> {
    loop {
        let Some(first) = events.next_event(None)? else {
            continue;
        };
        let seen = SystemClock.monotonic();
        let mut changes = Changes::default();
        changes.add(first);
        for _ in 0..BURST {
            let Ok(Some(next)) = events.next_event(Some(Duration::ZERO)) else {
                break;
            };
            changes.add(next);
        }
        if !core.send(Event::HostChanged { changes, seen }) {
            return Ok(());
        }
    }
}

//! Fault injection by name in test builds, to prove that a test detects the fault.
//!
//! Without the feature `faults`, [`is_injected`] is a constant `false` and no fault name is in the binary.
//! With it, the faults named by the variable `PALISADE_FAULT`, with commas between them, are active for the whole
//! process. The callers define the names.
//!
//! In the same builds a process can be killed where it comes to a point: [`reach`].

/// Returns whether the fault `name` is active.
#[cfg(feature = "faults")]
#[must_use]
pub fn is_injected(name: &str) -> bool {
    use std::sync::OnceLock;
    static INJECTED: OnceLock<String> = OnceLock::new();
    let on = INJECTED.get_or_init(|| {
        #[allow(
            clippy::disallowed_methods,
            reason = "fault injection is not part of the product's configuration"
        )]
        std::env::var("PALISADE_FAULT").unwrap_or_default()
    });
    on.split(',').any(|injected| injected == name)
}

/// Returns whether the fault `name` is active: never, without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub const fn is_injected(_: &str) -> bool {
    false
}

/// A point at which tests kill the process: the variable `PALISADE_KILL` has the name of one, a colon, and how often the
/// process comes there until it dies of SIGKILL, as by somebody else.
#[cfg(feature = "faults")]
pub fn reach(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static TARGET: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static REACHED: AtomicU32 = AtomicU32::new(0);
    let target = TARGET.get_or_init(|| {
        #[allow(
            clippy::disallowed_methods,
            reason = "fault injection is not part of the product's configuration"
        )]
        let text = std::env::var("PALISADE_KILL").ok()?;
        let (point, number) = text.split_once(':')?;
        Some((point.to_owned(), number.parse().ok()?))
    });
    let Some((point, number)) = target else {
        return;
    };
    if point == name && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == *number {
        // SAFETY: it takes and returns plain numbers, and does not return: the signal cannot be caught.
        unsafe { libc::raise(libc::SIGKILL) };
    }
}

/// A point at which tests kill the process: nothing, without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn reach(_: &str) {}

//! Fault injection by name in test builds, to prove that a test detects the fault.
//!
//! Without the feature `faults`, [`is_injected`] is a constant `false` and no fault name is in the binary.
//! With it, the faults named by the variable `PALISADE_FAULT`, with commas between them, are active for the whole
//! process. The callers define the names.

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

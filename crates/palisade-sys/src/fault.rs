//! Mistakes that test builds can make on purpose, by name, to prove that a test notices them.
//!
//! Without the feature `faults` the question whether one is on is a constant `false`, and no name is in
//! the program. With it, the one that the variable `PALISADE_FAULT` names is on for the whole process.
//! What the names mean is for whoever asks.

/// Whether the mistake of this name is made.
#[cfg(feature = "faults")]
#[must_use]
pub fn is_injected(name: &str) -> bool {
    use std::sync::OnceLock;
    static INJECTED: OnceLock<String> = OnceLock::new();
    let on = INJECTED.get_or_init(|| {
        #[allow(
            clippy::disallowed_methods,
            reason = "which mistake is made is no configuration of the product, which has none"
        )]
        std::env::var("PALISADE_FAULT").unwrap_or_default()
    });
    on == name
}

/// Whether the mistake of this name is made: never, in a build without the feature.
#[cfg(not(feature = "faults"))]
#[inline(always)]
#[must_use]
pub const fn is_injected(_: &str) -> bool {
    false
}

//! What each fuzz target does with an input: no input may make it panic.
//!
//! The targets in `fuzz/fuzz_targets` call these functions and nothing else, so that the tests of this crate replay the
//! kept corpus (`fuzz/corpus`) through the same code. Never: reads a file or a clock.

pub mod corpus;
mod explain_query;
mod manifests;
pub mod selector_reader;

pub use explain_query::explain_query;
pub use manifests::{dialect_lower, manifest_read, policy_lower};

use selector_reader::SelectorLabels;

/// What a target does with an input.
pub type FuzzFunction = fn(&[u8]);

/// Every target, by name.
pub const TARGETS: [(&str, FuzzFunction); 5] = [
    ("calico_selector", calico_selector),
    ("dialect_lower", dialect_lower),
    ("explain_query", explain_query),
    ("manifest_read", manifest_read),
    ("policy_lower", policy_lower),
];

/// Reads any text as a selector of Calico with both readers: they accept the same, and it has the same value. What is
/// behind a zero byte is labels, `a=b,c=d`.
///
/// # Panics
/// If the two readers differ.
pub fn calico_selector(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let (text, labels) = text.split_once('\0').unwrap_or((text, ""));
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    selector_reader::compare(text, &[labels.collect(), SelectorLabels::new()]);
}

//! Reads any text as a selector of Calico with both readers: they accept the same, and it has the same value. What is
//! behind a zero byte is labels, `a=b,c=d`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/palisade-dialects/tests/calico_selector/yard.rs"]
mod yard;

fuzz_target!(|text: &str| {
    let (text, labels) = text.split_once('\0').unwrap_or((text, ""));
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    yard::compare(text, &[labels.collect(), yard::SelectorLabels::new()]);
});

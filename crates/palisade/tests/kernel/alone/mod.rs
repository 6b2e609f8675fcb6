//! Tests that measure what is lost: they run after all others, one at a time (`scripts/test` selects them by the name
//! of this module).

mod load;
mod names;

/// A number that a variable sets.
fn asked(name: &str, default: u64) -> u64 {
    // make passes an unset variable as an empty one.
    let said = std::env::var(name).ok().filter(|text| !text.is_empty());
    said.map_or(default, |text| text.parse().unwrap())
}

//! What counts lost packets, and has the machine for itself.

mod kills;
mod restart;
mod traffic;

/// A number of the environment.
fn asked(name: &str, default: u64) -> u64 {
    // make passes an unset variable as an empty one.
    let text = std::env::var(name).ok().filter(|text| !text.is_empty());
    text.map_or(default, |text| text.parse().unwrap())
}

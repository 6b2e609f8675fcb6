//! The seeds and case counts of random tests, read when a test runs.
//!
//! A fixed seed alone hides faults, and a fresh one alone cannot be compared between runs. So a random
//! test takes both, and prints the fresh one. `SEED=N` in the environment replaces both, which
//! repeats a failed run. This module promises that a test takes at least one seed and prints each.

use std::hash::{BuildHasher, RandomState};

/// The largest fresh seed: easy to type again.
const FRESH_BOUND: u64 = 1 << 32;

/// The seeds of a random test: its fixed one and a fresh one, or only `SEED` of the environment.
/// `FRESH_SEED` names the fresh one, so that one number repeats all tests of a run.
///
/// # Panics
/// If `SEED` or `FRESH_SEED` is set and is no number.
#[must_use]
pub fn seeds(fixed: u64) -> Vec<u64> {
    let chosen = match number("SEED") {
        Some(seed) => vec![seed],
        None => {
            let fresh = number("FRESH_SEED")
                .unwrap_or_else(|| RandomState::new().hash_one(()) % FRESH_BOUND);
            vec![fixed, fresh]
        }
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a random test").to_owned();
    match chosen[..] {
        [fixed, fresh] => println!("{test}: seeds {fixed} and, fresh, {fresh}; repeat with SEED"),
        _ => println!("{test}: seed {}", chosen[0]),
    }
    chosen
}

/// Whether the calling test draws the second of two: by its name, and by the fresh seed, or `SEED` if that is set.
///
/// # Panics
/// As [`seeds`].
#[must_use]
pub fn is_second_drawn() -> bool {
    let seed = number("SEED").or_else(|| number("FRESH_SEED"));
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()) % FRESH_BOUND);
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    // FNV-1a, which is the same in every process.
    let sum = name
        .bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
    sum >> 32 & 1 == 1
}

/// `count` cases, each a seed and its number there, shared equally between the seeds of a test.
///
/// # Panics
/// As [`seeds`].
#[must_use]
pub fn seeded_cases(fixed: u64, count: u64) -> Vec<(u64, u64)> {
    let seeds = seeds(fixed);
    let share = count.div_ceil(seeds.len() as u64);
    let cases = |seed: u64| (0..share).map(move |case| (seed, case));
    seeds.into_iter().flat_map(cases).collect()
}

/// For tests with one seed a case: `count` seeds, those from `fixed` on and those from a fresh one on.
/// A case that failed comes first when its seed is given as `SEED`.
///
/// # Panics
/// As [`seeds`].
#[must_use]
pub fn case_seeds(fixed: u64, count: u64) -> Vec<u64> {
    let cases = seeded_cases(fixed, count).into_iter();
    cases
        .map(|(first, case)| first.wrapping_add(case))
        .collect()
}

/// The number of cases to run: `PALISADE_CASES` of the environment, else `usual`.
///
/// # Panics
/// If `PALISADE_CASES` is set and is no number.
#[must_use]
pub fn cases(usual: u64) -> u64 {
    number("PALISADE_CASES").unwrap_or(usual)
}

#[allow(
    clippy::panic,
    reason = "documented: a seed that is mistyped must not become another"
)]
fn number(variable: &str) -> Option<u64> {
    #[allow(
        clippy::disallowed_methods,
        reason = "how much a test does is no configuration of the product"
    )]
    let text = std::env::var(variable).unwrap_or_default();
    if text.is_empty() {
        return None;
    }
    match text.parse() {
        Ok(number) => Some(number),
        Err(_) => panic!("{variable}={text} is not a number"),
    }
}

//! What a big cluster costs one agent, behind a real API server: `cluster/scale`.

mod objects;
mod scale;

use crate::case::BenchCase;

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![scale::case()]
}

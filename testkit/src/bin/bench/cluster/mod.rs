//! What a big cluster costs one agent, and what agents cost the API server, behind a real one: `cluster/…`.

mod agents;
mod churn;
mod objects;
mod scale;
mod server;

use crate::case::BenchCase;

/// Every case, in order.
pub(crate) fn cases() -> Vec<BenchCase> {
    vec![scale::case(), agents::case()]
}

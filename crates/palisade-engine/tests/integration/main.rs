//! The engine compared with the oracle and with a fresh start, in every intermediate state.

#![allow(
    clippy::unwrap_used,
    reason = "the inputs of the tests are well-formed"
)]

mod support;

mod budget;
mod common;
mod dns_observation;
mod edits;
mod flushes;
mod kinds;
mod non_atomic_writes;
mod pod_networks;
mod profiles;
mod verdicts;

use palisade_engine::{Engine, EngineOptions};
use palisade_model::{State, Update};

/// An engine with every object of a state, in one batch.
pub(crate) fn from_scratch(state: &State) -> Engine {
    let mut engine = Engine::new(EngineOptions::of_host(state.host_node.clone()));
    let objects = state.objects().map(Update::Upsert);
    drop(engine.apply(objects));
    engine
}

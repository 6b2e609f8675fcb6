//! Tests of every sentence of the verdict semantics and of every decision reason of the oracle.

mod audit;
mod build;
mod dns_names;
mod hairpin;
mod matching;
mod narrative;
mod nodes;
mod verdicts;

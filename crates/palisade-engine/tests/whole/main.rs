//! The engine against the oracle, against itself from scratch, and in every intermediate state.

mod support;

mod flushes;
mod verdicts;

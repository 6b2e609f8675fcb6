//! Every sentence of the verdict, and every decision that the oracle can know.

mod build;
mod matching;
mod narrative;
mod verdicts;

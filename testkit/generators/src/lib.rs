//! Random worlds to judge flows in, and the naive reading of Kubernetes objects that judges them.
//! Apart from the testkit, so that tests of pure crates build no dataplane.
//!
//! Every world is a pure function of a seed and a case number, so that a failing one can be had
//! again. The generators are biased so that things collide: few labels, few ports, addresses on
//! the edges of networks. They know nothing of how the product reads what they make.

mod address;
mod audit;
mod dice;
mod encapsulation;
pub mod kubernetes;
pub mod line;
pub mod lowered;
pub mod manifest;
pub mod naive;
mod seeds;

pub use dice::Dice;
pub use seeds::{case_seeds, cases, is_second_drawn, seeded_cases, seeds};

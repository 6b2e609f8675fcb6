//! Random worlds to judge flows in.
//!
//! Every world is a pure function of a seed and a case number, so that a failing one can be had
//! again. The generators are biased so that things collide: few labels, few ports, addresses on
//! the edges of networks. They know nothing of how the product reads what they make.

mod address;
mod dice;
pub mod kubernetes;
pub mod lowered;
pub mod manifest;

pub use dice::Dice;

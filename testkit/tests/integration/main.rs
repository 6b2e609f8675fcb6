//! The testkit without a kernel.

mod differential;

//! The decision tables: values, deltas, canonical form, judgement, and the checker of intermediate states.

#![no_std]

extern crate alloc;

//! The plain, slow meaning of policy, with a narrative of each step.

#![no_std]

extern crate alloc;

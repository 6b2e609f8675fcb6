//! Labels, selectors, addresses, ports, and the one policy form every dialect is lowered to.

#![no_std]

extern crate alloc;

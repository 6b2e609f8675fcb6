//! Tests that measure time: they run after all others, one at a time.

mod conntrack;
mod grace;

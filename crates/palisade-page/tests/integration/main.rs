//! The page without privileges: what is served to whom, its bounds, its map, and the page in a browser against an agent
//! whose answers are fixed.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests: they run a browser, measure time, and fail by panicking"
)]

mod access;
mod bounds;
mod browser;
mod fixtures;
mod map;
mod served;

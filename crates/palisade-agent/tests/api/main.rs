//! The API as clients meet it: its document, its bodies, and whom it refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bodies;
mod document;
mod figures;
mod grows;
mod refusals;
mod schema;
mod signs;
mod site;

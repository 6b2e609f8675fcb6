//! The API as clients meet it: its document, its bodies, and whom it refuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bodies;
mod document;
mod figures;
mod floods;
mod grows;
mod hostile;
mod refusals;
mod rights;
mod schema;
mod signs;
mod site;

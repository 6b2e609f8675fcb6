//! The API as seen by clients: its document, its bodies, and the requests it rejects.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod bodies;
mod crd;
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
#[path = "../support/mod.rs"]
mod support;
mod wrong_requests;

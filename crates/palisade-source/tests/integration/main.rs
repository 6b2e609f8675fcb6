//! A directory of manifests as a source: what is in force, whatever happens to the files.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests write files and fail by panicking"
)]

mod budget;
mod cli_and_agent;
mod common;
mod cost;
mod directory_contents;
mod editors;
mod first_read;
mod load;
mod random_edits;
mod report_size;
mod upgrade;
mod validity;
mod watches;

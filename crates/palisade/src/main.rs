//! The `palisade` command: parses the command line, runs it, and exits with the documented code.

mod cli;
mod client;
mod command;
mod connection_args;
mod exit;

#[cfg(test)]
mod manual;
mod output;

use std::process::ExitCode;

/// See the description of the module.
#[global_allocator]
static ALLOCATOR: palisade_sys::heap::Allocator = palisade_sys::heap::ALLOCATOR;

fn main() -> ExitCode {
    match cli::parse() {
        Ok(cli) => command::run(cli).into(),
        Err(exit) => exit.into(),
    }
}

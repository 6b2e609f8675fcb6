//! The plugin binary: environment and standard input in, one JSON value out.

use palisade_cni::Invocation;
use std::io::{Read, Write};
use std::process::ExitCode;

#[allow(
    clippy::disallowed_methods,
    reason = "the CNI protocol passes its parameters in the environment"
)]
fn main() -> ExitCode {
    let invocation = Invocation::from_variables(|name| std::env::var(name).ok());
    let mut input = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut input);
    let (out, code) = palisade_cni::run(invocation, read.map(|_| input));
    // If the runtime has closed the pipe, there is no other way to report.
    let _ = std::io::stdout().lock().write_all(out.as_bytes());
    code
}

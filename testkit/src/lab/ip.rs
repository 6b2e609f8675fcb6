//! Links, addresses, routes and neighbours, by the `ip` command of iproute2.
//!
//! The lab is a witness against the agent's own netlink code, so it does not use that code: were
//! both to misread the kernel in the same way, no test would see it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::LabError;

/// Runs `ip` commands, in order, inside a namespace; stops at the first that is refused.
pub(crate) fn run(namespace: &str, commands: &[String]) -> Result<(), LabError> {
    let script = commands.join("\n") + "\n";
    let failed = |said: String| LabError::Configure {
        namespace: namespace.to_owned(),
        commands: script.clone(),
        said,
    };
    #[allow(
        clippy::disallowed_methods,
        reason = "the lab is a test's witness, independent of the agent's netlink"
    )]
    let spawned = Command::new("ip")
        .args(["-n", namespace, "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| failed(format!("starting ip: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A refused command closes the pipe early; what ip says about it matters more.
        let _ = stdin.write_all(script.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| failed(format!("waiting for ip: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    ))
}

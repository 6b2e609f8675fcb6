//! Which ring of proof a test runs in.
//!
//! Tests that need root live in the programs `tests/kernel` and begin with
//! `if !need_root() { return; }`. In the kernel ring (`PALISADE_RING=kernel`, as `make test` sets
//! it) a missing privilege is a failure; elsewhere it is a loud line. It is never a silent pass.

/// Whether this process may make namespaces and load rules.
///
/// # Panics
/// If `PALISADE_RING=kernel` is set and the process is not root: that ring must not pass without
/// having run.
#[must_use]
pub fn need_root() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    #[allow(
        clippy::disallowed_methods,
        reason = "tells the runner's ring from a developer's `cargo test`; not configuration"
    )]
    let ring = std::env::var("PALISADE_RING").unwrap_or_default();
    #[allow(
        clippy::panic,
        reason = "documented: the kernel ring must not pass unrun"
    )]
    if ring == "kernel" {
        panic!("the kernel ring needs root: run it with `make test`, or with sudo -E");
    }
    report_skip("needs root (`make test` runs it)");
    false
}

/// Says, in the one form that `scripts/test` counts, that the calling test does not run. No test says
/// so in words of its own; the tidy test holds that.
pub fn report_skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a kernel test").to_owned();
    eprintln!("SKIPPED {test}: {reason}");
}

/// Whether a line of a test's output is that of [`report_skip`].
pub(crate) fn is_skip(line: &str) -> bool {
    line.contains("SKIPPED ")
}

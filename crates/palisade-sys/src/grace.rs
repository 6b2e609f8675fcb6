//! Waiting until no packet is still between two lookups: an RCU grace period.
//!
//! Every packet path walks its rules inside an RCU read section. After
//! [`GracePeriod::wait`] returns, every section that was open when it was
//! called has ended: a packet that began its lookups before a change has a
//! verdict.
//!
//! Promises: never returns early. Never: waits for a packet that came later.

use nix::errno::Errno;
use thiserror::Error;

const MEMBARRIER_CMD_QUERY: libc::c_int = 0;
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

/// The kernel gives no grace period.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GraceError {
    /// The kernel lacks it, or it runs with `nohz_full`, where it is refused.
    #[error("the kernel offers no global memory barrier (membarrier: {0})")]
    Unsupported(Errno),
    /// The barrier failed.
    #[error("waiting for a grace period: {0}")]
    Failed(Errno),
}

/// Waits for grace periods.
pub trait GracePeriod {
    /// Returns once all packet processing that was under way has ended.
    ///
    /// # Errors
    /// [`GraceError::Failed`]; then nothing may be concluded.
    fn wait(&mut self) -> Result<(), GraceError>;
}

/// The kernel's grace periods, by `membarrier(MEMBARRIER_CMD_GLOBAL)`, which is
/// `synchronize_rcu()` by another name.
#[derive(Clone, Copy, Debug)]
pub struct KernelGracePeriod(());

impl KernelGracePeriod {
    /// Checks that the kernel offers it.
    ///
    /// # Errors
    /// [`GraceError::Unsupported`].
    pub fn new() -> Result<Self, GraceError> {
        let offered = membarrier(MEMBARRIER_CMD_QUERY).map_err(GraceError::Unsupported)?;
        if offered & MEMBARRIER_CMD_GLOBAL == 0 {
            return Err(GraceError::Unsupported(Errno::EINVAL));
        }
        Ok(Self(()))
    }
}

impl GracePeriod for KernelGracePeriod {
    fn wait(&mut self) -> Result<(), GraceError> {
        membarrier(MEMBARRIER_CMD_GLOBAL)
            .map(drop)
            .map_err(GraceError::Failed)
    }
}

fn membarrier(command: libc::c_int) -> Result<libc::c_int, Errno> {
    // SAFETY: both commands used take no pointer and change no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    Errno::result(result).map(|bits| bits as libc::c_int)
}

/// Counts the waits asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FakeGracePeriod {
    /// Waits so far.
    pub waits: usize,
}

impl GracePeriod for FakeGracePeriod {
    fn wait(&mut self) -> Result<(), GraceError> {
        self.waits += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_kernel_has_it() {
        let mut grace = KernelGracePeriod::new().unwrap();
        grace.wait().unwrap();
    }
}

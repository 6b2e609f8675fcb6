//! Random numbers of the kernel, for what must differ from one start to the next.
//!
//! Promises: never waits, not even in a machine that has only just started.
//!
//! Never: is good enough for a secret.

use crate::Errno;
use thiserror::Error;

/// The kernel gave no random number.
#[derive(Debug, Error)]
#[error("getrandom")]
pub struct RandomError(#[source] Errno);

/// A random number.
///
/// # Errors
/// What the kernel said: it knows no such call, or a filter of system calls refuses it.
pub fn random_u32() -> Result<u32, RandomError> {
    // Before Linux 5.6 there is no word for a number that is not secret.
    getrandom_u32(libc::GRND_INSECURE).or_else(|_| getrandom_u32(libc::GRND_NONBLOCK))
}

fn getrandom_u32(flags: libc::c_uint) -> Result<u32, RandomError> {
    let mut bytes = [0_u8; 4];
    // SAFETY: the kernel writes at most as many bytes as the length says, all of them in the array.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(got) {
        Ok(4) => Ok(u32::from_ne_bytes(bytes)),
        Ok(_) => Err(RandomError(Errno::EINTR)),
        Err(_) => Err(RandomError(Errno::last())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn numbers_differ() {
        let numbers: BTreeSet<u32> = (0..64).map(|_| random_u32().unwrap()).collect();
        // Two equal ones in 64 of four thousand million: once in two million runs.
        assert!(numbers.len() >= 63, "{numbers:?}");
        assert!(getrandom_u32(u32::MAX).is_err());
    }
}

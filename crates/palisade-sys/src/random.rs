//! Random numbers of the kernel, for values that must differ between starts.
//!
//! Promises: never blocks, not even during early boot.
//!
//! Never: suitable for a secret.

use crate::Errno;
use thiserror::Error;

/// The kernel returned no random number.
#[derive(Debug, Error)]
#[error("getrandom(2) failed")]
pub struct RandomError(#[source] Errno);

/// A random number.
///
/// # Errors
/// The kernel's error: the system call does not exist, or a seccomp filter rejects it.
pub fn random_u32() -> Result<u32, RandomError> {
    // Kernels before 5.6 have no flag for numbers that need not be secret.
    getrandom_u32(libc::GRND_INSECURE).or_else(|_| getrandom_u32(libc::GRND_NONBLOCK))
}

fn getrandom_u32(flags: libc::c_uint) -> Result<u32, RandomError> {
    let mut bytes = [0_u8; 4];
    // SAFETY: the kernel writes at most `len` bytes, all of them inside the array.
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
        // A collision in 64 of 2^32 numbers occurs once in two million runs.
        assert!(numbers.len() >= 63, "{numbers:?}");
        assert!(getrandom_u32(u32::MAX).is_err());
    }
}

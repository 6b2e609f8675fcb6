//! The process's heap, as the C library keeps it.
//!
//! Promises: nothing that is allocated moves. Never: decides when; the caller knows when a lot of
//! short-lived memory was freed.

/// Gives freed memory back to the kernel, all threads' of it. The C library keeps what is freed below
/// anything still in use, so that after a big start a process goes on holding nearly twice what it
/// uses. Walks the whole heap: some milliseconds per hundred megabytes.
///
/// Does nothing where the C library knows no such thing (musl).
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no requirements, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

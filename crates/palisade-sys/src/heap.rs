//! The heap of the process, managed by the C library.
//!
//! Promises: no allocation moves. Never: decides when to trim; the caller knows when a large amount of
//! short-lived memory was freed.

/// Returns freed memory of all threads to the kernel. The C library keeps freed memory that lies below memory
/// in use, so that after a large start-up a process holds nearly twice the memory it uses. Walks the whole
/// heap: some milliseconds per hundred megabytes.
///
/// Does nothing with a C library without `malloc_trim` (musl).
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it has no preconditions, and takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

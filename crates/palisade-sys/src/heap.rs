//! The heap of the process: jemalloc, for programs that choose it as their allocator.
//!
//! An agent of a large cluster holds millions of small objects and replaces hundreds a second. The C library's
//! allocator searches its lists of freed memory meanwhile, and keeps what lies below memory in use.
//!
//! Promises: no allocation moves; freed memory goes back to the kernel within a second of use. Never: decides when to
//! trim; the caller knows when a large amount of short-lived memory was freed.

use core::ffi::{CStr, c_char};
use core::ptr;

/// The allocator, as a program names it: `#[global_allocator]`.
pub type Allocator = tikv_jemallocator::Jemalloc;

/// The allocator itself.
pub const ALLOCATOR: Allocator = tikv_jemallocator::Jemalloc;

/// The options, which jemalloc reads as it starts: two arenas, as few threads allocate much; freed pages go back
/// after half a second; no huge pages, which a heap of small objects fills only in part.
const OPTIONS: &CStr = c"narenas:2,dirty_decay_ms:500,muzzy_decay_ms:0,tcache_max:4096,thp:never,metadata_thp:disabled";

/// The options under the name that jemalloc looks for.
// SAFETY: jemalloc declares this symbol as a pointer to text, which may be absent; nothing else has the name.
#[unsafe(export_name = "_rjem_malloc_conf")]
#[used]
static MALLOC_CONF: Option<&'static c_char> = Some(first(OPTIONS));

const fn first(text: &'static CStr) -> &'static c_char {
    // SAFETY: a text has at least its terminating zero.
    unsafe { &*text.as_ptr() }
}

/// All arenas, in the name of a control. Source: `MALLCTL_ARENAS_ALL` of `jemalloc.h`.
const PURGE_ALL: &CStr = c"arena.4096.purge";

/// Returns freed memory of all threads to the kernel at once.
///
/// Does nothing in a program with another allocator.
pub fn trim() {
    // SAFETY: the name is a text with its terminating zero; this control reads and writes no value.
    unsafe {
        tikv_jemalloc_sys::mallctl(
            PURGE_ALL.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn the_options_are_those_of_this_module_and_all_arenas_are_purged() {
        let mut arenas: u32 = 0;
        let mut length = size_of::<u32>();
        // SAFETY: the control has a value of 32 bits.
        let error = unsafe {
            tikv_jemalloc_sys::mallctl(
                c"opt.narenas".as_ptr(),
                (&raw mut arenas).cast(),
                &raw mut length,
                ptr::null_mut(),
                0,
            )
        };
        assert_eq!((error, arenas), (0, 2));
        // SAFETY: as in `trim`.
        let error = unsafe {
            tikv_jemalloc_sys::mallctl(
                PURGE_ALL.as_ptr(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                0,
            )
        };
        assert_eq!(error, 0);
    }
}

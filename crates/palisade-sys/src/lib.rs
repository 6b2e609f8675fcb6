//! Kernel interfaces: netlink, namespaces, conntrack, sysctl, inotify; and the heap of the process.
//!
//! One small trait per kernel interface, with its kernel implementation and a recording fake, so that the
//! layers above are tested without root. Every operation takes an open [`netns::NetNs`], so no caller changes
//! the namespace of its own thread.
//!
//! This crate contains no concept of Palisade and makes no decisions: it performs one operation on one kernel
//! object and names the operation and the object on failure. It is the only crate of the workspace that may
//! use `unsafe`.

pub mod atomic_file;
pub mod bpf;
pub mod conntrack;
pub mod credentials;
pub mod descriptor_passing;
pub mod descriptors;
pub mod fault;
pub mod grace;
pub mod heap;
pub mod link;
pub mod lock;
pub mod netlink;
pub mod netns;
pub mod nflog;
pub mod nfnetlink;
pub mod notify;
pub mod path_handle;
pub mod plain_file;
pub mod random;
pub mod sysctl;
pub mod transparent;
pub mod watch;
pub mod writers;
pub mod xfrm;

/// The kernel's error number; `Display` gives its name and text.
pub use nix::errno::Errno;

//! Kernel interfaces: netlink, namespaces, conntrack, sysctl, inotify; and the heap of the process.
//!
//! One small trait per kernel interface, its kernel implementation, and a
//! recording fake beside it, so that what stands above is tested without root.
//! Everything takes an open [`netns::NetNs`], so no caller ever changes the
//! namespace of its own thread.
//!
//! This crate knows no Palisade word and decides nothing: it does one thing to
//! one kernel object and says, on failure, which thing and which object. It is
//! the only crate of the workspace that may use `unsafe`.

pub mod atomic_file;
pub mod conntrack;
pub mod credentials;
pub mod fault;
pub mod grace;
pub mod heap;
pub mod icmp;
pub mod link;
pub mod lock;
pub mod netlink;
pub mod netns;
pub mod nflog;
pub mod nfnetlink;
pub mod notify;
pub mod path_handle;
pub mod random;
pub mod sysctl;
pub mod watch;
pub mod writers;

/// The kernel's error number; `Display` gives its name and text.
pub use nix::errno::Errno;

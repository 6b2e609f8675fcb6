//! What every source that follows a server shares: its thread, its end, its snapshot, and what is passed on.
//!
//! A crate of a kind of server implements [`Remote`], which connects and receives, and [`RemoteObjects`], what
//! the server has. [`RemoteSource`] does the rest, the same for all kinds: it begins with the snapshot, keeps
//! that up to date, gathers changes that arrive together ([`ChangeBatch`]), delays attempts ([`Follower`]),
//! reports on request, and ends on request.
//!
//! Promises: a change is in the snapshot before it is in force, so that a restart never goes back to an earlier
//! state; nothing is passed on that changes neither an object nor what the source says of itself.
//!
//! Never: connects to a server, interprets an object, or decides what is in force.

mod change_batch;
mod follower;
mod progress;
mod remote_changes;
mod remote_source;

pub use change_batch::{ChangeBatch, MAX_CHANGES};
pub use follower::Follower;
pub use progress::{RemoteObjects, RemoteProgress};
pub use remote_changes::{RemoteChanges, StoredChange};
pub use remote_source::{Remote, RemoteSource};

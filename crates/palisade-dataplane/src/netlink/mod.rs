//! nf_tables over netlink: the words of `palisade-nft` to the kernel and back.
//!
//! Promises: what is written is read back equal, counts apart; one step is one
//! kernel transaction.
//!
//! Never: runs `nft`, or touches another table.

mod batch;
mod describe;
mod execute;
mod expr;
mod object;
mod read;
mod set;
mod userdata;

pub use batch::EncodeError;
pub use execute::{ExecuteError, Executor};
pub use read::ReadError;

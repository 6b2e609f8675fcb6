//! nf_tables over netlink: encodes the types of `palisade-nft` and decodes them.
//!
//! Promises: what is written is read back equal, apart from counter values; one step is one kernel
//! transaction.
//!
//! Never: runs `nft`, or touches another table.

mod batch;
mod describe;
mod execute;
mod expr;
mod object;
pub(crate) mod owner;
mod read;
mod set;
mod userdata;

pub use batch::EncodeError;
pub use execute::{ExecuteError, Executor, TransactionObserver};
pub use owner::OwnerError;
pub use read::TableReadError;

/// The rules of one chain with their counters, in order; none if the chain does not exist.
pub(crate) fn rules(
    nfnetlink: &mut impl palisade_sys::nfnetlink::Nfnetlink,
    table: &str,
    chain: &str,
) -> Result<Vec<palisade_nft::NftRule>, TableReadError> {
    match read::TableReader::new(nfnetlink, table).rules(chain) {
        Err(TableReadError::Query(error)) if error.error.errno == palisade_sys::Errno::ENOENT => {
            Ok(Vec::new())
        }
        rules => rules,
    }
}

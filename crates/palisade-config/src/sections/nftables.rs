//! The use of nftables and of conntrack.

use crate::section::section;
use crate::value_parser::{boolean, mask, name};

section! {
    /// The use of nftables and of conntrack.
    pub struct NftablesConfig: "nftables";

    /// The name of the nftables table.
    table: String = "table", name(64), "palisade", "NAME", Restart;

    /// Whether no other program can change or flush the nftables tables while the agent runs (Linux 6.9; with older
    /// kernels changes are repaired).
    owns_table: bool = "own-table", boolean(), "true", "true|false", Restart;

    /// The bits of the conntrack mark that hold the generation of allowed flows.
    mark_mask: u32 = "mark-mask", mask(), "0xffffff00", "MASK", Restart;
}

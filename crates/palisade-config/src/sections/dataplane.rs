//! What delivers packets that policy allows.

use crate::section::section;
use crate::value_parser::one_of;

/// What delivers packets that policy allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataplaneKind {
    /// nftables judges every packet, and the host forwards it.
    Nftables,
    /// The same, but BPF programs deliver what they can prove allowed between workloads of this host.
    Ebpf,
}

section! {
    /// What delivers packets that policy allows.
    pub struct DataplaneConfig: "Dataplane";

    /// What delivers packets between pods of this host: nftables, or eBPF where policy is proven to allow them. `auto` is
    /// nftables.
    kind: DataplaneKind =
        "dataplane",
        one_of(
            &["auto", "ebpf", "nftables"],
            &[DataplaneKind::Nftables, DataplaneKind::Ebpf, DataplaneKind::Nftables]
        ),
        "auto", "auto|ebpf|nftables", Restart;
}

impl DataplaneConfig {
    /// Whether BPF programs are to deliver what they can prove allowed.
    #[must_use]
    pub fn has_fast_path(&self) -> bool {
        self.kind == DataplaneKind::Ebpf
    }
}

//! The interfaces of workloads and pods on this host.

use crate::section::section;
use crate::value_parser::{name, number, one_of};

section! {
    /// The interfaces of workloads and pods on this host.
    pub struct WorkloadsConfig: "Workloads";

    /// The MTU of the interfaces of workloads that `palisade workload add` attaches, in bytes.
    mtu: u32 = "mtu", number(1_280, 65_535), "1500", "BYTES", Restart;

    /// The name prefix of the host-side interfaces; unknown interfaces with this prefix are closed.
    interface_prefix: String = "interface-prefix", name(8), "pal", "TEXT", Restart;

    /// Whether the agent enables IP forwarding.
    manages_forwarding: bool =
        "forwarding", one_of(&["manage", "keep"], &[true, false]), "manage", "manage|keep", Restart;
}

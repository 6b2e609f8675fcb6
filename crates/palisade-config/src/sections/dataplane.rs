//! What delivers packets that policy allows.

use super::ipam::IpamConfig;
use super::masquerade::MasqueradeConfig;
use crate::section::section;
use crate::source::Contradictions;
use crate::value_parser::{interfaces, networks, one_of};
use palisade_model::Prefix;

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

    /// What delivers packets: nftables, or eBPF where policy is proven to allow them. `auto` is nftables.
    kind: DataplaneKind =
        "dataplane",
        one_of(
            &["auto", "ebpf", "nftables"],
            &[DataplaneKind::Nftables, DataplaneKind::Ebpf, DataplaneKind::Nftables]
        ),
        "auto", "auto|ebpf|nftables", Restart;

    /// Networks of other hosts, such as the pod networks of a cluster, where pods' addresses are never translated: eBPF
    /// sends what is proven allowed to the next hop.
    networks: Vec<Prefix> = "fast-path-networks", networks(), "", "CIDR,…", Restart;

    /// The interfaces by which these networks are reached. A name that a host lacks means nothing.
    uplinks: Vec<String> = "fast-path-interfaces", interfaces(), "", "NAME,…", Restart;
}

impl DataplaneConfig {
    /// Whether BPF programs are to deliver what they can prove allowed.
    #[must_use]
    pub fn has_fast_path(&self) -> bool {
        self.kind == DataplaneKind::Ebpf
    }

    /// Adds what speaks against the networks of other hosts.
    pub(crate) fn find_contradictions(
        &self,
        workload_prefix: Option<&str>,
        contradictions: &mut Contradictions<'_>,
    ) {
        let (networks, interfaces) = ("fast-path-networks", "fast-path-interfaces");
        if !self.networks.is_empty() && self.uplinks.is_empty() {
            let reason =
                "it takes the interfaces by which the networks are reached as well".to_owned();
            contradictions.add(networks, interfaces, reason);
        }
        let is_workload =
            |name: &&String| workload_prefix.is_some_and(|prefix| name.starts_with(prefix));
        if let Some(name) = self.uplinks.iter().find(is_workload) {
            let reason = format!("{name} would be the interface of a workload by its name");
            contradictions.add(interfaces, "interface-prefix", reason);
        }
    }

    /// Adds that packets to one of the networks are masqueraded.
    pub(crate) fn find_translated_network(
        &self,
        masquerade: &MasqueradeConfig,
        ipam: &IpamConfig,
        contradictions: &mut Contradictions<'_>,
    ) {
        let is_translated = |network: &&Prefix| {
            let mut excepted = masquerade.except.iter().chain(ipam.networks());
            masquerade.is_enabled && !excepted.any(|known| known.covers(**network))
        };
        if let Some(network) = self.networks.iter().find(is_translated) {
            let reason = format!(
                "pods' packets to {network} are masqueraded, and the fast path would not translate them; add it to masquerade-except"
            );
            contradictions.add("fast-path-networks", "masquerade", reason);
        }
    }
}

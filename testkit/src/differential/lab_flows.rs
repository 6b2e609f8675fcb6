//! Flows between pods, their node and the outside, as the laboratory can send them.

use super::tables;
use palisade_generators::kubernetes;
use palisade_model::{Flow, FlowOrigin, L4, PreDnat, Protocol};
use palisade_oracle::{HostPath, PreparedState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Pods in the lab: as many as a world can have local endpoints, by the number in their interface.
pub(super) const PODS: usize = 8;

/// The addresses of the node that every pod runs on.
pub(super) fn node_addresses() -> impl Iterator<Item = IpAddr> {
    let parsed = kubernetes::NODE.into_iter().map(str::parse);
    parsed.filter_map(Result::ok)
}

pub(super) fn is_node(address: IpAddr) -> bool {
    node_addresses().any(|own| own == address)
}

/// The interface of the host that the lab's interface to the outside stands for.
pub(super) const UPLINK: &str = "eth0";

/// The interfaces of the host that a flow crosses, where this one leads to the outside.
pub(super) fn host_path(prepared: &PreparedState<'_>, flow: &Flow, uplink: &str) -> HostPath {
    let crosses = |end| local_endpoint(prepared, end).is_none() && !is_node(end);
    let interface = |end| crosses(end).then(|| uplink.into());
    HostPath {
        input: interface(flow.source),
        output: interface(flow.destination),
        is_forwarded: !is_node(flow.source) && !is_node(flow.destination),
        pre_dnat: pre_dnat(flow).filter(|_| crosses(flow.source)),
    }
}

/// The addresses of flows that the host translates: nobody has them.
const TRANSLATED: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 18, 0, 9)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 9)),
];

/// Where a third of the flows of TCP and UDP are sent, half of them to another port.
fn pre_dnat(flow: &Flow) -> Option<PreDnat> {
    let L4::Ports {
        source,
        destination,
    } = flow.l4
    else {
        return None;
    };
    let is_translated = source % 3 == 0
        && [Protocol::TCP, Protocol::UDP].contains(&flow.protocol)
        && destination > 0;
    let mut addresses = TRANSLATED.into_iter();
    Some(PreDnat {
        destination: addresses.find(|own| own.is_ipv4() == flow.destination.is_ipv4())?,
        port: match source % 2 {
            0 => destination,
            _ => 80,
        },
    })
    .filter(|_| is_translated)
}

/// How two say differently of one packet.
pub(super) fn mismatch_text(
    reading: &str,
    wanted: bool,
    arrived: bool,
    prepared: &PreparedState<'_>,
    flow: &Flow,
) -> String {
    let verb = |passes| if passes { "passes" } else { "is dropped" };
    let packet = tables::packet(prepared, flow);
    format!(
        "by the {reading} it {}, in the kernel it {}: {flow} ({packet:?})",
        verb(wanted),
        verb(arrived)
    )
}

/// The number of the local endpoint that holds an address.
pub(super) fn local_endpoint(prepared: &PreparedState<'_>, address: IpAddr) -> Option<usize> {
    let interface = prepared.address_holder(address)?.interface.clone()?;
    interface.strip_prefix("pal")?.parse().ok()
}

/// Whether a flow passes an interface where something is judged and can be made here: the host's own packets come from
/// its own addresses, and over IPv6 some protocols are extension headers.
pub(super) fn can_be_sent(prepared: &PreparedState<'_>, flow: &Flow) -> bool {
    let (from, to) = (
        local_endpoint(prepared, flow.source),
        local_endpoint(prepared, flow.destination),
    );
    let of_pods = [from, to].into_iter().flatten().any(|n| n < PODS);
    let of_host = is_node(flow.source) != is_node(flow.destination);
    let extension = flow.source.is_ipv6() && [50, 4].contains(&flow.protocol.0);
    // Connection tracking looks for a header of UDPLite, which the lab's packets have not.
    let headless = flow.protocol.0 == 136;
    let is_reachable = [from, to].into_iter().flatten().all(|n| n < PODS);
    // The node's own stack sends from its own addresses, and nothing else does.
    let own = is_node(flow.source) == (flow.origin == FlowOrigin::HostStack);
    own && (of_pods || of_host) && is_reachable && from != to && !extension && !headless
}

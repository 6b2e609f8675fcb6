//! A bridge of the host in front of a namespace.

use super::{HOST, HOST_MAC, Lab, LabError, NodeId, ip, pod_mac, route_commands};

/// Makes the host's interface of a namespace a port of a new bridge, which has the routes to it from then on.
///
/// # Errors
/// If the kernel refuses, or the namespace is not joined to the host.
pub fn move_to_bridge(lab: &Lab, node: NodeId, bridge: &str) -> Result<(), LabError> {
    let port = lab.nodes[node.0].interface.as_deref().unwrap_or_default();
    let mut commands = vec![
        format!("link add {bridge} address {HOST_MAC} type bridge"),
        format!("link set {port} master {bridge}"),
        format!("link set {bridge} up"),
    ];
    for &address in lab.addresses(node) {
        commands.push(format!("route del {address} dev {port}"));
        commands.extend(route_commands(address, bridge, &pod_mac(node)));
    }
    ip::run(lab.namespace_name(HOST), &commands)
}

//! Links of other kinds than veth between the host and a namespace: bridges, bonds and VLANs.

use super::{HOST, HOST_MAC, Lab, LabError, NodeId, POD_INTERFACE, ip, pod_mac, route_commands};

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

/// Joins a namespace to the host by a bond of two veths, of which one is used as long as it is up. The bond and the
/// veths have these names on the host's side.
///
/// # Errors
/// If the kernel refuses, or has no bonds.
pub fn attach_bond(
    lab: &mut Lab,
    node: NodeId,
    bond: &str,
    ports: [&str; 2],
) -> Result<(), LabError> {
    let inside = lab.namespace_name(node).to_owned();
    // `ip link add` tells no address to a bond that its first port would not replace.
    let make = |bond: &str, ports: [&str; 2], mac: &str| {
        let mut commands = vec![format!(
            "link add {bond} type bond mode active-backup miimon 20"
        )];
        commands.extend(ports.map(|port| format!("link set {port} master {bond}")));
        commands.push(format!("link set {bond} address {mac}"));
        commands.extend(ports.map(|port| format!("link set {port} up")));
        commands.push(format!("link set {bond} up"));
        commands
    };
    let mut on_host: Vec<String> = ports
        .map(|port| format!("link add {port} type veth peer name {port} netns {inside}"))
        .into();
    on_host.extend(make(bond, ports, HOST_MAC));
    ip::run(lab.namespace_name(HOST), &on_host)?;
    ip::run(&inside, &make(POD_INTERFACE, ports, &pod_mac(node)))?;
    lab.configure_link(node, bond)
}

/// Joins a namespace to the host by a VLAN on the link of another one. On the host's side it is named as that link, a
/// point and its number.
///
/// # Errors
/// If the kernel refuses, has no VLANs, or the other namespace is not joined to the host.
pub fn attach_vlan(
    lab: &mut Lab,
    node: NodeId,
    trunk: NodeId,
    number: u16,
) -> Result<(), LabError> {
    let parent = lab.interface(trunk)?;
    let inside = lab.namespace_name(node).to_owned();
    let vlan = format!("{parent}.{number}");
    let beyond = [
        format!("link add link {POD_INTERFACE} name vlan{number} type vlan id {number}"),
        format!(
            "link set vlan{number} netns {inside} name {POD_INTERFACE} address {}",
            pod_mac(node)
        ),
    ];
    ip::run(lab.namespace_name(trunk), &beyond)?;
    let on_host = [
        format!("link add link {parent} name {vlan} address {HOST_MAC} type vlan id {number}"),
        format!("link set {vlan} up"),
    ];
    ip::run(lab.namespace_name(HOST), &on_host)?;
    lab.configure_link(node, &vlan)
}

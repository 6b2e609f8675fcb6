//! A host made of network namespaces, with pods and an outside world around it.
//!
//! ```text
//!   pod a ──veth──┐            ┌──veth── outside (several addresses)
//!   pod b ──veth──┤    host    │             │
//!   pod c ──veth──┘            ┘           mark (the prober's own link, never judged)
//! ```
//!
//! The host forwards and is the only router; pods reach everything through 169.254.1.1 and
//! fe80::1, as workloads of a real node do. Neighbours are permanent, so no packet waits for one.
//! Every namespace is named `pal-<lab>-<pid>-<n>-<node>`; dropping the [`Lab`] removes them all,
//! after a panic too, and [`leaks`] finds what a killed test left. Nothing here touches the
//! namespace the test runs in.

mod advertise;
pub mod craft;
mod error;
pub(crate) mod ip;
mod leaks;
mod links;
mod nat;
pub(crate) mod netns;
mod packet;
mod probe;
mod raw;
mod source;
mod spray;
mod traffic;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

pub use advertise::send_router_advertisement;
pub use error::LabError;
pub use leaks::{Leak, find_leaks, find_own_leaks};
pub use links::{attach_bond, attach_vlan, move_to_bridge};
pub use nat::translate_destination;
pub use netns::{TestNetNs, delete as delete_namespace};
pub use packet::{ProbeFlow, ProbeL4};
pub use probe::{ProbeError, kernel_drops, probe, send_crafted_packets};
pub use raw::RawSender;
pub use source::{TcpSource, TcpTail};
pub use spray::{Spray, SprayCounts, SprayKind, SprayReceiver};
pub use traffic::{LongFlow, LongFlowCounts, TcpEcho, UdpEcho, connect, ping, udp_exchange};

/// The link-layer address of the host's side of every veth.
pub const HOST_MAC: &str = "ee:ee:ee:ee:ee:ee";
/// The gateway that pods use for IPv4; it is on no interface.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The gateway that pods use for IPv6; it is on no interface.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
/// The host's own addresses, on its loopback.
pub const HOST_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xff, 0, 0, 0, 0, 1)),
];
/// The addresses that the outside holds from the start; add more with [`Lab::add_address`].
pub const OUTSIDE_ADDRESSES: [IpAddr; 7] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)),
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 3)),
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 5)),
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 130)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 3)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 5)),
];
/// The host's interface towards the outside.
pub const OUTSIDE_INTERFACE: &str = "out0";
/// The interface inside every pod.
pub const POD_INTERFACE: &str = "eth0";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// One namespace of a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(usize);

/// What a pod is to be.
#[derive(Clone, Debug)]
pub struct PodSpec {
    /// The name inside the lab, unique there; becomes the end of the namespace's name.
    pub name: String,
    /// The pod's addresses, of either family, at least one.
    pub addresses: Vec<IpAddr>,
    /// The host's side of the veth, at most 15 characters.
    pub interface: String,
}

impl PodSpec {
    /// A pod named `name` with `addresses`, behind the host interface `interface`.
    ///
    /// # Panics
    /// If an address does not parse.
    #[must_use]
    #[allow(
        clippy::panic,
        reason = "documented: a test's own literal; saying which is the best that can be done"
    )]
    pub fn new(name: &str, interface: &str, addresses: &[&str]) -> Self {
        let parse = |text: &&str| {
            text.parse()
                .unwrap_or_else(|_| panic!("{text:?} is not an address"))
        };
        Self {
            name: name.to_owned(),
            addresses: addresses.iter().map(parse).collect(),
            interface: interface.to_owned(),
        }
    }
}

#[derive(Debug)]
struct LabNode {
    name: String,
    namespace: String,
    addresses: Vec<IpAddr>,
    /// The host's side of the veth, where the node has one.
    interface: Option<String>,
    alive: bool,
}

/// A host, its pods and an outside, until dropped.
#[derive(Debug)]
pub struct Lab {
    prefix: String,
    nodes: Vec<LabNode>,
    sockets: Mutex<probe::ProbeSockets>,
}

const HOST: NodeId = NodeId(0);
const OUTSIDE: NodeId = NodeId(1);
const MARK: NodeId = NodeId(2);

impl Lab {
    /// Makes a host and an outside, joined. `name` appears in the namespaces' names.
    ///
    /// # Errors
    /// If a namespace, link or address cannot be made; what was made is removed.
    pub fn new(name: &str) -> Result<Self, LabError> {
        Self::with_outside(name, &OUTSIDE_ADDRESSES)
    }

    /// The same, with these addresses for the outside.
    ///
    /// # Errors
    /// As [`Lab::new`].
    pub fn with_outside(name: &str, outside: &[IpAddr]) -> Result<Self, LabError> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut lab = Self {
            prefix: format!("pal-{name}-{}-{number}", std::process::id()),
            nodes: Vec::new(),
            sockets: Mutex::default(),
        };
        lab.create_node("host", of_usable_families(&HOST_ADDRESSES))?;
        lab.create_node("outside", of_usable_families(outside))?;
        lab.create_node("mark", vec![])?;
        lab.configure_host()?;
        lab.configure_outside()?;
        if has_ipv6() {
            lab.configure_mark()?;
        }
        Ok(lab)
    }

    /// The node that forwards.
    #[must_use]
    pub fn host(&self) -> NodeId {
        HOST
    }

    /// The node beyond the host's uplink.
    #[must_use]
    pub fn outside(&self) -> NodeId {
        OUTSIDE
    }

    /// What every namespace of this lab begins with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of a node's namespace, as under `/run/netns`.
    #[must_use]
    pub fn namespace_name(&self, node: NodeId) -> &str {
        &self.nodes[node.0].namespace
    }

    /// The path of a node's namespace.
    #[must_use]
    pub fn namespace_path(&self, node: NodeId) -> PathBuf {
        netns::path(self.namespace_name(node))
    }

    /// The name that the node was made with.
    #[must_use]
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.0].name
    }

    /// The addresses a node holds.
    #[must_use]
    pub fn addresses(&self, node: NodeId) -> &[IpAddr] {
        &self.nodes[node.0].addresses
    }

    /// The first address of a node in the family of `like`.
    #[must_use]
    pub fn address_of_family(&self, node: NodeId, like: IpAddr) -> Option<IpAddr> {
        self.addresses(node)
            .iter()
            .copied()
            .find(|address| address.is_ipv4() == like.is_ipv4())
    }

    /// The node that holds an address.
    #[must_use]
    pub fn node_at(&self, address: IpAddr) -> Option<NodeId> {
        let holds = |node: &LabNode| node.alive && node.addresses.contains(&address);
        self.nodes.iter().position(holds).map(NodeId)
    }

    /// The node of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let is_it = |node: &LabNode| node.alive && node.name == name;
        self.nodes.iter().position(is_it).map(NodeId)
    }

    /// Adds a pod: a namespace, a veth to the host, and the routes both ways.
    ///
    /// # Errors
    /// If the name is taken or the kernel refuses.
    pub fn add_pod(&mut self, spec: PodSpec) -> Result<NodeId, LabError> {
        let node = self.add_namespace(&spec.name, spec.addresses)?;
        self.attach(node, &spec.interface)?;
        Ok(node)
    }

    /// Adds a namespace with nothing in it but loopback, for something else to attach.
    ///
    /// `addresses` are those it will be given: the prober sends from them.
    ///
    /// # Errors
    /// If the name is taken or the kernel refuses.
    pub fn add_namespace(
        &mut self,
        name: &str,
        addresses: Vec<IpAddr>,
    ) -> Result<NodeId, LabError> {
        self.assert_free(name)?;
        self.create_node(name, addresses)
    }

    /// Adds a namespace that something else made and attached, such as a container runtime.
    ///
    /// Nothing in it is changed, and dropping the lab removes its name only.
    ///
    /// # Errors
    /// If the name is taken or the kernel refuses.
    pub fn adopt(
        &mut self,
        name: &str,
        made: &Path,
        addresses: Vec<IpAddr>,
    ) -> Result<NodeId, LabError> {
        self.assert_free(name)?;
        let (node, namespace) = self.register_node(name, addresses);
        netns::adopt(&namespace, made)?;
        Ok(node)
    }

    /// Joins a namespace to the host by a veth named `interface` on the host's side.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn attach(&mut self, node: NodeId, interface: &str) -> Result<(), LabError> {
        let host = self.namespace_name(HOST).to_owned();
        let inside = self.namespace_name(node).to_owned();
        let mac = pod_mac(node);
        let on_host = [
            format!(
                "link add {interface} address {HOST_MAC} type veth peer name {POD_INTERFACE} netns {inside} address {mac}"
            ),
            format!("link set {interface} up"),
        ];
        ip::run(&host, &on_host)?;
        self.configure_link(node, interface)?;
        netns::wait_until_running(&host, interface)?;
        netns::wait_until_running(&inside, POD_INTERFACE)
    }

    /// Deletes the link of a node, and makes another one of the same name.
    ///
    /// # Errors
    /// If the node has no link or the kernel refuses.
    pub fn reattach(&mut self, node: NodeId) -> Result<(), LabError> {
        let Some(interface) = self.nodes[node.0].interface.take() else {
            let name = self.name(node);
            return Err(LabError::Node(format!("{name} has no link")));
        };
        self.lock_sockets().forget(node);
        ip::run(
            self.namespace_name(HOST),
            &[format!("link del {interface}")],
        )?;
        self.attach(node, &interface)
    }

    /// Gives a node that is joined to the host its addresses and routes.
    fn configure_link(&mut self, node: NodeId, interface: &str) -> Result<(), LabError> {
        let mac = pod_mac(node);
        let mut on_host = Vec::new();
        let mut in_pod = vec![format!("link set {POD_INTERFACE} up")];
        for &address in self.addresses(node) {
            in_pod.push(address_add_command(address, POD_INTERFACE));
            on_host.extend(route_commands(address, interface, &mac));
        }
        for gateway in [IpAddr::V4(GATEWAY_V4), IpAddr::V6(GATEWAY_V6)] {
            if self.address_of_family(node, gateway).is_some() {
                in_pod.extend(default_route_commands(gateway));
            }
        }
        ip::run(self.namespace_name(HOST), &on_host)?;
        ip::run(self.namespace_name(node), &in_pod)?;
        self.nodes[node.0].interface = Some(interface.to_owned());
        Ok(())
    }

    /// Gives a node one more address, routed from the host; the host itself has it on its loopback.
    ///
    /// # Errors
    /// If the node has no veth or the kernel refuses.
    pub fn add_address(&mut self, node: NodeId, address: IpAddr) -> Result<(), LabError> {
        if node == HOST {
            ip::run(
                self.namespace_name(HOST),
                &[address_add_command(address, "lo")],
            )?;
            self.nodes[node.0].addresses.push(address);
            return Ok(());
        }
        let interface = self.interface(node)?;
        ip::run(
            self.namespace_name(node),
            &[address_add_command(address, POD_INTERFACE)],
        )?;
        let to = route_commands(address, &interface, &pod_mac(node));
        ip::run(self.namespace_name(HOST), &to)?;
        self.nodes[node.0].addresses.push(address);
        Ok(())
    }

    /// Takes an address and its route away again.
    ///
    /// # Errors
    /// If the node does not hold it or the kernel refuses.
    pub fn remove_address(&mut self, node: NodeId, address: IpAddr) -> Result<(), LabError> {
        let host = self.namespace_name(HOST);
        if node == HOST {
            let width = prefix_len(address);
            ip::run(host, &[format!("address del {address}/{width} dev lo")])?;
            self.nodes[node.0].addresses.retain(|held| *held != address);
            return Ok(());
        }
        let interface = self.interface(node)?;
        ip::run(host, &[format!("route del {address} dev {interface}")])?;
        let width = prefix_len(address);
        ip::run(
            self.namespace_name(node),
            &[format!("address del {address}/{width} dev {POD_INTERFACE}")],
        )?;
        self.nodes[node.0].addresses.retain(|held| *held != address);
        Ok(())
    }

    /// Removes a node's namespace, and with it its veth and routes.
    ///
    /// # Errors
    /// If the namespace cannot be removed.
    pub fn remove(&mut self, node: NodeId) -> Result<(), LabError> {
        if node.0 <= MARK.0 {
            let name = self.name(node);
            return Err(LabError::Node(format!("{name} is part of every lab")));
        }
        self.lock_sockets().forget(node);
        // Removing a namespace kills its links only when the kernel comes round to it.
        if let Some(interface) = self.nodes[node.0].interface.take() {
            ip::run(
                self.namespace_name(HOST),
                &[format!("link del {interface}")],
            )?;
        }
        self.nodes[node.0].alive = false;
        netns::delete(&self.nodes[node.0].namespace)
    }

    /// Leaves every namespace for somebody else to remove.
    pub fn keep(mut self) {
        self.nodes.clear();
    }

    /// Runs `work` on a thread of its own inside a node's namespace.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    ///
    /// # Panics
    /// With `work`'s own panic.
    pub fn run_in<R: Send>(
        &self,
        node: NodeId,
        work: impl FnOnce() -> R + Send,
    ) -> Result<R, LabError> {
        netns::run_in(self.namespace_name(node), work)
    }

    /// Forgets every tracked flow of the host, so that the next packet of each begins anew.
    ///
    /// # Errors
    /// If the host's namespace cannot be entered or the kernel refuses.
    pub fn flush_conntrack(&self) -> Result<(), LabError> {
        let done = self.run_in(HOST, netns::flush_conntrack)?;
        done.map_err(|source| LabError::Namespace {
            doing: "flushing the flows of",
            namespace: self.namespace_name(HOST).to_owned(),
            source,
        })
    }

    /// Sets a kernel parameter, named by its path under `/proc/sys`, in a node.
    ///
    /// # Errors
    /// If the parameter does not exist or refuses the value.
    pub fn set_sysctl(&self, node: NodeId, key: &str, value: &str) -> Result<(), LabError> {
        self.set_sysctls(node, &[(key, value)])
    }

    fn set_sysctls(&self, node: NodeId, pairs: &[(&str, &str)]) -> Result<(), LabError> {
        let namespace = self.namespace_name(node).to_owned();
        self.run_in(node, || {
            // A kernel without IPv6 has none of its parameters.
            let usable = |key: &str| has_ipv6() || !key.starts_with("net/ipv6/");
            for (key, value) in pairs.iter().filter(|(key, _)| usable(key)) {
                #[allow(
                    clippy::disallowed_methods,
                    reason = "a kernel parameter, not a file on disk"
                )]
                let written = std::fs::write(format!("/proc/sys/{key}"), value);
                written.map_err(|source| LabError::Sysctl {
                    namespace: namespace.clone(),
                    key: (*key).to_owned(),
                    source,
                })?;
            }
            Ok(())
        })?
    }

    fn interface(&self, node: NodeId) -> Result<String, LabError> {
        let interface = self.nodes[node.0].interface.clone();
        interface.ok_or_else(|| LabError::Node(format!("{} has no veth", self.name(node))))
    }

    fn lock_sockets(&self) -> std::sync::MutexGuard<'_, probe::ProbeSockets> {
        // A panicking prober leaves sockets that are merely undrained.
        self.sockets
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn assert_free(&self, name: &str) -> Result<(), LabError> {
        if self.find(name).is_some() {
            return Err(LabError::Node(format!("the lab has a node named {name}")));
        }
        Ok(())
    }

    /// Records a node before it exists, so that a half-made one is removed too.
    fn register_node(&mut self, name: &str, addresses: Vec<IpAddr>) -> (NodeId, String) {
        let namespace = format!("{}-{name}", self.prefix);
        self.nodes.push(LabNode {
            name: name.to_owned(),
            namespace: namespace.clone(),
            addresses,
            interface: None,
            alive: true,
        });
        (NodeId(self.nodes.len() - 1), namespace)
    }

    fn create_node(&mut self, name: &str, addresses: Vec<IpAddr>) -> Result<NodeId, LabError> {
        let (node, namespace) = self.register_node(name, addresses);
        netns::create(&namespace)?;
        self.set_sysctls(
            node,
            &[
                ("net/ipv6/conf/default/accept_dad", "0"),
                ("net/ipv6/conf/all/accept_dad", "0"),
                ("net/ipv6/conf/default/accept_ra", "0"),
                ("net/ipv4/conf/all/rp_filter", "0"),
                ("net/ipv4/conf/default/rp_filter", "0"),
                ("net/ipv4/conf/all/send_redirects", "0"),
                ("net/ipv4/conf/default/send_redirects", "0"),
                // An ICMP error must not be missing because there were many before it.
                ("net/ipv4/icmp_ratelimit", "0"),
                ("net/ipv6/icmp/ratelimit", "0"),
            ],
        )?;
        ip::run(&namespace, &["link set lo up".to_owned()])?;
        Ok(node)
    }

    fn configure_host(&self) -> Result<(), LabError> {
        self.set_sysctls(
            HOST,
            &[
                ("net/ipv4/ip_forward", "1"),
                ("net/ipv6/conf/all/forwarding", "1"),
                ("net/ipv6/conf/default/forwarding", "1"),
            ],
        )?;
        let addresses: Vec<_> = self
            .addresses(HOST)
            .iter()
            .map(|&address| address_add_command(address, "lo"))
            .collect();
        ip::run(self.namespace_name(HOST), &addresses)
    }

    fn configure_outside(&mut self) -> Result<(), LabError> {
        self.attach(OUTSIDE, OUTSIDE_INTERFACE)
    }

    /// The mark link joins outside and mark directly: no rule of the host can touch it.
    fn configure_mark(&self) -> Result<(), LabError> {
        let mark = self.namespace_name(MARK).to_owned();
        let [near, far] = probe::MARK_ADDRESSES;
        let [near_mac, far_mac] = ["02:6d:61:72:6b:01", "02:6d:61:72:6b:02"];
        let outside = [
            format!(
                "link add mark0 address {near_mac} type veth peer name mark0 netns {mark} address {far_mac}"
            ),
            format!("address add {near}/127 dev mark0 nodad"),
            "link set mark0 up".to_owned(),
            format!("neigh replace {far} lladdr {far_mac} dev mark0 nud permanent"),
        ];
        ip::run(self.namespace_name(OUTSIDE), &outside)?;
        let inside = [
            format!("address add {far}/127 dev mark0 nodad"),
            "link set mark0 up".to_owned(),
            format!("neigh replace {near} lladdr {near_mac} dev mark0 nud permanent"),
        ];
        ip::run(&mark, &inside)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.lock_sockets().clear();
        for node in self.nodes.iter().rev().filter(|node| node.alive) {
            if let Err(error) = netns::delete(&node.namespace) {
                eprintln!("lab {}: {error}", self.prefix);
            }
        }
    }
}

/// Whether the kernel has IPv6; without it a lab has IPv4 only, and the prober cannot work.
#[must_use]
pub fn has_ipv6() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}

fn of_usable_families(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let usable = |address: &&IpAddr| address.is_ipv4() || has_ipv6();
    addresses.iter().filter(usable).copied().collect()
}

fn prefix_len(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn pod_mac(node: NodeId) -> String {
    format!("02:70:6f:64:{:02x}:{:02x}", node.0 >> 8 & 255, node.0 & 255)
}

fn address_add_command(address: IpAddr, interface: &str) -> String {
    let nodad = if address.is_ipv6() { " nodad" } else { "" };
    format!(
        "address add {address}/{} dev {interface}{nodad}",
        prefix_len(address)
    )
}

fn default_route_commands(gateway: IpAddr) -> [String; 2] {
    let to = if gateway.is_ipv4() {
        "0.0.0.0/0"
    } else {
        "::/0"
    };
    [
        format!("neigh replace {gateway} lladdr {HOST_MAC} dev {POD_INTERFACE} nud permanent"),
        format!("route add {to} via {gateway} dev {POD_INTERFACE} onlink"),
    ]
}

fn route_commands(address: IpAddr, interface: &str, mac: &str) -> [String; 2] {
    [
        format!("route add {address} dev {interface}"),
        format!("neigh replace {address} lladdr {mac} dev {interface} nud permanent"),
    ]
}

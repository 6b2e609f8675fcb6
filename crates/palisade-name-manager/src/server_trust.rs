//! Which DNS servers may teach: whose answers give names their addresses.
//!
//! A server is trusted by the parameter `dns-servers`: because a policy names it, as one of the cluster, as one of this
//! host's resolvers, or by its network. Promises: a server that only a rule for every address lets a workload ask is
//! not trusted for that. Never: lets an answer through or holds it up.

use palisade_config::DnsServers;
use palisade_enforcer::policy_state::PolicyState;
use palisade_model::{Direction, EndpointId, L4, Prefix, Protocol};
use palisade_tables::{DirectionVerdict, Packet};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Addresses that no rule names by itself: of the networks kept for future use and for discarded packets.
const NOBODY: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(240, 0, 0, 1),
    Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1),
);
/// How long the nameservers of this host are not read again.
const NAMESERVERS_AGE: Duration = Duration::from_secs(10);
/// The address that node-local DNS servers have by convention.
const NODE_LOCAL_DNS: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10));
/// The namespace and the label of a cluster's DNS pods, by convention.
const CLUSTER_DNS: (&str, &str, &str) = ("kube-system", "k8s-app", "kube-dns");

/// The servers that may teach.
#[derive(Debug)]
pub struct ServerTrust {
    servers: DnsServers,
    resolv_conf: Vec<PathBuf>,
    /// The nameservers of this host, as they were read last.
    nameservers: BTreeSet<IpAddr>,
    /// When they were read; `None`: not yet.
    read_at: Option<Instant>,
}

impl ServerTrust {
    /// By this parameter; the nameservers of the host are in these files.
    pub fn new(servers: DnsServers, resolv_conf: Vec<PathBuf>) -> Self {
        ServerTrust {
            servers,
            resolv_conf,
            nameservers: BTreeSet::new(),
            read_at: None,
        }
    }

    /// The files with the nameservers of a usual host; those of systemd-resolved are not its own address.
    pub fn usual_files() -> Vec<PathBuf> {
        let paths = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];
        paths.map(PathBuf::from).into()
    }

    /// Whether the answer of a server to a workload may teach.
    pub fn may_teach(
        &mut self,
        now: Instant,
        policy: &PolicyState,
        workload: &EndpointId,
        client: IpAddr,
        server: SocketAddr,
    ) -> bool {
        let address = server.ip();
        let host = Prefix::host(address);
        let mut networks = self.servers.networks.iter();
        networks.any(|network| network.covers(host))
            || self.servers.of_cluster && is_of_cluster(policy, address)
            || self.servers.of_node && self.nameservers(now).contains(&address)
            || self.servers.of_policy && is_named_by_policy(policy, workload, client, server)
    }

    /// The nameservers of this host, read again where they may have changed.
    fn nameservers(&mut self, now: Instant) -> &BTreeSet<IpAddr> {
        let is_old = |read_at| now.saturating_duration_since(read_at) > NAMESERVERS_AGE;
        if self.read_at.is_none_or(is_old) {
            self.read_at = Some(now);
            // A file that is not there names none.
            let texts = self.resolv_conf.iter();
            let texts = texts.filter_map(|path| std::fs::read_to_string(path).ok());
            self.nameservers = texts.flat_map(|text| nameservers(&text)).collect();
        }
        &self.nameservers
    }
}

/// The nameservers in a text of the form of `resolv.conf`. Source: resolv.conf(5).
fn nameservers(text: &str) -> Vec<IpAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let is_nameserver = words.next() == Some("nameserver");
        let address = words.next().filter(|_| is_nameserver)?;
        // An address of one link may name it.
        address.split('%').next()?.parse().ok()
    };
    text.lines().filter_map(address).collect()
}

fn is_of_cluster(policy: &PolicyState, server: IpAddr) -> bool {
    let (namespace, label, value) = CLUSTER_DNS;
    if server == NODE_LOCAL_DNS {
        return true;
    }
    let owner = policy.engine.address_owner(server);
    let endpoint = owner.and_then(|owner| policy.engine.endpoint(&owner));
    endpoint.is_some_and(|endpoint| {
        endpoint.id.namespace.as_deref() == Some(namespace)
            && endpoint
                .labels
                .get(label)
                .is_some_and(|found| &**found == value)
    })
}

/// Whether a rule with DNS names redirects queries to this server, and not those to every address.
fn is_named_by_policy(
    policy: &PolicyState,
    workload: &EndpointId,
    client: IpAddr,
    server: SocketAddr,
) -> bool {
    let Some(endpoint) = policy.engine.endpoint(workload) else {
        return false;
    };
    let nobody = match server.ip() {
        IpAddr::V4(_) => NOBODY.0.into(),
        IpAddr::V6(_) => NOBODY.1.into(),
    };
    let is_judged_by_name = |destination: IpAddr| {
        [Protocol::UDP, Protocol::TCP].into_iter().any(|protocol| {
            let packet = Packet {
                input_interface: endpoint.interface.clone(),
                output_interface: None,
                source: client,
                destination,
                pre_dnat: None,
                protocol,
                l4: L4::Ports {
                    source: 0,
                    destination: server.port(),
                },
            };
            let verdict = policy.tables().judge_direction(&packet, Direction::Egress);
            let DirectionVerdict::Evaluated(evaluation) = verdict else {
                return false;
            };
            let redirect = evaluation.cell.redirect.as_ref();
            redirect.is_some_and(|rules| !rules.names.is_empty())
        })
    };
    is_judged_by_name(server.ip()) && !is_judged_by_name(nobody)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameservers_are_read_as_resolvers_read_them() {
        let text = "# nameserver 192.0.2.1\nsearch example\nnameserver 192.0.2.2\n\
                    nameserver\tfe80::1%eth0\nnameserver\nnameservers 192.0.2.3\n nameserver 2001:db8::53 x\n";
        let expected = ["192.0.2.2", "fe80::1", "2001:db8::53"];
        let expected: Vec<IpAddr> = expected.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(nameservers(text), expected);
    }
}

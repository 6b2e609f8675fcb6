//! Policy by domain name: who may teach addresses, and how long these stay.

use crate::section::section;
use crate::value_parser::{dns_servers, networks, number, one_of};
use crate::values::{DnsRefusal, DnsServers};
use palisade_model::Prefix;

section! {
    /// Policy by domain name: who may teach addresses, and how long these stay.
    pub struct DnsConfig: "Domain names";

    /// Whether DNS queries that policy judges by name go through the DNS proxy, the process `palisade proxy`. Without
    /// it such queries are denied, and names have no addresses.
    is_proxied: bool = "dns-proxy", one_of(&["off", "on"], &[false, true]), "on", "on|off", Restart, set_by_chart;

    /// Whose answers give a name its addresses. `policy`: servers that a rule with DNS names selects, unless it selects
    /// every address; `cluster`: pods with the label k8s-app=kube-dns in kube-system, and 169.254.20.10; `node`: the
    /// nameservers in this host's resolv.conf; and networks.
    servers: DnsServers = "dns-servers", dns_servers(), "policy,cluster,node", "policy|cluster|node|CIDR,…", Restart;

    /// Networks whose addresses no answer gives to a name: an answer must not open what is near, such as the metadata
    /// service of a cloud. Addresses of pods and nodes are never selected by a name.
    excluded_networks: Vec<Prefix> =
        "dns-excluded-networks", networks(), "0.0.0.0/8,127.0.0.0/8,169.254.0.0/16,::1/128,fe80::/10", "CIDR,…", Restart;

    /// The shortest time, in seconds, for which an address stays, whatever the TTL of its answer. A minute is added to
    /// both, and an address that a connection uses stays longer.
    min_ttl: u32 = "dns-min-ttl", number(0, 604_800), "0", "SECONDS", Restart;

    /// The maximum number of addresses that the answers to one workload may hold, of all names together; the oldest
    /// unused goes first. Of one name it is a tenth, of all workloads ten times as many.
    max_addresses: u32 = "dns-max-addresses", number(100, 1_000_000), "10000", "N", Restart;

    /// How the proxy answers a query that policy refuses. Some resolvers ask no further after a refusal.
    refusal: DnsRefusal =
        "dns-reject-response-code",
        one_of(&["refused", "nxdomain"], &[DnsRefusal::Refused, DnsRefusal::NonexistentDomain]),
        "refused", "refused|nxdomain", Restart;
}

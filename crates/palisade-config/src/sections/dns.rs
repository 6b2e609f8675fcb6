//! Policy by domain name: who may teach addresses, and how long these stay.

use crate::section::section;
use crate::value_parser::{dns_servers, networks, number, one_of};
use crate::values::{DnsRefusal, DnsServers};
use palisade_model::{Prefix, UnreadDnsAction};

section! {
    /// Policy by domain name: who may teach addresses, and how long these stay.
    pub struct DnsConfig: "Domain names";

    /// Whether DNS queries that policy judges by name go to the process `palisade proxy`. Without it they are denied,
    /// and names have no addresses.
    is_proxied: bool = "dns-proxy", one_of(&["off", "on"], &[false, true]), "on", "on|off", Restart, set_by_chart;

    /// Whose answers give names addresses: servers that a rule with DNS names selects, but not by every address
    /// (`policy`), the cluster's (`cluster`), those in this host's resolv.conf (`node`), and networks.
    servers: DnsServers = "dns-servers", dns_servers(), "policy,cluster,node", "policy|cluster|node|CIDR,…", Restart;

    /// What happens to queries that policy judges by name while no `palisade proxy` runs. `pass`: they go straight to the
    /// server, for every name.
    unread_dns: UnreadDnsAction =
        "dns-when-down",
        one_of(&["deny", "pass"], &[UnreadDnsAction::Policy, UnreadDnsAction::Allow]),
        "deny", "deny|pass", Restart;

    /// Networks whose addresses no answer gives to a name.
    excluded_networks: Vec<Prefix> =
        "dns-excluded-networks",
        networks(),
        "0.0.0.0/8,127.0.0.0/8,169.254.0.0/16,::1/128,fe80::/10,fd00:ec2::254/128,fd20:ce::254/128",
        "CIDR,…", Restart;

    /// The shortest TTL, in seconds. An address stays a minute longer than its TTL, and while a connection uses it.
    min_ttl: u32 = "dns-min-ttl", number(0, 604_800), "0", "SECONDS", Restart;

    /// The maximum number of addresses of names that one workload may hold.
    max_addresses: u32 = "dns-max-addresses", number(100, 1_000_000), "10000", "N", Restart;

    /// How refused queries are answered.
    refusal: DnsRefusal =
        "dns-reject-response-code",
        one_of(&["refused", "nxdomain"], &[DnsRefusal::Refused, DnsRefusal::NonexistentDomain]),
        "refused", "refused|nxdomain", Restart;
}

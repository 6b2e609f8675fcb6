//! What policies may cost, and what they decide on every endpoint.

use crate::section::section;
use crate::value_parser::{boolean, encapsulations, number, one_of};
use palisade_model::{DenyAction, Encapsulations, HairpinAction, HostTrafficAction};

section! {
    /// What policies may cost, and what they decide on every endpoint.
    pub struct PolicyConfig: "Policy";

    /// The most kernel elements for the policies of one endpoint and direction; a policy beyond it is
    /// rejected: its last valid version stays in force.
    set_max_elements: u32 = "policy-set-max-elements", number(1_024, 16_777_216), "131072", "N", Live;

    /// The maximum number of kernel elements for all policies on this host.
    host_max_elements: u32 = "host-max-elements", number(1_024, 268_435_456), "1048576", "N", Live;

    /// What networks in Cilium's policies match: only what is outside of the cluster, or nodes as well (Cilium's
    /// mode `nodes`). Pods never match.
    cidrs_match_nodes: bool =
        "policy-cidr-match-mode", one_of(&["outside", "nodes"], &[false, true]), "outside", "outside|nodes", Restart;

    /// Whether this host's own packets to its endpoints are always allowed, or subject to policy.
    host_to_endpoint: HostTrafficAction =
        "host-to-endpoint",
        one_of(&["allow", "policy"], &[HostTrafficAction::Allow, HostTrafficAction::Policy]),
        "allow", "allow|policy", Restart;

    /// Which policies judge traffic from an endpoint to itself, through a Service. `by-kind`: those of
    /// administrators, as their standard says. `allow`: none. `judge`: all.
    hairpin: HairpinAction =
        "hairpin",
        one_of(
            &["by-kind", "allow", "judge"],
            &[HairpinAction::ByKind, HairpinAction::Allow, HairpinAction::Policy],
        ),
        "by-kind", "by-kind|allow|judge", Restart;

    /// What happens to packets that policy denies. `reject`: most of them are answered as well, at most 1,000 a second:
    /// TCP with a reset, everything else with ICMP "administratively prohibited".
    deny_action: DenyAction =
        "deny-action",
        one_of(&["drop", "reject"], &[DenyAction::Drop, DenyAction::Reject]),
        "drop", "drop|reject", Restart;

    /// The encapsulations that endpoints may send where policy allows it: vxlan (UDP to ports 4789 and 8472), geneve
    /// (UDP to port 6081), ipip (protocols 4 and 41), gre (protocol 47). All others are dropped.
    allowed_encapsulation: Encapsulations =
        "allow-encapsulation", encapsulations(), "", "ENCAPSULATION,…", Restart;

    /// Whether all endpoints are in audit: nothing is enforced, and what policy would deny is counted and reported.
    audit_mode: bool = "policy-audit-mode", boolean(), "false", "true|false", Restart;

    /// Whether the annotation palisade.dev/mode of a Pod puts it in audit. With
    /// `honor`, whoever may write Pods can exempt them from all policy.
    honors_pod_mode: bool =
        "pod-mode-annotation", one_of(&["honor", "ignore"], &[true, false]), "honor", "honor|ignore", Restart;
}

//! What exceeds a house rule today. Each list may only shrink: an entry that grows, or that is not needed any more,
//! is a complaint, and so is a new one that is not listed.

use crate::sizes::Exception;

/// Functions with more lines than the cap, each with its lines of code.
pub(crate) const LONG_FUNCTIONS: &[Exception] = &[
    ("crates/palisade-agent/src/access.rs", "check_access", 83),
    (
        "crates/palisade-agent/src/monitor/attribution.rs",
        "attribute",
        83,
    ),
    (
        "crates/palisade-agent/src/monitor/event.rs",
        "packet_event",
        97,
    ),
    ("crates/palisade-agent/src/run.rs", "run", 123),
    (
        "crates/palisade-dataplane/src/nftables/netlink/expr.rs",
        "write_data",
        97,
    ),
    ("crates/palisade-nft/src/names.rs", "declarations", 84),
    ("crates/palisade-nft/src/repair.rs", "repair_step", 89),
    (
        "crates/palisade-nft/src/skeleton.rs",
        "constant_elements",
        85,
    ),
    ("crates/palisade-nft/src/skeleton.rs", "flow_chains", 85),
];

/// Structs and variants with more fields than the cap, each with its fields.
pub(crate) const WIDE_TYPES: &[Exception] = &[
    ("crates/palisade-agent/src/core.rs", "Core", 15),
    ("crates/palisade-agent/src/views/mod.rs", "CoreSnapshot", 13),
    (
        "crates/palisade-agent/src/workload_store.rs",
        "WorkloadRecord",
        17,
    ),
    (
        "crates/palisade-agent/src/workloads/mod.rs",
        "Workloads",
        14,
    ),
    ("crates/palisade-analysis/src/rules.rs", "StateRules", 13),
    ("crates/palisade-api/src/cni.rs", "CniAddRequest", 13),
    ("crates/palisade-api/src/explain/mod.rs", "FlowReport", 14),
    ("crates/palisade-api/src/monitor.rs", "PacketEvent", 23),
    (
        "crates/palisade-api/src/node_policy_status.rs",
        "NodePolicyReport",
        14,
    ),
    ("crates/palisade-api/src/policy.rs", "PolicySummary", 13),
    ("crates/palisade-api/src/status.rs", "Status", 27),
    ("crates/palisade-cni/src/netconf.rs", "NetConf", 14),
    (
        "crates/palisade-effective/src/objects.rs",
        "EffectiveObjects",
        14,
    ),
    (
        "crates/palisade-kubernetes/src/resource_watch.rs",
        "ResourceWatch",
        13,
    ),
    ("crates/palisade-model/src/endpoint.rs", "Endpoint", 13),
    (
        "crates/palisade-model/src/endpoint.rs",
        "StoredEndpoint",
        16,
    ),
    ("crates/palisade-nft/src/config.rs", "Config", 13),
    (
        "crates/palisade-source/src/collector.rs",
        "InputCollector",
        13,
    ),
    ("crates/palisade-source/src/directory.rs", "Directory", 13),
    ("crates/palisade-source/src/scan.rs", "Tree", 17),
    ("crates/palisade/src/cli.rs", "ExplainArgs", 16),
];

/// Circles of files, each sorted.
pub(crate) const CIRCLES: &[&[&str]] = &[
    &[
        "crates/palisade-agent/src/network_driver/kernel.rs",
        "crates/palisade-agent/src/network_driver/netns_facts.rs",
        "crates/palisade-agent/src/network_driver/veth_pair.rs",
    ],
    &[
        "crates/palisade-agent/src/workloads/addresses.rs",
        "crates/palisade-agent/src/workloads/attach.rs",
        "crates/palisade-agent/src/workloads/cni.rs",
        "crates/palisade-agent/src/workloads/named.rs",
    ],
    &[
        "crates/palisade-model/src/net.rs",
        "crates/palisade-model/src/ranges.rs",
    ],
];

//! The table of parameters: what can be configured, said once.
//!
//! Flag, environment variable, key of the configuration file, help, documentation, man pages, the
//! example file and `palisade config` are all made from [`PARAMETERS`]. What a text means is the
//! kind's business ([`Kind::parse`]); nothing here knows what a parameter is used for.

use super::Kind;
use palisade_model::Family;

/// A chapter of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Where policy is read and how.
    Policy,
    /// Interfaces and addresses of workloads.
    Workloads,
    /// Pods that a container runtime attaches.
    Cni,
    /// What of the kernel is used, and how.
    Kernel,
    /// The socket, who may use it, and how much.
    Api,
    /// What is seen from outside: packets, logs, health.
    Watching,
    /// The process itself.
    Process,
}

impl Section {
    /// All of them, in the order of the documentation.
    pub const ALL: [Section; 7] = [
        Section::Policy,
        Section::Workloads,
        Section::Cni,
        Section::Kernel,
        Section::Api,
        Section::Watching,
        Section::Process,
    ];

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Section::Policy => "Policy",
            Section::Workloads => "Workloads and addresses",
            Section::Cni => "Pods by CNI",
            Section::Kernel => "Kernel",
            Section::Api => "API",
            Section::Watching => "Packets, logs and health",
            Section::Process => "Process",
        }
    }
}

/// When a new value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At once, when the file is read again.
    Live,
    /// At the next start.
    Restart,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name: the flag without dashes in front, and the key in the file.
    pub name: &'static str,
    /// Its chapter.
    pub section: Section,
    /// What values it takes.
    pub kind: Kind,
    /// What is taken where nothing is said.
    pub default: &'static str,
    /// What a value looks like, for usage.
    pub value: &'static str,
    /// When a new value counts.
    pub change: Change,
    /// Whether its value must not be shown.
    pub secret: bool,
    /// What it is for, with its unit.
    pub help: &'static str,
}

impl Parameter {
    /// The parameter of this name.
    pub fn named(name: &str) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|parameter| parameter.name == name)
    }

    /// The environment variable: `PALISADE_` and the name in capitals.
    pub fn variable(&self) -> String {
        format!("PALISADE_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The flag.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// A value as people may see it.
    pub fn shown(&self, value: &str) -> String {
        match (self.secret, value.is_empty()) {
            (true, false) => "(secret)".to_owned(),
            _ => value.to_owned(),
        }
    }

    /// The help in the words of a flag's: with the default and the variable.
    pub fn flag_help(&self) -> String {
        let default = match self.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        format!("{}{default} [env: {}]", self.help, self.variable())
    }
}

/// Every parameter of the agent, in the order of the documentation.
pub const PARAMETERS: &[Parameter] = &{
    use Change::{Live, Restart};
    use Section::{Api, Cni, Kernel, Policy, Process, Watching, Workloads};
    const BITS: u32 = 65_535;
    [
        row(
            "directory",
            Policy,
            Kind::Path,
            "/etc/palisade/policy",
            "DIR",
            Restart,
            "The tree of manifests to enforce.",
        ),
        row(
            "settle",
            Policy,
            number(0, 60_000),
            "100",
            "MS",
            Live,
            "How long the directory must be quiet before a change is taken, in milliseconds.",
        ),
        row(
            "policy-set-max-elements",
            Policy,
            number(1_024, 16_777_216),
            "131072",
            "N",
            Live,
            "How many kernel elements (entries of maps) the policies of one endpoint and direction may take; beyond, what was valid last stays in force.",
        ),
        row(
            "host-max-elements",
            Policy,
            number(1_024, 268_435_456),
            "1048576",
            "N",
            Live,
            "How many kernel elements all policies together may take on this host.",
        ),
        row(
            "state-dir",
            Policy,
            Kind::Path,
            "/var/lib/palisade",
            "DIR",
            Restart,
            "Where attached workloads, last valid objects and counters are kept.",
        ),
        row(
            "pool-ipv4",
            Workloads,
            Kind::Network(Family::V4),
            "10.245.0.0/24",
            "CIDR|none",
            Restart,
            "Where workloads that bring no IPv4 address get one.",
        ),
        row(
            "pool-ipv6",
            Workloads,
            Kind::Network(Family::V6),
            "fd50:616c:6973::/64",
            "CIDR|none",
            Restart,
            "Where workloads that bring no IPv6 address get one.",
        ),
        row(
            "ipam-pool",
            Workloads,
            Kind::Networks { none: true },
            "",
            "CIDR,…|none",
            Restart,
            "Where workloads and pods get addresses: any number of networks of either family, filled in this order. Said instead of pool-ipv4 and pool-ipv6.",
        ),
        row(
            "ipam-reserved",
            Workloads,
            Kind::Ranges,
            "",
            "CIDR|FROM-TO,…",
            Restart,
            "Addresses of the pools that are never given out: networks, or ranges such as 10.245.0.10-10.245.0.19.",
        ),
        row(
            "mtu",
            Workloads,
            number(1280, BITS),
            "1500",
            "BYTES",
            Restart,
            "The MTU of the interfaces of workloads that `palisade workload add` attaches, in bytes.",
        ),
        row(
            "interface-prefix",
            Workloads,
            Kind::Name { most: 8 },
            "pal",
            "TEXT",
            Restart,
            "How the host side of our interfaces is named; unknown interfaces with it are closed.",
        ),
        row(
            "pod-mtu",
            Cni,
            Kind::NumberOrZero {
                least: 576,
                most: BITS,
            },
            "0",
            "BYTES",
            Live,
            "The MTU of pods' interfaces, in bytes; 0 takes that of the route to the outside. Pods attached before keep theirs.",
        ),
        row(
            "masquerade",
            Cni,
            Kind::Choice(&["off", "outside"]),
            "off",
            "off|outside",
            Restart,
            "Whether what pods send to the outside (any address that is in no pool) leaves with this host's address.",
        ),
        row(
            "masquerade-except",
            Cni,
            Kind::Networks { none: false },
            "",
            "CIDR,…",
            Restart,
            "Networks that pods reach with their own address, masquerade or not.",
        ),
        row(
            "cni-conf-dir",
            Cni,
            Kind::OptionalPath,
            "",
            "DIR",
            Restart,
            "Where the CNI configuration is written once the agent is ready; empty writes none.",
        ),
        row(
            "cni-conf-name",
            Cni,
            Kind::FileName,
            "10-palisade.conflist",
            "FILE",
            Restart,
            "The name of the CNI configuration in cni-conf-dir; runtimes take the first by name.",
        ),
        row(
            "cni-conf-keep",
            Cni,
            Kind::Switch,
            "true",
            "true|false",
            Live,
            "Whether the CNI configuration stays when the agent ends; without it a runtime starts no pods meanwhile, and says that its node is not ready.",
        ),
        row(
            "cni-bin-dir",
            Cni,
            Kind::Path,
            "/opt/cni/bin",
            "DIR",
            Restart,
            "Where runtimes look for CNI plugins, and so for palisade-cni.",
        ),
        row(
            "table",
            Kernel,
            Kind::Name { most: 64 },
            "palisade",
            "NAME",
            Restart,
            "The name of the nftables table.",
        ),
        row(
            "own-table",
            Kernel,
            Kind::Switch,
            "true",
            "true|false",
            Restart,
            "Whether no other program can change or flush the nftables tables while the agent runs (Linux 6.9; \
             before it, what others change is put back).",
        ),
        row(
            "mark-mask",
            Kernel,
            Kind::Mask,
            "0xffffff00",
            "MASK",
            Restart,
            "The bits of the conntrack mark that hold the generation of allowed flows.",
        ),
        row(
            "host-to-endpoint",
            Kernel,
            Kind::Choice(&["allow", "policy"]),
            "allow",
            "allow|policy",
            Restart,
            "Whether this host's own packets reach its endpoints without being judged.",
        ),
        row(
            "vxlan-from-workloads",
            Kernel,
            Kind::Choice(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of VXLAN (UDP to ports 4789 and 8472) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        row(
            "geneve-from-workloads",
            Kernel,
            Kind::Choice(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of Geneve (UDP to port 6081) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        row(
            "ipip-from-workloads",
            Kernel,
            Kind::Choice(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of IP in IP (protocols 4 and 41) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        row(
            "gre-from-workloads",
            Kernel,
            Kind::Choice(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of GRE (protocol 47) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        row(
            "forwarding",
            Kernel,
            Kind::Choice(&["manage", "keep"]),
            "manage",
            "manage|keep",
            Restart,
            "Whether the agent switches IP forwarding on.",
        ),
        row(
            "socket",
            Api,
            Kind::Path,
            "/run/palisade/palisade.sock",
            "PATH",
            Restart,
            "The unix socket of the API.",
        ),
        row(
            "api-group",
            Api,
            Kind::Group,
            "palisade",
            "GROUP",
            Restart,
            "The group whose members may read, and attach and detach workloads of their own, besides root, who may do everything; empty: root alone.",
        ),
        row(
            "api-group-labels",
            Api,
            Kind::Choice(&["pod", "any"]),
            "pod",
            "pod|any",
            Live,
            "Which labels and named ports a member of api-group may give a workload: those of the Pod of its name, without which it stays closed, or any.",
        ),
        row(
            "api-group-netns",
            Api,
            Kind::Choice(&["own", "named"]),
            "named",
            "own|named",
            Live,
            "Which network namespaces a member of api-group may attach: those of user namespaces of their own, or also those that have a name under /run/netns and no interface yet.",
        ),
        row(
            "api-group-namespaces",
            Api,
            Kind::Namespaces,
            "",
            "NAMESPACE,…",
            Live,
            "The Kubernetes namespaces in which a member of api-group may attach workloads; empty: all.",
        ),
        row(
            "api-group-workloads",
            Api,
            number(0, 100_000),
            "64",
            "N",
            Live,
            "How many workloads each member of api-group may have attached at a time.",
        ),
        row(
            "api-rate",
            Api,
            number(1, 100_000),
            "100",
            "N",
            Live,
            "How many requests a second each user may make of the API in the long run.",
        ),
        row(
            "api-burst",
            Api,
            number(1, 100_000),
            "200",
            "N",
            Live,
            "How many requests each user may make at once before api-rate counts.",
        ),
        row(
            "api-body-limit",
            Api,
            number(1_024, 16_777_216),
            "1048576",
            "BYTES",
            Live,
            "The largest body of a request, in bytes.",
        ),
        row(
            "monitor-group",
            Watching,
            number(0, BITS),
            "20545",
            "N",
            Restart,
            "The nflog group that the kernel reports denied and logged packets to.",
        ),
        row(
            "monitor-rate",
            Watching,
            number(1, 1_000),
            "100",
            "N",
            Live,
            "How many packets a second are told of each rule; of more, only the number.",
        ),
        row(
            "log-level",
            Watching,
            Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
            "info",
            "LEVEL",
            Live,
            "The least important log lines that are written: error, warn, info, debug or trace.",
        ),
        row(
            "log-format",
            Watching,
            Kind::Choice(&["text", "json"]),
            "text",
            "text|json",
            Live,
            "How log lines are written to standard error.",
        ),
        row(
            "health-address",
            Watching,
            Kind::Address,
            "",
            "ADDRESS:PORT",
            Restart,
            "Where metrics and health are served by HTTP besides the socket, such as 127.0.0.1:9245; empty: nowhere.",
        ),
        row(
            "dry-run",
            Process,
            Kind::Switch,
            "false",
            "true|false",
            Restart,
            "Whether everything is computed and shown, and nothing is touched: no kernel state, no file.",
        ),
    ]
};

const fn number(least: u32, most: u32) -> Kind {
    Kind::Number { least, most }
}

const fn row(
    name: &'static str,
    section: Section,
    kind: Kind,
    default: &'static str,
    value: &'static str,
    change: Change,
    help: &'static str,
) -> Parameter {
    Parameter {
        name,
        section,
        kind,
        default,
        value,
        change,
        secret: false,
        help,
    }
}

//! The table of parameters: what can be configured, said once.
//!
//! Flag, environment variable, key of the configuration file, help, documentation, man pages, the
//! example file and `palisade config` are all made from [`PARAMETERS`]. What a text means is the
//! kind's business ([`ParameterKind::parse`]); nothing here knows what a parameter is used for.

use super::ParameterKind;
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
    Observability,
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
        Section::Observability,
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
            Section::Observability => "Packets, logs and health",
            Section::Process => "Process",
        }
    }
}

/// When a new value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadMode {
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
    pub kind: ParameterKind,
    /// What is taken where nothing is said.
    pub default: &'static str,
    /// What a value looks like, for usage.
    pub placeholder: &'static str,
    /// When a new value counts.
    pub reload: ReloadMode,
    /// Whether its value must not be shown.
    pub secret: bool,
    /// What it is for, with its unit.
    pub help: &'static str,
}

impl Parameter {
    /// The parameter of this name.
    pub fn by_name(name: &str) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|parameter| parameter.name == name)
    }

    /// The environment variable: `PALISADE_` and the name in capitals.
    pub fn env_variable(&self) -> String {
        format!("PALISADE_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The flag.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// A value as people may see it.
    pub fn displayed(&self, value: &str) -> String {
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
        format!("{}{default} [env: {}]", self.help, self.env_variable())
    }
}

/// Every parameter of the agent, in the order of the documentation.
pub const PARAMETERS: &[Parameter] = &{
    use ReloadMode::{Live, Restart};
    use Section::{Api, Cni, Kernel, Observability, Policy, Process, Workloads};
    const MAX_U16: u32 = 65_535;
    [
        parameter(
            "directory",
            Policy,
            ParameterKind::Path,
            "/etc/palisade/policy",
            "DIR",
            Restart,
            "The tree of manifests to enforce.",
        ),
        parameter(
            "settle",
            Policy,
            number_kind(0, 60_000),
            "100",
            "MS",
            Live,
            "How long the directory must be quiet before a change is taken, in milliseconds.",
        ),
        parameter(
            "policy-set-max-elements",
            Policy,
            number_kind(1_024, 16_777_216),
            "131072",
            "N",
            Live,
            "How many kernel elements (entries of maps) the policies of one endpoint and direction may take; beyond, what was valid last stays in force.",
        ),
        parameter(
            "host-max-elements",
            Policy,
            number_kind(1_024, 268_435_456),
            "1048576",
            "N",
            Live,
            "How many kernel elements all policies together may take on this host.",
        ),
        parameter(
            "state-dir",
            Policy,
            ParameterKind::Path,
            "/var/lib/palisade",
            "DIR",
            Restart,
            "Where attached workloads, last valid objects and counters are kept.",
        ),
        parameter(
            "pool-ipv4",
            Workloads,
            ParameterKind::Network(Family::V4),
            "10.245.0.0/24",
            "CIDR|none",
            Restart,
            "Where workloads that bring no IPv4 address get one.",
        ),
        parameter(
            "pool-ipv6",
            Workloads,
            ParameterKind::Network(Family::V6),
            "fd50:616c:6973::/64",
            "CIDR|none",
            Restart,
            "Where workloads that bring no IPv6 address get one.",
        ),
        parameter(
            "ipam-pool",
            Workloads,
            ParameterKind::Networks { none: true },
            "",
            "CIDR,…|none",
            Restart,
            "Where workloads and pods get addresses: any number of networks of either family, filled in this order. Said instead of pool-ipv4 and pool-ipv6.",
        ),
        parameter(
            "ipam-reserved",
            Workloads,
            ParameterKind::Ranges,
            "",
            "CIDR|FROM-TO,…",
            Restart,
            "Addresses of the pools that are never given out: networks, or ranges such as 10.245.0.10-10.245.0.19.",
        ),
        parameter(
            "mtu",
            Workloads,
            number_kind(1280, MAX_U16),
            "1500",
            "BYTES",
            Restart,
            "The MTU of the interfaces of workloads that `palisade workload add` attaches, in bytes.",
        ),
        parameter(
            "interface-prefix",
            Workloads,
            ParameterKind::Name { most: 8 },
            "pal",
            "TEXT",
            Restart,
            "How the host side of our interfaces is named; unknown interfaces with it are closed.",
        ),
        parameter(
            "pod-mtu",
            Cni,
            ParameterKind::NumberOrZero {
                least: 576,
                most: MAX_U16,
            },
            "0",
            "BYTES",
            Live,
            "The MTU of pods' interfaces, in bytes; 0 takes that of the route to the outside. Pods attached before keep theirs.",
        ),
        parameter(
            "masquerade",
            Cni,
            ParameterKind::OneOf(&["off", "outside"]),
            "off",
            "off|outside",
            Restart,
            "Whether what pods send to the outside (any address that is in no pool) leaves with this host's address.",
        ),
        parameter(
            "masquerade-except",
            Cni,
            ParameterKind::Networks { none: false },
            "",
            "CIDR,…",
            Restart,
            "Networks that pods reach with their own address, masquerade or not.",
        ),
        parameter(
            "cni-conf-dir",
            Cni,
            ParameterKind::OptionalPath,
            "",
            "DIR",
            Restart,
            "Where the CNI configuration is written once the agent is ready; empty writes none.",
        ),
        parameter(
            "cni-conf-name",
            Cni,
            ParameterKind::FileName,
            "10-palisade.conflist",
            "FILE",
            Restart,
            "The name of the CNI configuration in cni-conf-dir; runtimes take the first by name.",
        ),
        parameter(
            "cni-conf-keep",
            Cni,
            ParameterKind::Bool,
            "true",
            "true|false",
            Live,
            "Whether the CNI configuration stays when the agent ends; without it a runtime starts no pods meanwhile, and says that its node is not ready.",
        ),
        parameter(
            "cni-bin-dir",
            Cni,
            ParameterKind::Path,
            "/opt/cni/bin",
            "DIR",
            Restart,
            "Where runtimes look for CNI plugins, and so for palisade-cni.",
        ),
        parameter(
            "table",
            Kernel,
            ParameterKind::Name { most: 64 },
            "palisade",
            "NAME",
            Restart,
            "The name of the nftables table.",
        ),
        parameter(
            "own-table",
            Kernel,
            ParameterKind::Bool,
            "true",
            "true|false",
            Restart,
            "Whether no other program can change or flush the nftables tables while the agent runs (Linux 6.9; \
             before it, what others change is put back).",
        ),
        parameter(
            "mark-mask",
            Kernel,
            ParameterKind::Mask,
            "0xffffff00",
            "MASK",
            Restart,
            "The bits of the conntrack mark that hold the generation of allowed flows.",
        ),
        parameter(
            "host-to-endpoint",
            Kernel,
            ParameterKind::OneOf(&["allow", "policy"]),
            "allow",
            "allow|policy",
            Restart,
            "Whether this host's own packets reach its endpoints without being judged.",
        ),
        parameter(
            "vxlan-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of VXLAN (UDP to ports 4789 and 8472) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        parameter(
            "geneve-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of Geneve (UDP to port 6081) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        parameter(
            "ipip-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of IP in IP (protocols 4 and 41) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        parameter(
            "gre-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "What becomes of GRE (protocol 47) that endpoints send and policy allows: policy does not see the packets within.",
        ),
        parameter(
            "forwarding",
            Kernel,
            ParameterKind::OneOf(&["manage", "keep"]),
            "manage",
            "manage|keep",
            Restart,
            "Whether the agent switches IP forwarding on.",
        ),
        parameter(
            "socket",
            Api,
            ParameterKind::Path,
            "/run/palisade/palisade.sock",
            "PATH",
            Restart,
            "The unix socket of the API.",
        ),
        parameter(
            "api-group",
            Api,
            ParameterKind::Group,
            "palisade",
            "GROUP",
            Restart,
            "The group whose members may read, and attach and detach workloads of their own, besides root, who may do everything; empty: root alone.",
        ),
        parameter(
            "api-group-labels",
            Api,
            ParameterKind::OneOf(&["pod", "any"]),
            "pod",
            "pod|any",
            Live,
            "Which labels and named ports a member of api-group may give a workload: those of the Pod of its name, without which it stays closed, or any.",
        ),
        parameter(
            "api-group-netns",
            Api,
            ParameterKind::OneOf(&["own", "named"]),
            "named",
            "own|named",
            Live,
            "Which network namespaces a member of api-group may attach: those of user namespaces of their own, or also those that have a name under /run/netns and no interface yet.",
        ),
        parameter(
            "api-group-namespaces",
            Api,
            ParameterKind::Namespaces,
            "",
            "NAMESPACE,…",
            Live,
            "The Kubernetes namespaces in which a member of api-group may attach workloads; empty: all.",
        ),
        parameter(
            "api-group-workloads",
            Api,
            number_kind(0, 100_000),
            "64",
            "N",
            Live,
            "How many workloads each member of api-group may have attached at a time.",
        ),
        parameter(
            "api-rate",
            Api,
            number_kind(1, 100_000),
            "100",
            "N",
            Live,
            "How many requests a second each user may make of the API in the long run.",
        ),
        parameter(
            "api-burst",
            Api,
            number_kind(1, 100_000),
            "200",
            "N",
            Live,
            "How many requests each user may make at once before api-rate counts.",
        ),
        parameter(
            "api-body-limit",
            Api,
            number_kind(1_024, 16_777_216),
            "1048576",
            "BYTES",
            Live,
            "The largest body of a request, in bytes.",
        ),
        parameter(
            "monitor-group",
            Observability,
            number_kind(0, MAX_U16),
            "20545",
            "N",
            Restart,
            "The nflog group that the kernel reports denied and logged packets to.",
        ),
        parameter(
            "monitor-rate",
            Observability,
            number_kind(1, 1_000),
            "100",
            "N",
            Live,
            "How many packets a second are told of each rule; of more, only the number.",
        ),
        parameter(
            "log-level",
            Observability,
            ParameterKind::OneOf(&["error", "warn", "info", "debug", "trace"]),
            "info",
            "LEVEL",
            Live,
            "The least important log lines that are written: error, warn, info, debug or trace.",
        ),
        parameter(
            "log-format",
            Observability,
            ParameterKind::OneOf(&["text", "json"]),
            "text",
            "text|json",
            Live,
            "How log lines are written to standard error.",
        ),
        parameter(
            "health-address",
            Observability,
            ParameterKind::Address,
            "",
            "ADDRESS:PORT",
            Restart,
            "Where metrics and health are served by HTTP besides the socket, such as 127.0.0.1:9245; empty: nowhere.",
        ),
        parameter(
            "dry-run",
            Process,
            ParameterKind::Bool,
            "false",
            "true|false",
            Restart,
            "Whether everything is computed and shown, and nothing is touched: no kernel state, no file.",
        ),
    ]
};

const fn number_kind(least: u32, most: u32) -> ParameterKind {
    ParameterKind::Number { least, most }
}

const fn parameter(
    name: &'static str,
    section: Section,
    kind: ParameterKind,
    default: &'static str,
    value: &'static str,
    change: ReloadMode,
    help: &'static str,
) -> Parameter {
    Parameter {
        name,
        section,
        kind,
        default,
        placeholder: value,
        reload: change,
        secret: false,
        help,
    }
}

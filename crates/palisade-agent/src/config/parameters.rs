//! The table of parameters: the single definition of what can be configured.
//!
//! Flags, environment variables, keys of the configuration file, help, documentation, man pages, the
//! example file and `palisade config` are all generated from [`PARAMETERS`]. [`ParameterKind::parse`]
//! parses the values; this module does not know what a parameter is used for.

use super::ParameterKind;
use palisade_model::Family;

/// A section of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// Source of policy.
    Policy,
    /// Interfaces and addresses of workloads.
    Workloads,
    /// Pods attached by a container runtime.
    Cni,
    /// Use of kernel facilities.
    Kernel,
    /// The socket, its access rules and limits.
    Api,
    /// Observability: packets, logs, health.
    Observability,
    /// The process itself.
    Process,
}

impl Section {
    /// All sections, in the order of the documentation.
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

/// When a new value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadMode {
    /// Immediately, when the file is reread.
    Live,
    /// At the next start.
    Restart,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name: the flag without the leading dashes, and the key in the file.
    pub name: &'static str,
    /// Its section.
    pub section: Section,
    /// The values it accepts.
    pub kind: ParameterKind,
    /// The value if it is not set.
    pub default: &'static str,
    /// The placeholder of its value in usage texts.
    pub placeholder: &'static str,
    /// When a new value takes effect.
    pub reload: ReloadMode,
    /// Whether its value is a secret and must not be shown.
    pub secret: bool,
    /// Its purpose, with its unit.
    pub help: &'static str,
}

impl Parameter {
    /// The parameter with this name.
    pub fn by_name(name: &str) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|parameter| parameter.name == name)
    }

    /// The environment variable: `PALISADE_` and the name in upper case.
    pub fn env_variable(&self) -> String {
        format!("PALISADE_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The flag.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// A value for display; secrets are masked.
    pub fn displayed(&self, value: &str) -> String {
        match (self.secret, value.is_empty()) {
            (true, false) => "(secret)".to_owned(),
            _ => value.to_owned(),
        }
    }

    /// The help text of the flag, with default and environment variable.
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
            "The directory of the manifests to enforce.",
        ),
        parameter(
            "kubernetes",
            Policy,
            ParameterKind::OneOf(&["off", "in-cluster", "kubeconfig"]),
            "off",
            "HOW",
            Restart,
            "Whether objects are read from a Kubernetes API server, and with which credentials: in-cluster (the service account of the agent's pod) or kubeconfig (a file). The directory may then be missing; if it exists at the start, its objects are added.",
        ),
        parameter(
            "kubeconfig",
            Policy,
            ParameterKind::Path,
            "/etc/palisade/kubeconfig",
            "FILE",
            Restart,
            "The kubeconfig file, of which the current context is used.",
        ),
        parameter(
            "status-write",
            Policy,
            ParameterKind::Bool,
            "true",
            "true|false",
            Restart,
            "Whether the agent writes to the API server: the state of this node, as the NodePolicyStatus of its name, at most every ten seconds, and every five minutes if only figures have changed; and, if it holds the lease palisade-policy-events, events on policies that are not accepted.",
        ),
        parameter(
            "settle",
            Policy,
            number_kind(0, 60_000),
            "100",
            "MS",
            Live,
            "How long the directory must be unchanged before it is read, in milliseconds.",
        ),
        parameter(
            "policy-set-max-elements",
            Policy,
            number_kind(1_024, 16_777_216),
            "131072",
            "N",
            Live,
            "The maximum number of kernel elements (map entries) for the policies of one endpoint and direction; a policy that exceeds it is rejected, and its last valid version stays in force.",
        ),
        parameter(
            "host-max-elements",
            Policy,
            number_kind(1_024, 268_435_456),
            "1048576",
            "N",
            Live,
            "The maximum number of kernel elements for all policies on this host.",
        ),
        parameter(
            "state-dir",
            Policy,
            ParameterKind::Path,
            "/var/lib/palisade",
            "DIR",
            Restart,
            "The directory for workload records, last valid objects and counters.",
        ),
        parameter(
            "pool-ipv4",
            Workloads,
            ParameterKind::Network(Family::V4),
            "10.245.0.0/24",
            "CIDR|none",
            Restart,
            "The pool from which workloads without a given IPv4 address get one.",
        ),
        parameter(
            "pool-ipv6",
            Workloads,
            ParameterKind::Network(Family::V6),
            "fd50:616c:6973::/64",
            "CIDR|none",
            Restart,
            "The pool from which workloads without a given IPv6 address get one.",
        ),
        parameter(
            "ipam-pool",
            Workloads,
            ParameterKind::Pools,
            "",
            "CIDR,…|node|none",
            Restart,
            "The address pools of workloads and pods: any number of networks of both families, used in this order; or node: the podCIDRs of this host's Node object. Replaces pool-ipv4 and pool-ipv6. With a Kubernetes API server and no configured pool, node is the default.",
        ),
        parameter(
            "node-name",
            Workloads,
            ParameterKind::NodeName,
            "",
            "NAME",
            Restart,
            "The name of this host's Node object; empty: the variable NODE_NAME, or else the host name.",
        ),
        parameter(
            "ipam-reserved",
            Workloads,
            ParameterKind::Ranges,
            "",
            "CIDR|FROM-TO,…",
            Restart,
            "Addresses of the pools that are never allocated: networks, or ranges such as 10.245.0.10-10.245.0.19.",
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
            "The name prefix of the host-side interfaces; unknown interfaces with this prefix are closed.",
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
            "The MTU of pods' interfaces, in bytes; 0 means that of the default route. Pods that are already attached keep theirs.",
        ),
        parameter(
            "masquerade",
            Cni,
            ParameterKind::OneOf(&["off", "outside"]),
            "off",
            "off|outside",
            Restart,
            "Whether traffic of pods to external addresses (outside of all pools) is masqueraded with this host's address.",
        ),
        parameter(
            "masquerade-except",
            Cni,
            ParameterKind::Networks,
            "",
            "CIDR,…",
            Restart,
            "Networks to which traffic of pods is never masqueraded.",
        ),
        parameter(
            "node-routes",
            Cni,
            ParameterKind::OneOf(&["off", "auto"]),
            "auto",
            "auto|off",
            Restart,
            "Whether this host, if its Node has podCIDRs, has routes to the podCIDRs of other Nodes whose InternalIP is directly reachable. A network to which another program has a route is left to it.",
        ),
        parameter(
            "cni-conf-dir",
            Cni,
            ParameterKind::OptionalPath,
            "",
            "DIR",
            Restart,
            "The directory where the CNI configuration is written once the agent is ready; empty: none is written.",
        ),
        parameter(
            "cni-conf-name",
            Cni,
            ParameterKind::FileName,
            "10-palisade.conflist",
            "FILE",
            Restart,
            "The name of the CNI configuration in cni-conf-dir; runtimes use the first file by name.",
        ),
        parameter(
            "cni-conf-keep",
            Cni,
            ParameterKind::Bool,
            "true",
            "true|false",
            Live,
            "Whether the CNI configuration is kept when the agent stops; if it is removed, the runtime starts no pods and reports its node as not ready.",
        ),
        parameter(
            "cni-bin-dir",
            Cni,
            ParameterKind::Path,
            "/opt/cni/bin",
            "DIR",
            Restart,
            "The CNI plugin directory of the runtimes, which contains palisade-cni.",
        ),
        parameter(
            "cni-missing-plugin",
            Cni,
            ParameterKind::OneOf(&["wait", "ignore"]),
            "wait",
            "wait|ignore",
            Restart,
            "What happens while palisade-cni or loopback, which runtimes call for every pod, is not in cni-bin-dir: wait writes no CNI configuration, and status names the plugin; ignore writes it, for runtimes with other plugin directories.",
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
             with older kernels changes are repaired).",
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
            "Whether this host's own packets to its endpoints are always allowed, or subject to policy.",
        ),
        parameter(
            "hairpin",
            Kernel,
            ParameterKind::OneOf(&["allow", "judge"]),
            "allow",
            "allow|judge",
            Restart,
            "Whether traffic from an endpoint to itself, through a Service, is always allowed (as Kubernetes NetworkPolicy requires), or policy judges it in both directions.",
        ),
        parameter(
            "vxlan-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "Whether VXLAN packets (UDP to ports 4789 and 8472) of endpoints are dropped even if policy allows them: policy cannot inspect the encapsulated packets.",
        ),
        parameter(
            "geneve-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "Whether Geneve packets (UDP to port 6081) of endpoints are dropped even if policy allows them: policy cannot inspect the encapsulated packets.",
        ),
        parameter(
            "ipip-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "Whether IP-in-IP packets (protocols 4 and 41) of endpoints are dropped even if policy allows them: policy cannot inspect the encapsulated packets.",
        ),
        parameter(
            "gre-from-workloads",
            Kernel,
            ParameterKind::OneOf(&["drop", "policy"]),
            "drop",
            "drop|policy",
            Restart,
            "Whether GRE packets (protocol 47) of endpoints are dropped even if policy allows them: policy cannot inspect the encapsulated packets.",
        ),
        parameter(
            "forwarding",
            Kernel,
            ParameterKind::OneOf(&["manage", "keep"]),
            "manage",
            "manage|keep",
            Restart,
            "Whether the agent enables IP forwarding.",
        ),
        parameter(
            "sysctl-dir",
            Kernel,
            ParameterKind::Path,
            "/proc/sys",
            "DIR",
            Restart,
            "The directory of the kernel's parameters. In a container where /proc/sys cannot be written, a mount of this host's, of which net is needed.",
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
            "The group whose members may read, and attach and detach their own workloads; root may do everything; empty: root only.",
        ),
        parameter(
            "api-group-labels",
            Api,
            ParameterKind::OneOf(&["pod", "any"]),
            "pod",
            "pod|any",
            Live,
            "Which labels and named ports a member of api-group may set for a workload: only those of the Pod with its name (it stays closed without that Pod), or any.",
        ),
        parameter(
            "api-group-netns",
            Api,
            ParameterKind::OneOf(&["own", "named"]),
            "named",
            "own|named",
            Live,
            "Which network namespaces a member of api-group may attach: those of their own user namespaces, or also those with a name under /run/netns and without interfaces.",
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
            "The maximum number of attached workloads of each member of api-group.",
        ),
        parameter(
            "api-rate",
            Api,
            number_kind(1, 100_000),
            "100",
            "N",
            Live,
            "The sustained API request rate of each user, in requests per second.",
        ),
        parameter(
            "api-burst",
            Api,
            number_kind(1, 100_000),
            "200",
            "N",
            Live,
            "The API request burst of each user, above api-rate.",
        ),
        parameter(
            "api-body-limit",
            Api,
            number_kind(1_024, 16_777_216),
            "1048576",
            "BYTES",
            Live,
            "The maximum size of a request body, in bytes.",
        ),
        parameter(
            "monitor-group",
            Observability,
            number_kind(0, MAX_U16),
            "20545",
            "N",
            Restart,
            "The nflog group to which the kernel sends denied and logged packets.",
        ),
        parameter(
            "monitor-rate",
            Observability,
            number_kind(1, 1_000),
            "100",
            "N",
            Live,
            "The maximum number of packets reported per second for each rule; further packets are only counted.",
        ),
        parameter(
            "log-level",
            Observability,
            ParameterKind::OneOf(&["error", "warn", "info", "debug", "trace"]),
            "info",
            "LEVEL",
            Live,
            "The log level: error, warn, info, debug or trace.",
        ),
        parameter(
            "log-format",
            Observability,
            ParameterKind::OneOf(&["text", "json"]),
            "text",
            "text|json",
            Live,
            "The format of log lines on standard error.",
        ),
        parameter(
            "health-address",
            Observability,
            ParameterKind::Address,
            "",
            "ADDRESS:PORT",
            Restart,
            "The address where metrics and health are served by HTTP in addition to the socket, such as 127.0.0.1:9245; empty: none.",
        ),
        parameter(
            "dry-run",
            Process,
            ParameterKind::Bool,
            "false",
            "true|false",
            Restart,
            "Whether everything is only computed and shown, without any change of kernel state or files.",
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

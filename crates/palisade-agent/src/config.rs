//! Configuration: every parameter defined once.
//!
//! [`PARAMETERS`] defines the flag, the environment variable, the key of the configuration file, the
//! help, the documentation and the output of `palisade config`. [`Config::resolve`] takes the values of
//! all sources as arguments, so this module reads neither the environment nor a file. Precedence: flag,
//! environment, file, default. Invalid and contradictory values are rejected together in one error that
//! names the source of each value.

mod chart;
mod document;
mod error;
mod etcd;
mod file;
mod parameter;
mod parameters;
mod reread;
mod section;
#[cfg(test)]
mod tests;
mod value;

pub use chart::{SET_BY_CHART, chart_parameters};
pub use document::{example, man, markdown};
pub use error::{ConfigError, ConfigProblem};
pub use parameter::{Parameter, ReloadMode};
pub use parameters::PARAMETERS;
pub use reread::{ConfigChanges, ConfigFile, ConfigFileStatus, ConfigReadError};
pub use section::Section;
pub use value::{AddressRange, ParameterKind, ParameterValue};

use crate::access::GroupGrants;
use palisade_api::ParameterOrigin;
use palisade_engine::ElementBudget;
use palisade_etcd::EtcdOptions;
use palisade_model::{
    DenyAction, Encapsulation, Encapsulations, FailsafePort, FailsafePorts, Family, HairpinAction,
    HostTrafficAction, Prefix,
};
use palisade_source::CidrMatchMode;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterSource {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The configuration file, at this location.
    File(String),
    /// The default.
    Default,
}

impl ParameterSource {
    fn kind(&self) -> ParameterOrigin {
        match self {
            ParameterSource::Flag => ParameterOrigin::Flag,
            ParameterSource::Environment => ParameterOrigin::Environment,
            ParameterSource::File(_) => ParameterOrigin::File,
            ParameterSource::Default => ParameterOrigin::Default,
        }
    }

    /// The source of the value, as exactly as it is known.
    fn describe(&self, parameter: &Parameter) -> String {
        match self {
            ParameterSource::Flag => parameter.flag(),
            ParameterSource::Environment => parameter.env_variable(),
            ParameterSource::File(location) => location.clone(),
            ParameterSource::Default => "the default".to_owned(),
        }
    }
}

/// Whether objects are read from a Kubernetes API server, and with which credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesApi {
    /// They are not.
    Off,
    /// With the service account of the agent's pod.
    InCluster,
    /// With a kubeconfig file.
    Kubeconfig(PathBuf),
}

/// The resolved configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The manifest directory.
    pub directory: PathBuf,
    /// The API server that objects are read from.
    pub kubernetes: KubernetesApi,
    /// The etcd that objects are read from.
    pub etcd: Option<EtcdOptions>,
    /// Whether the agent writes to the API server.
    pub status_write: bool,
    /// The API's socket.
    pub socket: PathBuf,
    /// The state directory.
    pub state_dir: PathBuf,
    /// The debounce time: how long the directory must be unchanged before it is read.
    pub settle: Duration,
    /// The maximum number of kernel elements that policy may use.
    pub budget: ElementBudget,
    /// What networks in Cilium's policies match.
    pub cidr_match: CidrMatchMode,
    /// The address pools of both families, in the order of allocation; none if they are those of the Node.
    pub pools: Vec<Prefix>,
    /// Whether the pools are the networks of this host's Node object.
    pub has_node_pools: bool,
    /// The name of this host's Node object, if it is not the host name.
    pub node_name: Option<String>,
    /// Addresses of the pools that are never allocated.
    pub reserved: Vec<AddressRange>,
    /// The MTU of workload interfaces, in bytes.
    pub mtu: u32,
    /// The name prefix of the agent's interfaces.
    pub interface_prefix: String,
    /// The MTU of pod interfaces, in bytes; `None` for the MTU of the default route.
    pub pod_mtu: Option<u32>,
    /// Whether the traffic of pods to external networks is masqueraded.
    pub masquerade: bool,
    /// Networks to which traffic of pods is not masqueraded.
    pub masquerade_except: Vec<Prefix>,
    /// Whether this host has routes to the pods of other nodes.
    pub has_node_routes: bool,
    /// The directory of the CNI configuration; `None`: no file is written.
    pub cni_conf_dir: Option<PathBuf>,
    /// The file name of the CNI configuration.
    pub cni_conf_name: String,
    /// Whether the CNI configuration is kept when the agent stops.
    pub cni_conf_keep: bool,
    /// The plugin directory of the runtimes.
    pub cni_bin_dir: PathBuf,
    /// Whether the CNI configuration is written only once the plugins that it makes runtimes call are there.
    pub waits_for_plugins: bool,
    /// The name of the nftables table.
    pub table: String,
    /// The bits of the conntrack mark that the agent uses.
    pub mark_mask: u32,
    /// The bit of the packet mark that the agent uses.
    pub packet_mark_bit: u32,
    /// Whether policy applies to this host's own packets.
    pub host_to_endpoint: HostTrafficAction,
    /// Which policies judge traffic from an endpoint to itself.
    pub hairpin: HairpinAction,
    /// What happens to packets that policy denies.
    pub deny_action: DenyAction,
    /// The flows of this host that no policy can deny.
    pub failsafe: FailsafePorts,
    /// Whether every host endpoint is in audit.
    pub host_policy_audit: bool,
    /// Whether every endpoint is in audit.
    pub policy_audit_mode: bool,
    /// Whether the annotation of a Pod puts it in audit.
    pub honors_pod_mode: bool,
    /// The encapsulations that endpoints may send where policy allows it.
    pub allowed_encapsulation: Encapsulations,
    /// Whether the nftables tables are owned by the agent, so that no other program can change them.
    pub own_table: bool,
    /// Whether the agent enables IP forwarding.
    pub manage_forwarding: bool,
    /// The directory of the kernel's parameters.
    pub sysctl_dir: PathBuf,
    /// The group that may make changes through the API; `None`: root only.
    pub api_group: Option<String>,
    /// Whether that group may set labels and ports of workloads.
    pub group_labels: bool,
    /// Whether that group may attach named namespaces that root created.
    pub group_named_netns: bool,
    /// The Kubernetes namespaces in which that group may attach workloads; empty: all.
    pub group_namespaces: Vec<String>,
    /// The maximum number of attached workloads of each member of that group.
    pub group_workloads: u32,
    /// The sustained request rate of each user, in requests per second.
    pub api_rate: u32,
    /// The request burst of each user.
    pub api_burst: u32,
    /// The maximum size of a request body, in bytes.
    pub api_body_limit: usize,
    /// The nflog group for denied and logged packets.
    pub monitor_group: u16,
    /// The maximum number of packets reported per second for each rule.
    pub monitor_rate: u32,
    /// The log level: `error` to `trace`.
    pub log_level: String,
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// The TCP address for metrics and health, in addition to the socket.
    pub health_address: Option<SocketAddr>,
    /// Dry run: compute everything and change nothing.
    pub dry_run: bool,
    /// The configuration file, if one is used.
    pub file: Option<ConfigFile>,
    raw: RawParameters,
    file_status: ConfigFileStatus,
}

/// The text of each parameter that was set, and its source.
type RawParameters = BTreeMap<&'static str, (String, ParameterSource)>;

impl Config {
    /// Resolves the configuration from the command line (by parameter name), the environment (by
    /// variable name), and a file (its name and text).
    ///
    /// # Errors
    /// All invalid values and contradictions.
    pub fn resolve(
        flags: &BTreeMap<String, String>,
        environment: impl Fn(&str) -> Option<String>,
        file: Option<(&str, &[u8])>,
    ) -> Result<Config, ConfigError> {
        let (mut in_file, problems) = file
            .map(|(name, text)| file::parse_file(name, text))
            .unwrap_or_default();
        let mut raw = RawParameters::new();
        for parameter in PARAMETERS {
            let flag = flags.get(parameter.name).cloned();
            let value = flag
                .map(|text| (text, ParameterSource::Flag))
                .or_else(|| {
                    environment(&parameter.env_variable())
                        .map(|t| (t, ParameterSource::Environment))
                })
                .or_else(|| take_from_file(&mut in_file, parameter))
                .or_else(|| {
                    let is_name = parameter.name == "node-name";
                    let name = is_name.then(|| environment(NODE_NAME_VARIABLE)).flatten();
                    name.map(|text| (text, ParameterSource::Environment))
                })
                .unwrap_or_else(|| (parameter.default.to_owned(), ParameterSource::Default));
            raw.insert(parameter.name, value);
        }
        let mut config = Self::from_raw(raw, problems);
        if let (Some((name, _)), Ok(resolved)) = (file, &config)
            && let Some(problem) = resolved.own_file_problem(name)
        {
            let problems = vec![problem];
            config = Err(ConfigError { problems });
        }
        config
    }

    /// The grants of the members of the API's group.
    pub fn grants(&self) -> GroupGrants {
        GroupGrants {
            labels: self.group_labels,
            named_netns: self.group_named_netns,
            namespaces: self.group_namespaces.clone(),
            workloads: self.group_workloads,
        }
    }

    /// The configuration file lies in the manifest directory, where it would be read as policy.
    fn own_file_problem(&self, file: &str) -> Option<ConfigProblem> {
        let source_of =
            |name: &str| Some(self.raw.get(name)?.1.describe(Parameter::by_name(name)?));
        Path::new(file)
            .starts_with(&self.directory)
            .then(|| ConfigProblem::Contradiction {
                one: format!("config ({file})"),
                other: format!("directory ({})", source_of("directory").unwrap_or_default()),
                reason: format!(
                    "the file lies inside {}, so the agent would read it as policy; move one of them",
                    self.directory.display()
                ),
            })
    }

    fn from_raw(
        raw: RawParameters,
        mut problems: Vec<ConfigProblem>,
    ) -> Result<Config, ConfigError> {
        let mut values = BTreeMap::new();
        for parameter in PARAMETERS {
            let Some((text, origin)) = raw.get(parameter.name) else {
                continue;
            };
            match parameter.kind.parse(text) {
                Ok(value) => {
                    values.insert(parameter.name, value);
                }
                Err(reason) => problems.push(ConfigProblem::Value {
                    name: parameter.name,
                    value: parameter.displayed(text),
                    given_by: origin.describe(parameter),
                    reason,
                }),
            }
        }
        let reader = ConfigBuilder { raw, values };
        problems.extend(reader.contradictions());
        match problems.is_empty() {
            true => Ok(reader.config()),
            false => Err(ConfigError { problems }),
        }
    }
}

fn take_from_file(
    lines: &mut file::FileParameters,
    parameter: &Parameter,
) -> Option<(String, ParameterSource)> {
    let (text, location) = lines.remove(parameter.name)?;
    Some((text, ParameterSource::File(location.to_string())))
}

/// The variable in which the pods of DaemonSets usually get the name of their node.
const NODE_NAME_VARIABLE: &str = "NODE_NAME";

/// The position of `kubeconfig` among the values of the parameter `kubernetes`.
const USES_KUBECONFIG: u32 = 2;

/// The raw parameters and the values that could be parsed.
struct ConfigBuilder {
    raw: RawParameters,
    values: BTreeMap<&'static str, ParameterValue>,
}

impl ConfigBuilder {
    /// Called only if every value could be parsed. A value of the wrong kind yields nothing here; the
    /// test that sets each parameter detects that.
    fn config(self) -> Config {
        Config {
            directory: self.path("directory"),
            status_write: self.number("status-write") != 0,
            kubernetes: match self.number("kubernetes") {
                0 => KubernetesApi::Off,
                USES_KUBECONFIG => KubernetesApi::Kubeconfig(self.path("kubeconfig")),
                _ => KubernetesApi::InCluster,
            },
            etcd: self.etcd(),
            socket: self.path("socket"),
            state_dir: self.path("state-dir"),
            settle: Duration::from_millis(self.number("settle").into()),
            budget: ElementBudget {
                set: self.number("policy-set-max-elements") as usize,
                host: self.number("host-max-elements") as usize,
            },
            cidr_match: match self.number("policy-cidr-match-mode") {
                0 => CidrMatchMode::Outside,
                _ => CidrMatchMode::Nodes,
            },
            pools: self.pools().into_iter().map(|(_, pool)| pool).collect(),
            has_node_pools: self.has_node_pools(),
            node_name: Some(self.text("node-name").to_owned()).filter(|name| !name.is_empty()),
            reserved: self.ranges("ipam-reserved").to_vec(),
            mtu: self.number("mtu"),
            interface_prefix: self.text("interface-prefix").to_owned(),
            pod_mtu: Some(self.number("pod-mtu")).filter(|mtu| *mtu != 0),
            masquerade: self.number("masquerade") != 0,
            masquerade_except: self
                .networks("masquerade-except")
                .unwrap_or_default()
                .to_vec(),
            has_node_routes: self.number("node-routes") != 0,
            cni_conf_dir: Some(self.path("cni-conf-dir")).filter(|p| !p.as_os_str().is_empty()),
            cni_conf_name: self.text("cni-conf-name").to_owned(),
            cni_conf_keep: self.number("cni-conf-keep") != 0,
            cni_bin_dir: self.path("cni-bin-dir"),
            waits_for_plugins: self.number("cni-missing-plugin") == 0,
            table: self.text("table").to_owned(),
            mark_mask: self.number("mark-mask"),
            packet_mark_bit: self.number("packet-mark-bit"),
            host_to_endpoint: match self.number("host-to-endpoint") {
                0 => HostTrafficAction::Allow,
                _ => HostTrafficAction::Policy,
            },
            hairpin: match self.number("hairpin") {
                0 => HairpinAction::ByKind,
                1 => HairpinAction::Allow,
                _ => HairpinAction::Policy,
            },
            deny_action: match self.number("deny-action") {
                0 => DenyAction::Drop,
                _ => DenyAction::Reject,
            },
            failsafe: FailsafePorts {
                inbound: self.failsafe_ports("failsafe-inbound-ports").to_vec(),
                outbound: self.failsafe_ports("failsafe-outbound-ports").to_vec(),
            },
            host_policy_audit: self.number("host-policy-audit") != 0,
            policy_audit_mode: self.number("policy-audit-mode") != 0,
            honors_pod_mode: self.number("pod-mode-annotation") == 0,
            allowed_encapsulation: Encapsulation::ALL
                .into_iter()
                .filter(|encapsulation| self.number(&encapsulation.parameter()) != 0)
                .collect(),
            own_table: self.number("own-table") != 0,
            manage_forwarding: self.number("forwarding") == 0,
            sysctl_dir: self.path("sysctl-dir"),
            api_group: Some(self.text("api-group").to_owned()).filter(|g| !g.is_empty()),
            group_labels: self.number("api-group-labels") != 0,
            group_named_netns: self.number("api-group-netns") != 0,
            group_namespaces: match self.values.get("api-group-namespaces") {
                Some(ParameterValue::Names(names)) => names.clone(),
                _ => Vec::new(),
            },
            group_workloads: self.number("api-group-workloads"),
            api_rate: self.number("api-rate"),
            api_burst: self.number("api-burst"),
            api_body_limit: self.number("api-body-limit") as usize,
            monitor_group: self.number("monitor-group") as u16,
            monitor_rate: self.number("monitor-rate"),
            log_level: self.raw("log-level").0.to_owned(),
            log_json: self.number("log-format") == 1,
            health_address: match self.values.get("health-address") {
                Some(ParameterValue::Address(address)) => *address,
                _ => None,
            },
            dry_run: self.number("dry-run") != 0,
            file: None,
            file_status: ConfigFileStatus::default(),
            raw: self.raw,
        }
    }

    fn raw(&self, name: &str) -> (&str, &ParameterSource) {
        self.raw
            .get(name)
            .map_or(("", &ParameterSource::Default), |(text, origin)| {
                (text, origin)
            })
    }

    fn path(&self, name: &str) -> PathBuf {
        match self.values.get(name) {
            Some(ParameterValue::Path(path)) => path.clone(),
            _ => PathBuf::new(),
        }
    }

    fn number(&self, name: &str) -> u32 {
        match self.values.get(name) {
            Some(ParameterValue::Number(number)) => *number,
            _ => 0,
        }
    }

    fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(ParameterValue::Text(text)) => text,
            _ => "",
        }
    }

    fn networks(&self, name: &str) -> Option<&[Prefix]> {
        match self.values.get(name) {
            Some(ParameterValue::Networks(Some(networks))) => Some(networks),
            _ => None,
        }
    }

    fn failsafe_ports(&self, name: &str) -> &[FailsafePort] {
        match self.values.get(name) {
            Some(ParameterValue::FailsafePorts(ports)) => ports,
            _ => &[],
        }
    }

    fn ranges(&self, name: &str) -> &[AddressRange] {
        match self.values.get(name) {
            Some(ParameterValue::Ranges(ranges)) => ranges,
            _ => &[],
        }
    }

    /// Whether the pools are those of the Node: named, or nothing is configured and there is an API server.
    fn has_node_pools(&self) -> bool {
        let parameters = ["ipam-pool", "pool-ipv4", "pool-ipv6"].into_iter();
        let mut unset = parameters.map(|name| *self.raw(name).1 == ParameterSource::Default);
        let is_named = self.values.get("ipam-pool") == Some(&ParameterValue::NodeNetworks);
        is_named || (self.number("kubernetes") != 0 && unset.all(|is_unset| is_unset))
    }

    /// The pools, each with the parameter that defines it.
    fn pools(&self) -> Vec<(&'static str, Prefix)> {
        if self.has_node_pools() {
            return Vec::new();
        }
        let pools_of = |name: &'static str| {
            let pools = self.networks(name)?;
            Some(pools.iter().map(|pool| (name, *pool)).collect::<Vec<_>>())
        };
        pools_of("ipam-pool").unwrap_or_else(|| {
            let each = ["pool-ipv4", "pool-ipv6"].into_iter();
            each.filter_map(pools_of).flatten().collect()
        })
    }

    /// Contradictions between the values that could be parsed.
    fn contradictions(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut refuse = |one: &str, other: &str, reason: String| {
            problems.push(ConfigProblem::Contradiction {
                one: self.describe(one),
                other: self.describe(other),
                reason,
            });
        };
        let has = |name: &str| self.values.contains_key(name);
        let (directory, state) = (self.path("directory"), self.path("state-dir"));
        if has("directory") && has("state-dir") && state.starts_with(&directory) {
            let reason = format!(
                "{} lies inside {}, so the agent would read its own state as policy; move one of them",
                state.display(),
                directory.display()
            );
            refuse("state-dir", "directory", reason);
        }
        let is_used = !has("kubernetes") || self.number("kubernetes") == USES_KUBECONFIG;
        let default = Parameter::by_name("kubeconfig").map(|parameter| parameter.default);
        if !is_used && default != Some(self.raw("kubeconfig").0) {
            let reason = "the file is not used; set kubernetes to kubeconfig, or remove kubeconfig"
                .to_owned();
            refuse("kubeconfig", "kubernetes", reason);
        }
        let is_node = self.values.get("ipam-pool") == Some(&ParameterValue::NodeNetworks);
        let listed = self.networks("ipam-pool").is_some() || is_node;
        for single in ["pool-ipv4", "pool-ipv6"] {
            if listed && *self.raw(single).1 != ParameterSource::Default {
                let reason = format!(
                    "ipam-pool replaces {single}; add {} to ipam-pool, and remove {single}",
                    self.raw(single).0
                );
                refuse("ipam-pool", single, reason);
            }
        }
        let known = ["ipam-pool", "pool-ipv4", "pool-ipv6"].into_iter().all(has);
        // Which networks the Node has is not known yet.
        let known = known && !self.has_node_pools();
        let pools = if known { self.pools() } else { Vec::new() };
        let source = if listed { "ipam-pool" } else { "pool-ipv4" };
        for range in self.ranges("ipam-reserved").iter().filter(|_| known) {
            if !pools.iter().any(|(_, pool)| range.overlaps(*pool)) {
                let reason = format!("{range} is not in a pool, so the reservation has no effect");
                refuse("ipam-reserved", source, reason);
            }
        }
        let ipv6_pool = pools.iter().find(|(_, pool)| pool.family() == Family::V6);
        let mtu = self.number("pod-mtu");
        if let (Some((parameter, pool)), 1..1280) = (ipv6_pool, mtu) {
            let reason = format!(
                "pods get IPv6 addresses of {pool}, and IPv6 requires an MTU of at least 1280"
            );
            refuse("pod-mtu", parameter, reason);
        }
        if has("cni-conf-dir") && has("directory") {
            let dir = self.path("cni-conf-dir");
            if !dir.as_os_str().is_empty() && dir.starts_with(&directory) {
                let reason = format!(
                    "{} lies inside {}, so the agent would read its CNI configuration as policy",
                    dir.display(),
                    directory.display()
                );
                refuse("cni-conf-dir", "directory", reason);
            }
        }
        problems.extend(self.etcd_contradictions());
        problems
    }

    /// A parameter and its source.
    fn describe(&self, name: &str) -> String {
        let source = Parameter::by_name(name).map(|parameter| self.raw(name).1.describe(parameter));
        format!("{name} ({})", source.unwrap_or_default())
    }
}

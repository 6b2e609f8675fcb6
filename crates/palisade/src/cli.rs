//! The command line: definitions and help texts. The commands are implemented in [`crate::command`].

mod bpf;
mod convert;
mod flows;
mod preview;
mod ui;

pub(crate) use crate::connection_args::ScopeArgs;
use crate::connection_args::{AgentActionArgs, HostPathArgs, HostToEndpoint, PacketArgs};
use crate::exit::ExitStatus;
pub(crate) use bpf::{BpfFlowsArgs, BpfPolicyArgs, FastPathCommand};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
pub(crate) use convert::{ConvertArgs, ConvertTarget};
pub(crate) use flows::{FlowProtocol, FlowsArgs};
use palisade_config::{ParameterKind, find_removed_parameter, parameters};
use palisade_text::printable_lines;
pub(crate) use preview::{FlowArgs, PreviewArgs, SuggestArgs};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
pub(crate) use ui::UiArgs;

const EXIT_CODES: &str = "Exit codes: 0 success, no problem, no difference; 1 problems or differences \
found; 2 invalid usage; 3 agent (or etcd) not reached; 4 not permitted; 5 a thread of the agent terminated \
unexpectedly; 6 recorded flows would be cut.";

/// Help heading of the options that every command has.
const GLOBAL_OPTIONS_HEADING: &str = "Options of every command";

/// Enforces network policies on this host, and explains why a packet was allowed or denied.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// Output format.
    #[arg(
        short,
        long,
        value_enum,
        default_value = "text",
        global = true,
        value_name = "FORMAT",
        help_heading = GLOBAL_OPTIONS_HEADING
    )]
    pub(crate) output: OutputFormat,
    /// The agent's socket [default: /run/palisade/palisade.sock].
    #[arg(
        long,
        env = "PALISADE_SOCKET",
        global = true,
        value_name = "PATH",
        help_heading = GLOBAL_OPTIONS_HEADING
    )]
    pub(crate) socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Text for people.
    Text,
    /// JSON for programs: the types of the API.
    Json,
    /// YAML for kubectl; only of the command convert, where it is the default.
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent on a directory of manifests until it is stopped.
    ///
    /// Stopping or killing the agent leaves enforcement in the kernel. Every parameter can be given as a
    /// flag, as PALISADE_NAME in the environment, or as a line `name: value` of the configuration file, which
    /// is read again when it changes and on SIGHUP.
    Agent(AgentArgs),
    /// Run the DNS proxy beside the agent until it is stopped, or until another one takes over.
    ///
    /// Where policies judge DNS queries by name, or give rules by name their addresses, the dataplane redirects the
    /// queries of workloads to it. It is a process of its own, so that DNS outlives the agent; it reads the same
    /// configuration. One that is started beside another takes over its sockets, and no query is lost.
    Proxy(AgentArgs),
    /// Show the agent's status: health, revision, problems of the input, kernel writes.
    Status,
    /// Show the workloads attached to this host.
    #[command(subcommand)]
    Endpoint(EndpointCommand),
    /// Show the identities: groups of addresses that all active policies treat alike.
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// Show the active policies with the counters of their rules.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show the addresses of workloads, and check that all records of them are consistent.
    #[command(subcommand)]
    Ipam(IpamCommand),
    /// Show the addresses that DNS answers gave for names, which rules by name select.
    #[command(subcommand)]
    Names(NamesCommand),
    /// Attach network namespaces to this host, or detach them.
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Show denied and logged packets as they occur, with the rule that decided.
    ///
    /// Runs until interrupted. A packet is reported when policy is evaluated: of an allowed connection, that
    /// is the first packet, and the next one after a change that revokes something. More packets of one rule
    /// than monitor-rate per second are only counted; the number of packets that are not shown is reported.
    Monitor(MonitorArgs),
    /// List recorded flows and denied packets, over days and restarts of the agent.
    ///
    /// Flows that have everything in common but the source port are one line: their ends as workloads, or else as
    /// addresses with their domain names, port, verdict, and the rules that decided. The last seen come first. Needs
    /// flows: on in the agent's configuration.
    Flows(FlowsArgs),
    /// Show what the fast path in eBPF has, and check that the kernel has what it should.
    ///
    /// Needs dataplane: ebpf in the agent's configuration. Where the fast path does not run, each command says why, and the
    /// exit code is 1.
    #[command(subcommand)]
    Bpf(FastPathCommand),
    /// Show every parameter of the running agent, and the origin of its value.
    ///
    /// If a parameter cannot change while the agent runs, a new value in the file is shown as pending: it
    /// takes effect after a restart.
    Config(ConfigArgs),
    /// Print the completion script of a shell.
    ///
    /// For bash: palisade completion bash > /etc/bash_completion.d/palisade
    Completion(CompletionArgs),
    /// Check manifests: print every problem with file, line, field and reason.
    ///
    /// The exit code is 1 if there is an error; warnings alone do not count.
    Validate(ManifestArgs),
    /// Find what is valid in policies and surely not meant, given the pods, namespaces and policies of the manifests.
    ///
    /// Subjects and peers that select nothing, with the nearest label that exists; rules that earlier ones always
    /// decide, or that add nothing to their policy; policies that change nothing; policies of one order or priority
    /// that decide a flow differently; rules that pass to tiers without policies. Each with file and line, and exact
    /// over all flows between the workloads of the manifests and the outside. The exit code is 1 if there is a
    /// finding, if something could not be checked, or if the manifests have errors, which are printed on standard
    /// error.
    Lint(ManifestArgs),
    /// Show whether a connection is allowed, and which rule decides.
    ///
    /// The exit code is 0 for every verdict, unless --exit-code is given; it is 1 if the manifests have
    /// errors, which are printed on standard error.
    Explain(ExplainArgs),
    /// List every allowed connection, as sets.
    ///
    /// Covers connections between workloads, and between workloads and the outside: every address that no
    /// workload has. Workloads that all policies treat alike are one line with their number; addresses of
    /// workloads are excluded from outside networks. With -o json the same, but with at most 64 pods in
    /// the input, and without --members, each pair and each prefix is separate. The exit code is 1 if the
    /// manifests have errors, which are printed on standard error.
    Connections(ConnectionsArgs),
    /// Show which connections a change of the manifests would allow or deny.
    ///
    /// As exact as the command connections. The exit code is 1 if there is a difference, or if the manifests
    /// have errors, which are printed on standard error.
    Diff(DiffArgs),
    /// Show which recorded flows a change of the manifests would cut or open.
    ///
    /// Every recorded flow is judged by the present manifests and by the changed ones: by the reference and by the
    /// tables that the agent writes, which have to agree. Flows whose ends are gone are judged by their recorded
    /// labels, or listed with the reason. The exit code is 6 if a flow would be cut, else 1 if the manifests have
    /// errors, which are printed on standard error, else 0.
    Preview(PreviewArgs),
    /// Write the policies that allow what was recorded, in any dialect.
    ///
    /// One policy for each workload, which isolates it in both directions and allows its recorded peers by their labels,
    /// domain names or addresses, at the recorded ports. Prints a YAML document for each object, and on standard error
    /// what is left out, and what is allowed although it was not recorded. The policies are read back: if one of the
    /// flows would be denied, nothing is printed. The exit code is 1 if a workload gets no policy, or if the manifests
    /// have errors.
    Suggest(SuggestArgs),
    /// Serve the page in the browser: flows, a map of workloads, policies, explanations and previews of one agent.
    ///
    /// The page reads the agent at --socket and changes nothing. Without a token it is served to this machine only.
    /// Runs until it is interrupted.
    Ui(UiArgs),
    /// Write policies in another dialect, exactly or not at all.
    ///
    /// Prints a YAML document for each object, ready for `kubectl apply`, and on standard error each rule that
    /// the other dialect cannot say, with its path, file and line and the reason. A policy is written whole or
    /// not at all. What is written means the same in every cluster, alone and beside policies of every dialect:
    /// it is read back and compared. Labels and annotations of the objects are not kept, but for the annotation
    /// palisade.dev/mode. The exit code is 1 if something could not be written, or if the manifests have errors.
    Convert(ConvertArgs),
    /// Write the manifests of a directory to etcd, from which agents read them: all of them, atomically.
    ///
    /// The parameters of etcd are those of the agent; the same configuration file is read. Objects that were
    /// pushed before and are not in the directory are deleted; what others write to etcd is left alone. With an
    /// error in a manifest nothing is written. Agents see the whole change at once; then it is read back and
    /// compared. Of two pushes at the same time one fails and changes nothing. --dry-run only lists the
    /// changes.
    Push(PushArgs),
    /// Remove everything that Palisade created on this host: interfaces, tables, state.
    ///
    /// Lists it and asks for confirmation, unless --yes is given; --dry-run only lists it. Fails while an
    /// agent runs. Enforcement ends. The agent's state-dir, table, interface-prefix and cni-conf-dir must
    /// have the same values here; the same configuration file is read.
    Cleanup(CleanupArgs),
    /// Copy the CNI plugin into the plugin directory of this host's runtimes, if it differs.
    ///
    /// The copy is replaced atomically, so a runtime that calls it meanwhile runs the old or the new one. It
    /// is recorded in the agent's state-dir, and removed by `palisade cleanup`. The container image runs this
    /// before the agent; it runs no other program.
    InstallCni(InstallCniArgs),
    /// Show what is left of Palisade on this host: everything that cleanup would remove, and more.
    ///
    /// Besides what `palisade cleanup` removes, it reports a running agent, a CNI plugin that others
    /// installed, and CNI configurations that name it. The exit code is 0 if nothing is left, else 1. The
    /// agent's parameters must have the same values here; the same configuration file is read.
    UninstallCheck(UninstallCheckArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConnectionsArgs {
    #[command(flatten)]
    pub(crate) files: ManifestArgs,
    /// What would be allowed if nothing were in audit.
    #[arg(long)]
    pub(crate) audit: bool,
    /// What the agents do with traffic from a node to its own workloads, as their parameter of this name.
    #[arg(long, value_enum, default_value_t, value_name = "ACTION")]
    pub(crate) host_to_endpoint: HostToEndpoint,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

/// The manifests to read.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// Manifest file, directory of manifests, or - for standard input; may be repeated.
    #[arg(short = 'f', long = "filename", required = true, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    /// Configuration file of `parameter: value` lines; default /etc/palisade/palisade.yaml, if it exists.
    #[arg(long, env = "PALISADE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Compute and show everything, without any change of kernel state or files.
    #[arg(
        long,
        value_name = "true|false",
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    /// Check this configuration file instead, without an agent: exit code 2 if an agent would reject it.
    #[arg(long, value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    #[command(flatten)]
    pub(crate) files: ManifestArgs,
    /// Delete everything that was pushed before, if there is no object in the directory.
    #[arg(long)]
    pub(crate) allow_empty: bool,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Do not ask for confirmation.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct InstallCniArgs {
    /// The plugin to copy.
    #[arg(long, value_name = "FILE", default_value = "/usr/lib/cni/palisade-cni")]
    pub(crate) from: PathBuf,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallCheckArgs {
    /// If nothing is left, stay until SIGTERM or SIGINT: for a pod, whose containers must not end.
    #[arg(long)]
    pub(crate) stay: bool,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// The agent's parameters given as flags, by name.
#[derive(Debug, Default)]
pub(crate) struct ParameterArgs(pub(crate) BTreeMap<String, String>);

impl Args for ParameterArgs {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for parameter in parameters().filter(|p| p.name != SOCKET_PARAMETER) {
            let mut arg = Arg::new(parameter.name)
                .long(parameter.name)
                .value_name(parameter.placeholder)
                .help_heading(parameter.section)
                .help(parameter.flag_help());
            if parameter.kind.is_list() {
                arg = arg.action(ArgAction::Append);
            }
            if parameter.kind == ParameterKind::Bool {
                arg = arg.num_args(0..=1).require_equals(true);
                arg = arg.default_missing_value("true");
            }
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// A parameter that is an option of every command, and therefore not defined again as a flag of the agent.
const SOCKET_PARAMETER: &str = "socket";

impl FromArgMatches for ParameterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut values_by_name = BTreeMap::new();
        for parameter in parameters().filter(|p| p.name != SOCKET_PARAMETER) {
            if let Some(values) = matches.get_many::<String>(parameter.name) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                values_by_name.insert(parameter.name.to_owned(), values.join(","));
            }
        }
        // A value from the environment is read with all other variables.
        if matches.value_source(SOCKET_PARAMETER) == Some(ValueSource::CommandLine)
            && let Some(path) = matches.get_one::<PathBuf>(SOCKET_PARAMETER)
        {
            values_by_name.insert(SOCKET_PARAMETER.to_owned(), path.display().to_string());
        }
        Ok(ParameterArgs(values_by_name))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum EndpointCommand {
    /// List all workloads.
    List,
    /// Show one workload, with the policies that apply to it.
    Get {
        /// Workload, as `namespace/name`.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    /// List the pools with their usage, and every address with its workload.
    List,
    /// Compare records, disk, interfaces, routes and the kernel's tables; report inconsistencies.
    ///
    /// Changes nothing. The exit code is 1 if there is an inconsistency.
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NamesCommand {
    /// List all names with their addresses, the workloads that asked, and until when the addresses stay.
    List,
    /// Show one name: its addresses, and the rules that select them or let workloads ask for it.
    Get {
        /// Domain name.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdentityCommand {
    /// List all identities.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List all policies with their status: those in force in evaluation order, then the others.
    List,
    /// Show one policy: what is in force of it and why, what is held closed, its rules and their counters.
    Get {
        /// Policy, as `kind/namespace/name`, or `kind/name` if it is cluster-wide. The kind, and the namespace of a
        /// name that is the only one, can be left out.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkloadCommand {
    /// Attach a network namespace; all traffic is denied until its policy is in the kernel.
    Add(WorkloadAddArgs),
    /// Detach a workload and remove everything that belongs to it.
    Remove {
        /// Workload, as `namespace/name`.
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WorkloadAddArgs {
    /// Workload, as `namespace/name`; without a namespace, `default`.
    pub(crate) name: String,
    /// Network namespace: a name under /run/netns, or a path.
    #[arg(long)]
    pub(crate) netns: String,
    /// Label, as key=value; may be repeated. Default: the labels of the Pod with that name.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// Address to assign; may be repeated. Default: one from each of the host's pools.
    #[arg(long = "address", value_name = "ADDRESS")]
    pub(crate) addresses: Vec<String>,
    /// With pools: assign only IPv4 addresses.
    #[arg(short = '4', long, conflicts_with_all = ["addresses", "ipv6"])]
    pub(crate) ipv4: bool,
    /// With pools: assign only IPv6 addresses.
    #[arg(short = '6', long, conflicts_with = "addresses")]
    pub(crate) ipv6: bool,
    /// Named port, as name=number/protocol; may be repeated.
    #[arg(long = "port", value_name = "NAME=PORT/PROTOCOL")]
    pub(crate) ports: Vec<String>,
    /// Name of the interface inside the namespace.
    #[arg(long, default_value = "eth0")]
    pub(crate) interface: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Manifest file, directory of manifests, or - for standard input; may be repeated. Default: the state of
    /// the running agent.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Source: namespace/pod (or another workload), host:NODE, or an address; the default namespace is `default`.
    #[arg(long, value_name = "X")]
    pub(crate) from: String,
    /// Destination: namespace/pod, host:NODE, an address, service:NAMESPACE/NAME, or name:DOMAIN for the addresses of a domain name.
    #[arg(long, value_name = "Y")]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) packet: PacketArgs,
    #[command(flatten)]
    pub(crate) host_path: HostPathArgs,
    #[command(flatten)]
    pub(crate) agents: AgentActionArgs,
    /// Also list every policy that does not apply, with the reason.
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with code 1 if the connection is denied.
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// Only packets that this workload, as namespace/name, sent or received.
    #[arg(long, value_name = "X")]
    pub(crate) endpoint: Option<String>,
    /// Only packets from or to workloads of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// Only packets with this verdict.
    #[arg(long, value_enum)]
    pub(crate) verdict: Option<VerdictFilter>,
    /// Only packets from this workload or address.
    #[arg(long, value_name = "X")]
    pub(crate) from: Option<String>,
    /// Only packets to this workload or address.
    #[arg(long, value_name = "Y")]
    pub(crate) to: Option<String>,
    /// Only packets whose verdict would be another if nothing were in audit.
    #[arg(long)]
    pub(crate) audit: bool,
    /// Flows that policy let pass as well: when they begin, when they end, and by which rules.
    ///
    /// Needs `flows: on` in the agent's configuration.
    #[arg(long)]
    pub(crate) flows: bool,
    /// Start with the last N packets; the agent keeps about a thousand.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) last: usize,
    /// Stop after the last packets.
    #[arg(long, requires = "last")]
    pub(crate) no_follow: bool,
}

/// A verdict to filter by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictFilter {
    /// Dropped packets.
    Denied,
    /// Packets that were allowed, and logged by a Log rule or denied if nothing were in audit.
    Allowed,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The old manifests, then the new manifests: each a file or a directory, or - for standard input for one
    /// of them.
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        num_args = 1,
        value_name = "PATH"
    )]
    pub(crate) files: Vec<PathBuf>,
    /// What would be opened and closed by enforcing what is in audit: with one -f, in these manifests; with
    /// two, everything is compared as if nothing were in audit.
    #[arg(long)]
    pub(crate) audit: bool,
    /// The agents' failsafe-inbound-ports, for the warning that a change would lock you out of a host.
    #[arg(long, value_name = "PORTS")]
    pub(crate) failsafe_inbound_ports: Option<String>,
    /// The agents' failsafe-outbound-ports, for the warning that a change would cut a host from its API server.
    #[arg(long, value_name = "PORTS")]
    pub(crate) failsafe_outbound_ports: Option<String>,
    /// Say how often recorded flows used each connection: files with the output of `palisade flows -o json`, one for
    /// each node, or no file for the record of the agent on this host.
    #[arg(long = "flows", value_name = "FILE", num_args = 0..)]
    pub(crate) flow_files: Option<Vec<PathBuf>>,
    /// With --flows, only flows seen since this time, or in this time span until now, as 24h.
    #[arg(long, value_name = "TIME", requires = "flow_files")]
    pub(crate) since: Option<String>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell with completion support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash.
    Bash,
    /// The Z shell.
    Zsh,
    /// Fish.
    Fish,
}

/// Parses the command line. Prints help and version itself.
pub(crate) fn parse() -> Result<Cli, ExitStatus> {
    Cli::try_parse().map_err(|error| {
        // If the terminal is gone, there is nothing left to do.
        if error.use_stderr() {
            // It contains the user's input, so it is printed without colours, which are control characters.
            let text = removed_flag(&error).unwrap_or_else(|| error.render().to_string());
            let _ = io::stderr().write_all(printable_lines(&text).as_bytes());
            ExitStatus::Usage
        } else {
            let _ = error.print();
            ExitStatus::Success
        }
    })
}

/// What replaces the removed parameter that the command line names, if it names one.
fn removed_flag(error: &clap::Error) -> Option<String> {
    let argument = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(argument) => argument,
        _ => return None,
    };
    let name = argument.strip_prefix("--")?.split('=').next()?;
    let removed = find_removed_parameter(name)?;
    Some(format!(
        "error: --{name}: the parameter {name} was removed: {}\n",
        removed.replacement
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use palisade_config::REMOVED_PARAMETERS;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn agent_parameters_are_flags() {
        let cli =
            Cli::try_parse_from(["palisade", "agent", "--directory", "/x", "--mtu=1400"]).unwrap();
        let Command::Agent(agent) = cli.command else {
            panic!("agent")
        };
        assert_eq!(
            agent.parameters.0.get("directory").map(|s| &**s),
            Some("/x")
        );
        assert_eq!(agent.parameters.0.len(), 2);
    }

    #[test]
    fn lists_are_joined_switches_need_no_value_and_the_socket_is_said_only_if_it_is() {
        let line = "palisade agent --ipam-pool a,b --own-table --ipam-pool c --socket /s";
        let parameters = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Agent(agent) => agent.parameters.0,
            _ => panic!("agent"),
        };
        let all = parameters(line);
        let pairs: Vec<_> = all.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(
            pairs,
            [
                ("ipam-pool", "a,b,c"),
                ("own-table", "true"),
                ("socket", "/s")
            ]
        );
        let before = parameters("palisade --socket /s agent --own-table=false");
        let pairs: Vec<_> = before.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(pairs, [("own-table", "false"), ("socket", "/s")]);
        assert!(parameters("palisade agent").is_empty());
    }

    #[test]
    fn a_dry_run_is_a_flag_of_the_command() {
        let is_dry = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Agent(agent) => agent.dry_run,
            _ => panic!("agent"),
        };
        assert!(is_dry("palisade agent --dry-run") && is_dry("palisade agent --dry-run=true"));
        assert!(!is_dry("palisade agent") && !is_dry("palisade agent --dry-run=false"));
    }

    #[test]
    fn a_removed_flag_says_what_replaces_it() {
        let text = |line: &str| removed_flag(&Cli::try_parse_from(line.split(' ')).unwrap_err());
        for removed in REMOVED_PARAMETERS.iter().filter(|p| p.name != "dry-run") {
            for line in ["palisade agent --NAME x", "palisade cleanup --NAME=x"] {
                let message = text(&line.replace("NAME", removed.name)).unwrap();
                assert!(
                    message.contains(removed.name) && message.contains(removed.replacement),
                    "{message}"
                );
            }
        }
        assert_eq!(text("palisade agent --settel 5"), None);
    }

    #[test]
    fn each_parameter_is_a_flag_with_its_help() {
        let command = Cli::command();
        let agent = command.find_subcommand("agent").unwrap();
        for parameter in parameters().filter(|p| p.name != SOCKET_PARAMETER) {
            let arg = agent
                .get_arguments()
                .find(|a| a.get_id() == parameter.name)
                .unwrap();
            let help = arg.get_help().unwrap().to_string();
            assert!(help.contains(parameter.help) && help.contains(&parameter.env_variable()));
        }
        let socket = command
            .get_arguments()
            .find(|a| a.get_id() == SOCKET_PARAMETER)
            .unwrap();
        let default = palisade_config::find_parameter(SOCKET_PARAMETER)
            .unwrap()
            .default;
        assert!(socket.get_help().unwrap().to_string().contains(default));
    }
}

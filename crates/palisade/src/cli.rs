//! The command line: what can be typed, with its help. What it means is in [`crate::command`].

use crate::exit::ExitStatus;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use palisade_agent::config::{PARAMETERS, ParameterKind};
use palisade_text::printable_lines;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

const EXIT_CODES: &str = "Exit codes: 0 answered, no problem, no difference; 1 problems or differences \
found; 2 wrong usage; 3 agent not reached; 4 not permitted; 5 a part of the agent ended while it ran.";

/// The heading of the options that every command has.
const GLOBAL_OPTIONS_HEADING: &str = "Options of every command";

/// Enforces network policies on this host, and says why a packet passed or did not.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// How to print the answer.
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

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// For programs: the API's types.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the agent on a directory of manifests until it is told to stop.
    ///
    /// Stopping it, or killing it, leaves enforcement in the kernel. Every parameter can be given
    /// as a flag, as PALISADE_NAME in the environment, or as a line `name: value` of the file, which
    /// is read again when it changes and on SIGHUP.
    Agent(AgentArgs),
    /// Show how the agent is: health, revision, problems of the input, kernel writes.
    Status,
    /// The workloads attached to this host.
    #[command(subcommand)]
    Endpoint(EndpointCommand),
    /// The identities: groups of addresses that no active policy can tell apart.
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// The policies in force, with the counters of their rules.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// The addresses of workloads: who has which, and whether everything agrees about it.
    #[command(subcommand)]
    Ipam(IpamCommand),
    /// Attach network namespaces to this host, or detach them.
    #[command(subcommand)]
    Workload(WorkloadCommand),
    /// Show packets as they are denied, or asked for by a Log rule, with the rule that decided.
    ///
    /// Follows until interrupted. A packet is told of when it is judged: of an allowed flow that is
    /// the first one, and the next after a change that revokes something. More than monitor-rate a
    /// second of one rule are only counted; every count of packets left out is shown.
    Monitor(MonitorArgs),
    /// Show every parameter of the running agent, and where its value came from.
    ///
    /// Of a parameter that cannot change while running, the value that the file says now is shown
    /// as pending: it counts after a restart.
    Config,
    /// Print what a shell needs to complete this command.
    ///
    /// For bash: palisade completion bash > /etc/bash_completion.d/palisade
    Completion(CompletionArgs),
    /// Check manifests: every problem with file, line, field and reason.
    ///
    /// Ends with 1 if there is an error; warnings alone do not count.
    Validate(ManifestArgs),
    /// Say whether a connection is allowed, and which rule decides.
    ///
    /// Ends with 0 whatever the verdict, unless --exit-code is given; with 1 also if the manifests
    /// have errors, which are told on standard error.
    Explain(ExplainArgs),
    /// List every allowed connection, as sets.
    ///
    /// Between workloads, and between them and the outside: every address that no workload holds.
    /// Workloads that no policy tells apart are one line with how many they are; of networks outside
    /// the addresses that workloads hold are left out. With -o json the same, but for 64 pods and
    /// fewer each pair and each prefix by itself. Ends with 1 if the manifests have errors, which are
    /// told on standard error.
    Connections(ConnectionsArgs),
    /// Show what a change of the manifests would open and close.
    ///
    /// As exact as connections. Ends with 1 if there is a difference, or if the manifests have
    /// errors, which are told on standard error.
    Diff(DiffArgs),
    /// Remove everything that Palisade made on this host: interfaces, table, state.
    ///
    /// Shows what that is and asks, unless --yes is given; --dry-run only shows it. Refuses while an
    /// agent runs. Enforcement ends with it. What the agent was configured with (state-dir, table,
    /// interface-prefix, cni-conf-dir) must be said here as it was there; the same file is read.
    Cleanup(CleanupArgs),
    /// Watch policy being enforced: a small shop of network namespaces with real packets.
    Demo(DemoArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ConnectionsArgs {
    #[command(flatten)]
    pub(crate) files: ManifestArgs,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

/// Which connections are shown.
#[derive(Debug, Args)]
pub(crate) struct ScopeArgs {
    /// Only what this workload or pod, as namespace/name, opens.
    #[arg(long, value_name = "X")]
    pub(crate) from: Option<String>,
    /// Only what is opened to this one.
    #[arg(long, value_name = "Y")]
    pub(crate) to: Option<String>,
    /// Only what goes from or to workloads of this namespace.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// List the workloads of every group.
    #[arg(long)]
    pub(crate) members: bool,
}

/// Manifests to read.
#[derive(Debug, Args)]
pub(crate) struct ManifestArgs {
    /// A manifest file, a directory of them, or - for the standard input; may be repeated.
    #[arg(short = 'f', long = "filename", required = true, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentArgs {
    /// A file of `parameter: value` lines; without it /etc/palisade/palisade.yaml, if that is there.
    #[arg(long, env = "PALISADE_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CleanupArgs {
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// The agent's parameters that were given as flags, by name.
#[derive(Debug, Default)]
pub(crate) struct ParameterArgs(pub(crate) BTreeMap<String, String>);

impl Args for ParameterArgs {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for parameter in PARAMETERS.iter().filter(|p| p.name != SOCKET_PARAMETER) {
            let mut arg = Arg::new(parameter.name)
                .long(parameter.name)
                .value_name(parameter.placeholder)
                .help_heading(parameter.section.title())
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

/// A parameter that is an option of every command, and so no flag of its own here.
const SOCKET_PARAMETER: &str = "socket";

impl FromArgMatches for ParameterArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut values_by_name = BTreeMap::new();
        for parameter in PARAMETERS.iter().filter(|p| p.name != SOCKET_PARAMETER) {
            if let Some(values) = matches.get_many::<String>(parameter.name) {
                let values: Vec<&str> = values.map(String::as_str).collect();
                values_by_name.insert(parameter.name.to_owned(), values.join(","));
            }
        }
        // What the environment says of it is read with all other variables.
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
    /// All of them.
    List,
    /// One, with the policies that apply to it.
    Get {
        /// Its namespace and name, as `namespace/name`.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum IpamCommand {
    /// The pools and how full they are, and every address with its workload.
    List,
    /// Compare records, disk, interfaces, routes and the kernel's tables; say what leaks.
    ///
    /// Changes nothing. Ends with 1 if something does not agree.
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IdentityCommand {
    /// All of them.
    List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// All of them, in the order they are judged.
    List,
    /// One, with its rules and their counters.
    Get {
        /// Its namespace and name, as `namespace/name`.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkloadCommand {
    /// Attach a network namespace: closed until its policy is in the kernel.
    Add(WorkloadAddArgs),
    /// Detach one; nothing of it is left.
    Remove {
        /// Its namespace and name, as `namespace/name`.
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WorkloadAddArgs {
    /// Its namespace and name, as `namespace/name`; without a namespace, `default`.
    pub(crate) name: String,
    /// The network namespace: a name under /run/netns, or a path.
    #[arg(long)]
    pub(crate) netns: String,
    /// A label, as key=value; may be repeated. Without any: those of the Pod of that name.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub(crate) labels: Vec<String>,
    /// An address to give it; may be repeated. Without any: one from each of the host's pools.
    #[arg(long = "address", value_name = "ADDRESS")]
    pub(crate) addresses: Vec<String>,
    /// With the host's pools: only IPv4.
    #[arg(short = '4', long, conflicts_with_all = ["addresses", "ipv6"])]
    pub(crate) ipv4: bool,
    /// With the host's pools: only IPv6.
    #[arg(short = '6', long, conflicts_with = "addresses")]
    pub(crate) ipv6: bool,
    /// A named port, as name=number/protocol; may be repeated.
    #[arg(long = "port", value_name = "NAME=PORT/PROTOCOL")]
    pub(crate) ports: Vec<String>,
    /// The interface inside the namespace.
    #[arg(long, default_value = "eth0")]
    pub(crate) interface: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A manifest file, a directory, or - for the standard input; may be repeated. Without any, the
    /// running agent is asked.
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Who connects: namespace/pod (or another workload), or an address; a name alone is one of
    /// namespace default.
    #[arg(long, value_name = "X")]
    pub(crate) from: String,
    /// To whom: namespace/pod, an address, or service:NAMESPACE/NAME.
    #[arg(long, value_name = "Y")]
    pub(crate) to: String,
    /// The destination port and protocol, as 80/TCP; the protocol is TCP where it is not said.
    #[arg(
        long,
        value_name = "PORT[/PROTOCOL]",
        required_unless_present = "protocol",
        conflicts_with = "protocol"
    )]
    pub(crate) port: Option<String>,
    /// A protocol without ports: ICMP, ICMPv6, or a number.
    #[arg(long)]
    pub(crate) protocol: Option<String>,
    /// The ICMP type and code; an echo request where it is not said.
    #[arg(long, value_name = "TYPE[/CODE]", requires = "protocol")]
    pub(crate) icmp_type: Option<String>,
    /// The source port; 49152 where it is not said.
    #[arg(long, value_name = "PORT", requires = "port")]
    pub(crate) source_port: Option<u16>,
    /// Also list every policy that does not apply, with the reason.
    #[arg(long)]
    pub(crate) all: bool,
    /// End with exit code 1 if the connection is denied.
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// Only packets that this workload, as namespace/name, sent or was sent.
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
    /// Begin with the last N packets; the agent remembers about a thousand.
    #[arg(long, value_name = "N", default_value = "0")]
    pub(crate) last: usize,
    /// End after those.
    #[arg(long, requires = "last")]
    pub(crate) no_follow: bool,
}

/// A verdict to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictFilter {
    /// Dropped packets.
    Denied,
    /// Packets that a Log rule asked for and that were let through.
    Allowed,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The manifests before, then the manifests after: each a file or a directory, one of them may
    /// be - for the standard input.
    #[arg(
        short = 'f',
        long = "filename",
        required = true,
        num_args = 1,
        value_name = "PATH"
    )]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) scope: ScopeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// For which shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// A shell that can complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// GNU Bash.
    Bash,
    /// The Z shell.
    Zsh,
    /// Fish.
    Fish,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Leave everything standing at the end, and say how to look around and how to remove it.
    #[arg(long)]
    pub(crate) keep: bool,
}

/// Reads the command line. Help and version are answered here.
pub(crate) fn parse() -> Result<Cli, ExitStatus> {
    Cli::try_parse().map_err(|error| {
        // Nothing is left to do if the terminal is gone.
        if error.use_stderr() {
            // It repeats what was typed, so it comes without colours, which are control characters.
            let text = error.render().to_string();
            let _ = io::stderr().write_all(printable_lines(&text).as_bytes());
            ExitStatus::Usage
        } else {
            let _ = error.print();
            ExitStatus::Success
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn agent_parameters_are_flags() {
        let cli =
            Cli::try_parse_from(["palisade", "agent", "--directory", "/x", "--settle=5"]).unwrap();
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
        let line = "palisade agent --ipam-pool a,b --dry-run --ipam-pool c --socket /s";
        let said = |line: &str| match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Agent(agent) => agent.parameters.0,
            _ => panic!("agent"),
        };
        let all = said(line);
        let pairs: Vec<_> = all.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(
            pairs,
            [
                ("dry-run", "true"),
                ("ipam-pool", "a,b,c"),
                ("socket", "/s")
            ]
        );
        let before = said("palisade --socket /s agent --dry-run=false");
        let pairs: Vec<_> = before.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(pairs, [("dry-run", "false"), ("socket", "/s")]);
        assert!(said("palisade agent").is_empty());
    }

    #[test]
    fn each_parameter_is_a_flag_with_its_help() {
        let command = Cli::command();
        let agent = command.find_subcommand("agent").unwrap();
        for parameter in PARAMETERS.iter().filter(|p| p.name != SOCKET_PARAMETER) {
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
        let default = palisade_agent::config::Parameter::by_name(SOCKET_PARAMETER)
            .unwrap()
            .default;
        assert!(socket.get_help().unwrap().to_string().contains(default));
    }
}

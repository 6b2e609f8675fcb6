//! The implementation of each command.

mod agent;
mod agent_config;
mod bpf;
mod cleanup;
mod completion;
mod connections;
mod convert;
mod diff;
mod endpoint;
mod explain;
mod flow_export;
mod flows;
mod install_cni;
mod ipam;
mod lint;
mod manifests;
mod monitor;
mod names;
mod policy;
mod preview;
mod progress;
mod proxy;
mod push;
mod recorded_decision;
mod recorded_flows;
mod relay_upstream;
mod status;
mod suggest;
mod ui;
mod uninstall_check;
mod validate;
mod workload;

use crate::cli::{Cli, Command, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandError, ExitStatus};
use palisade_config::find_parameter;
use std::path::PathBuf;

/// Runs a command; prints errors on standard error.
pub(crate) fn run(cli: Cli) -> ExitStatus {
    let socket = cli.socket.unwrap_or_else(default_socket);
    let client = ApiClient::new(&socket);
    let prints_yaml = matches!(cli.command, Command::Convert(_) | Command::Suggest(_));
    if cli.output == OutputFormat::Yaml && !prints_yaml {
        let error = CommandError::usage("only the commands convert and suggest print YAML");
        eprintln!("{error}");
        return error.exit;
    }
    let outcome = match cli.command {
        Command::Agent(args) => agent::run(args, cli.output),
        Command::Proxy(args) => proxy::run(args),
        Command::Status => status::run(&client, cli.output),
        Command::Endpoint(command) => endpoint::run(&command, &client, cli.output),
        Command::Identity(_) => endpoint::list_identities(&client, cli.output),
        Command::Policy(command) => policy::run(&command, &client, cli.output),
        Command::Ipam(command) => ipam::run(&command, &client, cli.output),
        Command::Names(command) => names::run(&command, &client, cli.output),
        Command::Workload(command) => workload::run(command, &client, cli.output),
        Command::Monitor(args) => monitor::run(args, &client, cli.output),
        Command::Flows(args) => flows::run(args, &client, cli.output),
        Command::Bpf(command) => bpf::run(command, &client, cli.output),
        Command::Config(args) => status::run_config(args, &client, cli.output),
        Command::Completion(args) => completion::run(args.shell, cli.output),
        Command::Validate(files) => validate::run(&files, cli.output),
        Command::Lint(files) => lint::run(&files, cli.output),
        Command::Explain(args) => explain::run(&args, &client, cli.output),
        Command::Connections(args) => connections::run(&args, cli.output),
        Command::Diff(args) => diff::run(&args, &client, cli.output),
        Command::Preview(args) => preview::run(&args, &client, cli.output),
        Command::Suggest(args) => suggest::run(&args, &client, cli.output),
        Command::Ui(args) => ui::run(&args, &socket, cli.output),
        Command::Convert(args) => convert::run(&args, cli.output),
        Command::Push(args) => push::run(args, cli.output),
        Command::Cleanup(args) => cleanup::run(args, cli.output),
        Command::InstallCni(args) => install_cni::run(args, cli.output),
        Command::UninstallCheck(args) => uninstall_check::run(args, cli.output),
    };
    outcome.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        failure.exit
    })
}

/// Splits `namespace/name`; the default namespace is `default`.
pub(crate) fn split_name(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or(("default", text))
}

/// Default path of the agent's socket.
fn default_socket() -> PathBuf {
    find_parameter("socket").map_or_else(PathBuf::new, |socket| socket.default.into())
}

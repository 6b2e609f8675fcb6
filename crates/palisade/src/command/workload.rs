//! `palisade workload`: attaches or detaches a network namespace through the agent.

use super::split_name;
use crate::cli::{OutputFormat, WorkloadAddArgs, WorkloadCommand};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use hyper::Method;
use palisade_api::{
    WorkloadAddRequest, WorkloadAddResponse, WorkloadRemoveRequest, WorkloadRemoveResponse, path,
};
use std::collections::BTreeMap;

/// Attaches or detaches a network namespace.
pub(crate) fn run(
    command: WorkloadCommand,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    match command {
        WorkloadCommand::Add(args) => {
            let request = add_request(args)?;
            let added: WorkloadAddResponse =
                client.send(Method::POST, path::WORKLOADS, &request)?;
            print_output(format, &added, |added| {
                let closed = added.closed.as_ref();
                let closed = closed.map(|why| format!("; all traffic is denied for now: {why}"));
                format!(
                    "attached {}/{}, interface {}, addresses {}; its policy is in the kernel at revision {}{}",
                    added.namespace,
                    added.name,
                    added.host_interface,
                    added.addresses.join(" and "),
                    added.revision,
                    closed.unwrap_or_default()
                )
            })?;
        }
        WorkloadCommand::Remove { name } => {
            let (namespace, name) = split_name(&name);
            let request = WorkloadRemoveRequest {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            let removed: WorkloadRemoveResponse =
                client.send(Method::DELETE, path::WORKLOADS, &request)?;
            print_output(format, &removed, |removed| {
                if removed.removed {
                    format!("detached {namespace}/{name}")
                } else {
                    format!("{namespace}/{name} was not attached")
                }
            })?;
        }
    }
    Ok(ExitStatus::Success)
}

fn add_request(args: WorkloadAddArgs) -> Result<WorkloadAddRequest, CommandError> {
    let (namespace, name) = split_name(&args.name);
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let labels = args
        .labels
        .iter()
        .map(|label| match label.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(CommandError::usage(format!(
                "--label {label}: write it as key=value"
            ))),
        })
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let families = match (args.ipv4, args.ipv6) {
        (true, false) => vec![4],
        (false, true) => vec![6],
        _ => Vec::new(),
    };
    Ok(WorkloadAddRequest {
        netns: args.netns,
        namespace,
        name,
        labels: (!labels.is_empty()).then_some(labels),
        addresses: args.addresses,
        families,
        ports: args.ports,
        interface: Some(args.interface),
    })
}

//! `palisade workload`: asks the agent to attach or detach a network namespace.

use super::split_name;
use crate::cli::{Format, WorkloadAddArgs, WorkloadCommand};
use crate::client::Client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::answer;
use hyper::Method;
use palisade_api::{WorkloadAdd, WorkloadAdded, WorkloadRemove, WorkloadRemoved, path};
use std::collections::BTreeMap;

/// Attaches or detaches a network namespace.
pub(crate) fn run(command: WorkloadCommand, client: &Client, format: Format) -> Outcome {
    match command {
        WorkloadCommand::Add(args) => {
            let request = request(args)?;
            let added: WorkloadAdded = client.send(Method::POST, path::WORKLOADS, &request)?;
            answer(format, &added, |added| {
                let closed = added.closed.as_ref();
                let closed = closed.map(|why| format!("; nothing passes yet: {why}"));
                format!(
                    "attached {}/{} by {} with {}; its policy is in the kernel at revision {}{}",
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
            let request = WorkloadRemove {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            };
            let removed: WorkloadRemoved =
                client.send(Method::DELETE, path::WORKLOADS, &request)?;
            answer(format, &removed, |removed| match removed.removed {
                true => format!("detached {namespace}/{name}"),
                false => format!("{namespace}/{name} was not attached"),
            })?;
        }
    }
    Ok(Exit::Fine)
}

fn request(args: WorkloadAddArgs) -> Result<WorkloadAdd, Failure> {
    let (namespace, name) = split_name(&args.name);
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let labels = args
        .labels
        .iter()
        .map(|label| match label.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Failure::usage(format!(
                "--label {label}: write it as key=value"
            ))),
        })
        .collect::<Result<BTreeMap<_, _>, _>>()?;
    let families = match (args.ipv4, args.ipv6) {
        (true, false) => vec![4],
        (false, true) => vec![6],
        _ => Vec::new(),
    };
    Ok(WorkloadAdd {
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

//! `palisade endpoint` and `palisade identity`: the agent's endpoints and identities.

use super::policy::tier_text;
use super::split_name;
use crate::cli::{EndpointCommand, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, print_output};
use palisade_api::{EndpointDetail, EndpointList, EndpointSummary, IdentityList, path};
use palisade_text::printable;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lists endpoints, or shows one.
pub(crate) fn run(
    command: &EndpointCommand,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    match command {
        EndpointCommand::List => {
            let list: EndpointList = client.get(path::ENDPOINTS)?;
            print_output(format, &list, endpoints_table)?;
        }
        EndpointCommand::Get { name } => {
            let (namespace, name) = split_name(name);
            let detail: EndpointDetail =
                client.get(&format!("{}/{namespace}/{name}", path::ENDPOINTS))?;
            print_output(format, &detail, detail_text)?;
        }
    }
    Ok(ExitStatus::Success)
}

/// Formats endpoints as a table.
pub(super) fn endpoints_table(list: &EndpointList) -> String {
    let mut table = TextTable::new(&[
        "ENDPOINT",
        "STATE",
        "INTERFACE",
        "ADDRESSES",
        "ISOLATED",
        "REVISION",
        "LABELS",
    ]);
    for e in &list.endpoints {
        table.row([
            format!("{}/{}", e.namespace, e.name),
            state_text(e),
            e.interface.clone(),
            e.addresses.join(","),
            isolated_directions(e).to_owned(),
            e.revision.to_string(),
            or_dash(labels_text(&e.labels)),
        ]);
    }
    table.to_string()
}

/// Lists identities.
pub(crate) fn list_identities(client: &ApiClient, format: OutputFormat) -> CommandResult {
    let list: IdentityList = client.get(path::IDENTITIES)?;
    print_output(format, &list, |list| {
        let mut table = TextTable::new(&["IDENTITY", "ADDRESSES", "MATCHES"]);
        for identity in &list.identities {
            table.row([
                identity.id.to_string(),
                identity.prefixes.join(","),
                or_dash(identity.matches.join("; ")),
            ]);
        }
        table.to_string()
    })?;
    Ok(ExitStatus::Success)
}

fn state_text(endpoint: &EndpointSummary) -> String {
    let state = endpoint.state;
    match &endpoint.reason {
        Some(reason) => format!("{state} ({reason})"),
        None => state.to_string(),
    }
}

fn isolated_directions(endpoint: &EndpointSummary) -> &'static str {
    match (endpoint.ingress_isolated, endpoint.egress_isolated) {
        (false, false) => "no",
        (true, false) => "ingress",
        (false, true) => "egress",
        (true, true) => "ingress,egress",
    }
}

fn labels_text(labels: &BTreeMap<String, String>) -> String {
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

fn detail_text(detail: &EndpointDetail) -> String {
    let mut out = String::new();
    let e = &detail.summary;
    // Writing to a String cannot fail.
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<12} {}", printable(&value));
    };
    line("Endpoint", format!("{}/{}", e.namespace, e.name));
    line("State", state_text(e));
    line(
        "Interface",
        format!("{} (namespace {})", e.interface, detail.netns),
    );
    line("Addresses", e.addresses.join(", "));
    line("Labels", or_dash(labels_text(&e.labels)));
    line("Ports", or_dash(detail.ports.join(", ")));
    line("Isolated", isolated_directions(e).to_owned());
    line("Revision", format!("{} in the kernel", e.revision));
    for (name, policies) in [("Ingress", &detail.ingress), ("Egress", &detail.egress)] {
        if policies.is_empty() {
            line(
                name,
                "no policy selects it: all traffic is allowed".to_owned(),
            );
        }
        for (index, policy) in policies.iter().enumerate() {
            line(
                if index == 0 { name } else { "" },
                format!(
                    "{}: {}{}",
                    tier_text(&policy.tier, policy.tier_order),
                    policy.policy,
                    policy
                        .order
                        .map_or(String::new(), |order| format!(", order {order}")),
                ),
            );
        }
    }
    out
}

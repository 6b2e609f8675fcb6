//! `palisade endpoint` and `palisade identity`: what the agent knows of this host, printed.

use super::split_name;
use crate::cli::{EndpointCommand, Format};
use crate::client::Client;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, answer, or_dash};
use palisade_api::{
    AppliedPolicy, EndpointDetail, EndpointList, EndpointState, EndpointSummary, IdentityList, path,
};
use palisade_text::printable;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Lists endpoints, or shows one.
pub(crate) fn run(command: &EndpointCommand, client: &Client, format: Format) -> Outcome {
    match command {
        EndpointCommand::List => {
            let list: EndpointList = client.get(path::ENDPOINTS)?;
            answer(format, &list, table)?;
        }
        EndpointCommand::Get { name } => {
            let (namespace, name) = split_name(name);
            let detail: EndpointDetail =
                client.get(&format!("{}/{namespace}/{name}", path::ENDPOINTS))?;
            answer(format, &detail, detail_text)?;
        }
    }
    Ok(Exit::Fine)
}

/// Endpoints, one a line.
pub(super) fn table(list: &EndpointList) -> String {
    let mut table = Table::new(&[
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
            state(e),
            e.interface.clone(),
            e.addresses.join(","),
            isolated(e).to_owned(),
            e.revision.to_string(),
            or_dash(labels(&e.labels)),
        ]);
    }
    table.to_string()
}

/// Lists identities.
pub(crate) fn identities(client: &Client, format: Format) -> Outcome {
    let list: IdentityList = client.get(path::IDENTITIES)?;
    answer(format, &list, |list| {
        let mut table = Table::new(&["IDENTITY", "ADDRESSES", "MATCHES"]);
        for identity in &list.identities {
            table.row([
                identity.id.to_string(),
                identity.prefixes.join(","),
                or_dash(identity.matches.join("; ")),
            ]);
        }
        table.to_string()
    })?;
    Ok(Exit::Fine)
}

fn state(endpoint: &EndpointSummary) -> String {
    let state = match endpoint.state {
        EndpointState::Closed => "closed",
        EndpointState::Ready => "ready",
        EndpointState::Lost => "lost",
    };
    match &endpoint.reason {
        Some(reason) => format!("{state} ({reason})"),
        None => state.to_owned(),
    }
}

fn isolated(endpoint: &EndpointSummary) -> &'static str {
    match (endpoint.ingress_isolated, endpoint.egress_isolated) {
        (false, false) => "no",
        (true, false) => "ingress",
        (false, true) => "egress",
        (true, true) => "ingress,egress",
    }
}

fn labels(labels: &BTreeMap<String, String>) -> String {
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
    line("State", state(e));
    line(
        "Interface",
        format!("{} (namespace {})", e.interface, detail.netns),
    );
    line("Addresses", e.addresses.join(", "));
    line("Labels", or_dash(labels(&e.labels)));
    line("Ports", or_dash(detail.ports.join(", ")));
    line("Isolated", isolated(e).to_owned());
    line("Revision", format!("{} in the kernel", e.revision));
    for (name, policies) in [("Ingress", &detail.ingress), ("Egress", &detail.egress)] {
        if policies.is_empty() {
            line(name, "no policy selects it: everything passes".to_owned());
        }
        for (index, policy) in policies.iter().enumerate() {
            line(if index == 0 { name } else { "" }, applied(policy));
        }
    }
    out
}

fn applied(policy: &AppliedPolicy) -> String {
    let name = match &policy.namespace {
        Some(namespace) => format!("{namespace}/{}", policy.name),
        None => policy.name.clone(),
    };
    format!("{}: {} {name}", policy.tier, policy.kind)
}

//! `palisade flows`: recorded flows, as a table, as JSON, or as lines for Hubble.
//!
//! Promises: the filters are the agent's; what was lost or is not listed is told.

use super::explain::percent_encode;
use super::flow_export::export_lines;
use super::recorded_decision::decision_text;
use crate::cli::{FlowProtocol, FlowsArgs, OutputFormat, VerdictFilter};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, pluralize, print_output};
use palisade_api::{RecordedEnd, RecordedFlow, RecordedFlowList, path};
use palisade_sys::atomic_file::write_atomically;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;

/// How many flows are exported if the command line does not say.
const EXPORT_LIMIT: usize = 100_000;

/// Lists or exports recorded flows.
pub(crate) fn run(args: FlowsArgs, client: &ApiClient, format: OutputFormat) -> CommandResult {
    let export = args.export.clone();
    let list: RecordedFlowList = client.get(&format!("{}?{}", path::FLOWS, query(args)))?;
    match export {
        None => print_output(format, &list, list_text)?,
        Some(file) => export_flows(&list, &file)?,
    }
    Ok(ExitStatus::Success)
}

/// The parameters of the request.
fn query(args: FlowsArgs) -> String {
    let verdict = args.verdict.map(|verdict| match verdict {
        VerdictFilter::Denied => "Denied".to_owned(),
        VerdictFilter::Allowed => "Allowed".to_owned(),
    });
    let protocol = args.protocol.map(protocol_value);
    let limit = args.limit.or(args.export.map(|_| EXPORT_LIMIT));
    let parameters = [
        ("since", args.since),
        ("until", args.until),
        ("namespace", args.namespace),
        ("endpoint", args.endpoint),
        ("from", args.from),
        ("to", args.to),
        ("verdict", verdict),
        ("protocol", protocol),
        ("port", args.port.map(|port| port.to_string())),
        ("limit", limit.map(|limit| limit.to_string())),
    ];
    let given = parameters.into_iter().filter_map(|(name, value)| {
        let value = percent_encode(&value?);
        Some(format!("{name}={value}"))
    });
    given.collect::<Vec<_>>().join("&")
}

/// A protocol as the API names it.
pub(super) fn protocol_value(protocol: FlowProtocol) -> String {
    let name = match protocol {
        FlowProtocol::Tcp => "TCP",
        FlowProtocol::Udp => "UDP",
        FlowProtocol::Sctp => "SCTP",
        FlowProtocol::Icmp => "ICMP",
        FlowProtocol::Icmpv6 => "ICMPv6",
    };
    name.to_owned()
}

/// Writes the lines for Hubble; what is not among them goes to standard error.
fn export_flows(list: &RecordedFlowList, file: &Path) -> Result<(), CommandError> {
    let lines = export_lines(list);
    if file == Path::new("-") {
        match io::stdout().write_all(lines.as_bytes()) {
            // A closed pipe means that the reader is done.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let what = format!("writing to standard output: {error}");
                return Err(CommandError::problem(what));
            }
            _ => {}
        }
    } else {
        write_atomically(file, lines.as_bytes()).map_err(|error| {
            CommandError::problem(format!("writing {}: {error}", file.display()))
        })?;
    }
    let notes = notes_text(list);
    if !notes.is_empty() {
        eprint!("{notes}");
    }
    Ok(())
}

fn list_text(list: &RecordedFlowList) -> String {
    let mut table = TextTable::new(&[
        "LAST SEEN",
        "VERDICT",
        "SOURCE",
        "DESTINATION",
        "PORT",
        "COUNT",
        "BYTES",
        "DECIDED BY",
    ]);
    for flow in &list.flows {
        let bytes = flow
            .traffic
            .map(|t| t.bytes_sent.saturating_add(t.bytes_received));
        table.row([
            flow.last.clone(),
            flow.verdict.to_string(),
            end_text(&flow.source),
            end_text(&flow.destination),
            port_text(flow),
            flow.count.to_string(),
            or_dash(bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
            decisions_text(flow),
        ]);
    }
    let mut out = match (list.flows.is_empty(), &list.since) {
        (false, _) => table.to_string(),
        (true, Some(since)) => format!("no such flow was seen; the record begins at {since}\n"),
        (true, None) => "nothing is recorded yet\n".to_owned(),
    };
    out.push_str(&notes_text(list));
    out
}

/// What is not listed.
fn notes_text(list: &RecordedFlowList) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    if list.truncated {
        let listed = pluralize(list.flows.len(), "flow");
        let _ = writeln!(
            out,
            "more match than these {listed}: narrow the query, or raise --limit"
        );
    }
    if list.lost > 0 {
        let _ = writeln!(
            out,
            "{} flows or packets of this time were not recorded",
            list.lost
        );
    }
    out
}

fn end_text(end: &RecordedEnd) -> String {
    let controller = end.controller.as_ref().map(|controller| &*controller.name);
    if let Some(name) = controller.or(end.name.as_deref()) {
        return match &end.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        };
    }
    let address = end.address.as_deref();
    let about = match (&end.node, end.names.as_slice()) {
        (Some(node), _) => Some(format!("node {node}")),
        (None, [first, ..]) => Some(first.clone()),
        (None, []) => None,
    };
    match (address, about) {
        (Some(address), Some(about)) => format!("{address} ({about})"),
        (Some(address), None) => address.to_owned(),
        (None, Some(about)) => about,
        (None, None) => "others".to_owned(),
    }
}

fn port_text(flow: &RecordedFlow) -> String {
    let protocol = flow.protocol;
    match (flow.port, flow.icmp) {
        (Some(port), _) => format!("{port}/{protocol}"),
        (None, Some(icmp)) => format!("{protocol} {}/{}", icmp.kind, icmp.code),
        (None, None) => protocol.to_string(),
    }
}

/// What decided at both ends.
fn decisions_text(flow: &RecordedFlow) -> String {
    let ends = [("egress", &flow.egress), ("ingress", &flow.ingress)];
    let decided: Vec<String> = ends
        .into_iter()
        .filter_map(|(direction, decision)| {
            let decision = decision_text(decision.as_ref()?);
            Some(format!("{direction}: {decision}"))
        })
        .collect();
    or_dash(decided.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::recorded_decision::samples::list;

    #[test]
    fn flows_read_well() {
        let mut list = list();
        let expected = "\
LAST SEEN             VERDICT  SOURCE                       DESTINATION             PORT      COUNT  BYTES  DECIDED BY
2026-11-21T07:32:05Z  allowed  shop/web                     shop/db                 5432/TCP  7      10000  ingress: NetworkPolicy shop/db rule 1 (db.yaml:4)
2026-11-21T07:31:00Z  denied   192.0.2.7 (scanner.example)  shop/db                 5432/TCP  1      -      ingress: default-deny of NetworkPolicy shop/db (db.yaml:4)
2026-11-21T07:30:00Z  allowed  others                       10.0.0.5 (node node-2)  ICMP 8/0  3      -      -
more match than these 3 flows: narrow the query, or raise --limit
4 flows or packets of this time were not recorded
";
        assert_eq!(list_text(&list), expected);
        list.flows.clear();
        (list.lost, list.truncated) = (0, false);
        assert_eq!(
            list_text(&list),
            "no such flow was seen; the record begins at 2026-11-20T00:00:00Z\n"
        );
        list.since = None;
        assert_eq!(list_text(&list), "nothing is recorded yet\n");
    }

    #[test]
    fn flags_are_parameters() {
        let text = |text: &str| Some(text.to_owned());
        let mut args = FlowsArgs {
            since: text("24h"),
            until: None,
            namespace: text("shop"),
            endpoint: None,
            from: text("10.0.0.0/8"),
            to: None,
            verdict: Some(VerdictFilter::Denied),
            protocol: Some(FlowProtocol::Icmpv6),
            port: Some(80),
            limit: None,
            export: None,
        };
        let expected =
            "since=24h&namespace=shop&from=10.0.0.0%2F8&verdict=Denied&protocol=ICMPv6&port=80";
        args.export = Some("-".into());
        let exported = format!("{expected}&limit=100000");
        assert_eq!(query(args), exported);
    }
}

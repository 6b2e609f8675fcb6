//! `palisade explain`: the verdict of a connection, from manifests or from the running agent.

use super::manifests;
use crate::cli::{ExplainArgs, OutputFormat};
use crate::client::ApiClient;
use crate::connection_args::DenialAction;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_analysis::{ExplainError, FlowEndError};
use palisade_api::{ExplainQuery, Explanation, VerdictWord, path};
use palisade_model::FailsafePorts;
use palisade_oracle::OracleOptions;
use std::fmt::Write;

/// Explains a connection, from manifests or from the running agent.
pub(crate) fn run(args: &ExplainArgs, client: &ApiClient, format: OutputFormat) -> CommandResult {
    let query = ExplainQuery {
        from: args.from.clone(),
        to: args.to.clone(),
        port: args.packet.port.clone(),
        protocol: args.packet.protocol.clone(),
        icmp_type: args.packet.icmp_type.clone(),
        source_port: args.packet.source_port,
        original_destination: args.packet.original_destination.clone(),
        input_interface: args.host_path.input_interface.clone(),
        output_interface: args.host_path.output_interface.clone(),
        node: args.host_path.node.clone(),
    };
    let (explanation, exit): (Explanation, ExitStatus) = if args.files.is_empty() {
        let path_and_query = format!("{}?{}", path::EXPLAIN, query_string(&query));
        (client.get(&path_and_query)?, ExitStatus::Success)
    } else {
        let read = manifests::load_state(&args.files)?;
        let explanation = palisade_analysis::explain(
            &read.state,
            &query,
            &OracleOptions {
                host_to_endpoint: args.agents.host_to_endpoint.unwrap_or_default().action(),
                hairpin: args.agents.hairpin.unwrap_or_default().action(),
                ..OracleOptions::default()
            },
            &FailsafePorts::default(),
        )
        .map_err(|error| {
            let text = palisade_text::error_chain(&error);
            match &error {
                ExplainError::FlowEnd(FlowEndError::NoEndpoint { name, .. }) => {
                    read.unknown_name(name, text)
                }
                _ => CommandError::usage(text),
            }
        })?;
        let explanation = match args.agents.deny_action.unwrap_or_default() {
            DenialAction::Drop => explanation,
            DenialAction::Reject => explanation.with_answers(),
        };
        (explanation, read.exit)
    };
    let explanation = if args.all {
        explanation
    } else {
        explanation.brief()
    };
    print_output(format, &explanation, Explanation::to_string)?;
    let denied = explanation.case.verdict == VerdictWord::Deny;
    Ok(if denied && args.exit_code {
        ExitStatus::ProblemsFound
    } else {
        exit
    })
}

fn query_string(query: &ExplainQuery) -> String {
    let source_port = query.source_port.map(|port| port.to_string());
    let fields = [
        ("from", Some(&query.from)),
        ("to", Some(&query.to)),
        ("port", query.port.as_ref()),
        ("protocol", query.protocol.as_ref()),
        ("icmpType", query.icmp_type.as_ref()),
        ("sourcePort", source_port.as_ref()),
        ("originalDestination", query.original_destination.as_ref()),
        ("inputInterface", query.input_interface.as_ref()),
        ("outputInterface", query.output_interface.as_ref()),
        ("node", query.node.as_ref()),
    ];
    let pairs = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", percent_encode(value?))));
    pairs.collect::<Vec<_>>().join("&")
}

/// Percent-encodes every character that is not unreserved. Source: RFC 3986, section 2.3.
pub(super) fn percent_encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        let query = ExplainQuery {
            from: "shop/web".to_owned(),
            to: "fd00::1".to_owned(),
            source_port: Some(7),
            ..ExplainQuery::default()
        };
        assert_eq!(
            query_string(&query),
            "from=shop%2Fweb&to=fd00%3A%3A1&sourcePort=7"
        );
    }
}

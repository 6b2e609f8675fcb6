//! `palisade explain`: asks the manifests or the running agent, and prints what it hears.

use super::manifests;
use crate::cli::{ExplainArgs, Format};
use crate::client::Client;
use crate::exit::{Exit, Failure, Outcome};
use crate::output::answer;
use palisade_agent::explain::question;
use palisade_analysis::Explanation;
use palisade_analysis::explain::Word;
use palisade_api::{ExplainQuery, path};
use palisade_oracle::Options;
use std::fmt::Write;

/// Says whether a connection is allowed, from manifests or as the running agent sees it.
pub(crate) fn run(args: &ExplainArgs, client: &Client, format: Format) -> Outcome {
    let query = ExplainQuery {
        from: args.from.clone(),
        to: args.to.clone(),
        port: args.port.clone(),
        protocol: args.protocol.clone(),
        icmp_type: args.icmp_type.clone(),
        source_port: args.source_port,
    };
    let (explanation, exit): (Explanation, Exit) = if args.files.is_empty() {
        let asked = format!("{}?{}", path::EXPLAIN, query_string(&query));
        (client.get(&asked)?, Exit::Fine)
    } else {
        let read = manifests::read(&args.files)?;
        let explanation =
            palisade_analysis::explain(&read.state, &question(query), &Options::default())
                .map_err(|error| Failure::usage(palisade_agent::core::chain(&error)))?;
        (explanation, read.exit)
    };
    let explanation = match args.all {
        true => explanation,
        false => explanation.brief(),
    };
    answer(format, &explanation, Explanation::to_string)?;
    let denied = explanation.case.verdict == Word::Deny;
    Ok(if denied && args.exit_code {
        Exit::Found
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
    ];
    let said = fields
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encoded(value?))));
    said.collect::<Vec<_>>().join("&")
}

/// Percent-encoding of everything that is not unreserved. Source: RFC 3986, section 2.3.
pub(super) fn encoded(text: &str) -> String {
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

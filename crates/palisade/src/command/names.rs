//! `palisade names`: the addresses of domain names, who asked for them, and the rules that concern a name.

use crate::cli::{NamesCommand, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, print_output};
use palisade_api::{NameDetail, NameList, NameReport, NameRuleReport, path};
use palisade_model::DomainName;
use std::fmt::Write;

/// Lists names, or shows one.
pub(crate) fn run(
    command: &NamesCommand,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    match command {
        NamesCommand::List => {
            let list: NameList = client.get(path::NAMES)?;
            print_output(format, &list, list_text)?;
        }
        NamesCommand::Get { name } => {
            let name: DomainName = name.parse().map_err(|error| {
                CommandError::usage(format!("{name:?} is no domain name: {error}"))
            })?;
            let name = name.as_str();
            let detail: NameDetail = client.get(&format!("{}/{name}", path::NAMES))?;
            print_output(format, &detail, detail_text)?;
        }
    }
    Ok(ExitStatus::Success)
}

fn list_text(list: &NameList) -> String {
    let mut out = address_table(&list.names).to_string();
    if let Some(more) = list.more {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "and {more} more names");
    }
    out
}

fn address_table(names: &[NameReport]) -> TextTable {
    let mut table = TextTable::new(&["NAME", "ADDRESS", "ASKED BY", "UNTIL", "OWNER"]);
    for name in names {
        for address in &name.addresses {
            table.row([
                name.name.clone(),
                address.address.clone(),
                address.workload.clone(),
                address.expires.clone(),
                or_dash(address.owner.clone().unwrap_or_default()),
            ]);
        }
    }
    table
}

fn detail_text(detail: &NameDetail) -> String {
    let mut out = if detail.name.addresses.is_empty() {
        format!(
            "{} has no addresses: no answer for it was learnt\n",
            detail.name.name
        )
    } else {
        address_table(std::slice::from_ref(&detail.name)).to_string()
    };
    for (heading, rules) in [
        ("Rules that select its addresses", &detail.selected_by),
        ("Rules by which it may be asked for", &detail.asked_by),
    ] {
        let _ = writeln!(out, "\n{heading}:");
        if rules.is_empty() {
            let _ = writeln!(out, "  none");
        }
        for NameRuleReport { policy, source } in rules {
            let source = source.as_deref().unwrap_or("-");
            let _ = writeln!(out, "  {policy} ({source})");
        }
    }
    out
}

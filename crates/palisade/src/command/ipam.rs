//! `palisade ipam`: the addresses of workloads and their consistency check.

use crate::cli::{IpamCommand, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, pluralize, print_output};
use palisade_api::{IpamCheckReport, IpamReport, path};

/// Lists addresses, or checks them.
pub(crate) fn run(
    command: &IpamCommand,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    match command {
        IpamCommand::List => {
            let report: IpamReport = client.get(path::IPAM)?;
            print_output(format, &report, list_text)?;
            Ok(ExitStatus::Success)
        }
        IpamCommand::Check => {
            let check: IpamCheckReport = client.get(path::IPAM_CHECK)?;
            print_output(format, &check, check_text)?;
            Ok(ExitStatus::of(!check.findings.is_empty()))
        }
    }
}

fn list_text(report: &IpamReport) -> String {
    let mut pools = TextTable::new(&["POOL", "SIZE", "TAKEN", "RESERVED", "FREE"]);
    for pool in &report.pools {
        let number = |n: u64| match n {
            u64::MAX => "2^64 or more".to_owned(),
            n => n.to_string(),
        };
        pools.row([
            pool.pool.clone(),
            number(pool.size),
            number(pool.taken),
            number(pool.reserved),
            number(pool.free),
        ]);
    }
    let mut addresses = TextTable::new(&[
        "ADDRESS",
        "WORKLOAD",
        "INTERFACE",
        "NETWORK",
        "CONTAINER",
        "SINCE",
    ]);
    for address in &report.addresses {
        addresses.row([
            address.address.clone(),
            format!("{}/{}", address.namespace, address.name),
            address.interface.clone(),
            or_dash(address.network.clone().unwrap_or_default()),
            or_dash(address.container.clone().unwrap_or_default()),
            address.since.clone(),
        ]);
    }
    format!("{pools}\n{addresses}")
}

fn check_text(check: &IpamCheckReport) -> String {
    let workloads = pluralize(check.workloads, "workload");
    if check.findings.is_empty() {
        return format!("{workloads}: records, interfaces, routes and tables are consistent");
    }
    let mut table = TextTable::new(&["KIND", "OBJECT", "REASON"]);
    for finding in &check.findings {
        table.row([finding.kind.name(), &*finding.object, &*finding.reason]);
    }
    format!("{workloads}\n{table}")
}

//! `palisade ipam`: who has which address, and whether everything agrees about it, printed.

use crate::cli::{Format, IpamCommand};
use crate::client::Client;
use crate::exit::{Exit, Outcome};
use crate::output::{Table, answer, counted, or_dash};
use palisade_api::{IpamCheck, IpamReport, path};

/// Lists addresses, or checks them.
pub(crate) fn run(command: &IpamCommand, client: &Client, format: Format) -> Outcome {
    match command {
        IpamCommand::List => {
            let report: IpamReport = client.get(path::IPAM)?;
            answer(format, &report, list_text)?;
            Ok(Exit::Fine)
        }
        IpamCommand::Check => {
            let check: IpamCheck = client.get(path::IPAM_CHECK)?;
            answer(format, &check, check_text)?;
            Ok(match check.findings.is_empty() {
                true => Exit::Fine,
                false => Exit::Found,
            })
        }
    }
}

fn list_text(report: &IpamReport) -> String {
    let mut pools = Table::new(&["POOL", "SIZE", "TAKEN", "RESERVED", "FREE"]);
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
    let mut addresses = Table::new(&[
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

fn check_text(check: &IpamCheck) -> String {
    let workloads = counted(check.workloads, "workload");
    if check.findings.is_empty() {
        return format!("{workloads}: records, interfaces, routes and tables agree");
    }
    let mut table = Table::new(&["KIND", "OBJECT", "REASON"]);
    for finding in &check.findings {
        table.row([&*finding.kind, &*finding.object, &*finding.reason]);
    }
    format!("{workloads}\n{table}")
}

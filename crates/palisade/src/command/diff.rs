//! `palisade diff`: the connections that a change of manifests allows or denies, and a warning first where it would
//! lock people out of a host, or a host out of its API server.

use super::connections::{
    connection_scope, connections_table, forwarded_table, group_members_text, hosts_table,
    is_about_hosts, is_ungrouped,
};
use super::manifests;
use crate::cli::{DiffArgs, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_analysis::{
    AdminSession, ConnectionDiff, ForwardedConnection, ForwardedDiff, HostAccessQuestions,
    HostConnection, HostDiff, StateView,
};
use palisade_api::{DiffReport, LockoutReport};
use palisade_config::parse_failsafe_ports;
use palisade_dialects::service_ports;
use palisade_model::{FailsafePort, FailsafePorts};
use palisade_text::printable;
use std::path::PathBuf;

/// The Service of the API server.
const API_SERVER: &str = "default/kubernetes";

/// Shows the difference; exit code 1 if there is one, or if the manifests have errors.
pub(crate) fn run(args: &DiffArgs, format: OutputFormat) -> CommandResult {
    let (old, new) = files(args)?;
    let failsafe = failsafe_ports(args)?;
    let old = manifests::load_state(std::slice::from_ref(old))?;
    let new = match new {
        Some(new) => Some(manifests::load_state(std::slice::from_ref(new))?),
        None => None,
    };
    let exits = [Some(&old), new.as_ref()].into_iter().flatten();
    let problems = exits
        .map(|loaded| loaded.exit)
        .any(|exit| exit == ExitStatus::ProblemsFound);
    let is_single = new.is_none();
    let (old, new) = (
        &old.state,
        new.as_ref().map_or(&old.state, |new| &new.state),
    );
    let view = |state, audit| {
        if audit {
            StateView::audit(state)
        } else {
            StateView::from(state)
        }
    };
    let (old, new) = (view(old, args.audit && !is_single), view(new, args.audit));
    let scope = connection_scope(&args.scope);
    let diff = if is_ungrouped(format, &args.scope, &[old.state, new.state]) {
        palisade_analysis::filtered_diff(old, new, &scope)
    } else {
        palisade_analysis::grouped_diff(old, new, &scope)
    };
    let diff = diff.map_err(|error| CommandError::usage(error.to_string()))?;
    let questions = HostAccessQuestions {
        session: session(),
        api_servers: [old, new]
            .into_iter()
            .flat_map(|view| service_ports::tcp_endpoints(view.state, API_SERVER))
            .collect(),
        failsafe,
    };
    let (hosts, forwarded) = if is_about_hosts(&args.scope) {
        (
            palisade_analysis::host_diff(old, new, &questions.failsafe),
            palisade_analysis::forwarded_diff(old, new, &questions.failsafe),
        )
    } else {
        Default::default()
    };
    let reports = |list: &[HostConnection]| list.iter().map(HostConnection::report).collect();
    let of_forwarded =
        |list: &[ForwardedConnection]| list.iter().map(ForwardedConnection::report).collect();
    let report = DiffReport {
        hosts_opened: reports(&hosts.opened),
        hosts_closed: reports(&hosts.closed),
        forwarded_opened: of_forwarded(&forwarded.opened),
        forwarded_closed: of_forwarded(&forwarded.closed),
        lockouts: palisade_analysis::lockouts(old, new, &questions),
        ..diff.report(args.scope.members)
    };
    print_output(format, &report, |report| {
        let changes = diff_text(&diff, &hosts, &forwarded);
        let members = group_members_text(&[&diff.opened, &diff.closed], &args.scope);
        lockout_text(&report.lockouts) + &changes + &members
    })?;
    let is_different = !diff.is_empty()
        || hosts != HostDiff::default()
        || forwarded != ForwardedDiff::default()
        || !report.lockouts.is_empty();
    Ok(ExitStatus::of(is_different || problems))
}

/// The paths of the old manifests and the new ones, which are absent for the difference that the audit makes.
fn files(args: &DiffArgs) -> Result<(&PathBuf, Option<&PathBuf>), CommandError> {
    let (old, new) = match &args.files[..] {
        [old, new] => (old, Some(new)),
        [only] if args.audit => (only, None),
        files => {
            let given = files.len();
            return Err(CommandError::usage(format!(
                "diff needs -f OLD -f NEW, two files or directories, or --audit -f PATH; {given} given"
            )));
        }
    };
    if old.as_os_str() == "-" && new.is_some_and(|new| new.as_os_str() == "-") {
        return Err(CommandError::usage("only one of OLD and NEW can be `-`"));
    }
    Ok((old, new))
}

/// The session by which the user came to the host with this address.
#[allow(
    clippy::disallowed_methods,
    reason = "a session is described by its environment alone"
)]
fn session() -> Option<AdminSession> {
    AdminSession::parse(&std::env::var("SSH_CONNECTION").ok()?)
}

/// The failsafe ports of the hosts: those of the command line, else those that an agent has by default.
fn failsafe_ports(args: &DiffArgs) -> Result<FailsafePorts, CommandError> {
    let default = FailsafePorts::default();
    let ports = |name: &str, given: &Option<String>, default: Vec<FailsafePort>| {
        let Some(text) = given else {
            return Ok(default);
        };
        parse_failsafe_ports(text)
            .map_err(|reason| CommandError::usage(format!("--{name} {reason}")))
    };
    Ok(FailsafePorts {
        inbound: ports(
            "failsafe-inbound-ports",
            &args.failsafe_inbound_ports,
            default.inbound,
        )?,
        outbound: ports(
            "failsafe-outbound-ports",
            &args.failsafe_outbound_ports,
            default.outbound,
        )?,
    })
}

fn lockout_text(lockouts: &[LockoutReport]) -> String {
    let lines = lockouts
        .iter()
        .map(|lockout| format!("warning: {}\n", printable(&lockout.to_string())));
    lines.collect()
}

fn diff_text(diff: &ConnectionDiff, hosts: &HostDiff, forwarded: &ForwardedDiff) -> String {
    let is_forwarded_same = *forwarded == ForwardedDiff::default();
    if diff.is_empty() && *hosts == HostDiff::default() && is_forwarded_same {
        return "no difference in allowed connections".to_owned();
    }
    let mut out = String::new();
    for (title, workloads) in [
        ("Added workloads", &diff.appeared),
        ("Removed workloads", &diff.vanished),
    ] {
        if !workloads.is_empty() {
            let names: Vec<String> = workloads
                .iter()
                .map(|workload| printable(&workload.to_string()).into_owned())
                .collect();
            out.push_str(&format!("{title}: {}\n", names.join(", ")));
        }
    }
    for (title, connections) in [("Opened:", &diff.opened), ("Closed:", &diff.closed)] {
        if !connections.is_empty() {
            out.push_str(&format!("{title}\n{}", connections_table(connections)));
        }
    }
    for (title, list) in [
        ("Opened at hosts:", &hosts.opened),
        ("Closed at hosts:", &hosts.closed),
    ] {
        if !list.is_empty() {
            out.push_str(&format!("{title}\n{}", hosts_table(list)));
        }
    }
    for (title, list) in [
        ("Opened of what hosts forward:", &forwarded.opened),
        ("Closed of what hosts forward:", &forwarded.closed),
    ] {
        if !list.is_empty() {
            out.push_str(&format!("{title}\n{}", forwarded_table(list)));
        }
    }
    out
}

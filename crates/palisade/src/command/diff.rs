//! `palisade diff`: the connections that a change of manifests allows or denies, and a warning first where it would
//! lock people out of a host, or a host out of its API server. With a record of flows, each connection says how often it
//! was used.

use super::connections::{
    connection_scope, connections_table, forwarded_table, group_members_text, hosts_table,
    is_about_hosts, is_ungrouped,
};
use super::preview::record_text;
use super::{manifests, recorded_flows};
use crate::cli::{DiffArgs, FlowArgs, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_analysis::{
    AdminSession, ConnectionDiff, ForwardedConnection, ForwardedDiff, HostAccessQuestions,
    HostConnection, HostDiff, StateView,
};
use palisade_api::{DiffReport, LockoutReport, RecordedUse};
use palisade_config::parse_failsafe_ports;
use palisade_dialects::service_ports;
use palisade_model::{FailsafePort, FailsafePorts, State};
use palisade_preview::{ConnectionUses, Record};
use palisade_text::printable;
use std::path::PathBuf;

/// The Service of the API server.
const API_SERVER: &str = "default/kubernetes";

/// Shows the difference; exit code 1 if there is one, or if the manifests have errors.
pub(crate) fn run(args: &DiffArgs, client: &ApiClient, format: OutputFormat) -> CommandResult {
    let (old, new) = files(args)?;
    let record = read_record(args, client)?;
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
    let (old, new) = (view(old, args.audit && !is_single), view(new, args.audit));
    let scope = connection_scope(&args.scope);
    // A record has names of controllers, which groups have as well.
    let is_ungrouped =
        record.is_none() && is_ungrouped(format, &args.scope, &[old.state, new.state]);
    let diff = if is_ungrouped {
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
    let of_forwarded =
        |list: &[ForwardedConnection]| list.iter().map(ForwardedConnection::report).collect();
    let uses = record.as_ref().map(|record| {
        let states = [old.state, new.state];
        DiffUses::new(&mut ConnectionUses::new(record, states), &diff, &hosts)
    });
    let mut report = DiffReport {
        hosts_opened: hosts.opened.iter().map(HostConnection::report).collect(),
        hosts_closed: hosts.closed.iter().map(HostConnection::report).collect(),
        forwarded_opened: of_forwarded(&forwarded.opened),
        forwarded_closed: of_forwarded(&forwarded.closed),
        lockouts: palisade_analysis::lockouts(old, new, &questions),
        ..diff.report(args.scope.members)
    };
    if let (Some(uses), Some(record)) = (&uses, &record) {
        uses.add_to(&mut report);
        let nodes = new.state.nodes.keys().map(|name| &**name);
        report.record = Some(record.summary(nodes));
    }
    print_output(format, &report, |report| {
        let changes = diff_text(&diff, &hosts, &forwarded, uses.as_ref());
        let members = group_members_text(&[&diff.opened, &diff.closed], &args.scope);
        report_text(report, &changes) + &members
    })?;
    let is_different = !diff.is_empty()
        || hosts != HostDiff::default()
        || forwarded != ForwardedDiff::default()
        || !report.lockouts.is_empty();
    Ok(ExitStatus::of(is_different || problems))
}

/// How often each connection of a difference was used, in the order of its lists.
struct DiffUses {
    opened: Vec<RecordedUse>,
    closed: Vec<RecordedUse>,
    hosts_opened: Vec<RecordedUse>,
    hosts_closed: Vec<RecordedUse>,
}

impl DiffUses {
    fn new(uses: &mut ConnectionUses<'_>, diff: &ConnectionDiff, hosts: &HostDiff) -> Self {
        let [opened, closed] = [&diff.opened, &diff.closed]
            .map(|list| list.iter().map(|row| uses.of_connection(row)).collect());
        let [hosts_opened, hosts_closed] = [&hosts.opened, &hosts.closed]
            .map(|list| list.iter().map(|row| uses.of_host(row)).collect());
        DiffUses {
            opened,
            closed,
            hosts_opened,
            hosts_closed,
        }
    }

    fn add_to(&self, report: &mut DiffReport) {
        for (rows, uses) in [
            (&mut report.opened, &self.opened),
            (&mut report.closed, &self.closed),
        ] {
            for (row, recorded) in rows.iter_mut().zip(uses) {
                row.recorded = Some(recorded.clone());
            }
        }
        for (rows, uses) in [
            (&mut report.hosts_opened, &self.hosts_opened),
            (&mut report.hosts_closed, &self.hosts_closed),
        ] {
            for (row, recorded) in rows.iter_mut().zip(uses) {
                row.recorded = Some(recorded.clone());
            }
        }
    }
}

/// The record of flows, if it is asked for.
fn read_record(args: &DiffArgs, client: &ApiClient) -> Result<Option<Record>, CommandError> {
    let Some(files) = &args.flow_files else {
        return Ok(None);
    };
    let flows = FlowArgs {
        flow_files: files.clone(),
        since: args.since.clone(),
    };
    recorded_flows::read(&flows, client).map(Some)
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

/// A state as its policies are enforced, or as if nothing were in audit.
fn view(state: &State, audit: bool) -> StateView<'_> {
    if audit {
        StateView::audit(state)
    } else {
        StateView::from(state)
    }
}

/// The warnings and the record of a report, before its changes.
fn report_text(report: &DiffReport, changes: &str) -> String {
    let record = report.record.as_ref().map(record_text);
    let record = record.map_or_else(String::new, |text| format!("{text}\n\n"));
    lockout_text(&report.lockouts) + &record + changes
}

fn lockout_text(lockouts: &[LockoutReport]) -> String {
    let lines = lockouts
        .iter()
        .map(|lockout| format!("warning: {}\n", printable(&lockout.to_string())));
    lines.collect()
}

fn diff_text(
    diff: &ConnectionDiff,
    hosts: &HostDiff,
    forwarded: &ForwardedDiff,
    uses: Option<&DiffUses>,
) -> String {
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
    let listed = [
        ("Opened:", &diff.opened, uses.map(|uses| &uses.opened[..])),
        ("Closed:", &diff.closed, uses.map(|uses| &uses.closed[..])),
    ];
    for (title, connections, uses) in listed {
        if !connections.is_empty() {
            let table = connections_table(connections, uses);
            out.push_str(&format!("{title}\n{table}"));
        }
    }
    let listed = [
        (
            "Opened at hosts:",
            &hosts.opened,
            uses.map(|uses| &uses.hosts_opened[..]),
        ),
        (
            "Closed at hosts:",
            &hosts.closed,
            uses.map(|uses| &uses.hosts_closed[..]),
        ),
    ];
    for (title, list, uses) in listed {
        if !list.is_empty() {
            out.push_str(&format!("{title}\n{}", hosts_table(list, uses)));
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

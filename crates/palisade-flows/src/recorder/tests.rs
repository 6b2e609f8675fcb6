//! Random flows through the whole record, compared with a plain sum; restarts; disks that fail.

use super::*;
use crate::aggregate::BUCKET_SECONDS;
use crate::store::{RECORD_FILE, StoreLimits};
use palisade_api::{
    ControllerRef, FlowDecision, FlowIcmp, FlowRecord, FlowState, FlowTraffic, LossCause,
    LostEvents, MonitorEndpoint, MonitorLine, MonitorVerdict, PacketEvent, PacketReason,
    ProtocolName, RecordedEnd, RecordedFlow,
};
use palisade_model::Direction;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;

const BEGIN: u64 = 1_790_000_100;

/// A row of a bucket.
#[derive(Clone)]
struct PlainRow {
    flow: RecordedFlow,
    first: u64,
    last: u64,
}

/// What is to be recorded: the rows of each bucket of each run.
#[derive(Default)]
struct PlainRecord {
    run: u64,
    rows: BTreeMap<((u64, u64), String), PlainRow>,
    lost: BTreeMap<u64, u64>,
}

fn end(dice: &mut SmallRng) -> (MonitorEndpoint, RecordedEnd) {
    let text = |text: String| Some(text);
    let pod = dice.random_range(0..4);
    match dice.random_range(0..3) {
        0 => {
            let namespace = text(["shop", "default"][pod % 2].to_owned());
            let controller = (pod > 0).then(|| ControllerRef {
                kind: "Deployment".into(),
                name: format!("web{}", pod / 2).into(),
            });
            let name = format!("web{pod}-{}", dice.random_range(0..9));
            let labels = [("app", "web"), ("pod-template-hash", &*name)];
            let end = MonitorEndpoint {
                address: format!("10.0.0.{}", dice.random_range(1..200)).into(),
                namespace: namespace.as_deref().map(Into::into),
                name: Some((&*name).into()),
                controller: controller.clone().map(Arc::new),
                labels: Arc::new(labels.map(|(key, value)| (key.into(), value.into())).into()),
                ..MonitorEndpoint::default()
            };
            let recorded = RecordedEnd {
                namespace,
                name: controller.is_none().then_some(name),
                controller,
                labels: [("app".to_owned(), "web".to_owned())].into(),
                ..RecordedEnd::default()
            };
            (end, recorded)
        }
        kind => {
            let address = format!("192.0.2.{pod}");
            let names = (kind == 1).then(|| format!("{pod}.example"));
            let end = MonitorEndpoint {
                address: (&*address).into(),
                names: names.iter().map(|name| name.into()).collect(),
                ..MonitorEndpoint::default()
            };
            let recorded = RecordedEnd {
                address: Some(address),
                names: names.into_iter().collect(),
                ..RecordedEnd::default()
            };
            (end, recorded)
        }
    }
}

fn decision(reason: PacketReason) -> FlowDecision {
    FlowDecision {
        stage: None,
        reason,
        rule: None,
        policies: Vec::new(),
        audit: None,
        revision: Some(1),
        stale: false,
    }
}

/// A flow with a number of its own, and its row without counts.
fn flow(dice: &mut SmallRng, number: u16) -> (FlowRecord, RecordedFlow) {
    let (mut source, recorded_source) = end(dice);
    let (mut destination, recorded_destination) = end(dice);
    let protocol = [ProtocolName::Tcp, ProtocolName::Icmp][dice.random_range(0..2)];
    let is_icmp = protocol == ProtocolName::Icmp;
    let port = (!is_icmp).then(|| 80 + dice.random_range(0..3));
    source.port = (!is_icmp).then_some(number);
    if is_icmp {
        // One echo at a time between two addresses.
        source.address = format!("198.51.{}.{}", number / 256, number % 256).into();
    }
    let recorded_source = RecordedEnd {
        address: recorded_source.address.map(|_| source.address.to_string()),
        ..recorded_source
    };
    destination.port = port;
    let icmp = is_icmp.then_some(FlowIcmp { kind: 8, code: 0 });
    let reason = [PacketReason::Rule, PacketReason::Profile][dice.random_range(0..2)];
    let record = FlowRecord {
        api_version: palisade_api::api_version(),
        state: FlowState::Began,
        began: None,
        ended: None,
        source,
        destination,
        translation: None,
        protocol,
        icmp,
        egress: Some(Arc::new(decision(reason))),
        ingress: None,
        traffic: None,
    };
    let recorded = RecordedFlow {
        source: recorded_source,
        destination: recorded_destination,
        protocol,
        port,
        icmp,
        verdict: MonitorVerdict::Allowed,
        egress: Some(palisade_api::RecordedDecision {
            reason,
            rule: None,
            policies: Vec::new(),
            audit: None,
        }),
        ingress: None,
        first: String::new(),
        last: String::new(),
        count: 0,
        traffic: None,
    };
    (record, recorded)
}

/// The packet that begins a flow, denied at its destination; or the answer to it.
fn packet(flow: &FlowRecord, reply: bool) -> PacketEvent {
    let (mut source, mut destination) = (flow.source.clone(), flow.destination.clone());
    if reply {
        std::mem::swap(&mut source, &mut destination);
    }
    PacketEvent {
        original_destination: None,
        stage: None,
        api_version: palisade_api::api_version(),
        time: String::new(),
        verdict: MonitorVerdict::Denied,
        rejected: false,
        reason: PacketReason::DefaultDeny,
        audit: None,
        direction: Some(Direction::Ingress),
        endpoint: None,
        source,
        destination,
        protocol: flow.protocol,
        icmp_type: flow.icmp.map(|icmp| icmp.kind),
        icmp_code: flow.icmp.map(|icmp| icmp.code),
        reply,
        rule: None,
        policies: Vec::new(),
        logged: Vec::new(),
        length: 60,
        interface: None,
        revision: None,
        stale: false,
    }
}

fn time_text(seconds: u64) -> String {
    let time = jiff::Timestamp::from_second(seconds as i64).unwrap();
    format!("{time:.0}")
}

fn add_traffic(sum: &mut RecordedFlow, sent: u64) {
    let traffic = sum.traffic.get_or_insert(FlowTraffic {
        packets_sent: 0,
        bytes_sent: 0,
        packets_received: 0,
        bytes_received: 0,
    });
    traffic.packets_sent += 1;
    traffic.bytes_sent += sent;
}

impl PlainRecord {
    fn add(&mut self, time: u64, flow: &RecordedFlow, count: u64, sent: Option<u64>) {
        let key = serde_json::to_string(flow).unwrap();
        let bucket = (self.run, time / BUCKET_SECONDS);
        let row = self.rows.entry((bucket, key)).or_insert(PlainRow {
            flow: flow.clone(),
            first: time,
            last: time,
        });
        row.first = row.first.min(time);
        row.last = row.last.max(time);
        row.flow.count += count;
        if let Some(sent) = sent {
            add_traffic(&mut row.flow, sent);
        }
    }

    /// All rows that match, merged, as sorted JSON.
    fn list(&self, matches: impl Fn(&PlainRow) -> bool) -> Vec<String> {
        let mut merged: BTreeMap<&str, PlainRow> = BTreeMap::new();
        for ((_, key), row) in self.rows.iter().filter(|(_, row)| matches(row)) {
            match merged.get_mut(key.as_str()) {
                None => {
                    merged.insert(key, row.clone());
                }
                Some(sum) => {
                    sum.first = sum.first.min(row.first);
                    sum.last = sum.last.max(row.last);
                    sum.flow.count += row.flow.count;
                    if let Some(traffic) = row.flow.traffic {
                        add_traffic(&mut sum.flow, traffic.bytes_sent);
                        let sum = sum.flow.traffic.as_mut().unwrap();
                        sum.packets_sent += traffic.packets_sent - 1;
                    }
                }
            }
        }
        let mut list: Vec<String> = merged
            .into_values()
            .map(|row| {
                let flow = RecordedFlow {
                    first: time_text(row.first),
                    last: time_text(row.last),
                    ..row.flow
                };
                serde_json::to_string(&flow).unwrap()
            })
            .collect();
        list.sort();
        list
    }
}

fn open(path: &Path, now: u64) -> (RecentLines, FlowRecorder) {
    open_at(path, Arc::new(move || Duration::from_secs(now)))
}

fn open_at(path: &Path, clock: WallClock) -> (RecentLines, FlowRecorder) {
    let limits = StoreLimits {
        bytes: 64 << 20,
        age: Duration::from_secs(365 * 24 * 3_600),
    };
    let recent = RecentLines::new(1 << 16);
    let store = FlowStore::new(path.to_path_buf(), limits);
    (recent.clone(), FlowRecorder::new(recent, store, clock))
}

impl FlowRecorder {
    /// Reads and writes everything now.
    fn flush(&self) {
        self.0.read_lines();
        lock(&self.0.reading).stage();
        self.0.write();
    }
}

fn all() -> RecordedFlowQuery {
    RecordedFlowQuery {
        limit: Some(usize::MAX),
        ..RecordedFlowQuery::default()
    }
}

fn listed(record: &FlowRecorder, query: &RecordedFlowQuery) -> Vec<String> {
    let list = record.query(query, "node").unwrap();
    assert!(!list.truncated);
    let lasts: Vec<&String> = list.flows.iter().map(|flow| &flow.last).collect();
    assert!(lasts.is_sorted_by(|a, b| a >= b));
    let mut flows: Vec<String> = (list.flows.iter())
        .map(|flow| serde_json::to_string(flow).unwrap())
        .collect();
    flows.sort();
    flows
}

/// Compares lists; says which flows differ.
fn assert_same(found: &[String], expected: &[String], what: &str) {
    let surplus: Vec<_> = found
        .iter()
        .filter(|flow| !expected.contains(flow))
        .collect();
    let missing: Vec<_> = expected
        .iter()
        .filter(|flow| !found.contains(flow))
        .collect();
    let first = (surplus.first(), missing.first());
    assert_eq!(first, (None, None), "{what}");
    assert_eq!(found.len(), expected.len(), "{what}");
}

/// Whether an end is what a text asks for.
fn is_wanted(end: &RecordedEnd, text: &str) -> bool {
    let controller = end.controller.as_ref().map(|found| found.name.as_str());
    let name = controller.or(end.name.as_deref()).unwrap_or_default();
    let namespace = end.namespace.as_deref().unwrap_or_default();
    let network = text.strip_suffix("2/31").zip(end.address.as_deref());
    let is_in = network.is_some_and(|(start, address)| {
        address == format!("{start}2") || address == format!("{start}3")
    });
    format!("{namespace}/{name}") == text
        || (namespace == "default" && name == text)
        || end.address.as_deref() == Some(text)
        || end.names.iter().any(|name| name == text)
        || is_in
}

fn random_query(dice: &mut SmallRng) -> RecordedFlowQuery {
    let ends = [
        "shop/web0",
        "default/web1",
        "web0",
        "192.0.2.1",
        "192.0.2.2/31",
        "2.example",
        "nobody",
    ];
    let mut query = all();
    let maybe = |dice: &mut SmallRng| {
        let end = ends[dice.random_range(0..ends.len())].to_owned();
        dice.random_ratio(1, 4).then_some(end)
    };
    query.from = maybe(dice);
    query.to = maybe(dice);
    query.endpoint = maybe(dice);
    let time = |dice: &mut SmallRng| {
        let time = time_text(BEGIN + dice.random_range(0..3_000));
        dice.random_ratio(1, 4).then_some(time)
    };
    query.since = time(dice);
    query.until = time(dice);
    query.port = dice.random_ratio(1, 4).then_some(80);
    query.protocol = dice.random_ratio(1, 4).then_some(ProtocolName::Tcp);
    query.namespace = dice.random_ratio(1, 4).then_some("shop".to_owned());
    query.verdict = dice.random_ratio(1, 4).then_some(MonitorVerdict::Denied);
    query
}

fn matches(query: &RecordedFlowQuery, row: &PlainRow) -> bool {
    let time = |text: &String| text.parse::<jiff::Timestamp>().unwrap().as_second() as u64;
    let ends = [&row.flow.source, &row.flow.destination];
    let wanted = |text: &Option<String>, end: &RecordedEnd| {
        text.as_ref().is_none_or(|text| is_wanted(end, text))
    };
    let is_in = |end: &&RecordedEnd| query.namespace.is_none() || end.namespace == query.namespace;
    query
        .since
        .as_ref()
        .is_none_or(|since| row.last >= time(since))
        && query
            .until
            .as_ref()
            .is_none_or(|until| row.first < time(until))
        && query.port.is_none_or(|port| row.flow.port == Some(port))
        && query
            .protocol
            .is_none_or(|protocol| row.flow.protocol == protocol)
        && query
            .verdict
            .is_none_or(|verdict| row.flow.verdict == verdict)
        && ends.iter().any(is_in)
        && wanted(&query.from, ends[0])
        && wanted(&query.to, ends[1])
        && ends.iter().any(|end| wanted(&query.endpoint, end))
}

/// One event of a random program.
fn step(
    dice: &mut SmallRng,
    (time, number): (u64, u16),
    open_flows: &mut Vec<(FlowRecord, RecordedFlow)>,
    plain: &mut PlainRecord,
) -> MonitorLine {
    let sent = dice.random_range(0..2_000);
    let traffic = Some(FlowTraffic {
        packets_sent: 1,
        bytes_sent: sent,
        packets_received: 0,
        bytes_received: 0,
    });
    match dice.random_range(0..10) {
        0..4 => {
            let (record, recorded) = flow(dice, number);
            plain.add(time, &recorded, 1, None);
            open_flows.push((record.clone(), recorded));
            MonitorLine::Flow(Arc::new(record))
        }
        4..7 if !open_flows.is_empty() => {
            let at = dice.random_range(0..open_flows.len());
            let (mut record, recorded) = open_flows.swap_remove(at);
            plain.add(time, &recorded, 0, Some(sent));
            record.state = FlowState::Ended;
            record.traffic = traffic;
            // What decides now is another rule.
            record.egress = Some(Arc::new(decision(PacketReason::Unknown)));
            MonitorLine::Flow(Arc::new(record))
        }
        7 => {
            let (mut record, recorded) = flow(dice, number);
            plain.add(time, &recorded, 1, Some(sent));
            record.state = FlowState::Ended;
            record.traffic = traffic;
            MonitorLine::Flow(Arc::new(record))
        }
        8 => {
            *plain.lost.entry(time / BUCKET_SECONDS).or_default() += sent;
            lost(sent)
        }
        _ => {
            let (record, recorded) = flow(dice, number);
            let mut denied = recorded.egress.clone().unwrap();
            denied.reason = PacketReason::DefaultDeny;
            let recorded = RecordedFlow {
                verdict: MonitorVerdict::Denied,
                egress: None,
                ingress: Some(denied),
                ..recorded
            };
            plain.add(time, &recorded, 1, None);
            MonitorLine::Packet(Box::new(packet(&record, dice.random())))
        }
    }
}

fn lost(count: u64) -> MonitorLine {
    MonitorLine::Lost(Box::new(LostEvents {
        api_version: palisade_api::api_version(),
        time: String::new(),
        cause: LossCause::Rate,
        count,
        reason: None,
        rule: None,
        policies: Vec::new(),
    }))
}

#[test]
fn random_flows_are_recorded_as_a_plain_sum_has_them() {
    for seed in palisade_generators::seeds(1) {
        let dice = &mut SmallRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(RECORD_FILE);
        let (mut plain, mut time, mut number) = (PlainRecord::default(), BEGIN, 1_000);
        for run in 0..3 {
            plain.run = run;
            let (recent, record) = open(&path, BEGIN + 4_000);
            let mut open_flows = Vec::new();
            for _ in 0..600 {
                number += 1;
                time += dice.random_range(0..4);
                let line = step(dice, (time, number), &mut open_flows, &mut plain);
                recent.push(Duration::from_secs(time), line);
                if dice.random_ratio(1, 50) {
                    record.flush();
                }
            }
            let what = format!("seed {seed} run {run}");
            assert_same(&listed(&record, &all()), &plain.list(|_| true), &what);
            for case in 0..40 {
                let query = random_query(dice);
                let found = plain.list(|row| matches(&query, row));
                let what = format!("{what} case {case}: {query:?}");
                assert_same(&listed(&record, &query), &found, &what);
            }
            let list = record.query(&all(), "node").unwrap();
            assert_eq!(list.lost, plain.lost.values().sum::<u64>(), "{what}");
            record.flush();
            assert!(record.condition().is_none());
            assert_same(&listed(&record, &all()), &plain.list(|_| true), &what);
        }
    }
}

#[test]
fn a_limit_lists_those_that_were_seen_last() {
    let directory = tempfile::tempdir().unwrap();
    let (recent, record) = open(&directory.path().join(RECORD_FILE), BEGIN + 1_000);
    let dice = &mut SmallRng::seed_from_u64(1);
    let (record_of_flow, _) = flow(dice, 1);
    for port in 0..100 {
        let mut flow = record_of_flow.clone();
        (flow.protocol, flow.icmp) = (ProtocolName::Tcp, None);
        flow.destination.port = Some(port);
        let time = Duration::from_secs(BEGIN + u64::from(port) * 10);
        recent.push(time, MonitorLine::Flow(Arc::new(flow)));
    }
    let limit = RecordedFlowQuery {
        limit: Some(3),
        ..RecordedFlowQuery::default()
    };
    let list = record.query(&limit, "node").unwrap();
    let ports: Vec<Option<u16>> = list.flows.iter().map(|flow| flow.port).collect();
    assert_eq!(ports, [Some(99), Some(98), Some(97)]);
    assert!(list.truncated);
    let invalid = RecordedFlowQuery {
        since: Some("yesterday".to_owned()),
        ..RecordedFlowQuery::default()
    };
    let refused = record.query(&invalid, "node").unwrap_err().to_string();
    assert_eq!(
        refused,
        "since: \"yesterday\" is neither a time (2026-11-21T07:32:05Z) nor a time span (90m, 24h, 7d)"
    );
    let last = RecordedFlowQuery {
        since: Some("5m".to_owned()),
        ..all()
    };
    assert_eq!(record.query(&last, "node").unwrap().flows.len(), 30);
}

#[test]
fn what_runs_writes_at_the_end_and_counts_what_it_missed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RECORD_FILE);
    let recent = RecentLines::new(64);
    let limits = StoreLimits {
        bytes: 1 << 20,
        age: Duration::from_secs(3_600),
    };
    let clock: WallClock = Arc::new(|| Duration::from_secs(BEGIN));
    let store = FlowStore::new(path.clone(), limits);
    let record = FlowRecorder::new(recent.clone(), store, clock);
    for _ in 0..100 {
        recent.push(Duration::from_secs(BEGIN), lost(1));
    }
    let runs = record.clone();
    let thread = std::thread::spawn(move || runs.run());
    record.stop();
    thread.join().unwrap().unwrap();
    drop(record);
    let (_, record) = open(&path, BEGIN);
    let list = record.query(&all(), "node").unwrap();
    assert_eq!((list.lost, list.since), (100, Some(time_text(BEGIN))));
}

#[test]
fn a_clock_that_is_set_back_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(RECORD_FILE);
    let (recent, record) = open(&path, BEGIN);
    let dice = &mut SmallRng::seed_from_u64(2);
    let mut plain = PlainRecord::default();
    for (number, time) in [BEGIN, BEGIN + 500_000, BEGIN - 500_000, BEGIN]
        .into_iter()
        .enumerate()
    {
        let (of_monitor, recorded) = flow(dice, number as u16);
        plain.add(time, &recorded, 1, None);
        let line = MonitorLine::Flow(Arc::new(of_monitor));
        recent.push(Duration::from_secs(time), line);
        record.flush();
    }
    drop((recent, record));
    let (_, record) = open(&path, BEGIN);
    assert_eq!(listed(&record, &all()), plain.list(|_| true));
}

#[test]
fn a_disk_that_refuses_is_told_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let (recent, record) = open(&missing.join(RECORD_FILE), BEGIN);
    let dice = &mut SmallRng::seed_from_u64(3);
    let mut plain = PlainRecord::default();
    for number in 0..3 {
        let time = BEGIN + u64::from(number) * BUCKET_SECONDS;
        let (of_monitor, recorded) = flow(dice, number);
        plain.add(time, &recorded, 1, None);
        recent.push(
            Duration::from_secs(time),
            MonitorLine::Flow(Arc::new(of_monitor)),
        );
        record.flush();
        let condition = record.condition().unwrap();
        assert!(
            matches!(*condition, FlowStoreError::Open { .. }),
            "{condition:?}"
        );
        // Queries go on with what is in memory.
        assert_eq!(listed(&record, &all()), plain.list(|_| true));
    }
    std::fs::create_dir(&missing).unwrap();
    record.flush();
    record.flush();
    assert!(record.condition().is_none());
    drop(record);
    let (_, record) = open(&missing.join(RECORD_FILE), BEGIN);
    assert_eq!(listed(&record, &all()), plain.list(|_| true));
}

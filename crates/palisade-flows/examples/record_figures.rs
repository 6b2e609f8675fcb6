//! Prints what recording costs: bytes of a row on disk, the time of a query of a million rows, the time of a flow.
//!
//! `cargo run --release -p palisade-flows --example record_figures [DIRECTORY]`
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a program that measures"
)]

use palisade_api::{
    ControllerRef, FlowDecision, FlowRecord, FlowState, FlowTraffic, MonitorEndpoint, MonitorLine,
    MonitorRule, ObjectRef, PacketReason, ProtocolName, RecordedFlowQuery,
};
use palisade_flows::aggregate::{Aggregate, BUCKET_SECONDS};
use palisade_flows::recent::RecentLines;
use palisade_flows::recorder::FlowRecorder;
use palisade_flows::store::{FlowStore, RECORD_FILE, StoreLimits};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const WORKLOADS: u64 = 200;
const BUCKETS: u64 = 288;
const FLOWS_OF_BUCKET: u64 = 3_500;
const BEGIN: u64 = 1_790_000_100;

fn workload(number: u64) -> MonitorEndpoint {
    let name = format!("service-{}", number % WORKLOADS);
    MonitorEndpoint {
        address: format!("10.0.{}.{}", number % WORKLOADS, number % 250 + 1).into(),
        namespace: Some(format!("team-{}", number % 20).into()),
        name: Some(format!("{name}-6d4cf56db6-{}", number % 7).into()),
        controller: Some(Arc::new(ControllerRef {
            kind: "Deployment".into(),
            name: (&*name).into(),
        })),
        labels: Arc::new(
            [
                "app",
                "app.kubernetes.io/part-of",
                "tier",
                "pod-template-hash",
            ]
            .map(|label| (label.into(), (&*name).into()))
            .into(),
        ),
        ..MonitorEndpoint::default()
    }
}

fn flow(number: u64, state: FlowState) -> MonitorLine {
    let rule = MonitorRule {
        policy: ObjectRef {
            kind: "NetworkPolicy".to_owned(),
            namespace: Some(format!("team-{}", number % 20)),
            name: "web".to_owned(),
            line: Some(format!(
                "team-{}/policies.yaml:{}",
                number % 20,
                number % 90
            )),
        },
        index: 0,
        rule_name: None,
        action: None,
    };
    let decision = FlowDecision {
        reason: PacketReason::Rule,
        rule: Some(rule),
        policies: Vec::new(),
        stage: None,
        audit: None,
        revision: Some(1),
        stale: false,
    };
    let mut destination = workload(number / 3);
    destination.port = Some(1_000 + (number / 600 % 50) as u16);
    MonitorLine::Flow(Arc::new(FlowRecord {
        api_version: palisade_api::api_version(),
        state,
        began: None,
        ended: None,
        source: MonitorEndpoint {
            port: Some(20_000 + (number % 40_000) as u16),
            ..workload(number)
        },
        destination,
        translation: None,
        protocol: ProtocolName::Tcp,
        icmp: None,
        egress: Some(Arc::new(decision.clone())),
        ingress: Some(Arc::new(decision)),
        traffic: Some(FlowTraffic {
            packets_sent: 12,
            bytes_sent: 1_500 + number % 1_000,
            packets_received: 10,
            bytes_received: 20_000 + number % 10_000,
        }),
    }))
}

fn main() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = std::env::args().nth(1).map(PathBuf::from);
    let directory = directory.unwrap_or(temporary.path().to_path_buf());
    let path = directory.join(RECORD_FILE);
    let limits = StoreLimits {
        bytes: 256 << 20,
        age: Duration::from_secs(7 * 24 * 3_600),
    };
    write_day(FlowStore::new(path.clone(), limits), &path);
    query_day(FlowStore::new(path, limits));
    record_lines(temporary.path(), limits);
}

fn write_day(mut store: FlowStore, path: &PathBuf) {
    let mut aggregate = Aggregate::new();
    let (mut rows, mut adding, mut writing) = (0, Duration::ZERO, Duration::ZERO);
    for bucket in 0..BUCKETS {
        let time = Duration::from_secs(BEGIN + bucket * BUCKET_SECONDS);
        let lines: Vec<MonitorLine> = (0..FLOWS_OF_BUCKET)
            .flat_map(|n| [FlowState::Began, FlowState::Ended].map(|state| flow(n, state)))
            .collect();
        let started = Instant::now();
        aggregate.begin_bucket(time);
        for (at, line) in lines.iter().enumerate() {
            let offset = Duration::from_secs(at as u64 * BUCKET_SECONDS / lines.len() as u64);
            aggregate.add(time + offset, line);
        }
        adding += started.elapsed();
        let snapshot = aggregate.snapshot();
        rows += snapshot.rows();
        let started = Instant::now();
        store.write(&snapshot, time).unwrap();
        writing += started.elapsed();
    }
    let flows = BUCKETS * FLOWS_OF_BUCKET;
    println!("rows {rows}, flows {flows}");
    println!(
        "summing up: {} ns a flow (begin and end)",
        adding.as_nanos() / u128::from(flows)
    );
    println!(
        "writing: {:.1} ms a bucket",
        writing.as_secs_f64() * 1e3 / BUCKETS as f64
    );
    drop(store);
    let file = std::fs::metadata(path).unwrap();
    let (length, used) = (file.len(), file.blocks() * 512);
    println!(
        "file: {length} bytes, {used} on disk: {:.1} a row",
        used as f64 / rows as f64
    );
}

fn query_day(store: FlowStore) {
    let clock = Arc::new(|| Duration::from_secs(BEGIN + BUCKETS * BUCKET_SECONDS));
    let record = FlowRecorder::new(RecentLines::new(1), store, clock);
    let started = Instant::now();
    record.query(&RecordedFlowQuery::default(), "node").unwrap();
    println!("first query, with opening: {:?}", started.elapsed());
    let text = |text: &str| Some(text.to_owned());
    for (name, query) in [
        ("all", RecordedFlowQuery::default()),
        (
            "all, limit 100000",
            RecordedFlowQuery {
                limit: Some(100_000),
                ..RecordedFlowQuery::default()
            },
        ),
        (
            "of a workload",
            RecordedFlowQuery {
                endpoint: text("team-7/service-7"),
                ..RecordedFlowQuery::default()
            },
        ),
        (
            "of the last hour",
            RecordedFlowQuery {
                since: text("1h"),
                ..RecordedFlowQuery::default()
            },
        ),
    ] {
        let (started, cpu) = (Instant::now(), cpu_time());
        let list = record.query(&query, "node").unwrap();
        println!(
            "query {name}: {:?} ({:?} of a core), {} flows{}",
            started.elapsed(),
            cpu_time() - cpu,
            list.flows.len(),
            if list.truncated { " and more" } else { "" }
        );
    }
}

/// Lines through the ring, as the monitor publishes them.
fn record_lines(directory: &std::path::Path, limits: StoreLimits) {
    const FLOWS: u64 = 400_000;
    let recent = RecentLines::new(16_384);
    let store = FlowStore::new(directory.join("lines.redb"), limits);
    let clock = Arc::new(|| Duration::from_secs(BEGIN));
    let record = FlowRecorder::new(recent.clone(), store, clock);
    let runs = record.clone();
    let thread = std::thread::spawn(move || {
        runs.run().unwrap();
        cpu_time()
    });
    let started = Instant::now();
    let time = Duration::from_secs(BEGIN);
    for batch in 0..FLOWS / 200 {
        for number in batch * 200..(batch + 1) * 200 {
            recent.push(time, flow(number % 100_000, FlowState::Began));
            recent.push(time, flow(number % 100_000, FlowState::Ended));
        }
        // 20,000 flows a second.
        let due = Duration::from_millis(10) * (batch as u32 + 1);
        std::thread::sleep(due.saturating_sub(started.elapsed()));
    }
    let elapsed = started.elapsed();
    record.stop();
    let cpu = thread.join().unwrap();
    let list = record.query(&RecordedFlowQuery::default(), "node").unwrap();
    println!(
        "recording {FLOWS} flows in {elapsed:?}: {:.1} % of a core, {} lost",
        cpu.as_secs_f64() / elapsed.as_secs_f64() * 100.0,
        list.lost
    );
}

/// The processor time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanos)
}

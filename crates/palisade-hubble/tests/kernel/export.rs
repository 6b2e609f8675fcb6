//! Logs and metrics of flows: the log has what the service streams, Hubble's command reads it, and the metrics count it.

use crate::filters::node_with_lines;
use crate::lines::Shown;
use crate::node::{STARTED, ServingNode, now, output, programs, run};
use palisade_flows::recent::RecentLines;
use palisade_hubble::{FlowConsumer, FlowLogStatus, HubbleConfig, HubbleMetrics};
use palisade_testkit::need_root;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// The flows of lines of JSON.
fn flows(text: &str) -> Vec<Value> {
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let flows = lines.filter_map(|mut line| line.get_mut("flow").map(Value::take));
    flows.collect()
}

/// Reads all lines of a node, once.
fn consume(node: &ServingNode, metrics: &HubbleMetrics, logs: &Path) -> FlowLogStatus {
    let status = FlowLogStatus::default();
    let config = HubbleConfig {
        node: "n1".to_owned(),
        node_labels: vec!["zone=east".to_owned()],
        cluster: "default".to_owned(),
        version: "palisade-test".to_owned(),
        lines: node.lines.clone(),
        events: RecentLines::new(16),
        peers: watch::channel(Vec::new()).1,
        own: None,
        started: STARTED,
        clock: Arc::new(now),
    };
    let logs = Some((logs.to_owned(), status.clone()));
    let consumer = FlowConsumer::new(config, Some(metrics.clone()), logs);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(consumer.run(async {}));
    status
}

/// The sum of the samples of a metric that have these labels.
fn sum(text: &str, name: &str, labels: &str) -> usize {
    let lines = text
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")) && line.contains(labels));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<usize>().unwrap())
        .sum()
}

#[test]
fn a_flow_log_has_what_the_service_streams_and_metrics_count_it() {
    if !need_root() {
        return;
    }
    let Some([hubble, _]) = programs() else {
        return;
    };
    let (node, shown, _) = node_with_lines("n1");
    let dir = tempfile::tempdir().unwrap();
    let [definitions, all, drops] =
        ["logs.yaml", "all.log", "drops.log"].map(|name| dir.path().join(name));
    let text = format!(
        "flowLogs:\n- {{name: all, filePath: {}}}\n- name: drops\n  filePath: {}\n  includeFilters: [{{verdict: [DROPPED]}}]\n",
        all.display(),
        drops.display()
    );
    std::fs::write(&definitions, text).unwrap();
    let metrics = HubbleMetrics::new("drop:sourceContext=pod|ip flow tcp policy").unwrap();
    let status = consume(&node, &metrics, &definitions);
    assert!(status.error().is_none(), "{:?}", status.error());

    let streamed = run(
        &hubble,
        &node.server(),
        &["observe", "--all", "-o", "jsonpb"],
    );
    let streamed = flows(&streamed);
    assert_eq!(streamed.len(), shown.len());
    let logged = std::fs::read_to_string(&all).unwrap();
    let logged = flows(&logged);
    assert_eq!(logged.len(), streamed.len());
    for (logged, streamed) in logged.iter().zip(&streamed) {
        assert_eq!(logged, streamed);
    }

    let dropped = |flow: &&Shown| flow.verdict == "DROPPED";
    let count = shown.iter().filter(dropped).count();
    let drops = drops.to_str().unwrap();
    let arguments = [
        "observe",
        "--input-file",
        drops,
        "--last",
        "1000",
        "-o",
        "jsonpb",
    ];
    let read = output(&hubble, &node.server(), &arguments);
    assert!(read.status.success(), "{read:?}");
    assert_eq!(flows(&String::from_utf8(read.stdout).unwrap()).len(), count);

    let text = metrics.text(Instant::now());
    assert_eq!(sum(&text, "hubble_flows_processed_total", ""), shown.len());
    assert_eq!(sum(&text, "hubble_drop_total", ""), count);
    let verdicts = shown
        .iter()
        .filter(|flow| flow.event == 5 && flow.source.node != Some("n1"));
    assert_eq!(
        sum(&text, "hubble_policy_verdicts_total", ""),
        verdicts.count()
    );
    for pod in ["shop/web-1", "shop/db-0"] {
        let of_pod = shown.iter().filter(dropped).filter(|flow| {
            let name = flow
                .source
                .pod
                .map(|(namespace, name)| format!("{namespace}/{name}"));
            name.as_deref() == Some(pod)
        });
        let labels = format!("source=\"{pod}\"");
        assert_eq!(
            sum(&text, "hubble_drop_total", &labels),
            of_pod.count(),
            "{pod}"
        );
    }
}

//! The metrics: every metric is in the table and in its page, and the text is valid Prometheus format.

use super::site::{Host, Site, reader, root};
use palisade_agent::http::health_router;
use palisade_agent::http::server::{ApiListener, ConnectionLimits, serve};
use palisade_dataplane::{CountAccount, CounterValue};
use palisade_hubble::HubbleMetrics;
use palisade_model::{
    DirectionRules, Namespace, Object, ObjectId, ObjectKind, Order, Policy, PolicyId, PolicyMode,
    Precedence, Selector, TrafficScope, Update, tier_name,
};
use palisade_node::clock::{Clock, SystemClock};
use palisade_node::rate_limit::RateLimit;
use palisade_tables::AuditComparison;
use palisade_views::metrics::table::{METRICS, MetricKind, markdown};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

/// A sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Parses the text format; panics on anything invalid.
fn parse(text: &str) -> (BTreeMap<String, String>, Vec<Sample>) {
    let (mut kinds, mut samples) = (BTreeMap::new(), Vec::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{line}"
            );
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, inside) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        assert!(
            name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
            "{line}"
        );
        let labels = inside.split_terminator("\",").map(|pair| {
            let (label, value) = pair.split_once("=\"").unwrap();
            (label.to_owned(), value.trim_end_matches('"').to_owned())
        });
        samples.push((name.to_owned(), labels.collect(), value.parse().unwrap()));
    }
    (kinds, samples)
}

#[tokio::test]
async fn every_figure_is_of_the_table_and_every_row_has_figures() {
    let site = Site::new();
    let add = r#"{"namespace":"shop","name":"web","netns":"web"}"#;
    site.ask(root(), "POST", "/v1/workloads", add).await;
    let (status, Value::String(text)) = site.ask(reader(), "GET", "/metrics", "").await else {
        panic!("no text");
    };
    assert_eq!(status.as_u16(), 200);
    // Metrics of Hubble's names come after the agent's own.
    let (own, of_flows) = text.split_once("# HELP hubble_").unwrap();
    let (of_flows, _) = parse(&format!("# HELP hubble_{of_flows}"));
    let of_flows: Vec<&str> = of_flows.keys().map(String::as_str).collect();
    assert_eq!(of_flows, ["hubble_drop_total", "hubble_lost_events_total"]);
    let (kinds, samples) = parse(own);
    let table: BTreeMap<String, String> = METRICS
        .iter()
        .map(|metric| (metric.name.to_owned(), metric.kind.text().to_owned()))
        .collect();
    assert_eq!(kinds, table);
    let mut seen = BTreeSet::new();
    for (name, labels, value) in &samples {
        let metric = METRICS.iter().find(|metric| match metric.kind {
            MetricKind::Histogram => {
                let rest = name.strip_prefix(metric.name);
                rest.is_some_and(|rest| ["_bucket", "_sum", "_count"].contains(&rest))
            }
            _ => name == metric.name,
        });
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
        let mut expected: BTreeSet<&str> = metric.labels.iter().copied().collect();
        if name.ends_with("_bucket") {
            expected.insert("le");
        }
        assert_eq!(
            labels.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            expected,
            "{name}"
        );
        assert!(*value >= 0.0, "{name} {value}");
        seen.insert(metric.name);
    }
    let all: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(seen, all, "every metric has a figure");
    let value = |name: &str, label: &str| {
        let found = samples.iter().find(|(of, labels, _)| {
            of == name && (label.is_empty() || labels.values().any(|value| value == label))
        });
        found.unwrap_or_else(|| panic!("{name} {label}")).2
    };
    assert_eq!(value("palisade_endpoints", "ready"), 1.0);
    assert_eq!(value("palisade_ready", ""), 1.0);
    assert_eq!(value("palisade_api_requests_total", "/v1/workloads"), 1.0);
    assert_eq!(
        value("palisade_flush_duration_seconds_bucket", "+Inf"),
        value("palisade_flush_duration_seconds_count", "")
    );
    assert!(value("palisade_kernel_transactions_total", "") >= 1.0);
}

/// A namespace and a policy of it.
fn audit_updates(namespace_audit: bool, mode: PolicyMode) -> Vec<Update> {
    let namespace = Namespace {
        audit: namespace_audit,
        ..Namespace::from_name("shop".into())
    };
    let policy = Policy {
        scope: TrafficScope::Endpoints,
        id: PolicyId {
            object: ObjectId {
                namespace: Some("shop".into()),
                name: "web".into(),
                kind: ObjectKind::new("networking.k8s.io", "NetworkPolicy"),
            },
            part: 0,
        },
        tier: tier_name::DEFAULT.into(),
        precedence: Precedence {
            order: Order::At(1000.0),
            rank: 1,
        },
        mode,
        observes_dns: false,
        subject: Selector::all(),
        ingress: Some(DirectionRules {
            default_deny: true,
            rules: Vec::new(),
        }),
        egress: None,
        line: None,
    };
    vec![
        Update::Upsert(Object::Namespace(namespace)),
        Update::Upsert(Object::Policy(policy)),
    ]
}

/// The figures of `in audit` of a site: of the status, and of the metrics.
async fn audit_figures(site: &Site) -> (Value, BTreeMap<String, f64>) {
    let (_, status) = site.ask(reader(), "GET", "/v1/status", "").await;
    let (_, Value::String(text)) = site.ask(reader(), "GET", "/metrics", "").await else {
        panic!("no text");
    };
    let samples = parse(&text).1.into_iter();
    let audit = samples.filter(|(name, ..)| name.starts_with("palisade_audit_"));
    let named = audit.map(|(name, labels, value)| {
        let labels: Vec<String> = labels.into_values().collect();
        (format!("{name} {}", labels.join(" ")), value)
    });
    (status["audit"].clone(), named.collect())
}

#[tokio::test]
async fn what_is_in_audit_and_what_it_would_decide_is_in_status_and_metrics() {
    let site = Site::new();
    let add = r#"{"namespace":"shop","name":"web","netns":"web"}"#;
    site.ask(root(), "POST", "/v1/workloads", add).await;
    let none = json!({"packets": 0, "bytes": 0});
    let nothing = json!({
        "agent": false, "policies": 0, "namespaces": 0, "endpoints": 0,
        "wouldAllow": none, "wouldDeny": none, "unchanged": none,
    });
    let (status, figures) = audit_figures(&site).await;
    assert_eq!(status, nothing);
    assert!(figures.len() > 10 && figures.values().all(|value| *value == 0.0));

    site.says(audit_updates(true, PolicyMode::Audit));
    for (verdicts, packets) in AuditComparison::ALL.into_iter().zip([1, 2, 4, 8]) {
        let bytes = packets * 100;
        let value = CounterValue { packets, bytes };
        site.dataplane
            .set_counter(CountAccount::Audit(verdicts), value);
    }
    // The kernel is read again after a second at the latest; the status of the first reading stays until then. One that
    // falls between the counters above has some of them.
    let (mut status, mut figures) = audit_figures(&site).await;
    for _ in 0..400 {
        if status["unchanged"]["packets"] == 9 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        (status, figures) = audit_figures(&site).await;
    }
    assert_eq!(
        status,
        json!({
            "agent": false, "policies": 1, "namespaces": 1, "endpoints": 1,
            "wouldDeny": {"packets": 2, "bytes": 200},
            "wouldAllow": {"packets": 4, "bytes": 400},
            "unchanged": {"packets": 9, "bytes": 900},
        })
    );
    let expected = [
        ("palisade_audit_mode ", 0.0),
        ("palisade_audit_objects endpoint", 1.0),
        ("palisade_audit_objects namespace", 1.0),
        ("palisade_audit_objects policy", 1.0),
        // The labels in order: what it would be, then what it is.
        ("palisade_audit_packets_total allow allow", 1.0),
        ("palisade_audit_packets_total deny allow", 2.0),
        ("palisade_audit_packets_total allow deny", 4.0),
        ("palisade_audit_packets_total deny deny", 8.0),
        ("palisade_audit_bytes_total allow allow", 100.0),
        ("palisade_audit_bytes_total deny allow", 200.0),
        ("palisade_audit_bytes_total allow deny", 400.0),
        ("palisade_audit_bytes_total deny deny", 800.0),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(figures, BTreeMap::from(expected));

    site.says(audit_updates(false, PolicyMode::Enforce));
    let (status, _) = audit_figures(&site).await;
    for kind in ["policies", "namespaces", "endpoints"] {
        assert_eq!(status[kind], 0, "{kind}");
    }
}

#[tokio::test]
async fn an_agent_in_audit_is_told_from_policies_in_audit() {
    let rate = RateLimit {
        per_second: 1_000,
        burst: 1_000,
    };
    let site = Site::on(rate, &Host::default(), &[("policy-audit-mode", "true")]);
    let add = r#"{"namespace":"shop","name":"web","netns":"web"}"#;
    site.ask(root(), "POST", "/v1/workloads", add).await;
    site.says(audit_updates(false, PolicyMode::Enforce));
    let (status, figures) = audit_figures(&site).await;
    assert_eq!(status["agent"], true);
    let counts = ["policies", "namespaces", "endpoints"].map(|kind| &status[kind]);
    assert_eq!(counts, [0, 0, 1]);
    assert_eq!(figures["palisade_audit_mode "], 1.0);
}

#[test]
fn names_carry_units_and_kinds() {
    for metric in METRICS {
        let of_ours = metric.name.starts_with("palisade_") || metric.name.starts_with("process_");
        assert!(of_ours, "{}", metric.name);
        assert_eq!(
            metric.name.ends_with("_total"),
            metric.kind == MetricKind::Counter && metric.name.starts_with("palisade_")
                || metric.name == "process_cpu_seconds_total",
            "{}",
            metric.name
        );
        if metric.kind == MetricKind::Histogram {
            assert!(metric.name.ends_with("_seconds"), "{}", metric.name);
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "enables writing the golden file")]
fn the_page_is_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::write(file, markdown()).unwrap();
        return;
    }
    let page = std::fs::read_to_string(file).unwrap();
    assert!(
        page == markdown(),
        "docs/metrics.md differs: run this with PALISADE_BLESS=1"
    );
}

#[tokio::test]
async fn by_tcp_there_are_figures_and_probes_and_nothing_else() {
    let site = Site::new();
    let router = health_router(site.core.clone(), site.guard.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(serve(
        ApiListener::Tcp(listener),
        router,
        ConnectionLimits::default(),
        stopped,
    ));
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/v1/status", 404),
        ("POST", "/v1/workloads", 404),
    ] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(
            text.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {text}"
        );
    }
}

/// The words of a Prometheus expression that name metrics.
fn metric_names(expression: &str) -> Vec<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_name = |word: &&str| {
        let fronts = ["palisade_", "process_", "hubble_"];
        fronts.iter().any(|front| word.starts_with(front))
    };
    words.filter(is_name).collect()
}

#[test]
fn the_dashboard_names_metrics_and_labels_of_the_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../deploy/helm/palisade/dashboards/palisade.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let queries = variables.filter_map(|variable| variable["query"]["query"].as_str());
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|p| p["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let of_flows = HubbleMetrics::new("drop flow policy").unwrap();
    let of_flows = of_flows.text(SystemClock.monotonic());
    let mut named = 0;
    for expression in queries.chain(expressions) {
        let names = metric_names(expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            named += 1;
            if name.starts_with("hubble_") {
                let kind = format!("# TYPE {name} counter\n");
                assert!(of_flows.contains(&kind), "{name} is no metric of flows");
                continue;
            }
            let metric = METRICS.iter().find(|metric| match metric.kind {
                MetricKind::Histogram => name.strip_suffix("_bucket") == Some(metric.name),
                _ => name == metric.name,
            });
            assert!(metric.is_some(), "{name} is no metric: {expression}");
            // The labels by which it is grouped are its own.
            let grouped = expression.split_once(" by (").map(|(_, rest)| rest);
            let labels = grouped
                .and_then(|rest| rest.split_once(')'))
                .map(|(labels, _)| labels);
            for label in labels.into_iter().flat_map(|labels| labels.split(", ")) {
                let known = label == "le" || metric.unwrap().labels.contains(&label);
                assert!(known, "{name} has no label {label}");
            }
        }
    }
    assert!(named > 20, "{named}");
}

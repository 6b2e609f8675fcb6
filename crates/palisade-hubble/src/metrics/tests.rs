//! What each metric counts, and its labels.

#![allow(
    clippy::disallowed_methods,
    reason = "tests go on from the time of the machine"
)]

use super::*;
use crate::proto::flow::layer4::Protocol;
use crate::proto::flow::{
    CiliumEventType, DropReason, Endpoint, IcmPv6, Ip, Layer4, Tcp, TcpFlags, TrafficDirection,
    Udp, Verdict, Workload,
};

fn pod(namespace: &str, name: &str) -> Endpoint {
    Endpoint {
        identity: 70_000,
        namespace: namespace.to_owned(),
        pod_name: name.to_owned(),
        labels: vec![
            "k8s:app=front".to_owned(),
            format!("k8s:io.kubernetes.pod.namespace={namespace}"),
        ],
        workloads: vec![Workload {
            name: "web".to_owned(),
            kind: "Deployment".to_owned(),
        }],
        ..Endpoint::default()
    }
}

fn world() -> Endpoint {
    Endpoint {
        identity: 2,
        labels: vec!["cidr:192.0.2.1/32".to_owned(), "reserved:world".to_owned()],
        ..Endpoint::default()
    }
}

fn syn() -> Protocol {
    Protocol::Tcp(Tcp {
        source_port: 4_000,
        destination_port: 443,
        flags: Some(TcpFlags {
            syn: true,
            ..TcpFlags::default()
        }),
    })
}

fn flow(protocol: Protocol) -> Flow {
    Flow {
        verdict: Verdict::Forwarded as i32,
        event_type: Some(CiliumEventType {
            r#type: 5,
            sub_type: 2,
        }),
        policy_match_type: 2,
        ip: Some(Ip {
            source: "10.0.0.1".to_owned(),
            destination: "192.0.2.1".to_owned(),
            ip_version: 1,
            ..Ip::default()
        }),
        l4: Some(Layer4 {
            protocol: Some(protocol),
        }),
        source: Some(pod("shop", "web-1")),
        destination: Some(world()),
        destination_names: vec!["api.example.com".to_owned()],
        traffic_direction: TrafficDirection::Egress as i32,
        is_reply: Some(false),
        ..Flow::default()
    }
}

fn dropped(reason: DropReason) -> Flow {
    let udp = Protocol::Udp(Udp {
        source_port: 4_000,
        destination_port: 53,
    });
    Flow {
        verdict: Verdict::Dropped as i32,
        drop_reason_desc: reason as i32,
        event_type: Some(CiliumEventType {
            r#type: 1,
            sub_type: reason as i32,
        }),
        ..flow(udp)
    }
}

/// The samples of some flows, without help and type.
fn samples(definition: &str, flows: &[Flow]) -> Vec<String> {
    let metrics = HubbleMetrics::new(definition).unwrap();
    metrics.count(flows);
    sample_lines(&metrics, Instant::now())
}

fn sample_lines(metrics: &HubbleMetrics, now: Instant) -> Vec<String> {
    let text = metrics.text(now);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn each_metric_counts_what_hubble_counts() {
    let trace = Flow {
        event_type: Some(CiliumEventType {
            r#type: 4,
            sub_type: 3,
        }),
        trace_observation_point: 3,
        ..flow(syn())
    };
    let echo = flow(Protocol::IcmPv6(IcmPv6 {
        r#type: 128,
        code: 0,
    }));
    let flows = [
        flow(syn()),
        flow(syn()),
        dropped(DropReason::PolicyDenied),
        dropped(DropReason::InvalidSourceIp),
        trace,
        echo,
    ];
    let cases: [(&str, &[&str]); 8] = [
        (
            "drop",
            &[
                r#"hubble_drop_total{reason="INVALID_SOURCE_IP",protocol="UDP"} 1"#,
                r#"hubble_drop_total{reason="POLICY_DENIED",protocol="UDP"} 1"#,
            ],
        ),
        (
            "flow",
            &[
                r#"hubble_flows_processed_total{protocol="ICMPv6",type="PolicyVerdict",subtype="",verdict="FORWARDED"} 1"#,
                r#"hubble_flows_processed_total{protocol="TCP",type="PolicyVerdict",subtype="",verdict="FORWARDED"} 2"#,
                r#"hubble_flows_processed_total{protocol="TCP",type="Trace",subtype="to-stack",verdict="FORWARDED"} 1"#,
                r#"hubble_flows_processed_total{protocol="UDP",type="Drop",subtype="",verdict="DROPPED"} 2"#,
            ],
        ),
        (
            "tcp",
            &[r#"hubble_tcp_flags_total{flag="SYN",family="IPv4"} 3"#],
        ),
        (
            "port-distribution",
            &[
                r#"hubble_port_distribution_total{protocol="ICMPv6",port="0"} 1"#,
                r#"hubble_port_distribution_total{protocol="TCP",port="443"} 3"#,
            ],
        ),
        (
            "icmp",
            &[r#"hubble_icmp_total{family="IPv6",type="EchoRequest"} 1"#],
        ),
        (
            "policy",
            &[
                r#"hubble_policy_verdicts_total{direction="egress",match="l3-l4",action="forwarded"} 3"#,
            ],
        ),
        (
            "flows-to-world:port;syn-only",
            &[r#"hubble_flows_to_world_total{protocol="TCP",verdict="FORWARDED",port="443"} 3"#],
        ),
        (
            "flows-to-world:any-drop",
            &[
                r#"hubble_flows_to_world_total{protocol="ICMPv6",verdict="FORWARDED"} 1"#,
                r#"hubble_flows_to_world_total{protocol="TCP",verdict="FORWARDED"} 3"#,
                r#"hubble_flows_to_world_total{protocol="UDP",verdict="DROPPED"} 2"#,
            ],
        ),
    ];
    for (definition, expected) in cases {
        assert_eq!(samples(definition, &flows), expected, "{definition}");
    }
    // A reply counts nowhere that ports are counted, and what the host sends is no verdict.
    let reply = Flow {
        is_reply: Some(true),
        ..flow(syn())
    };
    let mut of_host = flow(syn());
    of_host.source = Some(Endpoint {
        identity: 1,
        ..Endpoint::default()
    });
    for definition in ["port-distribution", "flows-to-world"] {
        assert_eq!(samples(definition, std::slice::from_ref(&reply)), [""; 0]);
    }
    assert_eq!(samples("policy", &[of_host]), [""; 0]);
}

#[test]
fn ends_are_named_as_the_options_say() {
    let cases = [
        (
            "drop:sourceContext=pod;destinationContext=dns|ip",
            r#"source="shop/web-1",destination="api.example.com""#,
        ),
        (
            "drop:sourceContext=workload;destinationContext=reserved-identity",
            r#"source="shop/web",destination="reserved:world""#,
        ),
        (
            "drop:sourceContext=app;destinationContext=namespace|ip",
            r#"source="front",destination="192.0.2.1""#,
        ),
        (
            "drop:sourceContext=identity;sourceEgressContext=pod-name",
            r#"source="web-1""#,
        ),
        (
            "drop:sourceContext=workload-name;sourceIngressContext=ip",
            r#"source="web""#,
        ),
        (
            "drop:labelsContext=traffic_direction,source_workload_kind,source_namespace,destination_ip",
            r#"source_namespace="shop",source_workload_kind="Deployment",destination_ip="192.0.2.1",traffic_direction="egress""#,
        ),
    ];
    for (definition, labels) in cases {
        let expected =
            format!(r#"hubble_drop_total{{reason="POLICY_DENY",protocol="UDP",{labels}}} 1"#);
        let flow = dropped(DropReason::PolicyDeny);
        assert_eq!(samples(definition, &[flow]), [expected], "{definition}");
    }
}

#[test]
fn series_of_a_pod_go_a_minute_after_it() {
    let definitions = "drop:sourceContext=pod tcp:labelsContext=source_pod,source_namespace flow";
    let metrics = HubbleMetrics::new(definitions).unwrap();
    let mut other = flow(syn());
    other.source = Some(pod("shop", "web-10"));
    metrics.count(&[flow(syn()), dropped(DropReason::PolicyDenied), other]);
    let now = Instant::now();
    metrics.forget_pod("shop", "web-1", now);
    assert_eq!(sample_lines(&metrics, now + GRACE / 2).len(), 5);
    let left = sample_lines(&metrics, now + GRACE);
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(left[0].contains(r#"source_pod="web-10""#), "{left:?}");
}

#[test]
fn series_are_bounded() {
    let metrics = HubbleMetrics::new("port-distribution:sourceContext=ip").unwrap();
    let flows: Vec<Flow> = (0..MAX_SERIES + 7)
        .map(|index| {
            let mut flow = flow(syn());
            flow.ip.as_mut().unwrap().source = format!("a{index:06}");
            flow
        })
        .collect();
    metrics.count(&flows);
    assert_eq!(sample_lines(&metrics, Instant::now()).len(), MAX_SERIES);
    let refused = [("hubble_port_distribution_total".to_owned(), 7)];
    assert_eq!(metrics.refused(), refused);
    // Known series count on.
    metrics.count(&flows[..1]);
    let lines = sample_lines(&metrics, Instant::now());
    assert!(lines[0].ends_with(" 2"), "{}", lines[0]);
}

#[test]
fn losses_are_counted_and_names_are_escaped() {
    let metrics = HubbleMetrics::new("drop:sourceContext=pod-name").unwrap();
    metrics.count_lost(LostEventSource::HubbleRingBuffer, 3);
    metrics.count_lost(LostEventSource::HubbleRingBuffer, 4);
    let mut flow = dropped(DropReason::PolicyDenied);
    flow.source.as_mut().unwrap().pod_name = "a\"b\\c\nd".to_owned();
    metrics.count(&[flow]);
    assert_eq!(
        sample_lines(&metrics, Instant::now()),
        [
            r#"hubble_drop_total{reason="POLICY_DENIED",protocol="UDP",source="a\"b\\c\nd"} 1"#,
            r#"hubble_lost_events_total{source="HUBBLE_RING_BUFFER"} 7"#,
        ]
    );
}

#[test]
fn what_is_not_known_is_refused() {
    for (definition, reason) in [
        ("drops", "there is none of this name"),
        ("drop drop", "it is named twice"),
        ("drop:sourceContext=pods", "names no end of a flow"),
        ("drop:labelsContext=source_port", "is no label"),
        ("drop:port", "is no option of it"),
    ] {
        let error = HubbleMetrics::new(definition).err().unwrap();
        let error = error.to_string();
        assert!(error.contains(reason), "{definition}: {error}");
    }
    let metrics = HubbleMetrics::new("dns http drop").unwrap();
    assert_eq!(metrics.uncounted(), ["dns", "http"]);
    assert!(HubbleMetrics::new("").is_ok());
}

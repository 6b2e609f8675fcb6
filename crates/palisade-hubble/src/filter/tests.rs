//! What each field of a filter selects and refuses, and the bounds of a request.

use super::*;
use crate::proto::flow::layer4::Protocol;
use crate::proto::flow::layer7::Record;
use crate::proto::flow::{
    CiliumEventType, Dns, Endpoint, EventTypeFilter, Http, HttpHeader, Ip, Layer4, Layer7,
    NetworkInterface, Service, Tcp, TcpFlags, TraceContext, TraceParent, Verdict, Workload,
};

fn flow() -> Flow {
    let source = Endpoint {
        identity: 70_000,
        cluster_name: "prod".to_owned(),
        namespace: "shop".to_owned(),
        pod_name: "web-1".to_owned(),
        labels: vec!["k8s:app=web".to_owned()],
        workloads: vec![Workload {
            name: "web".to_owned(),
            kind: "Deployment".to_owned(),
        }],
        ..Endpoint::default()
    };
    let tcp = Tcp {
        source_port: 4000,
        destination_port: 80,
        flags: Some(TcpFlags {
            syn: true,
            ack: true,
            ..TcpFlags::default()
        }),
    };
    Flow {
        uuid: "u".to_owned(),
        verdict: Verdict::Dropped as i32,
        drop_reason_desc: 133,
        event_type: Some(CiliumEventType {
            r#type: 1,
            sub_type: 133,
        }),
        ip: Some(Ip {
            source: "10.0.0.1".to_owned(),
            destination: "fd00::1".to_owned(),
            ip_version: 1,
            ..Ip::default()
        }),
        l4: Some(Layer4 {
            protocol: Some(Protocol::Tcp(tcp)),
        }),
        source: Some(source),
        destination_service: Some(Service {
            name: "db".to_owned(),
            namespace: "shop".to_owned(),
        }),
        destination_names: vec!["www.example.com".to_owned()],
        node_name: "prod/n-1.example".to_owned(),
        node_labels: vec!["zone=east".to_owned()],
        traffic_direction: 2,
        interface: Some(NetworkInterface {
            index: 4,
            name: "pal1".to_owned(),
        }),
        trace_context: Some(TraceContext {
            parent: Some(TraceParent {
                trace_id: "t".to_owned(),
            }),
        }),
        ..Flow::default()
    }
}

fn http_flow(code: u32, method: &str, url: &str) -> Flow {
    let http = Http {
        code,
        method: method.to_owned(),
        url: url.to_owned(),
        headers: vec![header("a", "b")],
        ..Http::default()
    };
    layer7_flow(Record::Http(http))
}

fn layer7_flow(record: Record) -> Flow {
    Flow {
        l7: Some(Layer7 {
            record: Some(record),
            ..Layer7::default()
        }),
        ..Flow::default()
    }
}

fn header(key: &str, value: &str) -> HttpHeader {
    HttpHeader {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// Whether a filter with these fields selects a flow.
fn selects(flow: &Flow, set: impl FnOnce(&mut FlowFilter)) -> bool {
    let mut filter = FlowFilter::default();
    set(&mut filter);
    FlowFilters::new(&[filter], &[])
        .map(|filters| filters.select(flow))
        .unwrap()
}

fn refusal(set: impl FnOnce(&mut FlowFilter)) -> String {
    let mut filter = FlowFilter::default();
    set(&mut filter);
    match FlowFilters::new(&[], &[filter]) {
        Err(reason) => reason,
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn filters_are_alternatives_and_their_fields_are_not() {
    let source = |name: &str| FlowFilter {
        source_pod: texts(&[name]),
        ..FlowFilter::default()
    };
    let both = FlowFilter {
        verdict: vec![1],
        ..source("shop/web")
    };
    let select = |whitelist: &[FlowFilter], blacklist: &[FlowFilter]| {
        FlowFilters::new(whitelist, blacklist)
            .unwrap()
            .select(&flow())
    };
    assert!(select(&[], &[]));
    assert!(select(&[FlowFilter::default()], &[]));
    assert!(select(&[source("shop/x"), source("shop/web")], &[]));
    assert!(!select(&[source("shop/x"), source("default/web")], &[]));
    assert!(!select(std::slice::from_ref(&both), &[]));
    assert!(select(&[], &[both]));
    assert!(!select(&[source("shop/")], &[source("/web")]));
    // A filter without fields matches everything.
    assert!(!select(&[], &[FlowFilter::default()]));
}

#[test]
fn names_have_namespaces_and_prefixes() {
    let pod = |name: &str| selects(&flow(), |filter| filter.source_pod = texts(&[name]));
    assert!(pod("shop/web-1") && pod("shop/w") && pod("shop/") && pod("/web") && pod("shop/web/x"));
    assert!(!pod("web-1") && !pod("shop/eb") && !pod("default/web"));
    let to = |name: &str| selects(&flow(), |filter| filter.destination_pod = texts(&[name]));
    assert!(!to("/") && !to("/web"));
    let service = |name: &str| {
        selects(&flow(), |filter| {
            filter.destination_service = texts(&[name])
        })
    };
    assert!(service("shop/d") && !service("db"));
    assert!(refusal(|filter| filter.source_pod = texts(&[""])).contains("source pod"));
}

#[test]
fn ends_are_filtered() {
    let workload = |name: &str, kind: &str| {
        let wanted = Workload {
            name: name.to_owned(),
            kind: kind.to_owned(),
        };
        selects(&flow(), |filter| filter.source_workload = vec![wanted])
    };
    assert!(workload("web", "Deployment") && workload("web", "") && workload("", "Deployment"));
    assert!(!workload("web", "Job") && !workload("api", ""));
    assert!(selects(&flow(), |filter| filter.source_identity = vec![1, 70_000]));
    assert!(!selects(&flow(), |filter| filter.destination_identity = vec![0]));
    assert!(selects(&flow(), |filter| filter.source_cluster_name =
        texts(&["prod"])));
    assert!(!selects(&flow(), |filter| filter.source_cluster_name =
        texts(&["pro"])));
    assert!(!selects(&flow(), |filter| filter
        .destination_cluster_name =
        texts(&["prod"])));
    assert!(refusal(|filter| filter.source_cluster_name = texts(&[""])).contains("empty"));
    assert!(selects(&flow(), |filter| filter.source_label =
        texts(&["app in (web)"])));
    assert!(!selects(&flow(), |filter| filter.destination_label = texts(&["app"])));
    assert!(selects(&flow(), |filter| filter.destination_label =
        texts(&["!app"])));
    assert!(selects(&flow(), |filter| filter.node_labels = texts(&["zone=east"])));
}

#[test]
fn addresses_and_names_are_filtered() {
    let source = |text: &str| selects(&flow(), |filter| filter.source_ip = texts(&[text]));
    assert!(source("10.0.0.1") && source("10.0.0.9/24") && !source("10.0.0.2") && !source("::/0"));
    let to = |text: &str| selects(&flow(), |filter| filter.destination_ip = texts(&[text]));
    // As text: Cilium's servers print addresses in one form.
    assert!(to("fd00::/8") && to("fd00::1") && !to("fd00:0::1"));
    assert!(!selects(&flow(), |filter| filter.source_ip_xlated =
        texts(&["0.0.0.0/0"])));
    assert!(refusal(|filter| filter.source_ip = texts(&["10.0.0.0/33"])).contains("prefix"));
    let name = |text: &str| selects(&flow(), |filter| filter.destination_fqdn = texts(&[text]));
    assert!(name("www.example.com") && name("*.example.com.") && name("WWW.*") && name(" *"));
    assert!(!name("example.com") && !name("www.example.co"));
    assert!(!selects(&flow(), |filter| filter.source_fqdn = texts(&["*"])));
    let node = |text: &str| selects(&flow(), |filter| filter.node_name = texts(&[text]));
    assert!(node("n-1.example") && node("n*") && node("prod/") && node("pr*/n-1*") && node("/n*"));
    assert!(!node("default/n*") && !node("n-1") && !node("test/"));
    for pattern in ["", "a/b/c", "a..", "a|b", "a/."] {
        assert!(
            refusal(|filter| filter.node_name = texts(&[pattern])).contains("node name"),
            "{pattern}"
        );
    }
    assert!(selects(&flow(), |filter| filter.ip_version = vec![1]));
    assert!(selects(&Flow::default(), |filter| filter.ip_version = vec![0]));
}

#[test]
fn packets_are_filtered() {
    let flow = flow();
    assert!(selects(&flow, |filter| filter.uuid = texts(&["u"])));
    assert!(selects(&flow, |filter| filter.drop_reason_desc = vec![133]));
    assert!(selects(&flow, |filter| filter.verdict = vec![1, 2]));
    assert!(selects(&flow, |filter| filter.traffic_direction = vec![2]));
    assert!(!selects(&flow, |filter| filter.traffic_direction = vec![1]));
    assert!(selects(&flow, |filter| filter.trace_id = texts(&["t"])));
    assert!(selects(&Flow::default(), |filter| filter.trace_id = texts(&[""])));
    let event = |r#type, match_sub_type, sub_type| {
        let wanted = EventTypeFilter {
            r#type,
            match_sub_type,
            sub_type,
        };
        selects(&flow, |filter| filter.event_type = vec![wanted])
    };
    assert!(event(1, false, 5) && event(0, false, 0) && event(1, true, 133) && event(0, true, 133));
    assert!(!event(4, false, 0) && !event(1, true, 0));
    let interface = |index, name: &str| {
        let wanted = NetworkInterface {
            index,
            name: name.to_owned(),
        };
        selects(&flow, |filter| filter.interface = vec![wanted])
    };
    assert!(interface(0, "") && interface(4, "") && interface(0, "pal1") && !interface(4, "pal2"));
    // A drop is no reply if that is not known; anything else is neither.
    assert!(selects(&flow, |filter| filter.reply = vec![false]));
    assert!(!selects(&flow, |filter| filter.reply = vec![true]));
    assert!(!selects(&Flow::default(), |filter| filter.reply = vec![true, false]));
}

#[test]
fn transport_is_filtered() {
    let flow = flow();
    let protocol = |name: &str| selects(&flow, |filter| filter.protocol = texts(&[name]));
    assert!(protocol("tcp") && protocol("TCP") && !protocol("udp") && !protocol("icmp"));
    assert!(!protocol("http"));
    assert!(selects(&http_flow(0, "", ""), |filter| filter.protocol =
        texts(&["http"])));
    assert!(refusal(|filter| filter.protocol = texts(&["ip"])).contains("unknown protocol"));
    assert!(selects(&flow, |filter| filter.source_port = texts(&["1", "4000"])));
    assert!(selects(&flow, |filter| filter.destination_port = texts(&["080"])));
    assert!(!selects(&Flow::default(), |filter| filter
        .destination_port =
        texts(&["0"])));
    for port in ["+80", "-1", "65536", "", "http"] {
        assert!(
            refusal(|filter| filter.source_port = texts(&[port])).contains("port"),
            "{port}"
        );
    }
    let flags = |flags| selects(&flow, |filter| filter.tcp_flags = vec![flags]);
    let syn = TcpFlags {
        syn: true,
        ..TcpFlags::default()
    };
    assert!(flags(syn) && flags(TcpFlags::default()) && !flags(TcpFlags { fin: true, ..syn }));
}

#[test]
fn http_and_dns_are_filtered() {
    let flow = http_flow(404, "GET", "http://example.com:80/a%20b/page?q=/x");
    let status = |text: &str| selects(&flow, |filter| filter.http_status_code = texts(&[text]));
    assert!(status("404") && status("4+") && status("40+") && !status("5+") && !status("400"));
    for code in ["4", "44", "600", "0+", "404+", "4x4", "+", "٤04"] {
        assert!(
            refusal(|filter| filter.http_status_code = texts(&[code])).contains("status"),
            "{code}"
        );
    }
    assert!(!selects(&http_flow(0, "", ""), |filter| filter
        .http_status_code =
        texts(&["1+"])));
    assert!(selects(&flow, |filter| filter.http_method = texts(&["get"])));
    let path = |text: &str| selects(&flow, |filter| filter.http_path = texts(&[text]));
    assert!(path("^/a b/page$") && !path("example") && !path("q="));
    let path_of = |url: &str| {
        let flow = http_flow(0, "", url);
        selects(&flow, |filter| filter.http_path = texts(&["^$|^/"]))
    };
    assert!(path_of("/x") && path_of("http://h") && path_of("urn:x"));
    assert!(!path_of("x/y") && !path_of("/%zz") && !path_of("/\n") && !path_of(""));
    assert!(selects(&flow, |filter| filter.http_url = texts(&["example.*q="])));
    assert!(selects(&flow, |filter| filter.http_header = vec![header("a", "b")]));
    assert!(!selects(&flow, |filter| filter.http_header = vec![header("a", "c")]));
    let event = |kind| EventTypeFilter {
        r#type: kind,
        ..EventTypeFilter::default()
    };
    let reason = refusal(|filter| {
        filter.http_url = texts(&["x"]);
        filter.event_type = vec![event(1)];
    });
    assert!(reason.contains("'l7' events"), "{reason}");
    let mixed = FlowFilter {
        http_url: texts(&["x"]),
        event_type: vec![event(1), event(129)],
        ..FlowFilter::default()
    };
    assert!(FlowFilters::new(&[mixed], &[]).is_ok());
    let dns = Dns {
        query: "kube.local.".to_owned(),
        ..Dns::default()
    };
    let query = |text: &str| {
        selects(&layer7_flow(Record::Dns(dns.clone())), |filter| {
            filter.dns_query = texts(&[text])
        })
    };
    assert!(query("kube.*local") && !query("^local"));
}

#[test]
fn what_a_request_may_hold_is_bounded() {
    assert!(FlowFilters::new(&vec![FlowFilter::default(); MAX_FILTERS], &[]).is_ok());
    assert!(FlowFilters::new(&vec![FlowFilter::default(); MAX_FILTERS + 1], &[]).is_err());
    let values = |count| FlowFilter {
        uuid: vec!["u".to_owned(); count],
        ..FlowFilter::default()
    };
    assert!(FlowFilters::new(&[values(MAX_FILTER_VALUES)], &[]).is_ok());
    // Both lists together.
    assert!(FlowFilters::new(&[values(MAX_FILTER_VALUES)], &[values(1)]).is_err());
    let many = vec!["a".to_owned(); MAX_EXPRESSIONS + 1];
    assert!(refusal(|filter| filter.http_url = many).contains("regular expressions"));
    for expression in ["(a{1000}){1000}", "\\pL{5000}", "("] {
        assert!(
            refusal(|filter| filter.dns_query = texts(&[expression])).contains("DNS query"),
            "{expression}"
        );
    }
    let expression = crate::proto::flow::flow_filter::Experimental {
        cel_expression: texts(&["true"]),
    };
    assert!(refusal(|filter| filter.experimental = Some(expression)).contains("cel_expression"));
}

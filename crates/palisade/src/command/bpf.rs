//! `palisade bpf`: the fast path in eBPF, as the agent reads it: addresses, flows, policy, and a check of the kernel.

use super::explain::percent_encode;
use super::flows::protocol_value;
use crate::cli::{BpfFlowsArgs, BpfPolicyArgs, FastPathCommand, OutputFormat};
use crate::client::ApiClient;
use crate::exit::{CommandResult, ExitStatus};
use crate::output::{TextTable, or_dash, pluralize, print_output};
use palisade_api::{
    BpfAddress, BpfAllowance, BpfCheckReport, BpfCounter, BpfEndpointList, BpfFlow, BpfFlowList,
    BpfFlowState, BpfPolicyList, ProtocolName, path,
};
use std::fmt::Write as _;

/// Reads one part of the fast path.
pub(crate) fn run(
    command: FastPathCommand,
    client: &ApiClient,
    format: OutputFormat,
) -> CommandResult {
    match command {
        FastPathCommand::Endpoints => {
            let list: BpfEndpointList = client.get(path::BPF_ENDPOINTS)?;
            print_output(format, &list, endpoints_text)?;
        }
        FastPathCommand::Flows(args) => {
            let list: BpfFlowList =
                client.get(&format!("{}?{}", path::BPF_FLOWS, flow_query(args)))?;
            print_output(format, &list, flows_text)?;
        }
        FastPathCommand::Policy(args) => {
            let list: BpfPolicyList =
                client.get(&format!("{}?{}", path::BPF_POLICY, policy_query(args)))?;
            print_output(format, &list, policy_text)?;
        }
        FastPathCommand::Check => {
            let check: BpfCheckReport = client.get(path::BPF_CHECK)?;
            print_output(format, &check, check_text)?;
            return Ok(ExitStatus::of(!check.differences.is_empty()));
        }
    }
    Ok(ExitStatus::Success)
}

fn flow_query(args: BpfFlowsArgs) -> String {
    query_text([
        ("endpoint", args.endpoint),
        ("protocol", args.protocol.map(protocol_value)),
        ("limit", args.limit.map(|limit| limit.to_string())),
    ])
}

fn policy_query(args: BpfPolicyArgs) -> String {
    query_text([
        ("endpoint", args.endpoint),
        ("limit", args.limit.map(|limit| limit.to_string())),
    ])
}

fn query_text<const N: usize>(parameters: [(&str, Option<String>); N]) -> String {
    let given = parameters.into_iter().filter_map(|(name, value)| {
        let value = percent_encode(&value?);
        Some(format!("{name}={value}"))
    });
    given.collect::<Vec<_>>().join("&")
}

fn endpoints_text(list: &BpfEndpointList) -> String {
    let armed = list.endpoints.iter().filter(|endpoint| endpoint.armed);
    let mut table = TextTable::new(&[
        "ADDRESS",
        "WORKLOAD",
        "INTERFACE",
        "FAST PATH",
        "MTU",
        "SLOT",
        "IDENTITY",
        "SETS",
    ]);
    for endpoint in &list.endpoints {
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        let reason = endpoint.reason.as_deref().unwrap_or("unknown");
        table.row([
            endpoint.end.address.clone(),
            or_dash(workload_name(&endpoint.end).unwrap_or_default()),
            or_dash(endpoint.interface.clone()),
            if endpoint.armed {
                "armed".to_owned()
            } else {
                format!("no: {reason}")
            },
            or_dash(number(endpoint.mtu).unwrap_or_default()),
            or_dash(number(endpoint.slot.map(u32::from)).unwrap_or_default()),
            endpoint.identity.to_string(),
            format!("{}, {}", endpoint.egress_set, endpoint.ingress_set),
        ]);
    }
    let all = match list.endpoints.len() {
        1 => "1 address".to_owned(),
        count => format!("{count} addresses"),
    };
    let mut out = format!("{all}, {} armed\n{table}", armed.count());
    if !list.uplinks.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(out, "\n{}", uplinks_table(list));
    }
    out
}

fn uplinks_table(list: &BpfEndpointList) -> TextTable {
    let mut table = TextTable::new(&["TO OTHER HOSTS", "FAST PATH", "MTU"]);
    for uplink in &list.uplinks {
        let reason = uplink.reason.as_deref().unwrap_or("unknown");
        table.row([
            uplink.interface.clone(),
            if uplink.armed {
                "armed".to_owned()
            } else {
                format!("no: {reason}")
            },
            or_dash(uplink.mtu.map_or_else(String::new, |mtu| mtu.to_string())),
        ]);
    }
    table
}

fn flows_text(list: &BpfFlowList) -> String {
    let mut out = format!(
        "{} delivered by the fast path, {} by the stack; {} evicted\n",
        pluralize(list.owned as usize, "flow"),
        list.via_stack,
        pluralize(list.evictions as usize, "live flow"),
    );
    let mut table = TextTable::new(&[
        "PROTOCOL",
        "SOURCE",
        "DESTINATION",
        "DELIVERED BY",
        "STATE",
        "SEEN",
        "ENDS IN",
    ]);
    for flow in &list.flows {
        let (source, destination) = match flow.icmp_id {
            Some(id) => (
                end_text(&flow.source, None),
                format!(
                    "{} type {} id {id}",
                    end_text(&flow.destination, None),
                    flow.icmp_type.unwrap_or_default()
                ),
            ),
            None => (
                end_text(&flow.source, flow.source_port),
                end_text(&flow.destination, flow.destination_port),
            ),
        };
        table.row([
            flow.protocol.to_string(),
            source,
            destination,
            flow.delivery.to_string(),
            state_text(flow),
            format!("{:.1} s ago", flow.age),
            format!("{:.0} s", flow.remaining),
        ]);
    }
    if !list.flows.is_empty() {
        out.push_str(&table.to_string());
    }
    if list.left_out > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{} more match: narrow the query, or raise --limit",
            list.left_out
        );
    }
    out
}

fn state_text(flow: &BpfFlow) -> String {
    let state = match (flow.protocol, flow.state) {
        (ProtocolName::Tcp, BpfFlowState::Unanswered) => "opening",
        (ProtocolName::Tcp, BpfFlowState::Answered) => "established",
        (_, state) => state.name(),
    };
    if flow.judged_again {
        format!("{state}, to be judged again")
    } else {
        state.to_owned()
    }
}

fn policy_text(list: &BpfPolicyList) -> String {
    let mut table = TextTable::new(&[
        "SOURCE",
        "DESTINATION",
        "DELIVERED",
        "ALLOWED AT EGRESS BY",
        "ALLOWED AT INGRESS BY",
        "SETS",
        "CLASSES",
    ]);
    for pair in &list.pairs {
        let ends = [&pair.source, &pair.destination].map(|end| end_text(end, None));
        let sets = format!("{}, {}", pair.egress.set, pair.ingress.set);
        let classes = format!("{}, {}", pair.egress.class, pair.ingress.class);
        let mut row = |cells: [String; 3]| {
            let numbers = [sets.clone(), classes.clone()];
            table.row(ends.iter().cloned().chain(cells).chain(numbers));
        };
        if pair.allowed.is_empty() {
            row(["nothing".to_owned(), "-".to_owned(), "-".to_owned()]);
        }
        for allowed in &pair.allowed {
            row([
                traffic_text(allowed),
                counter_text(&allowed.egress),
                counter_text(&allowed.ingress),
            ]);
        }
    }
    let mut out = if list.pairs.is_empty() {
        "no two workloads of this host have a slot\n".to_owned()
    } else {
        format!("{table}All else goes by the stack, and nftables judges it.\n")
    };
    if list.left_out > 0 {
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "left out: {}; name an endpoint, or raise --limit",
            pluralize(list.left_out, "pair")
        );
    }
    out
}

fn traffic_text(allowed: &BpfAllowance) -> String {
    let BpfAllowance {
        protocol,
        first,
        last,
        ..
    } = allowed;
    let is_all = (*first, *last) == (0, u16::MAX);
    if is_all {
        return protocol.to_string();
    }
    let is_icmp = matches!(protocol, ProtocolName::Icmp | ProtocolName::Icmpv6);
    let (kinds, codes) = ((first >> 8, last >> 8), (first & 255, last & 255));
    if !is_icmp {
        return if first == last {
            format!("{protocol} {first}")
        } else {
            format!("{protocol} {first}-{last}")
        };
    }
    match (kinds, codes) {
        ((first, last), (0, 255)) if first == last => format!("{protocol} type {first}"),
        ((first, last), (0, 255)) => format!("{protocol} types {first}-{last}"),
        ((kind, last), (first, until)) if (kind, first) == (last, until) => {
            format!("{protocol} type {kind} code {first}")
        }
        ((kind, last), (first, until)) => {
            format!("{protocol} type {kind} code {first} to type {last} code {until}")
        }
    }
}

fn counter_text(counter: &BpfCounter) -> String {
    if counter.rules.is_empty() {
        return "no policy".to_owned();
    }
    let packets = pluralize(counter.count.packets as usize, "packet");
    format!(
        "{} ({packets}, counter {})",
        counter.rules.join(" and "),
        counter.number
    )
}

fn check_text(check: &BpfCheckReport) -> String {
    let compared = format!(
        "{} of maps, the programs of {}, {}",
        pluralize(check.elements, "element"),
        pluralize(check.interfaces, "interface"),
        pluralize(check.pins, "pin")
    );
    if check.differences.is_empty() {
        return format!("{compared}: all is as it should be");
    }
    let mut table = TextTable::new(&["PART", "OBJECT", "WORKLOAD", "EXPECTED", "FOUND"]);
    for difference in &check.differences {
        table.row([
            difference.part.name().to_owned(),
            difference.object.clone(),
            or_dash(difference.workload.clone().unwrap_or_default()),
            difference.expected.clone(),
            difference.found.clone(),
        ]);
    }
    let count = check.differences.len() + check.left_out;
    let mut out = format!("{compared}: {}\n{table}", pluralize(count, "difference"));
    // Writing to a String cannot fail.
    if check.left_out > 0 {
        let _ = writeln!(out, "not listed: {}", check.left_out);
    }
    if let Some(next) = &check.next_step {
        let _ = writeln!(out, "next: {next}");
    }
    out
}

fn workload_name(end: &BpfAddress) -> Option<String> {
    let (namespace, name) = (end.namespace.as_ref()?, end.name.as_ref()?);
    Some(format!("{namespace}/{name}"))
}

/// A workload with its address, and the port if there is one.
fn end_text(end: &BpfAddress, port: Option<u16>) -> String {
    let address = match port {
        Some(port) if end.address.contains(':') => format!("[{}]:{port}", end.address),
        Some(port) => format!("{}:{port}", end.address),
        None => end.address.clone(),
    };
    match workload_name(end) {
        Some(name) => format!("{name} ({address})"),
        None => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{
        BpfDelivery, BpfDifference, BpfEndpoint, BpfJudgement, BpfPair, BpfPart, BpfUplink,
        PacketCount, api_version,
    };

    fn end(address: &str, name: &str) -> BpfAddress {
        BpfAddress {
            address: address.to_owned(),
            namespace: (!name.is_empty()).then(|| "shop".to_owned()),
            name: (!name.is_empty()).then(|| name.to_owned()),
        }
    }

    #[test]
    fn endpoints_say_why_they_are_not_armed() {
        let armed = BpfEndpoint {
            end: end("10.244.0.2", "web"),
            interface: "pal-web".to_owned(),
            armed: true,
            reason: None,
            slot: Some(1),
            identity: 7,
            egress_set: 2,
            ingress_set: 3,
            mtu: Some(1_450),
        };
        let refused = BpfEndpoint {
            end: end("10.244.0.3", ""),
            interface: "pal-db".to_owned(),
            armed: false,
            reason: Some("it is a port of another interface".to_owned()),
            slot: None,
            mtu: None,
            ..armed.clone()
        };
        let list = BpfEndpointList {
            api_version: api_version(),
            endpoints: vec![armed, refused],
            uplinks: vec![],
        };
        let expected = "\
2 addresses, 1 armed
ADDRESS     WORKLOAD  INTERFACE  FAST PATH                              MTU   SLOT  IDENTITY  SETS
10.244.0.2  shop/web  pal-web    armed                                  1450  1     7         2, 3
10.244.0.3  -         pal-db     no: it is a port of another interface  -     -     7         2, 3
";
        assert_eq!(endpoints_text(&list), expected);
        let uplink = |interface: &str, reason: Option<&str>| BpfUplink {
            interface: interface.to_owned(),
            armed: reason.is_none(),
            reason: reason.map(str::to_owned),
            mtu: reason.is_none().then_some(9_000),
        };
        let uplinks = vec![
            uplink("eth0", None),
            uplink("eth1", Some("this host has IPsec policies")),
        ];
        let list = BpfEndpointList { uplinks, ..list };
        let expected = format!(
            "{expected}
TO OTHER HOSTS  FAST PATH                         MTU
eth0            armed                             9000
eth1            no: this host has IPsec policies  -
"
        );
        assert_eq!(endpoints_text(&list), expected);
    }

    #[test]
    fn flows_have_their_state_and_their_time() {
        let tcp = BpfFlow {
            protocol: ProtocolName::Tcp,
            source: end("10.244.0.2", "web"),
            source_port: Some(40_000),
            destination: end("10.244.0.3", "db"),
            destination_port: Some(5_432),
            icmp_type: None,
            icmp_id: None,
            delivery: BpfDelivery::FastPath,
            state: BpfFlowState::Answered,
            judged_again: false,
            age: 0.3,
            remaining: 7_199.7,
        };
        let echo = BpfFlow {
            protocol: ProtocolName::Icmpv6,
            source: end("fd00::2", "web"),
            source_port: None,
            destination: end("fd00::3", ""),
            destination_port: None,
            icmp_type: Some(128),
            icmp_id: Some(77),
            delivery: BpfDelivery::Stack,
            state: BpfFlowState::Unanswered,
            judged_again: true,
            age: 12.0,
            remaining: 18.4,
        };
        let dns = BpfFlow {
            protocol: ProtocolName::Udp,
            source: end("fd00::2", "web"),
            destination: end("fd00::3", ""),
            destination_port: Some(53),
            ..tcp.clone()
        };
        let list = BpfFlowList {
            api_version: api_version(),
            owned: 1,
            via_stack: 2,
            evictions: 3,
            flows: vec![tcp, echo, dns],
            left_out: 4,
        };
        let expected = "\
1 flow delivered by the fast path, 2 by the stack; 3 live flows evicted
PROTOCOL  SOURCE                       DESTINATION                 DELIVERED BY  STATE                            SEEN        ENDS IN
TCP       shop/web (10.244.0.2:40000)  shop/db (10.244.0.3:5432)   fast path     established                      0.3 s ago   7200 s
ICMPv6    shop/web (fd00::2)           fd00::3 type 128 id 77      stack         unanswered, to be judged again   12.0 s ago  18 s
UDP       shop/web ([fd00::2]:40000)   [fd00::3]:53                fast path     answered                         0.3 s ago   7200 s
4 more match: narrow the query, or raise --limit
";
        let lines = |text: &str| -> Vec<Vec<String>> {
            let columns = |line: &str| {
                line.split("  ")
                    .map(|cell| cell.trim().to_owned())
                    .collect()
            };
            let cells = text.lines().map(columns);
            cells
                .map(|line: Vec<String>| line.into_iter().filter(|cell| !cell.is_empty()).collect())
                .collect()
        };
        assert_eq!(lines(&flows_text(&list)), lines(expected));
        let none = BpfFlowList {
            owned: 0,
            via_stack: 0,
            evictions: 0,
            flows: Vec::new(),
            left_out: 0,
            ..list
        };
        let expected = "0 flows delivered by the fast path, 0 by the stack; 0 live flows evicted\n";
        assert_eq!(flows_text(&none), expected);
    }

    #[test]
    fn what_is_delivered_is_told_with_the_rules() {
        let counter = |number: u32, rules: &[&str], packets| BpfCounter {
            number,
            rules: rules.iter().map(|rule| (*rule).to_owned()).collect(),
            count: PacketCount { packets, bytes: 0 },
        };
        let allowed = |first, last| BpfAllowance {
            protocol: ProtocolName::Tcp,
            first,
            last,
            egress: counter(0, &[], 9),
            ingress: counter(4, &["networkpolicy/shop/db ingress[0]"], 1),
        };
        let numbers = BpfJudgement {
            set: 2,
            identity: 7,
            class: 5,
        };
        let pair = BpfPair {
            source: end("10.244.0.2", "web"),
            destination: end("10.244.0.3", "db"),
            egress: numbers,
            ingress: BpfJudgement {
                class: 6,
                ..numbers
            },
            allowed: vec![allowed(5_432, 5_432), allowed(8_000, 8_080)],
        };
        let back = BpfPair {
            source: pair.destination.clone(),
            destination: pair.source.clone(),
            allowed: Vec::new(),
            ..pair.clone()
        };
        let list = BpfPolicyList {
            api_version: api_version(),
            pairs: vec![pair, back],
            left_out: 1,
        };
        let text = policy_text(&list);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("TCP 5432"), "{text}");
        let rule = "networkpolicy/shop/db ingress[0] (1 packet, counter 4)";
        assert!(
            lines[1].contains("no policy") && lines[1].contains(rule),
            "{text}"
        );
        assert!(lines[2].contains("TCP 8000-8080"), "{text}");
        assert!(lines[3].contains("nothing"), "{text}");
        assert!(lines[1].ends_with("2, 2  5, 6"), "{text}");
        let end = [
            "All else goes by the stack, and nftables judges it.",
            "left out: 1 pair; name an endpoint, or raise --limit",
        ];
        assert_eq!(lines[4..], end);
    }

    #[test]
    fn icmp_is_told_by_types_and_codes() {
        let text = |first, last| {
            let nothing = BpfCounter {
                number: 0,
                rules: Vec::new(),
                count: PacketCount::default(),
            };
            traffic_text(&BpfAllowance {
                protocol: ProtocolName::Icmp,
                first,
                last,
                egress: nothing.clone(),
                ingress: nothing,
            })
        };
        for (first, last, expected) in [
            (0, u16::MAX, "ICMP"),
            (0x800, 0x8ff, "ICMP type 8"),
            (0x800, 0x9ff, "ICMP types 8-9"),
            (0x800, 0x800, "ICMP type 8 code 0"),
            (0x801, 0x900, "ICMP type 8 code 1 to type 9 code 0"),
        ] {
            assert_eq!(text(first, last), expected);
        }
    }

    #[test]
    fn a_check_says_what_differs_and_what_to_do() {
        let clean = BpfCheckReport {
            api_version: api_version(),
            elements: 40,
            interfaces: 1,
            pins: 7,
            differences: Vec::new(),
            left_out: 0,
            next_step: None,
        };
        assert_eq!(
            check_text(&clean),
            "40 elements of maps, the programs of 1 interface, 7 pins: all is as it should be"
        );
        let difference = BpfDifference {
            part: BpfPart::Map,
            object: "endpoints: address 10.244.0.2".to_owned(),
            workload: Some("shop/web".to_owned()),
            expected: "slot 1".to_owned(),
            found: "nothing".to_owned(),
        };
        let differs = BpfCheckReport {
            differences: vec![difference],
            left_out: 2,
            next_step: Some("restart the agent".to_owned()),
            ..clean
        };
        let expected = "\
40 elements of maps, the programs of 1 interface, 7 pins: 3 differences
PART  OBJECT                         WORKLOAD  EXPECTED  FOUND
map   endpoints: address 10.244.0.2  shop/web  slot 1    nothing
not listed: 2
next: restart the agent
";
        assert_eq!(check_text(&differs), expected);
    }
}

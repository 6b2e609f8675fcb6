//! `GET /v1/bpf/…`: the fast path in the words of the model: workloads and rules, with the numbers of maps beside them.
//!
//! Never: reads a map; what the driver's fast path says is passed in.

use crate::CoreSnapshot;
use palisade_api::{
    ApiError, BpfAddress, BpfAllowance, BpfCheckReport, BpfCounter, BpfDelivery, BpfDifference,
    BpfEndpoint, BpfEndpointList, BpfFlow, BpfFlowList, BpfFlowState, BpfJudgement, BpfPair,
    BpfPart, BpfPolicyList, BpfUplink, ObjectRef, PacketCount, ProtocolName,
};
use palisade_dataplane::{
    CountAccount, FastPathCheck, FastPathCounter, FastPathEnd, FastPathEndpoint, FastPathFlow,
    FastPathFlows, FastPathPair, FastPathPart, FastPathPolicy, FastPathProven, FastPathUplink,
};
use palisade_model::{Protocol, RuleOrigin};
use palisade_node::workload_store::pod_id;
use palisade_tables::VerdictCause;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Why an address that the fast path does not know has no slot.
const NO_SLOT_REASON: &str = "the kernel has no policy of its own for it";

/// Why the fast path does not run, and what to do.
pub fn fast_path_refusal(core: &CoreSnapshot<'_>) -> ApiError {
    let dataplane = &core.enforcer.dataplane;
    let conditions = dataplane.conditions();
    let mut off = conditions
        .iter()
        .filter(|condition| condition.kind == "FastPathOff");
    if let Some(condition) = off.next() {
        return ApiError::new(condition.message.clone()).with_hint("palisade status");
    }
    if !core.config.dataplane.has_fast_path() {
        return ApiError::new(format!(
            "the fast path is off: the agent enforces with {} alone",
            dataplane.name()
        ))
        .with_hint("set dataplane: ebpf in the configuration, then restart the agent");
    }
    ApiError::new("the fast path does not run: the agent has not written policy to the kernel yet")
        .with_hint("palisade status")
}

/// The addresses of a workload (`namespace/name`) of this host; `None` if there is no such workload.
pub fn workload_addresses(core: &CoreSnapshot<'_>, name: &str) -> Option<BTreeSet<IpAddr>> {
    let (namespace, name) = name.split_once('/').unwrap_or(("default", name));
    let workload = core.workloads.registry.get(&pod_id(namespace, name))?;
    Some(workload.record.addresses.iter().copied().collect())
}

/// `GET /v1/bpf/endpoints`.
pub fn bpf_endpoints(
    core: &CoreSnapshot<'_>,
    known: Vec<FastPathEndpoint>,
    uplinks: Vec<FastPathUplink>,
) -> BpfEndpointList {
    let workloads = AddressNames::new(core);
    let mut endpoints: BTreeMap<IpAddr, BpfEndpoint> = BTreeMap::new();
    for record in core.workloads.registry.records() {
        for address in &record.addresses {
            let endpoint = BpfEndpoint {
                end: workloads.end(*address),
                interface: record.interface.to_string(),
                armed: false,
                reason: Some(NO_SLOT_REASON.to_owned()),
                slot: None,
                identity: 0,
                egress_set: 0,
                ingress_set: 0,
                mtu: None,
            };
            endpoints.insert(*address, endpoint);
        }
    }
    for endpoint in known {
        let [egress_set, ingress_set] = endpoint.sets;
        let report = BpfEndpoint {
            end: workloads.end(endpoint.address),
            interface: endpoint.interface.to_string(),
            armed: endpoint.obstacle.is_none(),
            reason: endpoint.obstacle.map(|obstacle| obstacle.to_string()),
            slot: (endpoint.slot != 0).then_some(endpoint.slot),
            identity: endpoint.identity,
            egress_set,
            ingress_set,
            mtu: endpoint.mtu,
        };
        endpoints.insert(endpoint.address, report);
    }
    BpfEndpointList {
        api_version: palisade_api::api_version(),
        endpoints: endpoints.into_values().collect(),
        uplinks: uplinks.into_iter().map(uplink_report).collect(),
    }
}

fn uplink_report(uplink: FastPathUplink) -> BpfUplink {
    BpfUplink {
        interface: uplink.interface.to_string(),
        armed: uplink.obstacle.is_none(),
        reason: uplink.obstacle.map(|obstacle| obstacle.to_string()),
        mtu: uplink.mtu,
    }
}

/// `GET /v1/bpf/flows`.
pub fn bpf_flows(core: &CoreSnapshot<'_>, table: &FastPathFlows) -> BpfFlowList {
    let workloads = AddressNames::new(core);
    let flows = table.flows.iter().map(|flow| flow_report(&workloads, flow));
    BpfFlowList {
        api_version: palisade_api::api_version(),
        owned: table.owned,
        via_stack: table.via_stack,
        evictions: table.evictions,
        flows: flows.collect(),
        left_out: table.left_out,
    }
}

fn flow_report(workloads: &AddressNames, flow: &FastPathFlow) -> BpfFlow {
    let is_icmp = matches!(flow.protocol, Protocol::ICMP | Protocol::ICMPV6);
    let ((source, source_port), (destination, destination_port)) = (flow.source, flow.destination);
    let port = |port: u16| (!is_icmp).then_some(port);
    let seconds = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
    BpfFlow {
        protocol: ProtocolName::from(flow.protocol),
        source: workloads.end(source),
        source_port: port(source_port),
        destination: workloads.end(destination),
        destination_port: port(destination_port),
        icmp_type: is_icmp.then_some(destination_port as u8),
        icmp_id: is_icmp.then_some(source_port),
        delivery: if flow.is_via_stack {
            BpfDelivery::Stack
        } else {
            BpfDelivery::FastPath
        },
        state: match (flow.is_closing, flow.is_answered) {
            (true, _) => BpfFlowState::Closing,
            (false, true) => BpfFlowState::Answered,
            (false, false) => BpfFlowState::Unanswered,
        },
        judged_again: flow.is_judged_again,
        age: seconds(flow.age),
        remaining: seconds(flow.remaining),
    }
}

/// `GET /v1/bpf/policy`.
pub fn bpf_policy(core: &CoreSnapshot<'_>, policy: &FastPathPolicy) -> BpfPolicyList {
    let workloads = AddressNames::new(core);
    let counters = policy.counters.iter();
    let counters = counters.map(|(number, counter)| (*number, counter_report(*number, counter)));
    let counters: BTreeMap<u32, BpfCounter> = counters.collect();
    let pairs = policy.pairs.iter();
    BpfPolicyList {
        api_version: palisade_api::api_version(),
        pairs: pairs
            .map(|pair| pair_report(&workloads, pair, &counters))
            .collect(),
        left_out: policy.left_out,
    }
}

fn pair_report(
    workloads: &AddressNames,
    pair: &FastPathPair,
    counters: &BTreeMap<u32, BpfCounter>,
) -> BpfPair {
    let counter = |number: u32| {
        let known = counters.get(&number).cloned();
        known.unwrap_or_else(|| counter_report(number, &FastPathCounter::default()))
    };
    let allowance = |proven: &FastPathProven| BpfAllowance {
        protocol: ProtocolName::from(proven.protocol),
        first: proven.ports.first,
        last: proven.ports.last,
        egress: counter(proven.counters[0]),
        ingress: counter(proven.counters[1]),
    };
    let [egress, ingress] = pair.ends.map(|end: FastPathEnd| BpfJudgement {
        set: end.set,
        identity: end.identity,
        class: end.class,
    });
    BpfPair {
        source: workloads.end(pair.from),
        destination: workloads.end(pair.to),
        egress,
        ingress,
        allowed: pair.proven.iter().map(allowance).collect(),
    }
}

fn counter_report(number: u32, counter: &FastPathCounter) -> BpfCounter {
    let rules = counter.accounts.iter().filter_map(|account| match account {
        CountAccount::Rule(cause) => Some(cause_text(cause)),
        // Which rule that is, another account says.
        CountAccount::Drop(_) | CountAccount::Audit(_) => None,
    });
    BpfCounter {
        number,
        rules: rules.collect(),
        count: PacketCount {
            packets: counter.count.packets,
            bytes: counter.count.bytes,
        },
    }
}

/// A cause of an allowed packet, as short as can be.
fn cause_text(cause: &VerdictCause) -> String {
    match cause {
        VerdictCause::Rule {
            policy,
            direction,
            origin,
        } => {
            let policy = ObjectRef::new(&policy.object, None).path_name();
            format!("{policy} {direction}{}", origin_text(origin))
        }
        VerdictCause::ProfileRule {
            profile,
            direction,
            origin,
        } => format!("profile/{profile} {direction}{}", origin_text(origin)),
        VerdictCause::TierDefault { tier, .. } => format!("default of tier {tier}"),
        VerdictCause::MissingProfile { profile, .. } => format!("no profile {profile}"),
        VerdictCause::NoProfileMatch { .. } => "no rule of a profile".to_owned(),
        VerdictCause::ForwardEnd { .. }
        | VerdictCause::HairpinEnd { .. }
        | VerdictCause::StageEnd { .. } => "no rule".to_owned(),
        VerdictCause::Encapsulated => "encapsulation".to_owned(),
        VerdictCause::EndpointInAudit { .. } => "audit of the endpoint".to_owned(),
        VerdictCause::Audit { cause, .. } => format!("{} (in audit)", cause_text(cause)),
    }
}

fn origin_text(origin: &RuleOrigin) -> String {
    let name = origin.name.as_ref();
    let name = name.map_or_else(String::new, |name| format!(" {name:?}"));
    format!("[{}]{name}", origin.index)
}

/// `GET /v1/bpf/check`.
pub fn bpf_check(core: &CoreSnapshot<'_>, check: FastPathCheck) -> BpfCheckReport {
    let workloads = AddressNames::new(core);
    let next_step = next_step(&check);
    let differences = check.differences.into_iter();
    let differences = differences.map(|difference| BpfDifference {
        part: match difference.part {
            FastPathPart::Map => BpfPart::Map,
            FastPathPart::Program => BpfPart::Program,
            FastPathPart::Link => BpfPart::Link,
            FastPathPart::Pin => BpfPart::Pin,
        },
        object: difference.object,
        workload: difference
            .address
            .and_then(|address| workloads.name(address)),
        expected: difference.expected,
        found: difference.found,
    });
    BpfCheckReport {
        api_version: palisade_api::api_version(),
        elements: check.elements,
        interfaces: check.interfaces,
        pins: check.pins,
        differences: differences.collect(),
        left_out: check.left_out,
        next_step,
    }
}

/// What repairs what differs.
fn next_step(check: &FastPathCheck) -> Option<String> {
    let has = |part| {
        let mut differences = check.differences.iter();
        differences.any(|difference| difference.part == part)
    };
    // A new start has new maps and new pins, and replaces the programs; a reload looks at the programs only.
    if has(FastPathPart::Map) || has(FastPathPart::Pin) {
        return Some(
            "restart the agent: it fills new maps, pins them, and replaces the programs, and flows go on \
             unless the pins of config or flows are gone; then find out what else writes to BPF maps here"
                .to_owned(),
        );
    }
    let is_detached = has(FastPathPart::Program) || has(FastPathPart::Link);
    is_detached.then(|| {
        "reload the agent (SIGHUP): it attaches what was detached; what others have attached, `bpftool net` lists; \
         nftables delivers these packets meanwhile"
            .to_owned()
    })
}

/// The workloads of this host by address.
struct AddressNames(BTreeMap<IpAddr, (String, String)>);

impl AddressNames {
    fn new(core: &CoreSnapshot<'_>) -> Self {
        let records = core.workloads.registry.records();
        let names = records.flat_map(|record| {
            let name = (record.namespace.to_string(), record.name.to_string());
            let addresses = record.addresses.iter();
            addresses.map(move |address| (*address, name.clone()))
        });
        AddressNames(names.collect())
    }

    fn end(&self, address: IpAddr) -> BpfAddress {
        let name = self.0.get(&address);
        BpfAddress {
            address: address.to_string(),
            namespace: name.map(|(namespace, _)| namespace.clone()),
            name: name.map(|(_, name)| name.clone()),
        }
    }

    fn name(&self, address: IpAddr) -> Option<String> {
        let (namespace, name) = self.0.get(&address)?;
        Some(format!("{namespace}/{name}"))
    }
}

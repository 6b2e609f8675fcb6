//! Writes policies of Calico: NetworkPolicy, and GlobalNetworkPolicy for a policy of the cluster.
//!
//! A policy of Calico isolates the pods that it selects in each direction of its `types`, unless its tier passes what
//! no rule decides, as `kube-admin` and `kube-baseline` do. So a cluster-wide policy of the Network Policy API becomes
//! one of those tiers, with its priority as order. What stands with NetworkPolicies gets the order directly after
//! 1000 (see [`crate::position`]); what Cilium denies gets the least order that there is.
//!
//! Policies of Calico stay as they are, so what only Calico has words for is never to be written here.
//!
//! A selector of Calico matches host endpoints and network sets as well. One that is to match pods only tests the
//! label [`ORCHESTRATOR`], which every pod and other workload has, and nothing else has unless it is labelled so.

use crate::domain_text;
use crate::draft::{Draft, NameAffix};
use crate::inexpressible::InexpressibleReason;
use crate::kubernetes::inexpressible_peer;
use crate::peer_form::PeerForm;
use crate::pods::{KeyTest, PodSelection, ValueTest};
use crate::ports::{DestinationPort, PlainTraffic, port_protocol_name};
use crate::position::{AFTER_ALLOWS, FIRST, Standing};
use crate::refusals::{Refusals, RulePart};
use crate::target::TargetDialect;
use palisade_dialects::{ORCHESTRATOR, index_in_specs};
use palisade_model::{Action, Direction, Order, Policy, Protocol, Rule, Str, tier_name};
use serde_json::{Map, Value, json};

const TARGET: TargetDialect = TargetDialect::Calico;
/// The label of every workload with the name of its service account.
const SERVICE_ACCOUNT: &str = "projectcalico.org/serviceaccount";
/// The label with the name of a namespace, in a selector of namespaces.
const NAMESPACE_NAME: &str = "projectcalico.org/name";
/// Keys of a workload's labels that Calico sets.
const SET_KEYS: [&str; 3] = ["projectcalico.org/namespace", SERVICE_ACCOUNT, ORCHESTRATOR];
/// What stands before the labels that a workload has of its namespace and of its service account.
const INHERITED: [&str; 2] = ["pcns.", "pcsa."];
/// The maximum number of rules in a direction, of networks in an entity and of ports in a rule.
const MAX_RULES: usize = 1024;
const MAX_NETS: usize = 256;
const MAX_PORTS: usize = 50;

/// Writes the policies of the model that an object is, each as a policy of Calico.
pub(crate) fn write(parts: &[&Policy], refusals: &mut Refusals) -> Vec<Draft> {
    let each = parts.iter();
    each.filter_map(|policy| write_part(policy, parts, refusals))
        .collect()
}

fn write_part(policy: &Policy, parts: &[&Policy], refusals: &mut Refusals) -> Option<Draft> {
    let selection = match PodSelection::read(&policy.subject) {
        Ok(pods) => pods,
        Err(reason) => {
            refusals.of_policy(policy, reason.inexpressible(TARGET));
            return None;
        }
    };
    let namespace = policy.id.object.namespace.as_ref();
    let namespace = namespace.filter(|name| selection.only_namespace() == Some(name));
    let mut spec = Map::new();
    add_position(policy, &mut spec);
    if let Err(reason) = add_subject(&selection, namespace, &mut spec) {
        refusals.of_policy(policy, reason);
    }
    let directions = Direction::BOTH.into_iter();
    let governed = directions.filter(|direction| policy.rules(*direction).is_some());
    let governed: Vec<Direction> = governed.collect();
    if governed.is_empty() {
        refusals.of_policy(policy, InexpressibleReason::NothingEnforced);
    }
    let types = governed.iter().map(|direction| match direction {
        Direction::Ingress => "Ingress",
        Direction::Egress => "Egress",
    });
    spec.insert("types".to_owned(), types.collect());
    for direction in governed {
        check_isolation(policy, parts, direction, refusals);
        let rules = rules(policy, direction, namespace, refusals);
        if rules.len() > MAX_RULES {
            let reason = InexpressibleReason::TooMany {
                target: TARGET,
                what: "rules in a direction",
                count: rules.len(),
                most: MAX_RULES,
            };
            refusals.of_policy(policy, reason);
        }
        if !rules.is_empty() {
            spec.insert(direction.to_string(), Value::Array(rules));
        }
    }
    Some(Draft {
        api_version: "projectcalico.org/v3",
        kind: match namespace {
            Some(_) => "NetworkPolicy",
            None => "GlobalNetworkPolicy",
        },
        namespace: namespace.cloned(),
        affix: affix(policy, parts),
        fields: Map::from_iter([("spec".to_owned(), Value::Object(spec))]),
    })
}

/// Where tiers have names in front, and an object becomes several.
fn affix(policy: &Policy, parts: &[&Policy]) -> NameAffix {
    let prefix = if policy.tier == tier_name::DEFAULT {
        String::new()
    } else {
        format!("{}.", policy.tier)
    };
    let mut suffix = String::new();
    if let Some(index) = index_in_specs(policy.id.part) {
        suffix.push_str(&format!("-{}", index + 1));
    }
    if Standing::of(policy) == Standing::First && parts.len() > 1 {
        suffix.push_str("-deny");
    }
    NameAffix { prefix, suffix }
}

fn add_position(policy: &Policy, spec: &mut Map<String, Value>) {
    if policy.tier != tier_name::DEFAULT {
        spec.insert("tier".to_owned(), json!(policy.tier));
    }
    let order = match Standing::of(policy) {
        Standing::First => Some(FIRST),
        Standing::Allows => Some(AFTER_ALLOWS),
        Standing::At { .. } => match policy.precedence.order {
            Order::At(number) => Some(number),
            // Without an order it is the last.
            Order::Last => None,
        },
    };
    if let Some(order) = order {
        // Priorities are whole numbers.
        let whole = (0..=1000_u16).find(|whole| f64::from(*whole) == order);
        let order = whole.map_or_else(|| json!(order), |whole| json!(whole));
        spec.insert("order".to_owned(), order);
    }
}

/// A policy of Calico isolates where no rule decides, unless its tier passes. One that does not must have another part
/// of its object beside it that isolates the same pods.
fn check_isolation(
    policy: &Policy,
    parts: &[&Policy],
    direction: Direction,
    refusals: &mut Refusals,
) {
    let isolates = |policy: &Policy| {
        policy
            .rules(direction)
            .is_some_and(|list| list.default_deny)
    };
    if [tier_name::KUBE_ADMIN, tier_name::KUBE_BASELINE].contains(&&*policy.tier) {
        return;
    }
    let is_isolated = parts
        .iter()
        .any(|other| other.subject == policy.subject && isolates(other));
    if !is_isolated {
        let reason = InexpressibleReason::AlwaysIsolates {
            target: TARGET,
            direction,
        };
        refusals.of_policy(policy, reason);
    }
}

fn add_subject(
    pods: &PodSelection,
    namespace: Option<&Str>,
    spec: &mut Map<String, Value>,
) -> Result<(), InexpressibleReason> {
    let pods = match namespace {
        Some(name) => pods.clone().inside_namespace(name),
        None => pods.clone(),
    };
    let mut own = own_tests(&pods)?;
    match namespace {
        Some(_) => {
            // Its labels of its namespace are those of every pod that it selects.
            let inherited = pods.namespaces.iter().map(|test| KeyTest {
                key: format!("pcns.{}", test.key).into(),
                test: test.test.clone(),
            });
            own.extend(inherited);
            own.extend(pods.namespace_names.iter().map(|test| KeyTest {
                key: "projectcalico.org/namespace".into(),
                test: test.clone(),
            }));
        }
        // Host endpoints have no namespace.
        None => {
            let namespaces = namespace_selector(&pods)?;
            spec.insert("namespaceSelector".to_owned(), json!(namespaces));
        }
    }
    if !own.is_empty() {
        spec.insert("selector".to_owned(), json!(selector(&own)?));
    }
    Ok(())
}

/// The tests of a workload's own labels and of its service account.
fn own_tests(pods: &PodSelection) -> Result<Vec<KeyTest>, InexpressibleReason> {
    let is_set = |key: &str| {
        SET_KEYS.contains(&key) || INHERITED.iter().any(|prefix| key.starts_with(prefix))
    };
    if let Some(test) = pods.pods.iter().find(|test| is_set(&test.key)) {
        return Err(InexpressibleReason::ReservedKey(test.key.clone()));
    }
    let accounts = pods.service_accounts.iter().map(|test| KeyTest {
        key: SERVICE_ACCOUNT.into(),
        test: test.clone(),
    });
    Ok(accounts.chain(pods.pods.iter().cloned()).collect())
}

/// The selector of the namespaces of pods. What is in no namespace never matches it.
fn namespace_selector(pods: &PodSelection) -> Result<String, InexpressibleReason> {
    if let Some(test) = pods
        .namespaces
        .iter()
        .find(|test| test.key == NAMESPACE_NAME)
    {
        return Err(InexpressibleReason::ReservedKey(test.key.clone()));
    }
    let name = |test: &ValueTest| KeyTest {
        key: NAMESPACE_NAME.into(),
        test: test.clone(),
    };
    let names = pods.namespace_names.iter().map(name);
    let mut tests: Vec<KeyTest> = names.chain(pods.namespaces.iter().cloned()).collect();
    if tests.is_empty() {
        return Ok("all()".to_owned());
    }
    if !tests.iter().any(|test| test.test.is_positive()) {
        tests.insert(0, name(&ValueTest::Exists));
    }
    selector(&tests)
}

/// A selector of some tests, at least one.
fn selector(tests: &[KeyTest]) -> Result<String, InexpressibleReason> {
    let texts = tests.iter().map(|KeyTest { key, test }| {
        Ok(match test {
            ValueTest::In(values) => match &values[..] {
                [only] => format!("{key} == {}", quoted(only)?),
                all => format!("{key} in {}", quoted_set(all)?),
            },
            ValueTest::NotIn(values) => match &values[..] {
                [only] => format!("{key} != {}", quoted(only)?),
                all => format!("{key} not in {}", quoted_set(all)?),
            },
            ValueTest::Exists => format!("has({key})"),
            ValueTest::DoesNotExist => format!("!has({key})"),
        })
    });
    let texts = texts.collect::<Result<Vec<String>, InexpressibleReason>>()?;
    Ok(texts.join(" && "))
}

/// A text in quotes; there are no escapes.
fn quoted(text: &Str) -> Result<String, InexpressibleReason> {
    match (text.contains('\''), text.contains('"')) {
        (false, _) => Ok(format!("'{text}'")),
        (true, false) => Ok(format!("\"{text}\"")),
        (true, true) => Err(InexpressibleReason::Unquotable(text.clone())),
    }
}

fn quoted_set(values: &[Str]) -> Result<String, InexpressibleReason> {
    let values = values.iter().map(quoted);
    let values = values.collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{{{}}}", values.join(", ")))
}

fn rules(
    policy: &Policy,
    direction: Direction,
    namespace: Option<&Str>,
    refusals: &mut Refusals,
) -> Vec<Value> {
    let list = policy.rules(direction).into_iter();
    let mut written = Vec::new();
    for rule in list.flat_map(|list| &list.rules) {
        let policy_direction = (policy, direction);
        if rule.local.is_some() {
            let reason = InexpressibleReason::OwnAddress(TARGET);
            refusals.of_rule(policy_direction, (rule, RulePart::Whole), reason);
        }
        let entities = entities(policy_direction, rule, namespace, refusals);
        let traffic = traffic(policy_direction, rule, refusals);
        for entity in &entities {
            for traffic in &traffic {
                written.push(write_rule(rule.action, direction, entity, traffic));
            }
        }
    }
    written
}

/// Fields of a rule beside its action and its ends, and the destination ports.
struct TrafficFields {
    fields: Map<String, Value>,
    ports: Vec<Value>,
}

fn write_rule(
    action: Action,
    direction: Direction,
    entity: &Map<String, Value>,
    traffic: &TrafficFields,
) -> Value {
    let action = match action {
        Action::Allow => "Allow",
        Action::Deny => "Deny",
        Action::Pass => "Pass",
        Action::Log => "Log",
    };
    let mut object = Map::from_iter([("action".to_owned(), json!(action))]);
    object.extend(traffic.fields.clone());
    let mut destination = Map::new();
    match direction {
        Direction::Ingress if !entity.is_empty() => {
            object.insert("source".to_owned(), Value::Object(entity.clone()));
        }
        Direction::Ingress => {}
        Direction::Egress => destination.extend(entity.clone()),
    }
    if !traffic.ports.is_empty() {
        destination.insert("ports".to_owned(), Value::Array(traffic.ports.clone()));
    }
    if !destination.is_empty() {
        object.insert("destination".to_owned(), Value::Object(destination));
    }
    Value::Object(object)
}

/// The other ends of a rule: each needs a rule of its own, but networks without exceptions stand together.
fn entities(
    place: (&Policy, Direction),
    rule: &Rule,
    namespace: Option<&Str>,
    refusals: &mut Refusals,
) -> Vec<Map<String, Value>> {
    let (mut entities, mut nets) = (Vec::new(), Vec::new());
    for (index, peer) in rule.peers.iter().enumerate() {
        match PeerForm::of(peer) {
            PeerForm::Nothing => {}
            PeerForm::Any => entities.push(Map::new()),
            PeerForm::Pods(pods) => match pod_entity(&pods, namespace) {
                Ok(entity) => entities.push(entity),
                Err(reason) => refusals.of_rule(place, (rule, RulePart::Peer(index)), reason),
            },
            PeerForm::Networks(networks) => {
                for network in networks {
                    if network.except.is_empty() {
                        nets.push(network.net.to_string())
                    } else {
                        let except = network.except.iter().map(ToString::to_string);
                        let except: Vec<String> = except.collect();
                        let net = [network.net.to_string()];
                        entities.push(Map::from_iter([
                            ("nets".to_owned(), json!(net)),
                            ("notNets".to_owned(), json!(except)),
                        ]));
                    }
                }
            }
            PeerForm::Names(patterns) if allows_egress(place.1, rule) => {
                let texts = patterns
                    .iter()
                    .map(|pattern| domain_text::text(pattern, TARGET));
                match texts.collect::<Result<Vec<String>, _>>() {
                    Ok(texts) => {
                        entities.push(Map::from_iter([("domains".to_owned(), json!(texts))]));
                    }
                    Err(reason) => refusals.of_rule(place, (rule, RulePart::Peer(index)), reason),
                }
            }
            other => {
                let reason = inexpressible_peer(other, TARGET);
                refusals.of_rule(place, (rule, RulePart::Peer(index)), reason);
            }
        }
    }
    let chunks = nets.chunks(MAX_NETS);
    entities.extend(chunks.map(|nets| Map::from_iter([("nets".to_owned(), json!(nets))])));
    entities
}

/// Whether a rule is one in which domain names may stand.
fn allows_egress(direction: Direction, rule: &Rule) -> bool {
    direction == Direction::Egress && rule.action == Action::Allow
}

/// Pods as the end of a rule. Without a selector of namespaces, those of the namespace of the policy.
fn pod_entity(
    pods: &PodSelection,
    namespace: Option<&Str>,
) -> Result<Map<String, Value>, InexpressibleReason> {
    let mut tests = vec![KeyTest {
        key: ORCHESTRATOR.into(),
        test: ValueTest::Exists,
    }];
    tests.extend(own_tests(pods)?);
    let is_own = namespace.is_some_and(|name| pods.only_namespace() == Some(name))
        && pods.namespaces.is_empty()
        && pods.namespace_names.len() == 1;
    let mut entity = Map::new();
    if !is_own {
        let namespaces = namespace_selector(pods)?;
        entity.insert("namespaceSelector".to_owned(), json!(namespaces));
    }
    entity.insert("selector".to_owned(), json!(selector(&tests)?));
    Ok(entity)
}

/// What a rule tests of packets, one item for each protocol.
fn traffic(
    place: (&Policy, Direction),
    rule: &Rule,
    refusals: &mut Refusals,
) -> Vec<TrafficFields> {
    let mut tests = Vec::new();
    for (index, traffic) in rule.traffic.iter().enumerate() {
        match PlainTraffic::read(traffic, TARGET) {
            Ok(read) => {
                for test in read {
                    match check_test(&test) {
                        Ok(()) => tests.extend(of_each_protocol(test)),
                        Err(reason) => {
                            refusals.of_rule(place, (rule, RulePart::Traffic(index)), reason);
                        }
                    }
                }
            }
            Err(reason) => refusals.of_rule(place, (rule, RulePart::Traffic(index)), reason),
        }
    }
    let mut items: Vec<TrafficFields> = Vec::new();
    let mut ports: Vec<(Protocol, Vec<Value>)> = Vec::new();
    for test in tests {
        let Some(protocol) = test.protocol else {
            items.push(TrafficFields {
                fields: Map::new(),
                ports: Vec::new(),
            });
            continue;
        };
        let port = match &test.port {
            DestinationPort::Any => {
                let mut fields = protocol_field(protocol);
                if let Some(message) = test.icmp {
                    let mut icmp = json!({ "type": message.kind });
                    if let Some(code) = message.code {
                        icmp["code"] = json!(code);
                    }
                    fields.insert("icmp".to_owned(), icmp);
                }
                let ports = Vec::new();
                items.push(TrafficFields { fields, ports });
                continue;
            }
            DestinationPort::Named(name) => json!(name),
            DestinationPort::Range(range) if range.first == range.last => json!(range.first),
            DestinationPort::Range(range) => json!(format!("{}:{}", range.first, range.last)),
        };
        match ports.iter_mut().find(|(other, _)| *other == protocol) {
            Some((_, all)) => all.push(port),
            None => ports.push((protocol, vec![port])),
        }
    }
    for (protocol, ports) in ports {
        for chunk in ports.chunks(MAX_PORTS) {
            items.push(TrafficFields {
                fields: protocol_field(protocol),
                ports: chunk.to_vec(),
            });
        }
    }
    items
}

fn check_test(test: &PlainTraffic) -> Result<(), InexpressibleReason> {
    if matches!(&test.port, DestinationPort::Range(range) if range.first == 0) {
        return Err(InexpressibleReason::PortZero(TARGET));
    }
    let is_message = test.protocol.is_some_and(Protocol::is_icmp);
    if test.icmp.is_some() && !is_message {
        return Err(InexpressibleReason::Icmp(TARGET));
    }
    let needs_ports = test.port != DestinationPort::Any;
    match test.protocol {
        Some(protocol) if needs_ports && !protocol.has_ports() || protocol == Protocol(0) => {
            Err(InexpressibleReason::Protocol {
                target: TARGET,
                protocol,
            })
        }
        _ => Ok(()),
    }
}

/// A port without a protocol is one of each protocol that has ports.
fn of_each_protocol(test: PlainTraffic) -> Vec<PlainTraffic> {
    if test.protocol.is_some() || test.port == DestinationPort::Any {
        return vec![test];
    }
    let each = Protocol::WITH_PORTS.into_iter();
    each.map(|protocol| PlainTraffic {
        protocol: Some(protocol),
        ..test.clone()
    })
    .collect()
}

fn protocol_field(protocol: Protocol) -> Map<String, Value> {
    let value = match (port_protocol_name(protocol), protocol) {
        (Some(name), _) => json!(name),
        (None, Protocol::ICMP) => json!("ICMP"),
        (None, Protocol::ICMPV6) => json!("ICMPv6"),
        (None, Protocol(number)) => json!(number),
    };
    Map::from_iter([("protocol".to_owned(), value)])
}

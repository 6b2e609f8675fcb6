//! The flows that have begun and not ended, as far as it is known.
//!
//! Promises: a flow is told once as begun and once as ended, whatever the dataplane repeats. After a loss the flows that
//! the dataplane lists are compared with those that are known: one whose begin was lost is told as begun, one whose end
//! was lost as ended. The record of an end has the names and the rules of its begin, if that was told. If policy changes
//! while a flow is open, it is told as ended once nothing lets it pass any more, and as begun again by what lets it pass
//! then. Memory is bounded.
//!
//! Never: judges, or makes the record of a begin.

use super::flow_decision::OpenFlowVerdict;
use palisade_api::{
    FlowDecision, FlowRecord, FlowState, FlowTraffic, MonitorRule, ObjectRef, PacketReason,
};
use palisade_dataplane::{FlowEvent, FlowPhase, FlowSnapshot, OpenFlowKey};
use palisade_model::PreDnat;
use palisade_node::clock::rfc3339_micros;
use palisade_tables::{CounterValue, Packet};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The greatest number of open flows whose records are remembered, about 1 KB each unless recent lines have them as well. The end of any other is attributed
/// by the tables of its end.
const MAX_RECORDS: usize = 6_144;

/// The greatest number of further open flows that are known, about 80 bytes each.
const MAX_OTHERS: usize = 40_960;

/// A flow that has begun and not ended.
struct OpenFlow {
    /// The record of its begin: the rules that let it pass are those of its begin, when its ends existed.
    record: Arc<FlowRecord>,
    /// Where its first packet was sent, if that was translated.
    pre_dnat: Option<PreDnat>,
    state: OpenFlowState,
}

/// What was told of a flow since it began.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenFlowState {
    /// Nothing.
    Begun,
    /// That it has ended, because policy denies it.
    Denied,
    /// That it began again, by other rules.
    BegunAgain,
}

/// The flows of one subscription that have begun and not ended.
#[derive(Default)]
pub(super) struct OpenFlows {
    /// Those that are remembered.
    flows: BTreeMap<OpenFlowKey, OpenFlow>,
    /// Further flows, whose begin was told.
    others: BTreeSet<OpenFlowKey>,
    /// Whether there may be open flows that were told and are not known.
    is_incomplete: bool,
}

impl OpenFlows {
    /// The record to be told of an event, if there is one; `new` makes it from the event alone.
    pub(super) fn record(
        &mut self,
        event: &FlowEvent,
        now: Duration,
        new: impl FnOnce() -> FlowRecord,
    ) -> Option<Arc<FlowRecord>> {
        let key = event.key();
        match event.phase {
            FlowPhase::Began => {
                if self.is_known(&key) {
                    return None;
                }
                let record = Arc::new(new());
                self.insert(event, &record);
                Some(record)
            }
            FlowPhase::Ended => {
                self.others.remove(&key);
                let Some(flow) = self.flows.remove(&key) else {
                    return Some(Arc::new(new()));
                };
                // The kernel's own time of the begin is told with the end only.
                let began = match flow.state {
                    OpenFlowState::Begun => event.began.map(rfc3339_micros),
                    OpenFlowState::BegunAgain => None,
                    OpenFlowState::Denied => return None,
                };
                let begun = flow.record;
                Some(Arc::new(FlowRecord {
                    began: began.or(begun.began.clone()),
                    traffic: event.traffic.map(flow_traffic),
                    ..ended_record(begun, event.ended.unwrap_or(now))
                }))
            }
        }
    }

    /// The keys of the flows that are remembered.
    pub(super) fn keys(&self) -> Vec<OpenFlowKey> {
        self.flows.keys().copied().collect()
    }

    /// The records to be told of a flow that is judged again.
    pub(super) fn judge(
        &mut self,
        key: &OpenFlowKey,
        now: Duration,
        judge: impl FnOnce(&Packet, &FlowRecord) -> OpenFlowVerdict,
    ) -> Vec<Arc<FlowRecord>> {
        let Some(flow) = self.flows.get_mut(key) else {
            return Vec::new();
        };
        let is_denied = flow.state == OpenFlowState::Denied;
        let end =
            |record: &Arc<FlowRecord>| (!is_denied).then(|| uncounted_end(Arc::clone(record), now));
        match judge(&first_packet(key, flow.pre_dnat), &flow.record) {
            OpenFlowVerdict::Unknown => Vec::new(),
            OpenFlowVerdict::Denied => {
                flow.state = OpenFlowState::Denied;
                end(&flow.record).into_iter().collect()
            }
            OpenFlowVerdict::Passed(decisions) => {
                let [egress, ingress] = decisions;
                let is_same = is_same_decision(flow.record.egress.as_deref(), egress.as_deref())
                    && is_same_decision(flow.record.ingress.as_deref(), ingress.as_deref());
                if is_same && !is_denied {
                    return Vec::new();
                }
                let ended = end(&flow.record);
                flow.state = OpenFlowState::BegunAgain;
                let record = Arc::make_mut(&mut flow.record);
                record.began = Some(rfc3339_micros(now));
                record.traffic = None;
                record.egress = egress;
                record.ingress = ingress;
                let begun = Arc::clone(&flow.record);
                ended.into_iter().chain([begun]).collect()
            }
        }
    }

    /// Forgets the flows that a snapshot has not: the records of those to be told as ended. What they carried is not
    /// known.
    pub(super) fn take_gone(
        &mut self,
        snapshot: &FlowSnapshot,
        now: Duration,
    ) -> Vec<Arc<FlowRecord>> {
        if !snapshot.is_complete {
            return Vec::new();
        }
        let open = snapshot.open.iter().map(FlowEvent::key);
        let listed: BTreeSet<OpenFlowKey> =
            open.chain(snapshot.undecided.iter().copied()).collect();
        self.others.retain(|key| listed.contains(key));
        let gone = self.flows.extract_if(.., |key, _| !listed.contains(key));
        gone.filter(|(_, flow)| flow.state != OpenFlowState::Denied)
            .map(|(_, flow)| uncounted_end(flow.record, now))
            .collect()
    }

    /// The flows of a snapshot whose begin was not told. If there may be flows that were told and are not known, there
    /// are none, and all are known from now on.
    pub(super) fn missed<'a>(&mut self, snapshot: &'a FlowSnapshot) -> Vec<&'a FlowEvent> {
        let was_incomplete = self.is_incomplete;
        self.is_incomplete &= !snapshot.is_complete;
        let open = snapshot.open.iter();
        let unknown: Vec<&FlowEvent> = open.filter(|event| !self.is_known(&event.key())).collect();
        if !was_incomplete {
            return unknown;
        }
        for event in unknown {
            self.insert_other(event.key());
        }
        Vec::new()
    }

    fn is_known(&self, key: &OpenFlowKey) -> bool {
        self.flows.contains_key(key) || self.others.contains(key)
    }

    fn insert(&mut self, event: &FlowEvent, record: &Arc<FlowRecord>) {
        if self.flows.len() < MAX_RECORDS {
            let flow = OpenFlow {
                record: Arc::clone(record),
                pre_dnat: event.first.pre_dnat,
                state: OpenFlowState::Begun,
            };
            self.flows.insert(event.key(), flow);
        } else {
            self.insert_other(event.key());
        }
    }

    fn insert_other(&mut self, key: OpenFlowKey) {
        if self.others.len() < MAX_OTHERS {
            self.others.insert(key);
        } else {
            self.is_incomplete = true;
        }
    }
}

/// The first packet of a flow, as policy judged it.
fn first_packet(key: &OpenFlowKey, pre_dnat: Option<PreDnat>) -> Packet {
    Packet {
        input_interface: None,
        output_interface: None,
        source: key.source,
        destination: key.destination,
        pre_dnat,
        protocol: key.protocol,
        l4: key.l4,
    }
}

/// Whether the same lets a flow pass at an end, wherever it is defined. What is not known is not another rule.
fn is_same_decision(former: Option<&FlowDecision>, present: Option<&FlowDecision>) -> bool {
    let (Some(former), Some(present)) = (former, present) else {
        return former.is_none() && present.is_none();
    };
    let is_unknown = |end: &FlowDecision| end.reason == PacketReason::Unknown;
    let is_same_audit = match (&former.audit, &present.audit) {
        (Some(former), Some(present)) => {
            former.verdict == present.verdict
                && is_same_rule(former.rule.as_ref(), present.rule.as_ref())
                && are_same_objects(&former.policies, &present.policies)
        }
        (former, present) => former.is_none() && present.is_none(),
    };
    is_unknown(former)
        || is_unknown(present)
        || is_same_audit
            && (former.reason, former.stage) == (present.reason, present.stage)
            && is_same_rule(former.rule.as_ref(), present.rule.as_ref())
            && are_same_objects(&former.policies, &present.policies)
}

fn is_same_rule(former: Option<&MonitorRule>, present: Option<&MonitorRule>) -> bool {
    let (Some(former), Some(present)) = (former, present) else {
        return former.is_none() && present.is_none();
    };
    let names = |rule: &MonitorRule| (rule.index, rule.rule_name.clone());
    is_same_object(&former.policy, &present.policy) && names(former) == names(present)
}

fn are_same_objects(former: &[ObjectRef], present: &[ObjectRef]) -> bool {
    let mut pairs = former.iter().zip(present);
    former.len() == present.len() && pairs.all(|(former, present)| is_same_object(former, present))
}

fn is_same_object(former: &ObjectRef, present: &ObjectRef) -> bool {
    (&former.kind, &former.namespace, &former.name)
        == (&present.kind, &present.namespace, &present.name)
}

/// The record of an end that is not told by the dataplane: what the flow carried is not known.
fn uncounted_end(begun: Arc<FlowRecord>, ended: Duration) -> Arc<FlowRecord> {
    Arc::new(FlowRecord {
        traffic: None,
        ..ended_record(begun, ended)
    })
}

fn ended_record(begun: Arc<FlowRecord>, ended: Duration) -> FlowRecord {
    FlowRecord {
        state: FlowState::Ended,
        ended: Some(rfc3339_micros(ended)),
        ..Arc::unwrap_or_clone(begun)
    }
}

pub(super) fn flow_traffic([sent, received]: [CounterValue; 2]) -> FlowTraffic {
    FlowTraffic {
        packets_sent: sent.packets,
        bytes_sent: sent.bytes,
        packets_received: received.packets,
        bytes_received: received.bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{MonitorEndpoint, ProtocolName};
    use palisade_model::{L4, Protocol, Str};
    use palisade_tables::Packet;

    const NOW: Duration = Duration::from_secs(100);

    fn event(number: u32, phase: FlowPhase) -> FlowEvent {
        FlowEvent {
            number,
            phase,
            first: Packet {
                input_interface: None,
                output_interface: None,
                source: [10, 0, 0, 1].into(),
                destination: [10, 0, 0, 2].into(),
                pre_dnat: None,
                protocol: Protocol::UDP,
                l4: L4::None,
            },
            translated_source: None,
            began: None,
            ended: None,
            traffic: Some([CounterValue::default(); 2]),
        }
    }

    fn began(number: u32) -> FlowEvent {
        event(number, FlowPhase::Began)
    }

    /// A record that names its flow by the port of its source.
    fn record(number: u32, state: FlowState) -> FlowRecord {
        FlowRecord {
            api_version: Str::default(),
            state,
            began: Some("T0".to_owned()),
            ended: None,
            source: MonitorEndpoint {
                port: u16::try_from(number).ok(),
                ..MonitorEndpoint::default()
            },
            destination: MonitorEndpoint::default(),
            translation: None,
            protocol: ProtocolName::Udp,
            icmp: None,
            egress: None,
            ingress: None,
            traffic: Some(flow_traffic([CounterValue::default(); 2])),
        }
    }

    /// What is told of an event: the number and the state; `new` of an end is one whose begin is not known.
    fn report(flows: &mut OpenFlows, event: &FlowEvent) -> Option<(u16, FlowState)> {
        let state = match event.phase {
            FlowPhase::Began => FlowState::Began,
            FlowPhase::Ended => FlowState::Ended,
        };
        let line = flows.record(event, NOW, || record(event.number, state))?;
        Some((line.source.port?, line.state))
    }

    fn listed(numbers: &[u32], undecided: &[u32], is_complete: bool) -> FlowSnapshot {
        FlowSnapshot {
            open: numbers.iter().map(|number| began(*number)).collect(),
            undecided: undecided
                .iter()
                .map(|number| began(*number).key())
                .collect(),
            is_complete,
        }
    }

    /// What a snapshot has told: the flows that are gone, and those that began.
    fn reconcile(flows: &mut OpenFlows, snapshot: &FlowSnapshot) -> (Vec<u16>, Vec<u32>) {
        let gone = flows.take_gone(snapshot, NOW);
        for record in &gone {
            assert_eq!(record.state, FlowState::Ended);
            assert_eq!(record.ended, Some(rfc3339_micros(NOW)));
            assert_eq!(record.began.as_deref(), Some("T0"), "that of its begin");
            assert_eq!(record.traffic, None, "not known");
        }
        let missed = flows.missed(snapshot);
        let missed = missed.into_iter().map(|event| {
            assert!(report(flows, event).is_some());
            event.number
        });
        let missed = missed.collect();
        let gone = gone.iter().filter_map(|record| record.source.port);
        (gone.collect(), missed)
    }

    #[test]
    fn a_flow_is_told_once_at_its_begin_and_once_at_its_end() {
        let mut flows = OpenFlows::default();
        assert_eq!(report(&mut flows, &began(1)), Some((1, FlowState::Began)));
        assert_eq!(report(&mut flows, &began(1)), None, "repeated");
        let end = event(1, FlowPhase::Ended);
        assert_eq!(report(&mut flows, &end), Some((1, FlowState::Ended)));
        // Another flow has its number later.
        assert_eq!(report(&mut flows, &began(1)), Some((1, FlowState::Began)));
        let unseen = event(7, FlowPhase::Ended);
        assert_eq!(report(&mut flows, &unseen), Some((7, FlowState::Ended)));
    }

    #[test]
    fn after_a_loss_flows_are_told_whose_begin_or_end_was_lost() {
        let mut flows = OpenFlows::default();
        for number in [1, 2, 3, 4] {
            report(&mut flows, &began(number));
        }
        // 2 has ended, 5 has begun; 3 is ending, and 6 may not be judged.
        let snapshot = listed(&[1, 4, 5], &[3, 6], true);
        assert_eq!(reconcile(&mut flows, &snapshot), (vec![2], vec![5]));
        assert_eq!(reconcile(&mut flows, &snapshot), (vec![], vec![]), "once");
        assert_eq!(report(&mut flows, &began(5)), None, "the list had it");
        for number in [1, 3, 4, 5] {
            let end = event(number, FlowPhase::Ended);
            assert!(report(&mut flows, &end).is_some());
        }
        let empty = listed(&[], &[], true);
        assert_eq!(reconcile(&mut flows, &empty), (vec![], vec![]));
    }

    #[test]
    fn an_incomplete_list_ends_nothing() {
        let mut flows = OpenFlows::default();
        report(&mut flows, &began(1));
        let snapshot = listed(&[2], &[], false);
        assert_eq!(reconcile(&mut flows, &snapshot), (vec![], vec![2]));
    }

    #[test]
    fn flows_that_are_not_remembered_are_not_told_again() {
        let mut flows = OpenFlows::default();
        let most = u32::try_from(MAX_RECORDS + MAX_OTHERS).unwrap();
        for number in 0..=most {
            assert!(
                flows
                    .record(&began(number), NOW, || record(0, FlowState::Began))
                    .is_some()
            );
        }
        assert_eq!(
            (flows.flows.len(), flows.others.len()),
            (MAX_RECORDS, MAX_OTHERS)
        );
        // One is known no longer, and which one is not known.
        let unknown = listed(&[most, most + 1], &[], true);
        flows.take_gone(&unknown, NOW);
        assert!(flows.missed(&unknown).is_empty());
        assert!(!flows.is_incomplete && flows.others.len() == 2);
        let missed = listed(&[most, most + 1, most + 2], &[], true);
        let missed: Vec<u32> = flows
            .missed(&missed)
            .iter()
            .map(|flow| flow.number)
            .collect();
        assert_eq!(missed, [most + 2]);
    }

    fn decision(policy: &str, index: u32, line: &str) -> FlowDecision {
        FlowDecision {
            reason: PacketReason::Rule,
            rule: Some(MonitorRule {
                policy: ObjectRef {
                    kind: "NetworkPolicy".to_owned(),
                    namespace: Some("shop".to_owned()),
                    name: policy.to_owned(),
                    line: Some(line.to_owned()),
                },
                index,
                rule_name: None,
                action: None,
            }),
            policies: Vec::new(),
            stage: None,
            audit: None,
            revision: None,
            stale: false,
        }
    }

    /// What is told if the present tables judge flow 1 so: the states, and the index of the rule at its destination.
    fn judge(flows: &mut OpenFlows, verdict: OpenFlowVerdict) -> Vec<(FlowState, Option<u32>)> {
        let lines = flows.judge(&began(1).key(), NOW, |first, _| {
            assert_eq!(*first, began(1).first);
            verdict
        });
        let lines = lines.into_iter().map(|record| {
            let rule = record.ingress.as_ref().and_then(|end| end.rule.clone());
            (record.state, rule.map(|rule| rule.index))
        });
        lines.collect()
    }

    fn passed(index: u32, line: &str) -> OpenFlowVerdict {
        OpenFlowVerdict::Passed([None, Some(Arc::new(decision("db", index, line)))])
    }

    #[test]
    fn a_flow_that_other_rules_let_pass_ends_and_begins_again() {
        use FlowState::{Began, Ended};
        let mut flows = OpenFlows::default();
        let begun = FlowRecord {
            ingress: Some(Arc::new(decision("db", 0, "db.yaml:7"))),
            ..record(1, Began)
        };
        flows.record(&began(1), NOW, || begun);
        assert_eq!(judge(&mut flows, OpenFlowVerdict::Unknown), []);
        assert_eq!(
            judge(&mut flows, passed(0, "db.yaml:9")),
            [],
            "it moved in its file"
        );
        let again = judge(&mut flows, passed(1, "db.yaml:9"));
        assert_eq!(again, [(Ended, Some(0)), (Began, Some(1))]);
        assert_eq!(
            judge(&mut flows, OpenFlowVerdict::Denied),
            [(Ended, Some(1))]
        );
        assert_eq!(judge(&mut flows, OpenFlowVerdict::Denied), [], "once");
        assert_eq!(
            judge(&mut flows, passed(1, "db.yaml:9")),
            [(Began, Some(1))]
        );
        let end = FlowEvent {
            began: Some(Duration::ZERO),
            ..event(1, FlowPhase::Ended)
        };
        let end = flows
            .record(&end, NOW, || panic!("its begin is known"))
            .unwrap();
        assert_eq!(end.began, Some(rfc3339_micros(NOW)), "that of the rule");
    }

    #[test]
    fn a_flow_that_was_denied_does_not_end_again() {
        let mut flows = OpenFlows::default();
        for number in [1, 2] {
            report(&mut flows, &began(number));
            let key = began(number).key();
            let lines = flows.judge(&key, NOW, |_, _| OpenFlowVerdict::Denied);
            assert_eq!(lines.len(), 1);
        }
        assert_eq!(report(&mut flows, &event(1, FlowPhase::Ended)), None);
        let empty = listed(&[], &[], true);
        assert_eq!(reconcile(&mut flows, &empty), (vec![], vec![]));
    }
}

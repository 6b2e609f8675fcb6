//! What the agent did to policies and workloads of this host, for readers in this process.
//!
//! Promises: an event for each change that reached policy, in order; the most recent ones are kept, a number of them.
//! Never: has the content of an object, or waits for a reader.

use crate::recent::RecentLines;
use palisade_model::{EndpointId, Labels, Object, ObjectId, ObjectKey, Policy, PolicyId, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The number of events that are kept.
const RECENT_EVENTS: usize = 4_096;

/// An event of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// The agent started.
    Started,
    /// A policy was added or changed.
    PolicyUpdated(PolicyEvent),
    /// A policy was deleted.
    PolicyDeleted(PolicyEvent),
    /// A workload was added to this host, or begins to be a workload.
    EndpointCreated(EndpointEvent),
    /// The labels, the addresses or the interface of a workload of this host changed, and its policy with it.
    EndpointChanged(EndpointEvent),
    /// A workload of this host was removed.
    EndpointDeleted(EndpointEvent),
}

/// The policy of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyEvent {
    /// The object that it is of.
    pub object: ObjectId,
    /// The number of events of policies so far, this one included.
    pub revision: u64,
    /// The number of its rules; 0 if it was deleted.
    pub rules: usize,
}

/// The workload of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointEvent {
    /// Its name.
    pub id: EndpointId,
    /// Its labels.
    pub labels: Arc<Labels>,
}

/// Makes events of updates.
#[derive(Debug)]
pub struct AgentEventRecorder {
    events: RecentLines<AgentEvent>,
    revision: u64,
    policies: BTreeSet<PolicyId>,
    /// The workloads of this host.
    endpoints: BTreeMap<EndpointId, Arc<Labels>>,
}

impl AgentEventRecorder {
    /// A recorder of an agent that starts at this time, since the epoch.
    #[must_use]
    pub fn new(started: Duration) -> Self {
        let events = RecentLines::new(RECENT_EVENTS);
        events.push(started, AgentEvent::Started);
        AgentEventRecorder {
            events,
            revision: 0,
            policies: BTreeSet::new(),
            endpoints: BTreeMap::new(),
        }
    }

    /// The events.
    #[must_use]
    pub fn events(&self) -> RecentLines<AgentEvent> {
        self.events.clone()
    }

    /// Takes in updates that reached policy at a time, since the epoch.
    pub fn observe(&mut self, updates: &[Update], now: Duration) {
        for update in updates {
            if let Some(event) = self.event(update) {
                self.events.push(now, event);
            }
        }
    }

    fn event(&mut self, update: &Update) -> Option<AgentEvent> {
        match update {
            Update::Upsert(Object::Policy(policy)) => {
                self.policies.insert(policy.id.clone());
                let event = self.policy_event(&policy.id, rule_count(policy));
                Some(AgentEvent::PolicyUpdated(event))
            }
            Update::Delete(ObjectKey::Policy(id)) => {
                let is_known = self.policies.remove(id);
                is_known.then(|| AgentEvent::PolicyDeleted(self.policy_event(id, 0)))
            }
            Update::Upsert(Object::Endpoint(endpoint))
                if endpoint.interface.is_some() && !endpoint.is_host() =>
            {
                let labels = Arc::new(endpoint.labels.clone());
                let id = endpoint.id.clone();
                let known = self.endpoints.insert(id.clone(), Arc::clone(&labels));
                let event = EndpointEvent { id, labels };
                Some(match known {
                    None => AgentEvent::EndpointCreated(event),
                    Some(_) => AgentEvent::EndpointChanged(event),
                })
            }
            Update::Upsert(Object::Endpoint(endpoint)) => self.deleted(&endpoint.id),
            Update::Delete(ObjectKey::Endpoint(id)) => self.deleted(id),
            _ => None,
        }
    }

    fn policy_event(&mut self, id: &PolicyId, rules: usize) -> PolicyEvent {
        self.revision += 1;
        PolicyEvent {
            object: id.object.clone(),
            revision: self.revision,
            rules,
        }
    }

    /// The end of a workload, if it was one of this host.
    fn deleted(&mut self, id: &EndpointId) -> Option<AgentEvent> {
        let (id, labels) = self.endpoints.remove_entry(id)?;
        Some(AgentEvent::EndpointDeleted(EndpointEvent { id, labels }))
    }
}

fn rule_count(policy: &Policy) -> usize {
    let lists = policy.ingress.iter().chain(&policy.egress);
    lists.map(|list| list.rules.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, interface: Option<&str>) -> Update {
        let id = EndpointId {
            namespace: Some("shop".into()),
            name: name.into(),
            kind: palisade_model::ObjectKind::new("", "Pod"),
        };
        let mut endpoint = palisade_model::Endpoint::pod(id);
        endpoint.interface = interface.map(Into::into);
        Update::Upsert(Object::Endpoint(endpoint))
    }

    #[test]
    fn events_are_those_of_this_host() {
        let mut recorder = AgentEventRecorder::new(Duration::ZERO);
        let (here, elsewhere) = (endpoint("web", Some("pal1")), endpoint("web", None));
        let gone = match &elsewhere {
            Update::Upsert(object) => Update::Delete(object.key()),
            Update::Delete(_) => unreachable!(),
        };
        for update in [
            &elsewhere, &here, &here, &elsewhere, &gone, &here, &gone, &gone,
        ] {
            recorder.observe(std::slice::from_ref(update), Duration::from_secs(1));
        }
        let batch = recorder.events().read(0, 100);
        let kinds: Vec<&str> = batch
            .lines
            .iter()
            .map(|event| match &event.line {
                AgentEvent::Started => "started",
                AgentEvent::EndpointCreated(_) => "created",
                AgentEvent::EndpointChanged(_) => "changed",
                AgentEvent::EndpointDeleted(event) => {
                    assert_eq!(&*event.id.name, "web");
                    "deleted"
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(
            kinds,
            [
                "started", "created", "changed", "deleted", "created", "deleted"
            ]
        );
    }
}

//! Suggests policies that allow what was recorded: one for each workload.
//!
//! Promises: what is suggested is read back by the dialects, and every recorded flow that it is for is allowed by
//! reference and tables; what it allows beside is listed, with the reason. A workload whose flows a dialect cannot say
//! gets no policy, with the reason. Never: allows a flow that was recorded as denied, or seen too rarely.

use crate::dialect_writers::{can_say, write};
use crate::judge::AgentActions;
use crate::preview::{ResolvedFlow, preview, resolve};
use crate::record::{EndId, FlowTotal, Record, RecordedHeader};
use crate::sites::SiteTable;
use crate::suggested_policy::{PeerTraffic, SuggestedPeer, SuggestedPolicy, SuggestedTraffic};
use crate::tested_facts::TestedFacts;
use crate::widening::{SuggestedWorkload, find_widened};
use crate::workload_labels::{LabelMap, common_labels, distinguishing_labels, is_stable};
use palisade_analysis::ControllerIndex;
use palisade_api::{
    ControllerRef, EndName, FlowSummary, RecordedEnd, RefusedWorkload, SuggestionReport,
    UnjudgedFlow,
};
use palisade_convert::{TargetDialect, lower_written};
use palisade_model::{
    Direction, Endpoint, EndpointId, FlowOrigin, Object, Prefix, Profile, State, Update,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// What is to be suggested.
#[derive(Clone, Debug)]
pub struct SuggestionScope {
    /// The dialect.
    pub dialect: TargetDialect,
    /// Only for workloads of this namespace.
    pub namespace: Option<String>,
    /// Only for the workload of this namespace and name.
    pub workload: Option<(String, String)>,
    /// Only what was seen as often as this.
    pub min_count: u64,
}

/// A suggestion that does not hold: a fault of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuggestionError {
    /// The dialect does not take what was written.
    #[error("internal error: the suggested policy {name} is not valid: {reason}; please report it")]
    Invalid {
        /// The policy.
        name: String,
        /// What the dialect says.
        reason: String,
    },
    /// A recorded flow would be denied.
    #[error("internal error: the suggested policies would deny {flow}; please report it")]
    Denies {
        /// The flow.
        flow: String,
    },
    /// It allows what nothing explains.
    #[error("internal error: the suggested policies allow {0} for no reason; please report it")]
    Allows(String),
    /// Reference and tables differ.
    #[error(transparent)]
    Judge(#[from] crate::judge::Disagreement),
}

/// The policies that allow what was recorded, in the cluster of a state.
///
/// # Errors
/// If what is suggested does not hold.
pub fn suggest(
    record: &Record,
    state: &State,
    scope: &SuggestionScope,
) -> Result<SuggestionReport, SuggestionError> {
    let facts = TestedFacts::new(&[state]);
    let alone = without_policies(state);
    let table = SiteTable::new(record, [&alone, &alone], &facts);
    let mut builder = SuggestionBuilder {
        record,
        state,
        scope,
        pods: ControllerIndex::new(state),
        labels: BTreeMap::new(),
        workloads: BTreeMap::new(),
        left_out: Vec::new(),
    };
    let mut flows = Vec::new();
    for flow in &record.flows {
        if builder.take(flow, resolve(&table, flow.key)) {
            flows.push(flow.clone());
        }
    }
    builder.finish(flows, &alone)
}

/// The state without its policies, and with nothing in audit: what is suggested is to stand alone and be enforced.
fn without_policies(state: &State) -> State {
    let mut alone = State {
        tiers: BTreeMap::new(),
        policies: BTreeMap::new(),
        ..state.clone()
    };
    for endpoint in alone.endpoints.values_mut() {
        endpoint.audit = false;
    }
    for namespace in alone.namespaces.values_mut() {
        namespace.audit = false;
    }
    alone
}

/// A workload as records name it.
type WorkloadName = (String, String, String);

#[derive(Default)]
struct CollectedWorkload {
    end: EndId,
    ingress: PeerTraffic,
    egress: PeerTraffic,
    /// Why no policy can be suggested for it.
    refusal: Option<String>,
}

struct SuggestionBuilder<'a> {
    record: &'a Record,
    state: &'a State,
    scope: &'a SuggestionScope,
    pods: ControllerIndex<'a>,
    /// The labels of ends, as found.
    labels: BTreeMap<EndId, LabelMap>,
    workloads: BTreeMap<WorkloadName, CollectedWorkload>,
    left_out: Vec<UnjudgedFlow>,
}

fn workload_name(end: &RecordedEnd) -> Option<WorkloadName> {
    let namespace = end.namespace.clone()?;
    Some(match (&end.controller, &end.name) {
        (Some(controller), _) => {
            let ControllerRef { kind, name } = controller;
            (namespace, name.to_string(), kind.to_string())
        }
        (None, name) => (namespace, name.clone()?, "Pod".to_owned()),
    })
}

impl<'a> SuggestionBuilder<'a> {
    /// Takes a flow, if it is to be allowed; otherwise notes why it is not.
    fn take(&mut self, flow: &FlowTotal, resolved: Result<ResolvedFlow, String>) -> bool {
        let ends = [flow.key.source, flow.key.destination].map(|id| self.record.end(id));
        let is_selected = ends.iter().map(|end| self.is_selected(end));
        let selected: Vec<bool> = is_selected.collect();
        if !selected.contains(&true) {
            return false;
        }
        let resolved = match resolved {
            _ if !flow.key.is_allowed => Err("it was denied".to_owned()),
            _ if flow.count() < self.scope.min_count => Err(format!(
                "it was seen less than {} times",
                self.scope.min_count
            )),
            resolved => resolved,
        };
        let traffic = flow.key.protocol.and_then(|protocol| {
            Some(match flow.key.header {
                RecordedHeader::Port(port) => SuggestedTraffic::Port(protocol, port),
                RecordedHeader::Icmp(kind, code) => SuggestedTraffic::Icmp(protocol, kind, code),
                RecordedHeader::Absent if protocol.has_ports() || protocol.is_icmp() => {
                    return None;
                }
                RecordedHeader::Absent => SuggestedTraffic::Protocol(protocol),
            })
        });
        let (resolved, traffic) = match (resolved, traffic) {
            (Ok(resolved), Some(traffic)) => (resolved, traffic),
            (resolved, _) => {
                let reason = resolved
                    .err()
                    .unwrap_or_else(|| "its port is not recorded".to_owned());
                self.left_out.push(UnjudgedFlow {
                    flow: self.record.summary_of(flow),
                    reason,
                });
                return false;
            }
        };
        let is_from_host = resolved
            .pairs
            .iter()
            .all(|pair| pair.origin == FlowOrigin::HostStack);
        let [source, destination] = &ends;
        let sides = [
            (
                Direction::Egress,
                flow.key.source,
                flow.key.destination,
                destination,
            ),
            (
                Direction::Ingress,
                flow.key.destination,
                flow.key.source,
                source,
            ),
        ];
        for ((direction, own, other, peer), is_selected) in sides.into_iter().zip(selected) {
            // What a host sends to its own workloads passes anyway.
            if is_selected && !(direction == Direction::Ingress && is_from_host) {
                self.add(direction, (own, other), peer, traffic);
            } else if is_selected {
                self.workload(own);
            }
        }
        true
    }

    fn is_selected(&self, end: &RecordedEnd) -> bool {
        let Some((namespace, name, _)) = workload_name(end) else {
            return false;
        };
        let is_of_namespace = self
            .scope
            .namespace
            .as_ref()
            .is_none_or(|only| *only == namespace);
        let wanted = self.scope.workload.as_ref();
        is_of_namespace && wanted.is_none_or(|(ns, own)| *ns == namespace && *own == name)
    }

    /// The collected traffic of a workload.
    fn workload(&mut self, id: EndId) -> Option<&mut CollectedWorkload> {
        let name = workload_name(&self.record.end(id))?;
        let found = self.workloads.entry(name);
        Some(found.or_insert_with(|| CollectedWorkload {
            end: id,
            ..CollectedWorkload::default()
        }))
    }

    fn add(
        &mut self,
        direction: Direction,
        (own, other): (EndId, EndId),
        peer: &RecordedEnd,
        traffic: SuggestedTraffic,
    ) {
        let dialect = self.scope.dialect;
        let peers = self.peers(other, peer, direction);
        let Some(workload) = self.workload(own) else {
            return;
        };
        let is_open = dialect == TargetDialect::ClusterNetworkPolicy
            && direction == Direction::Ingress
            && peer.namespace.is_none();
        if !is_open && !can_say(dialect, traffic) {
            let shown = match traffic {
                SuggestedTraffic::Icmp(protocol, kind, code) => {
                    format!("{protocol} type {kind} code {code}")
                }
                other => format!("protocol {}", other.protocol()),
            };
            workload.refusal = Some(format!(
                "it was seen with {shown} ({}), and {dialect} cannot name that",
                EndName(peer)
            ));
            return;
        }
        match peers {
            Ok(peers) => {
                let list = match direction {
                    Direction::Ingress => &mut workload.ingress,
                    Direction::Egress => &mut workload.egress,
                };
                peers.into_iter().for_each(|peer| list.add(peer, traffic));
            }
            Err(reason) => workload.refusal = Some(reason),
        }
    }

    /// An end as peers of a rule.
    fn peers(
        &mut self,
        id: EndId,
        end: &RecordedEnd,
        direction: Direction,
    ) -> Result<Vec<SuggestedPeer>, String> {
        let dialect = self.scope.dialect;
        if let Some(namespace) = &end.namespace {
            return Ok(vec![SuggestedPeer::Pods {
                namespace: namespace.clone(),
                labels: self.labels_of(id, end),
            }]);
        }
        let address: Option<IpAddr> = end.address.as_ref().and_then(|text| text.parse().ok());
        if let Some(node) = &end.node {
            let has_entities = matches!(
                dialect,
                TargetDialect::Cilium | TargetDialect::ClusterNetworkPolicy
            );
            if has_entities {
                return Ok(vec![SuggestedPeer::Nodes]);
            }
            let all = self
                .state
                .nodes
                .get(&**node)
                .map(|node| node.addresses.clone());
            let addresses = address.map_or_else(|| all.unwrap_or_default(), |one| vec![one]);
            let networks = addresses.into_iter().map(Prefix::host);
            return Ok(networks.map(SuggestedPeer::Network).collect());
        }
        let can_name = dialect != TargetDialect::Kubernetes && direction == Direction::Egress;
        if can_name && !end.names.is_empty() {
            return Ok(end.names.iter().cloned().map(SuggestedPeer::Name).collect());
        }
        match address {
            Some(address) => Ok(vec![SuggestedPeer::Network(Prefix::host(address))]),
            None => Err(format!(
                "it was seen with {}, whose address is not recorded, and {dialect} cannot name it",
                EndName(end)
            )),
        }
    }

    /// The pods of an end, in the state.
    fn pods_of(&self, end: &RecordedEnd) -> Vec<&'a Endpoint> {
        let Some((namespace, name, kind)) = workload_name(end) else {
            return Vec::new();
        };
        match end.controller {
            Some(_) => self.pods.pods(&namespace, &kind, &name).to_vec(),
            None => self.pods.named(&namespace, &name).to_vec(),
        }
    }

    fn labels_of(&mut self, id: EndId, end: &RecordedEnd) -> LabelMap {
        if let Some(known) = self.labels.get(&id) {
            return known.clone();
        }
        let pods = self.pods_of(end);
        let labels = if pods.is_empty() {
            let recorded = end.labels.iter().filter(|(key, _)| is_stable(key));
            recorded.map(|(k, v)| (k.clone(), v.clone())).collect()
        } else {
            common_labels(pods.iter().copied())
        };
        let own: BTreeSet<EndpointId> = pods.iter().map(|pod| pod.id.clone()).collect();
        let namespace = end.namespace.as_deref().unwrap_or_default();
        let labels = distinguishing_labels(self.state, namespace, &own, &labels);
        self.labels.insert(id, labels.clone());
        labels
    }

    fn finish(
        mut self,
        mut flows: Vec<FlowTotal>,
        alone: &State,
    ) -> Result<SuggestionReport, SuggestionError> {
        let workloads = std::mem::take(&mut self.workloads);
        let mut refused = Vec::new();
        let mut suggested: Vec<SuggestedWorkload> = Vec::new();
        let mut refused_ends = BTreeSet::new();
        let mut names = BTreeSet::new();
        for ((namespace, name, kind), mut collected) in workloads {
            let end = self.record.end(collected.end);
            let labels = self.labels_of(collected.end, &end);
            if self.scope.dialect == TargetDialect::Cilium && !collected.egress.has_dns() {
                // Nobody would read the answers, so that the names would have no addresses.
                let egress = std::mem::take(&mut collected.egress);
                match egress.without_names(&self.addresses_of_names()) {
                    Some(egress) => collected.egress = egress,
                    None => {
                        collected.refusal = Some(
                            "it was seen with a domain name whose addresses are not recorded, and without DNS"
                                .to_owned(),
                        );
                    }
                }
            }
            let refusal = collected.refusal.take().or_else(|| {
                labels.is_empty().then(|| {
                    "its pods have no labels in common by which a policy could select them"
                        .to_owned()
                })
            });
            if let Some(reason) = refusal {
                refused_ends.insert((namespace.clone(), name.clone(), kind.clone()));
                let workload = format!("{namespace}/{name} ({kind})");
                refused.push(RefusedWorkload { workload, reason });
                continue;
            }
            let mut policy_name = format!("suggested-{name}");
            if !names.insert((namespace.clone(), policy_name.clone())) {
                policy_name = format!("suggested-{name}-{}", kind.to_lowercase());
            }
            let policy = SuggestedPolicy {
                namespace,
                name: policy_name,
                labels,
                ingress: collected.ingress.into_rules(),
                egress: collected.egress.into_rules(),
            };
            suggested.push(SuggestedWorkload {
                name: EndName(&end).to_string(),
                policy,
            });
        }
        // A workload without a policy is judged only at the other end of its flows.
        let is_refused = |id| {
            let name = workload_name(&self.record.end(id));
            name.is_some_and(|name| refused_ends.contains(&name))
        };
        flows.retain(|flow| {
            let ends = [flow.key.source, flow.key.destination];
            ends.into_iter().any(|id| !is_refused(id))
        });
        let (objects, state, suggested) =
            self.write_judged(&flows, alone, suggested, &mut refused)?;
        let widened = find_widened(self.record, &flows, &state, &suggested, self.scope.dialect)
            .map_err(SuggestionError::Allows)?;
        let nodes = self.state.nodes.keys().map(|name| &**name);
        Ok(SuggestionReport {
            api_version: palisade_api::api_version(),
            record: self.record.summary(nodes),
            objects,
            refused,
            left_out: self.left_out,
            widened,
        })
    }

    /// Writes the policies, and the state that they make; a workload whose policy would deny one of the flows is refused.
    fn write_judged(
        &self,
        flows: &[FlowTotal],
        alone: &State,
        mut suggested: Vec<SuggestedWorkload>,
        refused: &mut Vec<RefusedWorkload>,
    ) -> Result<(Vec<Value>, State, Vec<SuggestedWorkload>), SuggestionError> {
        loop {
            let objects: Vec<Value> = suggested
                .iter()
                .map(|workload| write(&workload.policy, self.scope.dialect))
                .collect();
            let state = with_policies(alone, &suggested, &objects)?;
            let Some(denied) = self.find_denied(flows, &state)? else {
                return Ok((objects, state, suggested));
            };
            // What would deny a flow is not suggested.
            let ends = [&denied.source, &denied.destination].map(|end| self.pods_of(end));
            let (denying, remaining): (Vec<_>, Vec<_>) = suggested
                .into_iter()
                .partition(|workload| ends.iter().flatten().any(|pod| workload.selects(pod)));
            let flow = flow_text(&denied);
            if denying.is_empty() {
                return Err(SuggestionError::Denies { flow });
            }
            refused.extend(denying.into_iter().map(|workload| RefusedWorkload {
                workload: workload.name,
                reason: format!(
                    "{} that allows {flow} cannot be written for it alone",
                    self.scope.dialect
                ),
            }));
            suggested = remaining;
        }
    }

    /// The recorded addresses of each domain name.
    fn addresses_of_names(&self) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let mut addresses: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for end in &self.record.ends {
            let address: Option<IpAddr> = end.address.as_ref().and_then(|text| text.parse().ok());
            for name in &end.names {
                addresses.entry(name.clone()).or_default().extend(address);
            }
        }
        addresses.retain(|_, known| !known.is_empty());
        addresses
    }

    /// A flow that is not allowed.
    fn find_denied(
        &self,
        flows: &[FlowTotal],
        state: &State,
    ) -> Result<Option<FlowSummary>, SuggestionError> {
        let record = self.record.with_flows(flows.to_vec());
        let report = preview(&record, state, state, AgentActions::default())?;
        let denied = report.already_denied.into_iter().next();
        let unjudged = report.unjudged.into_iter().next();
        Ok(denied
            .map(|denied| denied.flow)
            .or(unjudged.map(|unjudged| unjudged.flow)))
    }
}

fn flow_text(flow: &FlowSummary) -> String {
    format!(
        "{} to {}, {}",
        EndName(&flow.source),
        EndName(&flow.destination),
        flow.traffic()
    )
}

/// The state with what was written, as the dialects read it. A workload without a suggested policy is open, whatever its
/// profiles deny.
fn with_policies(
    alone: &State,
    suggested: &[SuggestedWorkload],
    objects: &[Value],
) -> Result<State, SuggestionError> {
    let mut state = alone.clone();
    for endpoint in state.endpoints.values_mut() {
        if !suggested.iter().any(|workload| workload.selects(endpoint)) {
            endpoint.profiles = vec![Profile::ALLOW_ALL.into()];
        }
    }
    for (workload, object) in suggested.iter().zip(objects) {
        let policies = lower_written(object).map_err(|reason| SuggestionError::Invalid {
            name: workload.policy.name.clone(),
            reason,
        })?;
        for policy in policies {
            state.apply(Update::Upsert(Object::Policy(policy)));
        }
    }
    Ok(state)
}

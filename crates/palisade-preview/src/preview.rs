//! Judges every recorded flow by the present policies and by changed ones.
//!
//! Promises: a flow is cut if it was recorded as allowed, and the change denies it between some pods at its ends between
//! which the present policies allow it; it is opened if the present policies deny it and the change allows it. What
//! cannot be judged is listed with the reason. Without a change nothing is cut or opened.

use crate::judge::{AgentActions, Disagreement, SitePair, StateJudge};
use crate::record::{EndId, FlowKey, FlowTotal, Record, RecordedHeader};
use crate::sites::{LocatedEnd, Site, SiteId, SiteTable};
use crate::tested_facts::TestedFacts;
use palisade_api::{PairShare, PreviewReport, PreviewedFlow, UnjudgedFlow};
use palisade_model::{Direction, Family, FlowOrigin, L4, Protocol, State};
use std::cmp::Reverse;
use std::net::IpAddr;

/// The source port of every flow: records do not have it.
const SOURCE_PORT: u16 = 40_000;

/// What a change from `present` to `changed` means for recorded flows.
///
/// # Errors
/// If reference and tables differ for a flow: a fault of this program.
pub fn preview(
    record: &Record,
    present: &State,
    changed: &State,
    actions: AgentActions,
) -> Result<PreviewReport, Disagreement> {
    let facts = TestedFacts::new(&[present, changed]);
    let table = SiteTable::new(record, [present, changed], &facts);
    let [old, new] = &table.states;
    let mut judges =
        [old, new].map(|state| StateJudge::new(state, &table.sites, actions, facts.has_node_tests));
    let mut outcomes = Outcomes::default();
    for flow in &record.flows {
        match resolve(&table, flow.key) {
            Ok(pairs) => outcomes.judge(flow, &pairs, &mut judges)?,
            Err(reason) => outcomes.unjudged.push((flow, reason)),
        }
    }
    let mut report = outcomes.report(record, &mut judges);
    let nodes = present.nodes.keys().map(|name| &**name);
    report.record = record.summary(nodes);
    report.notes = notes(present, changed, &facts);
    Ok(report)
}

fn notes(present: &State, changed: &State, facts: &TestedFacts) -> Vec<String> {
    let mut notes = Vec::new();
    let endpoints = [present, changed].map(|state| state.endpoints.values());
    if endpoints.into_iter().flatten().any(|e| e.is_host()) {
        notes.push(
            "what hosts decide at their own interfaces is not judged: records do not name the interfaces"
                .to_owned(),
        );
    }
    if facts.has_source_ports {
        notes.push(format!(
            "policies test source ports, which are not recorded: every flow was judged with {SOURCE_PORT}"
        ));
    }
    notes
}

/// The pairs of sites that a flow is between, or why it cannot be judged.
pub(crate) fn resolve(table: &SiteTable, key: FlowKey) -> Result<ResolvedFlow, String> {
    let protocol = key
        .protocol
        .ok_or("the record does not say which protocol it is")?;
    let l4 = header(protocol, key.header)?;
    let [source, destination] = [key.source, key.destination].map(|id| placed_end(table, id));
    let (source, destination) = (source?, destination?);
    let is_one_pod = key.source == key.destination && source.is_single;
    let has_one_pair = source.sites.len() == 1 && destination.sites.len() == 1;
    let mut pairs = Vec::new();
    let mut is_of_workloads = false;
    for from_site in source.sites {
        for to_site in destination.sites {
            let Some((from, to)) = table.site(*from_site).zip(table.site(*to_site)) else {
                continue;
            };
            is_of_workloads |= from.endpoint.is_some() || to.endpoint.is_some();
            let is_within = from_site == to_site;
            let is_hairpin = is_within && (is_one_pod || from.twin.is_none());
            if is_hairpin && !is_one_pod && !has_one_pair {
                // Of several pods each sends to the others.
                continue;
            }
            let to_addresses = if is_within && !is_hairpin {
                to.twin_addresses
            } else {
                to.addresses
            };
            let families = families(from, to, to_addresses, protocol);
            let origin = origin(key, from, to);
            pairs.extend(families.into_iter().map(|family| SitePair {
                source: *from_site,
                destination: *to_site,
                family,
                protocol,
                l4,
                origin,
                is_hairpin,
            }));
        }
    }
    if !is_of_workloads {
        return Err(
            "neither end is a workload: it is judged at interfaces of hosts, which are not recorded"
                .to_owned(),
        );
    }
    if pairs.is_empty() {
        return Err("its ends have no address family in common any more".to_owned());
    }
    let reconstructed = [
        (Direction::Egress, source.is_reconstructed),
        (Direction::Ingress, destination.is_reconstructed),
    ];
    let reconstructed = reconstructed.into_iter().filter(|(_, is_gone)| *is_gone);
    Ok(ResolvedFlow {
        pairs,
        reconstructed: reconstructed.map(|(direction, _)| direction).collect(),
    })
}

/// An end that has sites.
struct PlacedEnd<'t> {
    sites: &'t [SiteId],
    is_reconstructed: bool,
    is_single: bool,
}

fn placed_end(table: &SiteTable, id: EndId) -> Result<PlacedEnd<'_>, String> {
    match table.end(id) {
        Some(LocatedEnd::Sites {
            sites,
            is_reconstructed,
            is_single,
        }) => Ok(PlacedEnd {
            sites,
            is_reconstructed: *is_reconstructed,
            is_single: *is_single,
        }),
        Some(LocatedEnd::Nowhere(reason)) => Err(reason.clone()),
        None => Err("it has no end".to_owned()),
    }
}

/// A recorded flow with the sites that it is between.
pub(crate) struct ResolvedFlow {
    pub(crate) pairs: Vec<SitePair>,
    pub(crate) reconstructed: Vec<Direction>,
}

fn header(protocol: Protocol, header: RecordedHeader) -> Result<L4, String> {
    match header {
        RecordedHeader::Port(destination) if protocol.has_ports() => Ok(L4::Ports {
            source: SOURCE_PORT,
            destination,
        }),
        RecordedHeader::Icmp(kind, code) if protocol.is_icmp() => Ok(L4::Icmp { kind, code }),
        _ if protocol.has_ports() => {
            Err("its port is not recorded: there were too many to keep each".to_owned())
        }
        _ if protocol.is_icmp() => Err("its ICMP message is not recorded".to_owned()),
        _ => Ok(L4::None),
    }
}

/// The families in which a flow can be between two sites.
fn families(
    from: &Site,
    to: &Site,
    to_addresses: [Option<IpAddr>; 2],
    protocol: Protocol,
) -> Vec<Family> {
    let only = match protocol {
        Protocol::ICMP => Some(Family::V4),
        Protocol::ICMPV6 => Some(Family::V6),
        _ => None,
    };
    let is_common = |family: &Family| {
        let at = *family as usize;
        from.addresses[at].is_some()
            && to_addresses[at].is_some()
            && only.is_none_or(|only| only == *family)
    };
    let mut families: Vec<Family> = Family::BOTH.into_iter().filter(is_common).collect();
    if from.is_address_assumed || to.is_address_assumed {
        families.truncate(1);
    }
    families
}

/// Whether the host's own stack sends a flow: the node that recorded it, to a workload that it runs.
fn origin(key: FlowKey, from: &Site, to: &Site) -> FlowOrigin {
    let is_own = from.nodes.is_empty() || to.nodes.is_empty() || !from.nodes.is_disjoint(&to.nodes);
    if key.is_from_own_node && from.endpoint.is_none() && to.endpoint.is_some() && is_own {
        FlowOrigin::HostStack
    } else {
        FlowOrigin::Network
    }
}

/// A flow with the pair that stands for those concerned, and how many these are.
struct ConcernedFlow<'r> {
    flow: &'r FlowTotal,
    pair: SitePair,
    share: PairShare,
    reconstructed: Vec<Direction>,
}

#[derive(Default)]
struct Outcomes<'r> {
    judged: usize,
    cut: Vec<ConcernedFlow<'r>>,
    opened: Vec<ConcernedFlow<'r>>,
    already_denied: Vec<ConcernedFlow<'r>>,
    unjudged: Vec<(&'r FlowTotal, String)>,
}

impl<'r> Outcomes<'r> {
    fn judge(
        &mut self,
        flow: &'r FlowTotal,
        resolved: &ResolvedFlow,
        judges: &mut [StateJudge<'_>; 2],
    ) -> Result<(), Disagreement> {
        if resolved.reconstructed.contains(&Direction::Ingress) {
            let tests_names = |judge: &StateJudge<'_>| {
                let mut pairs = resolved.pairs.iter();
                pairs.any(|pair| judge.tests_named_ports(*pair))
            };
            if judges.iter().any(tests_names) {
                let reason = "its destination is gone, and policies test the names of ports, which are not recorded";
                self.unjudged.push((flow, reason.to_owned()));
                return Ok(());
            }
        }
        self.judged += 1;
        let [mut cut, mut opened, mut denied] = [const { Vec::new() }; 3];
        for pair in &resolved.pairs {
            let [old, new] = judges;
            let list = match (old.allows(*pair)?, new.allows(*pair)?) {
                (true, false) => &mut cut,
                (false, true) => &mut opened,
                (false, false) => &mut denied,
                (true, true) => continue,
            };
            list.push(*pair);
        }
        let is_allowed = flow.key.is_allowed;
        let (list, concerned) = if is_allowed && !cut.is_empty() {
            (&mut self.cut, cut)
        } else if is_allowed && !denied.is_empty() {
            (&mut self.already_denied, denied)
        } else if !opened.is_empty() {
            (&mut self.opened, opened)
        } else {
            return Ok(());
        };
        if let Some(first) = concerned.first() {
            list.push(ConcernedFlow {
                flow,
                pair: *first,
                share: PairShare {
                    concerned: concerned.len(),
                    total: resolved.pairs.len(),
                },
                reconstructed: resolved.reconstructed.clone(),
            });
        }
        Ok(())
    }

    fn report(self, record: &Record, [old, new]: &mut [StateJudge<'_>; 2]) -> PreviewReport {
        let list = |mut flows: Vec<ConcernedFlow<'_>>, judge: &mut StateJudge<'_>| {
            flows.sort_by(|a, b| (&b.flow.last, a.flow.key).cmp(&(&a.flow.last, b.flow.key)));
            let flows = flows.into_iter().map(|concerned| PreviewedFlow {
                flow: record.summary_of(concerned.flow),
                denied_by: judge.denying_ends(concerned.pair),
                pairs: Some(concerned.share).filter(|share| share.concerned < share.total),
                reconstructed: concerned.reconstructed,
            });
            flows.collect()
        };
        let mut unjudged = self.unjudged;
        unjudged.sort_by_key(|(flow, _)| (Reverse(&flow.last), flow.key));
        PreviewReport {
            api_version: palisade_api::api_version(),
            record: Default::default(),
            judged: self.judged,
            cut: list(self.cut, new),
            opened: list(self.opened, old),
            already_denied: list(self.already_denied, new),
            unjudged: unjudged
                .into_iter()
                .map(|(flow, reason)| UnjudgedFlow {
                    flow: record.summary_of(flow),
                    reason,
                })
                .collect(),
            notes: Vec::new(),
        }
    }
}

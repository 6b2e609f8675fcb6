//! The verdict of one state for a flow between two sites: by the oracle and by the tables, which have to agree.
//!
//! Promises: each verdict is the oracle's for ends that the rules of the state cannot tell apart, and the tables' for
//! the same lookups; the two are compared for every pair of sites that is asked about. Never: decides which sites a
//! recorded flow is between.

use crate::peer_signatures::PeerSignatures;
use crate::sites::{Site, SiteId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_analysis::decision_report;
use palisade_api::DenyingEnd;
use palisade_engine::{ElementBudget, Engine, EngineOptions};
use palisade_model::{
    Direction, Encapsulations, FailsafePorts, Family, FlowOrigin, HairpinAction, HostTrafficAction,
    L4, Protocol, State, Str, UnreadDnsAction, Update,
};
use palisade_oracle::{FlowEnd, HostPath, OracleOptions, PreparedState, Question};
use palisade_tables::{IdentityId, JudgementOptions, Packet, Verdict};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The parameters of the agents that change verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentActions {
    /// What is done with packets of a host's own stack to its workloads.
    pub host_to_endpoint: HostTrafficAction,
    /// Which policies judge what a workload sends to itself.
    pub hairpin: HairpinAction,
}

impl AgentActions {
    /// Without the effect of configuration that is no policy: encapsulated packets are judged by their rules alone,
    /// and DNS whose names rules judge is allowed, since which names were asked for is not recorded.
    pub(crate) fn oracle_options(self) -> OracleOptions {
        OracleOptions {
            host_to_endpoint: self.host_to_endpoint,
            hairpin: self.hairpin,
            allowed_encapsulation: Encapsulations::ALL,
            unread_dns: UnreadDnsAction::Allow,
            ..OracleOptions::default()
        }
    }

    fn engine_options(self, host_node: Option<Str>) -> EngineOptions {
        let judgement = JudgementOptions::new(
            self.host_to_endpoint,
            self.hairpin,
            FailsafePorts::default(),
        );
        EngineOptions {
            judges_hairpin_by_kind: self.hairpin == HairpinAction::default(),
            judgement,
            allowed_encapsulation: Encapsulations::ALL,
            unread_dns: UnreadDnsAction::Allow,
            budget: ElementBudget {
                set: usize::MAX,
                host: usize::MAX,
            },
            ..EngineOptions::of_host(host_node)
        }
    }
}

/// A flow between two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SitePair {
    pub(crate) source: SiteId,
    pub(crate) destination: SiteId,
    pub(crate) family: Family,
    pub(crate) protocol: Protocol,
    pub(crate) l4: L4,
    pub(crate) origin: FlowOrigin,
    /// Whether the endpoint of the site sends to itself; otherwise what is within one site goes to the twin.
    pub(crate) is_hairpin: bool,
}

/// A verdict of the oracle that is not that of the tables: a fault of this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "internal error: the reference and the tables differ for {flow}, {direction}: {}, {}; please report it",
    verdict_of("the reference", *.oracle_allows),
    verdict_of("the tables", !*.oracle_allows)
)]
pub struct Disagreement {
    /// The flow.
    pub flow: String,
    /// The direction.
    pub direction: Direction,
    /// What the oracle says.
    pub oracle_allows: bool,
}

fn verdict_of(who: &str, is_allowed: bool) -> String {
    let verdict = if is_allowed { "allows" } else { "denies" };
    format!("{who} {verdict} it")
}

/// What a verdict of one direction depends on, but for the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DirectionKey {
    subject: SiteId,
    direction: Direction,
    family: Family,
    protocol: Protocol,
    l4: L4,
    origin: FlowOrigin,
    /// Whether both ends are the same endpoint.
    is_hairpin: bool,
}

/// One state, ready to judge.
pub(crate) struct StateJudge<'s> {
    state: &'s State,
    prepared: PreparedState<'s>,
    /// The state with the policies of the endpoint of a site alone, for each that was asked about.
    of_subjects: HashMap<SiteId, PreparedState<'s>, FixedState>,
    signatures: PeerSignatures<'s>,
    sites: &'s [Site],
    options: OracleOptions,
    /// The tables, by node where policies depend on the node.
    engines: BTreeMap<Option<Str>, Engine>,
    has_node_tests: bool,
    identities: HashMap<(SiteId, Option<SiteId>, Family), IdentityId, FixedState>,
    by_oracle: HashMap<(DirectionKey, u32), bool, FixedState>,
    by_tables: HashMap<(DirectionKey, IdentityId), bool, FixedState>,
}

impl<'s> StateJudge<'s> {
    pub(crate) fn new(
        state: &'s State,
        sites: &'s [Site],
        actions: AgentActions,
        has_node_tests: bool,
    ) -> Self {
        let prepared = PreparedState::new(state);
        let signatures = PeerSignatures::new(&prepared, sites, has_node_tests);
        let mut nodes: Vec<Option<Str>> = vec![None];
        if has_node_tests {
            nodes.extend(sites.iter().map(|site| site_node(state, site)));
            nodes.sort();
            nodes.dedup();
        }
        let engine = |node: Option<Str>| {
            let is_local = |site: &Site| !has_node_tests || site_node(state, site) == node;
            (
                node.clone(),
                engine_of(
                    state,
                    sites,
                    &is_local,
                    actions.engine_options(node.clone()),
                ),
            )
        };
        StateJudge {
            engines: nodes.into_iter().map(engine).collect(),
            options: actions.oracle_options(),
            state,
            prepared,
            of_subjects: HashMap::default(),
            signatures,
            sites,
            has_node_tests,
            identities: HashMap::default(),
            by_oracle: HashMap::default(),
            by_tables: HashMap::default(),
        }
    }

    /// Whether egress at the source and ingress at the destination allow a flow.
    pub(crate) fn allows(&mut self, pair: SitePair) -> Result<bool, Disagreement> {
        let mut is_allowed = true;
        for direction in [Direction::Egress, Direction::Ingress] {
            is_allowed &= self.allows_direction(pair, direction)?;
        }
        Ok(is_allowed)
    }

    fn allows_direction(
        &mut self,
        pair: SitePair,
        direction: Direction,
    ) -> Result<bool, Disagreement> {
        let (subject, other) = match direction {
            Direction::Egress => (pair.source, pair.destination),
            Direction::Ingress => (pair.destination, pair.source),
        };
        if self
            .site(subject)
            .is_none_or(|site| site.endpoint.is_none())
        {
            return Ok(true);
        }
        let key = DirectionKey {
            subject,
            direction,
            family: pair.family,
            protocol: pair.protocol,
            l4: pair.l4,
            origin: pair.origin,
            is_hairpin: pair.is_hairpin,
        };
        let by_oracle = self.oracle_verdict(key, other, pair);
        let by_tables = self.table_verdict(key, other, pair);
        if by_oracle == by_tables {
            return Ok(by_oracle);
        }
        Err(Disagreement {
            flow: self.describe(pair),
            direction,
            oracle_allows: by_oracle,
        })
    }

    fn oracle_verdict(&mut self, key: DirectionKey, other: SiteId, pair: SitePair) -> bool {
        let is_exempt = self.options.host_to_endpoint == HostTrafficAction::Allow;
        if is_exempt && key.origin == FlowOrigin::HostStack && key.direction == Direction::Ingress {
            // The state need not know on which node the workload runs: the record does.
            return true;
        }
        let ends = self.addresses(pair);
        let end = match key.direction {
            Direction::Egress => ends[1],
            Direction::Ingress => ends[0],
        };
        let signature = self.signatures.signature(
            &self.prepared,
            (key.subject, key.direction),
            (other, key.family),
            &FlowEnd::Address(end),
        );
        if let Some(known) = self.by_oracle.get(&(key, signature)) {
            return *known;
        }
        let question = self.question(pair);
        let options = self.options;
        let prepared = self.of_subject(key.subject);
        let is_allowed = prepared.allows(&question, key.direction, &options);
        self.by_oracle.insert((key, signature), is_allowed);
        is_allowed
    }

    /// The state with the policies of the endpoint of a site alone; with all of them where it has none.
    fn of_subject(&mut self, subject: SiteId) -> &PreparedState<'s> {
        let site = self.sites.get(subject as usize);
        let endpoint = site.and_then(|site| self.state.endpoints.get(site.endpoint.as_ref()?));
        let Some(endpoint) = endpoint else {
            return &self.prepared;
        };
        let prepared = self.of_subjects.entry(subject);
        prepared.or_insert_with(|| self.prepared.of_endpoint(endpoint))
    }

    fn table_verdict(&mut self, key: DirectionKey, other: SiteId, pair: SitePair) -> bool {
        let node = self
            .site(key.subject)
            .filter(|_| self.has_node_tests)
            .and_then(|site| site_node(self.state, site));
        let Some(engine) = self.engines.get(&node) else {
            return false;
        };
        let tables = engine.tables();
        let [source, destination] = self.addresses(pair);
        let end = match key.direction {
            Direction::Egress => destination,
            Direction::Ingress => source,
        };
        let subject = self.has_node_tests.then_some(key.subject);
        let identity = self.identities.entry((other, subject, key.family));
        let identity = *identity.or_insert_with(|| tables.identity(end));
        if let Some(known) = self.by_tables.get(&(key, identity)) {
            return *known;
        }
        let packet = self.packet(pair, [source, destination]);
        let verdict = tables.judge_direction(&packet, key.direction).verdict();
        let is_allowed = verdict == Verdict::Allow;
        self.by_tables.insert((key, identity), is_allowed);
        is_allowed
    }

    /// The packet as a host sees it on which both ends are.
    fn packet(&self, pair: SitePair, [source, destination]: [IpAddr; 2]) -> Packet {
        let uplink = || Some(Str::from(UPLINK));
        let twin = pair.source == pair.destination && !pair.is_hairpin;
        let interface = |site: SiteId, is_twin: bool| {
            let has_endpoint = self.site(site).is_some_and(|site| site.endpoint.is_some());
            has_endpoint.then(|| interface_name(site, is_twin))
        };
        let from = interface(pair.source, false);
        Packet {
            input_interface: match pair.origin {
                FlowOrigin::HostStack => None,
                FlowOrigin::Network => from.or_else(uplink),
            },
            output_interface: interface(pair.destination, twin).or_else(uplink),
            source,
            destination,
            pre_dnat: None,
            protocol: pair.protocol,
            l4: pair.l4,
        }
    }

    fn question(&self, pair: SitePair) -> Question {
        let [source, destination] = self.addresses(pair);
        Question {
            source: FlowEnd::Address(source),
            destination: FlowEnd::Address(destination),
            family: pair.family,
            protocol: pair.protocol,
            l4: pair.l4,
            origin: pair.origin,
            path: HostPath::default(),
        }
    }

    /// What denies a flow, at each end that does.
    pub(crate) fn denying_ends(&mut self, pair: SitePair) -> Vec<DenyingEnd> {
        let (question, options) = (self.question(pair), self.options);
        let ends = [
            (pair.source, Direction::Egress),
            (pair.destination, Direction::Ingress),
        ];
        let mut denying = Vec::new();
        for (subject, direction) in ends {
            let end = self
                .of_subject(subject)
                .judge_end(&question, direction, &options);
            if !end.verdict.is_allow() {
                denying.push(DenyingEnd {
                    direction,
                    decided_by: decision_report(self.state, &question, direction, &end.decided_by),
                });
            }
        }
        denying
    }

    /// Whether a rule that may decide at the ends of a flow tests ports by name, which belong to the destination.
    pub(crate) fn tests_named_ports(&self, pair: SitePair) -> bool {
        let ends = [
            (pair.source, Direction::Egress),
            (pair.destination, Direction::Ingress),
        ];
        let mut rules = ends
            .into_iter()
            .filter_map(|(site, direction)| self.signatures.rules(site, direction));
        rules.any(|rules| rules.has_named_ports)
    }

    fn site(&self, id: SiteId) -> Option<&'s Site> {
        self.sites.get(id as usize)
    }

    /// The addresses of source and destination.
    fn addresses(&self, pair: SitePair) -> [IpAddr; 2] {
        let family = pair.family as usize;
        let own = |site: &Site| site.addresses[family];
        let twin = |site: &Site| site.twin_addresses[family].or(site.addresses[family]);
        let source = self.site(pair.source).and_then(own);
        let destination = self.site(pair.destination);
        let destination = if pair.source == pair.destination && !pair.is_hairpin {
            destination.and_then(twin)
        } else {
            destination.and_then(own)
        };
        // Pairs are made of sites with an address of the family.
        let none = match pair.family {
            Family::V4 => IpAddr::from([0_u8; 4]),
            Family::V6 => IpAddr::from([0_u8; 16]),
        };
        [source, destination].map(|address| address.unwrap_or(none))
    }

    fn describe(&self, pair: SitePair) -> String {
        let [source, destination] = self.addresses(pair);
        let name = |site: SiteId, address: IpAddr| {
            let endpoint = self.site(site).and_then(|site| site.endpoint.as_ref());
            match endpoint {
                Some(id) => format!("{id} ({address})"),
                None => address.to_string(),
            }
        };
        let port = match pair.l4 {
            L4::Ports { destination, .. } => format!(" {destination}"),
            L4::Icmp { kind, code } => format!(" {kind}/{code}"),
            L4::None => String::new(),
        };
        format!(
            "{} to {}, {}{port}",
            name(pair.source, source),
            name(pair.destination, destination),
            pair.protocol
        )
    }
}

/// The interface by which packets reach a host from outside.
const UPLINK: &str = "uplink";

fn interface_name(site: SiteId, is_twin: bool) -> Str {
    let kind = if is_twin { "twin" } else { "site" };
    Str::from(format!("{kind}{site}"))
}

/// The node of the endpoint of a site in a state.
fn site_node(state: &State, site: &Site) -> Option<Str> {
    let endpoint = site.endpoint.as_ref();
    endpoint.and_then(|id| state.endpoints.get(id)?.node.clone())
}

/// An engine with the objects of a state, of which the endpoints of some sites are attached to the host.
fn engine_of(
    state: &State,
    sites: &[Site],
    is_local: &dyn Fn(&Site) -> bool,
    options: EngineOptions,
) -> Engine {
    let mut interfaces = BTreeMap::new();
    for (number, site) in (0..).zip(sites).filter(|(_, site)| is_local(site)) {
        for (id, is_twin) in [(&site.endpoint, false), (&site.twin, true)] {
            if let Some(id) = id {
                interfaces.insert(id, interface_name(number, is_twin));
            }
        }
    }
    let updates = state.objects().map(|mut object| {
        if let palisade_model::Object::Endpoint(endpoint) = &mut object
            && let Some(interface) = interfaces.get(&endpoint.id)
        {
            endpoint.interface = Some(interface.clone());
        }
        Update::Upsert(object)
    });
    let mut engine = Engine::new(options);
    drop(engine.apply(updates));
    engine
}

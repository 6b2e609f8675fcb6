//! Kubernetes worlds: from the written manifests to the oracle, against the naive reading.

use super::{CaseOutcome, LISTED, StageFailure, StageFilter, sets, tables};
use crate::effective::effective_state;
use palisade_generators::manifest::{self, RenderedFile};
use palisade_generators::naive::{self, NaiveObjects};
use palisade_generators::{
    Dice,
    kubernetes::{ClusterTrial, ClusterWorld},
};
use palisade_manifest::{Limits, RawObject, extract_objects, parse, to_json};
use palisade_model::{
    Direction, DomainName, Flow, FlowOrigin, L4, Labels, NetworkSet, NetworkSetKind, PolicyView,
    PreDnat, Prefix, Protocol, State, Str,
};
use palisade_oracle::{HostPath, OracleOptions, PreparedState, Question};
use std::collections::BTreeSet;

/// The stage that compares the naive reading with the oracle. Where it alone is sought, nothing comes after it.
const NAIVE_STAGE: &str = "naive reading and oracle";

/// The manifests of a world: in random styles, or in the plainest one.
pub(crate) fn render_manifests(
    world: &ClusterWorld,
    seed: u64,
    case: u64,
    plain: bool,
) -> Vec<RenderedFile> {
    if plain {
        manifest::render_plain(&world.objects())
    } else {
        manifest::render(
            &mut Dice::new(seed ^ 0x7374_796c_6573, case),
            &world.objects(),
        )
    }
}

/// Judges every flow of a world by every reading.
pub(crate) fn check_cluster(
    world: &ClusterWorld,
    files: &[RenderedFile],
    seed: u64,
    case: u64,
    sought: StageFilter,
) -> CaseOutcome {
    let mut state = lower(files)?;
    let verdicts = sought.filter(oracle_outcome(world, &state))?;
    if sought.is_only(NAIVE_STAGE) {
        return Ok(verdicts);
    }
    let flows: Vec<Flow> = world
        .trials
        .iter()
        .map(|trial| model_flow(&trial.flow))
        .collect();
    let mut dice = Dice::new(seed ^ 0x7461_626c_6573, case);
    if dice.chance(LISTED) {
        sought.filter(sets::check_connections(&mut dice, &state, &flows))?;
    }
    mark_local_endpoints(&mut dice, &mut state);
    state.host_node = draw_host_node(seed, case);
    tables::check_tables(&mut dice, &state, &flows, sought)?;
    Ok(verdicts)
}

/// What files say, read and lowered as the product does it, with the host endpoints of this host at their interfaces;
/// nothing in a world is ever refused.
pub(crate) fn lower(files: &[RenderedFile]) -> Result<State, StageFailure> {
    let limits = Limits::default();
    let mut all = Vec::new();
    for file in files {
        let read = extract_objects(parse(&file.path, file.text.as_bytes(), &limits), &limits);
        if let Some(problem) = read.problems.first() {
            return Err(StageFailure::new(
                "manifest refused",
                format!("{problem:?}"),
            ));
        }
        all.extend(read.objects);
    }
    let (answers, all): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|object| object.kind == naive::ANSWERS_KIND);
    let (mut state, diagnostics) = effective_state(&all);
    state.host_node = Some(naive::OWN_NODE.into());
    for set in answers.iter().filter_map(domain_name) {
        state.network_sets.insert(set.id.clone(), set);
    }
    for host in state.endpoints.values_mut().filter(|e| e.is_host()) {
        if host.node.as_deref() != Some(naive::OWN_NODE) {
            host.interface = None;
        }
    }
    match diagnostics.iter().find(|diagnostic| diagnostic.is_error()) {
        Some(error) => Err(StageFailure::new("object refused", format!("{error:?}"))),
        None => Ok(state),
    }
}

/// The addresses of a name, as the agent has them of the answers that it has seen.
fn domain_name(object: &RawObject) -> Option<NetworkSet> {
    let value = to_json(&object.root);
    let name: DomainName = value["metadata"]["name"].as_str()?.parse().ok()?;
    let addresses = value["addresses"].as_array().into_iter().flatten();
    let addresses = addresses.filter_map(|address| address.as_str()?.parse().ok());
    let nets: BTreeSet<Prefix> = addresses.map(Prefix::host).collect();
    Some(NetworkSet {
        id: name.network_set_id(),
        kind: NetworkSetKind::DomainName,
        labels: Labels::new(),
        nets: nets.into_iter().collect(),
    })
}

/// The node of this host, as the agent knows it: not always that of the objects, and not always known.
fn draw_host_node(seed: u64, case: u64) -> Option<Str> {
    let mut dice = Dice::new(seed ^ 0x686f_7374_6e6f_6465, case);
    match dice.below(10) {
        0 => None,
        1 => Some("node-2".into()),
        _ => Some(naive::OWN_NODE.into()),
    }
}

fn oracle_outcome(world: &ClusterWorld, state: &State) -> CaseOutcome {
    let objects = world.objects();
    let has_dns_rules = objects
        .iter()
        .any(|object| object.to_string().contains("\"dns\":"));
    let (enforced, without_audit) = (
        NaiveObjects::new(&objects),
        NaiveObjects::without_audit(&objects),
    );
    let prepared = PreparedState::new(state);
    let options = OracleOptions::default();
    let mut verdicts = Vec::new();
    for (index, trial) in world.trials.iter().enumerate() {
        let question = model_question(&trial.flow);
        let oracle = oracle_verdicts(&prepared, &question, &options);
        let naive = naive_verdicts(&enforced.read(&trial.flow));
        if naive != oracle {
            let detail = format!(
                "(egress, ingress, host) naive {naive:?}, oracle {oracle:?}: {}, {:?}",
                model_flow(&trial.flow),
                trial.flow.path
            );
            return Err(StageFailure::at_flow(NAIVE_STAGE, index, detail));
        }
        if has_dns_rules
            && let Some(detail) = query_mismatch(&enforced, trial, (&prepared, &question), oracle.0)
        {
            return Err(StageFailure::at_flow(NAIVE_STAGE, index, detail));
        }
        let audit = OracleOptions {
            view: PolicyView::Audit,
            ..options
        };
        let audited = oracle_verdicts(&prepared, &question, &audit);
        let naive = naive_verdicts(&without_audit.read(&trial.flow));
        if naive != audited {
            let detail = format!(
                "without audit (egress, ingress, host) naive {naive:?}, oracle {audited:?}: {}, {:?}",
                model_flow(&trial.flow),
                trial.flow.path
            );
            return Err(StageFailure::at_flow(NAIVE_STAGE, index, detail));
        }
        let (egress, ingress, _) = oracle;
        verdicts.push((egress, ingress));
    }
    Ok(verdicts)
}

/// How the two readings differ in the DNS queries that a flow may have.
fn query_mismatch(
    objects: &NaiveObjects<'_>,
    trial: &ClusterTrial,
    (prepared, question): (&PreparedState<'_>, &Question),
    allows_others: bool,
) -> Option<String> {
    let names = prepared.redirect(question, Direction::Egress, &OracleOptions::default());
    let queries = naive::QUERIES.map(naive::NaiveQuery::Name);
    let queries = queries.into_iter().chain([naive::NaiveQuery::Unknown]);
    queries.into_iter().find_map(|query| {
        let oracle = allows_others
            || names.as_ref().is_some_and(|names| match query {
                naive::NaiveQuery::Name(name) => names.iter().any(|names| names.matches(name)),
                naive::NaiveQuery::Unnamed => false,
                naive::NaiveQuery::Unknown => true,
            });
        let flow = naive::NaiveFlow {
            query,
            ..trial.flow
        };
        let naive = objects.read(&flow).egress;
        (naive != oracle).then(|| {
            let flow = model_flow(&trial.flow);
            format!("egress of {query:?}: naive {naive:?}, oracle {oracle:?}: {flow}")
        })
    })
}

/// Whether the sender, the receiver and the interfaces of this host allow a flow.
type HostedVerdicts = (bool, bool, bool);

fn naive_verdicts(reading: &naive::NaiveReading) -> HostedVerdicts {
    (reading.egress, reading.ingress, reading.host)
}

fn oracle_verdicts(
    prepared: &PreparedState<'_>,
    question: &Question,
    options: &OracleOptions,
) -> HostedVerdicts {
    let (egress, ingress) = prepared.verdict(question, options);
    let mut directions = Direction::BOTH.into_iter();
    let host = directions.all(|direction| prepared.host_allows(question, direction, options));
    (egress, ingress, host)
}

/// A flow as a question, with the interfaces of this host that it crosses.
pub(crate) fn model_question(of: &naive::NaiveFlow) -> Question {
    Question {
        path: HostPath {
            input: of.path.input.map(Into::into),
            output: of.path.output.map(Into::into),
            is_forwarded: of.path.is_forwarded,
            pre_dnat: of
                .path
                .sent_to
                .map(|(destination, port)| PreDnat { destination, port }),
        },
        ..Question::from(model_flow(of))
    }
}

/// Makes some pods and other workloads local, so that they are judged, and no other.
pub(crate) fn mark_local_endpoints(dice: &mut Dice, state: &mut State) {
    let workloads = state.endpoints.values_mut().filter(|e| !e.is_host());
    for (n, endpoint) in workloads.enumerate() {
        // An object may name an interface, which the lab does not have.
        let is_local = !endpoint.is_template() && dice.chance(65);
        endpoint.interface = is_local.then(|| format!("pal{n}").into());
        // Whoever attaches a pod takes its UID.
        endpoint.metadata.uid = None;
    }
}

/// A flow in the model's words.
pub(crate) fn model_flow(of: &naive::NaiveFlow) -> Flow {
    let l4 = match (of.ports, of.icmp) {
        (Some((source, destination)), _) => L4::Ports {
            source,
            destination,
        },
        (None, Some((kind, code))) => L4::Icmp { kind, code },
        (None, None) => L4::None,
    };
    Flow {
        source: of.source,
        destination: of.destination,
        protocol: Protocol(of.protocol),
        l4,
        origin: FlowOrigin::Network,
    }
}

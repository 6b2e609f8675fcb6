//! The oracle against the decision tables, whatever way the engine came to them.

use super::{Failure, Sought, moments, nft};
use palisade_engine::Engine;
use palisade_generators::{Dice, lowered};
use palisade_model::{
    Action, Direction, Encapsulation, Encapsulations, Flow, Origin, Profile, RuleOrigin, State,
    Str, Update,
};
use palisade_oracle::{
    DecidedBy, HostToEndpoint, Judgement, Options, Prepared, Question, RuleOutcome, RuleSource,
    Step, ToItself,
};
use palisade_tables::{Credit, Judged, Packet, Tables, Verdict, Violation, check_between};
use std::sync::Arc;

/// How many pairs of histories the checker follows through each flush.
const PAIRS: usize = 60;

/// Of how many flushes in a hundred every intermediate state is checked by enumeration as well.
const CHECKED: u32 = 20;

/// Every flow by the tables as by the oracle; the same tables by any order, batching, repetition and
/// reversal of updates; and every moment between two states.
pub(crate) fn check(
    dice: &mut Dice,
    state: &State,
    flows: &[Flow],
    sought: Sought,
) -> Result<(), Failure> {
    let judge_host_traffic = dice.chance(25);
    let case = dice.below(1 << 20) as u64;
    // Each is allowed in a quarter of the worlds.
    let allowed_encapsulation = (0..).zip(Encapsulation::ALL);
    let allowed_encapsulation: Encapsulations = allowed_encapsulation
        .filter(|(place, _)| case >> (2 * place) & 3 == 0)
        .map(|(_, encapsulation)| encapsulation)
        .collect();
    let engine_options = palisade_engine::Options {
        judge_host_traffic,
        allowed_encapsulation,
        ..palisade_engine::Options::default()
    };
    let options = Options {
        to_itself: ToItself::Allow,
        allowed_encapsulation,
        host_to_endpoint: match judge_host_traffic {
            true => HostToEndpoint::Policy,
            false => HostToEndpoint::Allow,
        },
    };
    let mut scratch = Engine::new(engine_options);
    scratch.apply(state.objects().map(Update::Upsert));
    let prepared = Prepared::new(state);
    for (index, flow) in flows.iter().enumerate() {
        let agreed = agree(&prepared, &options, scratch.tables(), flow);
        let agreed = agreed.map_err(|detail| Failure::at("oracle and tables", index, detail));
        sought.take(agreed)?;
    }
    let detour = lowered::World::generate(case, 0, 0).state;
    let mut engine = Engine::new(engine_options);
    let mut written = engine.tables().clone();
    let mut host = nft::Host::new(dice, judge_host_traffic)?;
    let mut before = State::default();
    for batch in lowered::batches(dice, &detour, state) {
        let delta = engine.apply(batch);
        moments::check(
            &before,
            &engine.state(),
            &written,
            &delta,
            engine.tables(),
            flows,
            sought,
        )?;
        if dice.chance(CHECKED) || sought.is_of_checker() {
            // The order of phases is a stage of its own: what it does to packets is this one's.
            check_between(&written, &delta, engine.tables(), PAIRS)
                .map(drop)
                .map_err(|violation| {
                    Failure::of(violated(&violation), format!("{violation} in {delta:?}"))
                })
                .or_else(|failure| sought.pass(failure))?;
        }
        delta.apply_to(&mut written);
        if written != *engine.tables() {
            let detail = format!("the steps end elsewhere: {delta:?}");
            sought.pass(Failure::of("delta and tables", detail))?;
            written = engine.tables().clone();
        }
        before = engine.state();
        sought.take(host.follow(&delta, &written, &Prepared::new(&before), flows))?;
    }
    sought.take(host.scrutinise(&written, &prepared, flows))?;
    sought.take(host.restart(scratch.tables()))?;
    if before != *state {
        let failure = Failure::of("updates and state", "the engine holds other objects");
        sought.pass(failure)?;
    }
    if written.canonical() != scratch.tables().canonical() {
        sought.pass(Failure::of(
            "roundabout and from scratch",
            difference(&written, scratch.tables()),
        ))?;
    }
    Ok(())
}

/// The stage that a violation is told as.
fn violated(violation: &Violation) -> &'static str {
    match violation {
        Violation::WrongEnd => "checker: wrong end",
        Violation::Order(_) => "checker: order",
        Violation::Dangling { .. } => "checker: dangling",
        Violation::Neither(_) => "checker: neither",
        Violation::BrokenPromise(_) => "checker: broken promise",
        Violation::NotRevoked(_) => "checker: not revoked",
    }
}

/// The packet that a flow is on this host: past the interfaces of the endpoints that hold its ends.
pub(crate) fn packet(prepared: &Prepared<'_>, flow: &Flow) -> Packet {
    let interface = |address| {
        let local = prepared.claimant(address).and_then(|e| e.interface.clone());
        Some(local.unwrap_or_else(|| "eth0".into()))
    };
    Packet {
        from: match flow.origin {
            Origin::Network => interface(flow.source),
            Origin::HostStack => None,
        },
        to: interface(flow.destination),
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        l4: flow.l4,
    }
}

/// Whether the tables judge a flow as the oracle does at every end that is local, and credit the
/// same rules with it.
fn agree(
    prepared: &Prepared<'_>,
    options: &Options,
    tables: &Tables,
    flow: &Flow,
) -> Result<(), String> {
    let packet = packet(prepared, flow);
    let answer = prepared.judge(&Question::from(*flow), options);
    for direction in Direction::BOTH {
        let (address, judgement, through) = match direction {
            Direction::Egress => (flow.source, &answer.egress, &packet.from),
            Direction::Ingress => (flow.destination, &answer.ingress, &packet.to),
        };
        let local = prepared
            .claimant(address)
            .is_some_and(|endpoint| endpoint.interface.is_some());
        if !local || through.is_none() {
            continue;
        }
        let judged = tables.judge_direction(&packet, direction);
        let allowed = judged.verdict() == Verdict::Allow;
        if allowed != judgement.verdict.is_allow() {
            return Err(format!(
                "{direction}: oracle {} by {:?}, tables {judged:?}: {flow}",
                judgement.verdict, judgement.decided_by
            ));
        }
        let (wanted, found) = (credits(judgement, direction), credited(tables, &judged));
        if wanted != found {
            return Err(format!(
                "{direction}: oracle credits {wanted:?}, tables {found:?}: {flow}"
            ));
        }
        if let Judged::By(seen) = judged {
            let log = asked_to_log(judgement).then_some(direction);
            if seen.cell.log != log {
                return Err(format!(
                    "{direction}: oracle logs {log:?}, tables {:?}: {flow}",
                    seen.cell.log
                ));
            }
        }
    }
    Ok(())
}

/// Whether the oracle met a Log rule on its way, for what it credits with rules.
fn asked_to_log(judgement: &Judgement) -> bool {
    let logs = |step: &Step| {
        matches!(
            step,
            Step::Rule {
                action: Action::Log,
                outcome: RuleOutcome::Matched,
                ..
            }
        )
    };
    let encapsulated = matches!(judgement.decided_by, DecidedBy::Encapsulated { .. });
    !encapsulated && judgement.steps.iter().any(logs)
}

fn credited(tables: &Tables, judged: &Judged<'_>) -> Vec<Option<Arc<Credit>>> {
    match judged {
        Judged::By(seen) => {
            let credit = |rule| tables.rules.get(rule).cloned();
            seen.cell.hits.iter().map(credit).collect()
        }
        _ => Vec::new(),
    }
}

/// What the oracle's narrative says was hit, the deciding one last.
fn credits(judgement: &Judgement, direction: Direction) -> Vec<Option<Arc<Credit>>> {
    // Credits outlive edits that only move a rule in its file.
    let unplaced = |origin: &RuleOrigin| RuleOrigin {
        line: None,
        ..origin.clone()
    };
    let of_rule = |source: &RuleSource, origin: &RuleOrigin| match source {
        RuleSource::Policy(policy) => Credit::Rule {
            policy: policy.clone(),
            direction,
            origin: unplaced(origin),
        },
        RuleSource::Profile(profile) => Credit::ProfileRule {
            profile: profile.clone(),
            direction,
            origin: unplaced(origin),
        },
    };
    if matches!(judgement.decided_by, DecidedBy::Encapsulated { .. }) {
        // Whatever rules say of it: none of them is credited.
        return vec![Some(Arc::new(Credit::Encapsulated))];
    }
    let mut all: Vec<Credit> = judgement
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Rule {
                source,
                origin,
                outcome: RuleOutcome::Matched,
                ..
            } => Some(of_rule(source, origin)),
            _ => None,
        })
        .collect();
    all.extend(match &judgement.decided_by {
        DecidedBy::TierDefault { tier, isolating } => Some(Credit::TierDefault {
            tier: tier.clone(),
            direction,
            policies: isolating.clone(),
        }),
        DecidedBy::AllowAllProfile => Some(Credit::ProfileRule {
            profile: Str::from(Profile::ALLOW_ALL),
            direction,
            origin: RuleOrigin {
                index: 0,
                name: None,
                fingerprint: 0,
                line: None,
            },
        }),
        DecidedBy::NoProfileMatch => Some(Credit::NoProfileMatch { direction }),
        DecidedBy::MissingProfile { profile } => Some(Credit::MissingProfile {
            profile: profile.clone(),
            direction,
        }),
        DecidedBy::Rule { .. }
        | DecidedBy::HostOrigin
        | DecidedBy::Itself
        | DecidedBy::Encapsulated { .. }
        | DecidedBy::NotAnEndpoint => None,
    });
    all.into_iter()
        .map(|credit| Some(Arc::new(credit)))
        .collect()
}

fn difference(a: &Tables, b: &Tables) -> String {
    let (a, b) = (a.canonical(), b.canonical());
    let mut parts = Vec::new();
    if a.interfaces != b.interfaces {
        parts.push(format!(
            "interfaces {:?} and {:?}",
            a.interfaces, b.interfaces
        ));
    }
    if a.identities != b.identities {
        parts.push(format!(
            "identities {:?} and {:?}",
            a.identities, b.identities
        ));
    }
    if a.sets != b.sets {
        parts.push(format!("sets {:?} and {:?}", a.sets, b.sets));
    }
    if a.classes != b.classes {
        parts.push(format!("{} and {} classes", a.classes, b.classes));
    }
    if a.credits != b.credits {
        parts.push(format!("credits {:?} and {:?}", a.credits, b.credits));
    }
    parts.join("; ")
}

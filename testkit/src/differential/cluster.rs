//! Kubernetes worlds: from the written manifests to the oracle, against the naive reading.

use super::{Failure, LISTED, Outcome, Sought, sets, tables};
use palisade_dialects::Lowering;
use palisade_generators::manifest::{self, File};
use palisade_generators::naive;
use palisade_generators::{Dice, kubernetes::World};
use palisade_manifest::{Limits, objects, read};
use palisade_model::{Flow, L4, Origin, Protocol, State};
use palisade_oracle::{Options, Prepared, Question};

/// The manifests of a world: in random styles, or in the plainest one.
pub(crate) fn files(world: &World, seed: u64, case: u64, plain: bool) -> Vec<File> {
    if plain {
        manifest::plain(&world.objects())
    } else {
        manifest::render(
            &mut Dice::new(seed ^ 0x7374_796c_6573, case),
            &world.objects(),
        )
    }
}

/// Judges every flow of a world by every reading.
pub(crate) fn check(
    world: &World,
    files: &[File],
    seed: u64,
    case: u64,
    sought: Sought,
) -> Outcome {
    let mut state = lower(files)?;
    let verdicts = sought.take(by_oracle(world, &state))?;
    let flows: Vec<Flow> = world.trials.iter().map(|trial| flow(&trial.flow)).collect();
    let mut dice = Dice::new(seed ^ 0x7461_626c_6573, case);
    if dice.chance(LISTED) {
        sought.take(sets::check(&mut dice, &state, &flows))?;
    }
    attach(&mut dice, &mut state);
    tables::check(&mut dice, &state, &flows, sought)?;
    Ok(verdicts)
}

/// What files say, read and lowered as the product does it; nothing in a world is ever refused.
pub(crate) fn lower(files: &[File]) -> Result<State, Failure> {
    let limits = Limits::default();
    let mut all = Vec::new();
    for file in files {
        let read = objects(read(&file.path, file.text.as_bytes(), &limits), &limits);
        if let Some(problem) = read.problems.first() {
            return Err(Failure::of("manifest refused", format!("{problem:?}")));
        }
        all.extend(read.objects);
    }
    let lowering: Lowering = palisade_dialects::lower(&all);
    match lowering.errors.first() {
        Some(error) => Err(Failure::of("object refused", format!("{error:?}"))),
        None => Ok(lowering.state()),
    }
}

fn by_oracle(world: &World, state: &State) -> Outcome {
    let objects = world.objects();
    let prepared = Prepared::new(state);
    let options = Options::default();
    let mut verdicts = Vec::new();
    for (index, trial) in world.trials.iter().enumerate() {
        let question = Question::from(flow(&trial.flow));
        let oracle = prepared.verdict(&question, &options);
        let naive = naive::allowed(&objects, &trial.flow);
        if naive != oracle {
            let detail = format!(
                "(egress, ingress) naive {naive:?}, oracle {oracle:?}: {}",
                flow(&trial.flow)
            );
            return Err(Failure::at("naive reading and oracle", index, detail));
        }
        verdicts.push(oracle);
    }
    Ok(verdicts)
}

/// Makes some pods local, so that they are judged.
pub(crate) fn attach(dice: &mut Dice, state: &mut State) {
    for (n, endpoint) in state.endpoints.values_mut().enumerate() {
        if !endpoint.template && dice.chance(65) {
            endpoint.interface = Some(format!("pal{n}").into());
        }
    }
}

/// A flow in the model's words.
pub(crate) fn flow(of: &naive::Flow) -> Flow {
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
        origin: Origin::Network,
    }
}

//! Lowered worlds: the oracle against the tables.

use super::{LISTED, Outcome, Sought, sets, tables};
use palisade_generators::Dice;
use palisade_model::{Flow, State};
use palisade_oracle::{Options, Prepared, Question};

/// Judges flows in a state by every reading.
pub(crate) fn check(
    state: &State,
    flows: &[Flow],
    seed: u64,
    case: u64,
    sought: Sought,
) -> Outcome {
    let mut dice = Dice::new(seed ^ 0x7461_626c_6573, case);
    if dice.chance(LISTED) {
        sought.take(sets::check(&mut dice, state, flows))?;
    }
    tables::check(&mut dice, state, flows, sought)?;
    let prepared = Prepared::new(state);
    let options = Options::default();
    Ok(flows
        .iter()
        .map(|flow| prepared.verdict(&Question::from(*flow), &options))
        .collect())
}

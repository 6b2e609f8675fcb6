//! Lowered worlds: the oracle against the tables.

use super::{CaseOutcome, LISTED, StageFilter, sets, tables};
use palisade_generators::Dice;
use palisade_model::{Flow, State};
use palisade_oracle::{OracleOptions, PreparedState, Question};

/// Judges flows in a state by every reading.
pub(crate) fn check_state(
    state: &State,
    flows: &[Flow],
    seed: u64,
    case: u64,
    sought: StageFilter,
) -> CaseOutcome {
    let mut dice = Dice::new(seed ^ 0x7461_626c_6573, case);
    if dice.chance(LISTED) {
        sought.filter(sets::check_connections(&mut dice, state, flows))?;
    }
    tables::check_tables(&mut dice, state, flows, sought)?;
    let prepared = PreparedState::new(state);
    let options = OracleOptions::default();
    Ok(flows
        .iter()
        .map(|flow| prepared.verdict(&Question::from(*flow), &options))
        .collect())
}

//! Every verdict of the tables equals the oracle's.

use crate::from_scratch;
use crate::support::{SEED, difference};
use palisade_generators::lowered::ModelWorld;
use palisade_generators::{cases, seeded_cases};
use palisade_oracle::PreparedState;

#[test]
fn tables_say_what_the_oracle_says() {
    for (seed, case) in seeded_cases(SEED, cases(400)) {
        let world = ModelWorld::generate(seed, case, 60);
        let engine = from_scratch(&world.state);
        let oracle = PreparedState::new(&world.state);
        for trial in &world.trials {
            let difference = difference(&engine, &oracle, &trial.flow);
            assert_eq!(difference, None, "case {case} of seed {seed}");
        }
    }
}

//! Every verdict of the tables is the oracle's.

use crate::from_scratch;
use crate::support::{SEED, cases, difference};
use palisade_oracle::Prepared;
use palisade_testkit::generate::lowered::World;

#[test]
fn tables_say_what_the_oracle_says() {
    for case in 0..cases(400) {
        let world = World::generate(SEED, case, 60);
        let engine = from_scratch(&world.state);
        let oracle = Prepared::new(&world.state);
        for trial in &world.trials {
            let difference = difference(&engine, &oracle, &trial.flow);
            assert_eq!(difference, None, "case {case} of seed {SEED}");
        }
    }
}

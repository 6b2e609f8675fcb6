//! Random decision tables in the kernel: each is adopted from another, and from itself.

use crate::need_root;
use palisade_generators::case_seeds;
use palisade_nft::Config;
use palisade_testkit::CountedDriver;
use palisade_testkit::test_driver::open_driver;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::support::TestNetNs;

#[path = "../../../palisade-nft/tests/integration/support/mod.rs"]
#[allow(
    dead_code,
    reason = "the tests of the nft crate use the rest of this module"
)]
mod generated;

#[test]
fn the_kernel_takes_every_way_from_tables_to_tables() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("random");
    let config = Config {
        table: "t".into(),
        ..Config::default()
    };
    let driver = || {
        let config = Config {
            deny_action: palisade_model::DenyAction::Drop,
            ..config.clone()
        };
        CountedDriver::from(open_driver(config, &test.netns).unwrap())
    };
    let mut old = driver();
    let (mut steps, mut writes) = (0, 0);
    for seed in case_seeds(0, 60) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let tables = generated::tables(&mut rng, &config);
        // Every third case uses a new agent.
        if seed % 3 == 0 {
            old = driver();
        }
        let outcome = old
            .resync(&tables)
            .unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        steps += outcome.steps.len();
        writes += outcome.writes;
        assert_eq!(old.verify(&tables).unwrap().writes, 0, "seed {seed}");

        let again = generated::renumbered(&mut rng, &tables);
        let mut new = driver();
        let outcome = new.resync(&again).unwrap();
        assert_eq!(outcome.steps, [], "seed {seed}");
        assert_eq!(new.verify(&again).unwrap().writes, 0, "seed {seed}");
    }
    assert!(
        steps > 100 && writes > 2_000,
        "{steps} steps, {writes} writes"
    );
}

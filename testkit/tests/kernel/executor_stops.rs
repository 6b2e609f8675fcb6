//! The real executor on a real table, stopped after each transaction of a flush in turn: its last
//! transaction is made, and it never hears so. Whoever comes next reads the table back, plans from what
//! is there and finishes. On the way no packet gets a verdict that is neither the old nor the new, in any
//! state that the kernel holds and between two of them, and at the end the table is one made afresh.
//!
//! What the kernel holds is read back and judged by the model of the kernel; that this judges as the
//! kernel does is the differential's to show.

use std::collections::BTreeMap;

use palisade_dataplane::nftables::netlink::Executor;
use palisade_engine::{Engine, EngineOptions};
use palisade_generators::lowered::{ModelWorld, batches};
use palisade_generators::{Dice, seeded_cases};
use palisade_model::{FlowOrigin, Str};
use palisade_nft::{
    AttributedCounter, Config, CounterValue, Ruleset, Transaction, adopt, tcp_flag,
};
use palisade_oracle::PreparedState;
use palisade_sys::nfnetlink::{
    BatchError, KernelNfnetlink, NfBatch, NfMessage, NfRequest, NfRequestError, Nfnetlink,
};
use palisade_tables::{Phase, Tables};
use palisade_testkit::FakeGracePeriod;
use palisade_testkit::lab::TestNetNs;
use palisade_testkit::need_root;
use palisade_verification::{ConntrackInfo, HookPacket, RulesetSimulator, apply};

const SEED: u64 = 0x006d_6f72_7461_6c73;
const CASES: u64 = 6;

/// A socket that dies: of so many transactions it makes the last one without saying so.
struct StoppingNfnetlink {
    socket: KernelNfnetlink,
    left: usize,
}

impl Nfnetlink for StoppingNfnetlink {
    fn commit(&mut self, batch: &NfBatch) -> Result<(), BatchError> {
        assert!(self.left > 0, "it goes on after a failure");
        self.left -= 1;
        self.socket.commit(batch)?;
        match self.left {
            0 => Err(BatchError::Unconfirmed {
                netns: "of the test".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    fn dump(&mut self, query: &NfRequest) -> Result<Vec<NfMessage>, NfRequestError> {
        self.socket.dump(query)
    }

    fn get(&mut self, query: &NfRequest) -> Result<Option<NfMessage>, NfRequestError> {
        self.socket.get(query)
    }

    fn change(&mut self, query: &NfRequest, flags: u16) -> Result<(), NfRequestError> {
        self.socket.change(query, flags)
    }

    fn generation(&mut self) -> Result<u32, NfRequestError> {
        self.socket.generation()
    }

    fn portid(&self) -> u32 {
        self.socket.portid()
    }
}

/// A namespace with a table, removed on drop.
struct KernelTable {
    netns: TestNetNs,
    table: Str,
}

impl KernelTable {
    fn new(table: &Str) -> Self {
        let netns = TestNetNs::new("stops").unwrap();
        let table = table.clone();
        KernelTable { netns, table }
    }

    /// An executor that nobody was before, which makes so many transactions.
    fn executor(&self, left: usize) -> Executor<StoppingNfnetlink, FakeGracePeriod> {
        let socket = KernelNfnetlink::open(self.netns.netns()).unwrap();
        let mortal = StoppingNfnetlink { socket, left };
        Executor::new(self.table.clone(), mortal, FakeGracePeriod::default())
    }

    /// Makes them all, and hears so.
    fn run(&self, transaction: &Transaction) {
        let mut executor = self.executor(usize::MAX);
        let ignore = &mut |_: &AttributedCounter, _: CounterValue| {};
        executor.execute(transaction, ignore).unwrap();
    }

    fn read(&self) -> Ruleset {
        let found = self.executor(0).read_back().unwrap();
        found.unwrap().without_counts()
    }
}

fn accepts(ruleset: &Ruleset, frame: &HookPacket) -> bool {
    RulesetSimulator::new(ruleset).run(frame).unwrap().accepted
}

/// The first packets of a world's flows, of interfaces that neither come nor go.
fn frames(world: &ModelWorld, tables: [&Tables; 2]) -> Vec<HookPacket> {
    let prepared = PreparedState::new(&world.state);
    let interface = |address| {
        let local = prepared
            .address_holder(address)
            .and_then(|e| e.interface.clone());
        local.unwrap_or_else(|| "eth0".into())
    };
    let steady = |name: &Option<Str>| {
        let ours = tables.map(|t| name.as_ref().is_some_and(|n| t.interfaces.contains(n)));
        ours[0] == ours[1]
    };
    let flows = world.trials.iter().map(|trial| &trial.flow);
    let frames = flows.map(|flow| HookPacket {
        iif: (flow.origin == FlowOrigin::Network).then(|| interface(flow.source)),
        oif: Some(interface(flow.destination)),
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        l4: flow.l4,
        tcp_flags: tcp_flag::SYN,
        conntrack: ConntrackInfo::NEW,
    });
    frames
        .filter(|frame| steady(&frame.iif) && steady(&frame.oif))
        .collect()
}

/// Each packet gets what it got before or gets afterwards, in a state and between two.
fn judge(pair: [&Ruleset; 2], ends: &[(HookPacket, [bool; 2])], what: &str) -> usize {
    for (frame, ends) in ends {
        for switch in [0, 3, 9, 14, 19, 24, 31, 40] {
            let accepted = RulesetSimulator::with_switch(pair[0], pair[1], switch).run(frame);
            let accepted = accepted.unwrap().accepted;
            assert!(ends.contains(&accepted), "{what}: {frame:?}");
        }
    }
    8 * ends.len()
}

/// Plans the rest from what the kernel holds, and makes it a transaction at a time.
fn finish(
    kernel: &KernelTable,
    config: &Config,
    wanted: &Tables,
    ends: &[(HookPacket, [bool; 2])],
    what: &str,
) -> usize {
    let mut found = kernel.read();
    let (planner, rest) = adopt(config, Some(&found), wanted, 77);
    let mut judged = 0;
    for step in rest.steps {
        let table = rest.table.clone();
        kernel.run(&Transaction::new(table, [step].into()));
        let next = kernel.read();
        judged += judge([&found, &next], ends, what);
        found = next;
    }
    assert_eq!(found, planner.ruleset(), "{what}: not what is wanted");
    let (_, again) = adopt(config, Some(&found), wanted, 77);
    assert!(again.is_empty(), "{what}: not at rest");
    judged
}

#[test]
fn a_stopped_executor_leaves_what_the_next_one_finishes() {
    if !need_root() {
        return;
    }
    let config = Config::default();
    let kernel = KernelTable::new(&config.table);
    let (mut stops, mut judged, mut decided) = (0, 0, 0);
    let mut after: BTreeMap<Phase, usize> = BTreeMap::new();
    for (number, (seed, case)) in seeded_cases(SEED, CASES).into_iter().enumerate() {
        let world = ModelWorld::generate(seed, case, 20);
        let detour = ModelWorld::generate(seed ^ 1, case, 0);
        let mut dice = Dice::new(seed, case);
        let mut engine = Engine::new(EngineOptions::of_host(world.state.host_node.clone()));
        let (mut planner, first) = adopt(&config, None, engine.tables(), 9);
        if number == 0 {
            kernel.run(&first);
        }
        for batch in batches(&mut dice, &detour.state, &world.state) {
            let (old, before) = (engine.tables().clone(), planner.clone());
            let delta = engine.apply(batch);
            let new = engine.tables();
            let transaction = planner.plan(&delta);
            let old_ruleset = before.ruleset();
            let fresh = adopt(&config, None, new, 9).0.ruleset();
            let ends: Vec<(HookPacket, [bool; 2])> = frames(&world, [&old, new])
                .into_iter()
                .map(|frame| {
                    let ends = [accepts(&old_ruleset, &frame), accepts(&fresh, &frame)];
                    decided += usize::from(ends[0] != ends[1]);
                    (frame, ends)
                })
                .collect();
            let mut model = Some(old_ruleset.clone());
            // What packets that are under way may have begun in.
            let mut begun = vec![old_ruleset];
            for (at, step) in transaction.steps.iter().enumerate() {
                let what = format!(
                    "seed {seed} case {case}, stopped after {:?}, step {at}",
                    step.phase
                );
                kernel.run(&before.rebuild(Some(&kernel.read())));
                apply(&mut model, &transaction.table, &step.ops).unwrap();
                let ignore = &mut |_: &AttributedCounter, _: CounterValue| {};
                let died = kernel.executor(at + 1).execute(&transaction, ignore);
                assert!(died.is_err(), "{what}: it lives on");
                let found = kernel.read();
                assert_eq!(Some(&found), model.as_ref(), "{what}");
                for was in &begun {
                    judged += judge([was, &found], &ends, &what);
                }
                if step.needs_grace_period {
                    begun.clear();
                }
                begun.push(found);
                judged += finish(&kernel, &config, new, &ends, &what);
                let end = kernel.read();
                for (frame, ends) in &ends {
                    assert_eq!(accepts(&end, frame), ends[1], "{what}: {frame:?}");
                }
                *after.entry(step.phase).or_default() += 1;
                stops += 1;
            }
        }
    }
    println!(
        "account: on the kernel {stops} stops of the executor, after {after:?}; {judged} verdicts in and between what the \
         kernel held, of packets {decided} times decided anew"
    );
    assert!(
        stops > 60 && judged > 5_000 && decided > 8,
        "{stops} {judged} {decided}"
    );
    for phase in [Phase::Split, Phase::Tighten, Phase::Revoke, Phase::Loosen] {
        assert!(after.contains_key(&phase), "never after {phase:?}");
    }
}

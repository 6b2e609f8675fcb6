//! A network namespace that is removed with the test, and an executor in it.

use std::process::Command;

use palisade_dataplane::nftables::netlink::{ExecuteError, Executor};
use palisade_nft::{AttributedCounter, CounterValue, Op, Ruleset, Transaction, TxStep};
use palisade_sys::netns::{NetNs, run_in};
use palisade_sys::nfnetlink::KernelNfnetlink;
use palisade_tables::Phase;
use palisade_testkit::FakeGracePeriod;

/// A named namespace, removed on drop.
pub(crate) struct TestNetNs {
    named: palisade_testkit::lab::TestNetNs,
    pub(crate) netns: NetNs,
}

impl TestNetNs {
    pub(crate) fn new(what: &str) -> Self {
        let named = palisade_testkit::lab::TestNetNs::new(&format!("dp-{what}")).unwrap();
        let netns = named.netns().clone();
        TestNetNs { named, netns }
    }

    /// Makes connection tracking forget all flows.
    pub(crate) fn flush_conntrack(&self) {
        self.named.flush_conntrack().unwrap();
    }

    /// The output of an `nft` command, which must succeed.
    pub(crate) fn nft(&self, command: &str) -> String {
        run_in(&self.netns, || {
            let output = Command::new("nft").arg(command).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            assert!(
                output.status.success(),
                "{command}: {}",
                text(&output.stderr)
            );
            text(&output.stdout)
        })
        .unwrap()
    }

    pub(crate) fn kernel(&self) -> Kernel {
        let nfnetlink = KernelNfnetlink::open(&self.netns).unwrap();
        Kernel(Executor::new(
            "t".into(),
            nfnetlink,
            FakeGracePeriod::default(),
        ))
    }
}

/// An executor on table `t`.
pub(crate) struct Kernel(pub(crate) Executor<KernelNfnetlink, FakeGracePeriod>);

impl Kernel {
    pub(crate) fn step(&mut self, ops: Vec<Op>) -> Result<(), ExecuteError> {
        let step = TxStep {
            phase: Phase::Split,
            retiring_counters: Vec::new(),
            ops,
            needs_grace_period: true,
        };
        let transaction = Transaction::new("t".into(), vec![step]);
        self.0
            .execute(
                &transaction,
                &mut |_: &AttributedCounter, _: CounterValue| {},
            )
            .map(drop)
    }

    pub(crate) fn read(&mut self) -> Option<Ruleset> {
        self.0.read_back().unwrap()
    }
}

/// The operations that create a whole ruleset.
pub(crate) fn making(ruleset: &Ruleset) -> Vec<Op> {
    let mut ops = vec![Op::AddTable {
        comment: ruleset.comment.clone(),
        flags: ruleset.flags,
    }];
    for (chain, of) in &ruleset.chains {
        ops.push(Op::AddChain {
            chain: chain.clone(),
            base_chain: of.base_chain,
        });
    }
    for (set, of) in &ruleset.sets {
        ops.push(Op::AddSet {
            set: set.clone(),
            decl: of.decl.clone(),
        });
    }
    for (set, of) in &ruleset.sets {
        for (key, element) in &of.elements {
            ops.push(Op::AddElement {
                set: set.clone(),
                key: key.clone(),
                element: element.clone(),
            });
        }
    }
    for (chain, of) in &ruleset.chains {
        for rule in &of.rules {
            ops.push(Op::AddRule {
                chain: chain.clone(),
                rule: rule.clone(),
            });
        }
    }
    ops
}

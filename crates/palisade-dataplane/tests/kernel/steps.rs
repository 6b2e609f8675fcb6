//! Steps are atomic, errors name the operation, deleted counters are reported.

use crate::need_root;
use palisade_dataplane::nftables::netlink::{ExecuteError, TransactionObserver};
use palisade_nft::{
    AttributedCounter, Chain, CounterLocation, CounterValue, Element, ElementKey, Expr, FieldType,
    MapValue, MapValueType, NftRule, NftSet, NftVerdict, Op, Ruleset, Transaction, TxStep,
};
use palisade_sys::Errno;
use palisade_tables::{Phase, RuleId};

use crate::content::{bytes, concat, decl, element, everything, mark, value};
use crate::support::{Kernel, TestNetNs, making};

fn add(set: &str, key: &ElementKey, element: &Element) -> Op {
    Op::AddElement {
        set: set.into(),
        key: key.clone(),
        element: element.clone(),
    }
}

fn delete(set: &str, key: &ElementKey) -> Op {
    Op::DeleteElement {
        set: set.into(),
        key: key.clone(),
    }
}

#[test]
fn a_refused_step_changes_nothing_and_names_the_operation() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("refuse");
    let mut kernel = test.kernel();
    let ruleset = everything();
    kernel.step(making(&ruleset)).unwrap();
    let id = |n: u8| ElementKey::Exact(bytes(&[10, 9, 0, n]));
    let one = element(value(1), false);
    let known = ElementKey::Exact(bytes(&[10, 0, 0, 5]));
    let goto = element(
        Some(MapValue::Verdict(NftVerdict::Goto("c_missing".into()))),
        true,
    );
    let port = ElementKey::Exact(concat(&[&mark(9), &[6], &[0, 1]]));
    let cases = [
        (
            vec![
                add("s_id", &id(1), &one),
                add("s_id", &known, &one),
                add("s_id", &id(2), &one),
            ],
            "adding element 0a000005 to s_id",
            Errno::EEXIST,
        ),
        (
            vec![
                delete("s_id", &known),
                delete("s_id", &id(3)),
                delete("s_id", &id(4)),
            ],
            "deleting element 0a090003 from s_id",
            Errno::ENOENT,
        ),
        (
            vec![add("s_id", &id(1), &one), add("s_port", &port, &goto)],
            "adding element 090000000600000000010000 to s_port",
            Errno::ENOENT,
        ),
        (
            vec![
                add("s_id", &id(1), &one),
                Op::DeleteChain {
                    chain: "c_other".into(),
                },
            ],
            "deleting chain c_other",
            Errno::EBUSY,
        ),
        (
            vec![
                add("s_id", &id(1), &one),
                Op::DeleteSet { set: "s_id".into() },
            ],
            "deleting set s_id",
            Errno::EBUSY,
        ),
        (
            vec![Op::AddTable {
                comment: None,
                flags: 0,
            }],
            "creating the table",
            Errno::EEXIST,
        ),
    ];
    for (ops, expected, errno) in cases {
        match kernel.step(ops).unwrap_err() {
            ExecuteError::Refused { doing, error, .. } => {
                assert_eq!((doing.as_str(), error.errno), (expected, errno));
            }
            other => panic!("{expected}: {other}"),
        }
        assert_eq!(kernel.read().as_ref(), Some(&ruleset), "after {expected}");
    }
    let unknown = NftRule {
        exprs: vec![Expr::Unknown("xt".into())],
        comment: None,
    };
    let refused = kernel.step(vec![Op::AddRule {
        chain: "c_in".into(),
        rule: unknown,
    }]);
    assert!(matches!(refused, Err(ExecuteError::Encode { .. })));
}

#[test]
fn elements_are_replaced_in_one_step() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("swap");
    let mut ruleset = everything();
    test.kernel().step(making(&ruleset)).unwrap();
    // A new executor, which has to read how the sets encode their ranges.
    let mut kernel = test.kernel();
    let mut ops = Vec::new();
    for (name, set) in &mut ruleset.sets {
        for (key, element) in &mut set.elements {
            ops.push(delete(name, key));
            element.data = match element.data.take() {
                Some(MapValue::Value(_)) => value(77),
                Some(MapValue::Verdict(_)) => {
                    Some(MapValue::Verdict(NftVerdict::Goto("c_other".into())))
                }
                None => None,
            };
            ops.push(add(name, key, element));
        }
    }
    // Added and deleted again: no change.
    let key = ElementKey::Exact(bytes(&[1, 2, 3, 4]));
    ops.push(add("s_id", &key, &element(value(1), false)));
    ops.push(delete("s_id", &key));
    kernel.step(ops).unwrap();
    assert_eq!(kernel.read(), Some(ruleset.clone()));

    // A range replaces two adjacent ones, and all others are deleted.
    let net = ruleset.sets.get_mut("s_net").unwrap();
    let mut ops: Vec<_> = net.elements.keys().map(|k| delete("s_net", k)).collect();
    let whole = ElementKey::Range(bytes(&[0; 4]), bytes(&[255; 4]));
    net.elements = [(whole.clone(), element(value(5), false))].into();
    ops.push(add("s_net", &whole, &element(value(5), false)));
    test.kernel().step(ops).unwrap();
    assert_eq!(kernel.read(), Some(ruleset));
}

#[test]
fn everything_can_be_taken_apart() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("apart");
    let mut kernel = test.kernel();
    let ruleset = everything();
    kernel.step(making(&ruleset)).unwrap();
    let mut ops = Vec::new();
    for chain in ruleset.chains.keys() {
        ops.push(Op::FlushChain {
            chain: chain.clone(),
        });
    }
    for set in ruleset.sets.keys() {
        ops.push(Op::DeleteSet { set: set.clone() });
    }
    for chain in ruleset.chains.keys() {
        ops.push(Op::DeleteChain {
            chain: chain.clone(),
        });
    }
    kernel.step(ops).unwrap();
    let empty = Ruleset {
        comment: ruleset.comment.clone(),
        ..Ruleset::empty("t".into())
    };
    assert_eq!(kernel.read(), Some(empty));
    kernel.step(vec![Op::DeleteTable]).unwrap();
    assert_eq!(kernel.read(), None);
    // Recreated in the step that deletes it.
    kernel.step(making(&ruleset)).unwrap();
    let mut ops = vec![Op::DeleteTable];
    ops.extend(making(&ruleset));
    kernel.step(ops).unwrap();
    assert_eq!(kernel.read(), Some(ruleset));
}

#[test]
fn long_element_lists_are_one_step() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("long");
    let mut kernel = test.kernel();
    let mut ruleset = Ruleset::empty("t".into());
    let fields = [FieldType::Mark, FieldType::Proto, FieldType::Port];
    let key = |n: u32| ElementKey::Exact(concat(&[&mark(n), &[6], &[0, 80]]));
    let returns = element(Some(MapValue::Verdict(NftVerdict::Return)), true);
    let set = NftSet {
        decl: decl(&fields, Some(MapValueType::Verdict), false, true),
        elements: (0..30_000).map(|n| (key(n), returns.clone())).collect(),
    };
    ruleset.sets.insert("s".into(), set);
    let began = std::time::Instant::now();
    kernel.step(making(&ruleset)).unwrap();
    let written = began.elapsed();
    let began = std::time::Instant::now();
    // Immediately, while the kernel's hash table still grows.
    assert_eq!(kernel.read().as_ref(), Some(&ruleset));
    eprintln!(
        "30,000 elements: written in {written:?}, read back in {:?}",
        began.elapsed()
    );

    // An error deep inside a batch still names its operation.
    let mut ops: Vec<_> = (40_000..60_000)
        .map(|n| add("s", &key(n), &returns))
        .collect();
    ops.insert(17_000, add("s", &key(123), &returns));
    match kernel.step(ops).unwrap_err() {
        ExecuteError::Refused { doing, .. } => {
            assert_eq!(doing, "adding element 7b0000000600000000500000 to s");
        }
        other => panic!("{other}"),
    }
    let all: Vec<_> = (0..30_000).map(|n| delete("s", &key(n))).collect();
    kernel.step(all).unwrap();
    assert_eq!(kernel.read().unwrap().sets["s"].elements.len(), 0);
}

#[test]
fn counts_are_handed_over_before_they_go() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("count");
    let mut kernel = test.kernel();
    let count = |n: u64| CounterValue {
        packets: n,
        bytes: 100 * n,
    };
    let counted = |n: u64| Element {
        counter: Some(count(n)),
        ..element(value(1), true)
    };
    let exact = |n: u32| ElementKey::Exact(concat(&[&mark(n), &[6], &[0, 80]]));
    let range = ElementKey::Range(
        concat(&[&mark(5), &[6], &[0x10, 0]]),
        concat(&[&mark(5), &[6], &[0x20, 0]]),
    );
    let fields = [FieldType::Mark, FieldType::Proto, FieldType::Port];
    let data = Some(MapValueType::Value(FieldType::Mark));
    let mut ruleset = Ruleset::empty("t".into());
    ruleset.sets = [
        (
            "s".into(),
            NftSet {
                decl: decl(&fields, data, false, true),
                elements: (1..=200).map(|n| (exact(n), counted(n.into()))).collect(),
            },
        ),
        (
            "s_range".into(),
            NftSet {
                decl: decl(&fields, data, true, true),
                elements: [(range.clone(), counted(1000))].into(),
            },
        ),
    ]
    .into();
    let rule = |n| NftRule {
        exprs: vec![Expr::Counter(count(n)), Expr::Verdict(NftVerdict::Drop)],
        comment: None,
    };
    ruleset.chains.insert(
        "c".into(),
        Chain {
            base_chain: None,
            rules: vec![rule(7), rule(8)],
        },
    );
    kernel.step(making(&ruleset)).unwrap();
    assert_eq!(kernel.read().as_ref(), Some(&ruleset));

    let of_element = |set: &str, key: &ElementKey, rule: u32| AttributedCounter {
        location: CounterLocation::Element {
            set: set.into(),
            key: key.clone(),
        },
        rules: vec![RuleId(rule)],
        audit: None,
    };
    let harvest_of = |keys: std::ops::RangeInclusive<u32>| {
        let mut harvest: Vec<_> = keys.map(|n| of_element("s", &exact(n), n)).collect();
        harvest.push(of_element("s_range", &range, 5000));
        harvest.push(of_element("s", &exact(9999), 9999));
        harvest.push(AttributedCounter {
            location: CounterLocation::Rule {
                chain: "c".into(),
                index: 1,
            },
            rules: vec![RuleId(1), RuleId(2)],
            audit: None,
        });
        harvest
    };
    // Few keys are read one by one, many by listing the set: the same counts.
    for keys in [1..=3, 1..=150] {
        let transaction = |ops| {
            Transaction::new(
                "t".into(),
                vec![TxStep {
                    phase: Phase::Delete,
                    retiring_counters: harvest_of(keys.clone()),
                    ops,
                    needs_grace_period: true,
                }],
            )
        };
        let mut expected: Vec<_> = keys
            .clone()
            .map(|n| (vec![RuleId(n)], count(n.into())))
            .collect();
        expected.push((vec![RuleId(5000)], count(1000)));
        expected.push((vec![RuleId(9999)], CounterValue::default()));
        expected.push((vec![RuleId(1), RuleId(2)], count(8)));
        let mut seen = Vec::new();
        let mut take =
            |harvest: &AttributedCounter, count| seen.push((harvest.rules.clone(), count));
        // A refused step reports no counters.
        let refused = transaction(vec![delete("s", &exact(9999))]);
        assert!(kernel.0.execute(&refused, &mut take).is_err());
        let add = Op::AddChain {
            chain: format!("c{}", keys.end()).as_str().into(),
            base_chain: None,
        };
        let outcome = kernel
            .0
            .execute(&transaction(vec![add]), &mut take)
            .unwrap();
        assert_eq!(seen, expected);
        assert_eq!((outcome.len(), outcome[0].ops), (1, 1));
    }
    // Each transaction waits for the one before; the wait after its own last step is only begun.
    let graces = |kernel: &Kernel| {
        let of = kernel.0.grace();
        (of.finished, of.waits, of.begun)
    };
    assert_eq!(graces(&kernel), (5, 0, 3), "two were refused");
    let chain = |name: &str| Op::AddChain {
        chain: name.into(),
        base_chain: None,
    };
    let step = |name, needs_grace_period| TxStep {
        phase: Phase::Split,
        retiring_counters: Vec::new(),
        ops: vec![chain(name)],
        needs_grace_period,
    };
    let two = vec![step("d1", true), step("d2", true)];
    let one = |name, needs_grace_period| vec![step(name, needs_grace_period)];
    for (steps, only_loosens_addresses, expected) in [
        (two, false, (6, 1, 4)),
        (one("d3", false), false, (6, 1, 4)),
        // The first that only loosens addresses waits for what was before, those after it for nothing.
        (one("d4", true), true, (7, 1, 5)),
        (one("d5", true), true, (7, 1, 6)),
        (one("d6", true), false, (8, 1, 7)),
        (one("d7", true), true, (9, 1, 8)),
    ] {
        let transaction = Transaction {
            only_loosens_addresses,
            ..Transaction::new("t".into(), steps)
        };
        let mut ignored = |_: &AttributedCounter, _: CounterValue| {};
        kernel.0.execute(&transaction, &mut ignored).unwrap();
        assert_eq!(graces(&kernel), expected);
    }
}

/// Records for each deleted counter whether its element still exists.
struct Witness<'a> {
    test: &'a TestNetNs,
    seen: Vec<(&'static str, bool)>,
}

impl Witness<'_> {
    fn look(&mut self, when: &'static str) {
        let kernel = self.test.kernel().read().unwrap();
        let has_elements = kernel
            .sets
            .get("s")
            .is_some_and(|set| !set.elements.is_empty());
        self.seen.push((when, has_elements));
    }
}

impl TransactionObserver for Witness<'_> {
    fn before_delete(&mut self, _: &[(&AttributedCounter, CounterValue)]) {
        self.look("going");
    }

    fn after_delete(&mut self, _: &[(&AttributedCounter, CounterValue)]) {
        self.look("gone");
    }
}

/// Otherwise a process that dies between the two would lose the counts.
#[test]
fn what_goes_is_told_while_it_is_still_there() {
    if !need_root() {
        return;
    }
    let test = TestNetNs::new("witness");
    let mut kernel = test.kernel();
    let key = ElementKey::Exact(concat(&[&mark(1), &[6], &[0, 80]]));
    let counted = Element {
        counter: Some(CounterValue {
            packets: 3,
            bytes: 300,
        }),
        ..element(value(1), true)
    };
    let fields = [FieldType::Mark, FieldType::Proto, FieldType::Port];
    let data = Some(MapValueType::Value(FieldType::Mark));
    let mut ruleset = Ruleset::empty("t".into());
    let set = NftSet {
        decl: decl(&fields, data, false, true),
        elements: [(key.clone(), counted)].into(),
    };
    ruleset.sets = [("s".into(), set)].into();
    kernel.step(making(&ruleset)).unwrap();
    let location = CounterLocation::Element {
        set: "s".into(),
        key: key.clone(),
    };
    let transaction = Transaction::new(
        "t".into(),
        vec![TxStep {
            phase: Phase::Delete,
            retiring_counters: vec![AttributedCounter {
                location,
                rules: vec![RuleId(1)],
                audit: None,
            }],
            ops: vec![delete("s", &key)],
            needs_grace_period: true,
        }],
    );
    let mut witness = Witness {
        test: &test,
        seen: Vec::new(),
    };
    kernel.0.execute(&transaction, &mut witness).unwrap();
    assert_eq!(witness.seen, [("going", true), ("gone", false)]);
}

//! The keys of counters in the kernel, their values, and the accounts that they are attributed to.
//!
//! Promises: a value is only used if the location still counts for the same accounts; drops that no rule
//! decides are identified by the comments of the skeleton's rules. Never: reads the kernel, or adds retired
//! counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use palisade_layout::{CountAccount, CounterAccounts, CounterKey, CounterSnapshot, RuleCauses};
use palisade_model::Str;
use palisade_nft::{
    AttributedCounter, Chain, CounterLocation, CounterValue, Element, ElementKey, Expr, NftRule,
    NftVerdict, Op, Ruleset, Transaction, TxStep, drop_comment,
};
use palisade_tables::ReportReason;

/// The key of a counter: its set and the element's key in hexadecimal, or its chain and the rule's index.
pub(super) fn counter_key(location: &CounterLocation) -> CounterKey {
    let mut text = String::new();
    let hex = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
    };
    match location {
        CounterLocation::Rule { chain, index } => {
            let _ = write!(text, "{chain}#{index}");
        }
        CounterLocation::Element { set, key } => {
            text.push_str(set);
            text.push(' ');
            match key {
                ElementKey::Exact(bytes) => hex(&mut text, bytes),
                ElementKey::Range(first, last) => {
                    hex(&mut text, first);
                    text.push('-');
                    hex(&mut text, last);
                }
                ElementKey::CatchAll => text.push('*'),
            }
        }
    }
    CounterKey::new(text)
}

/// The location of a counter; `None` if this driver did not make the key.
pub(super) fn parse_key(key: &CounterKey) -> Option<CounterLocation> {
    if let Some((chain, index)) = key.as_str().split_once('#') {
        let (chain, index) = (chain.into(), index.parse().ok()?);
        return Some(CounterLocation::Rule { chain, index });
    }
    let bytes = |hex: &str| -> Option<Vec<u8>> {
        let pairs = hex.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        pairs.map(byte).collect()
    };
    let (set, key) = key.as_str().split_once(' ')?;
    let key = match key.split_once('-') {
        Some((first, last)) => ElementKey::Range(bytes(first)?.into(), bytes(last)?.into()),
        None if key == "*" => ElementKey::CatchAll,
        None => ElementKey::Exact(bytes(key)?.into()),
    };
    let set = set.into();
    Some(CounterLocation::Element { set, key })
}

/// Sets and chains read from the kernel, with their counters.
#[derive(Debug, Default)]
pub(super) struct TableCounters {
    pub(super) elements: BTreeMap<Str, BTreeMap<ElementKey, Element>>,
    pub(super) chains: BTreeMap<Str, Chain>,
}

impl CounterSnapshot for TableCounters {
    fn value(&self, key: &CounterKey, accounts: &[CountAccount]) -> Option<CounterValue> {
        match parse_key(key)? {
            CounterLocation::Element { set, key } => self.elements.get(&set)?.get(&key)?.counter,
            CounterLocation::Rule { chain, index } => {
                let rule = self.chains.get(&chain)?.rules.get(index)?;
                // When a rule is deleted, the next one takes its index.
                let same = match accounts {
                    [CountAccount::Drop(reason)] => drop_reason(rule) == Some(*reason),
                    _ => true,
                };
                same.then(|| rule.exprs.iter().find_map(counter_value))?
            }
        }
    }
}

impl From<Ruleset> for TableCounters {
    fn from(ruleset: Ruleset) -> Self {
        let sets = ruleset.sets.into_iter();
        TableCounters {
            elements: sets.map(|(name, set)| (name, set.elements)).collect(),
            chains: ruleset.chains,
        }
    }
}

fn counter_value(expr: &Expr) -> Option<CounterValue> {
    match expr {
        Expr::Counter(count) => Some(*count),
        _ => None,
    }
}

/// The reason of a drop rule that is no policy decision.
fn drop_reason(rule: &NftRule) -> Option<ReportReason> {
    let comment = rule.comment.as_deref()?;
    let drops = matches!(
        rule.exprs.last(),
        Some(Expr::Verdict(NftVerdict::Drop | NftVerdict::Goto(_)))
    );
    let mut reasons = ReportReason::DROPS.into_iter();
    reasons.find(|reason| drops && drop_comment(*reason) == comment)
}

/// The counters of drops that no rule decides.
pub(super) fn drop_counters(chains: &BTreeMap<Str, Chain>) -> CounterAccounts {
    let mut out = CounterAccounts::new();
    for (chain, content) in chains {
        for (index, rule) in content.rules.iter().enumerate() {
            if let (Some(reason), Some(_)) =
                (drop_reason(rule), rule.exprs.iter().find_map(counter_value))
            {
                let chain = chain.clone();
                let key = counter_key(&CounterLocation::Rule { chain, index });
                out.insert(key, vec![CountAccount::Drop(reason)]);
            }
        }
    }
    out
}

/// The accounts of counters.
pub(super) fn counter_accounts(
    counters: Vec<AttributedCounter>,
    causes: &RuleCauses,
) -> CounterAccounts {
    let account = |counter: AttributedCounter| {
        let key = counter_key(&counter.location);
        (key, causes.accounts(&counter.rules, counter.audit))
    };
    counters.into_iter().map(account).collect()
}

/// Adds to each step the counters of `known_counters` that it deletes and that exist.
pub(super) fn add_retiring_counters(
    transaction: &mut Transaction,
    known_counters: &CounterAccounts,
    snapshot: &TableCounters,
) {
    for step in &mut transaction.steps {
        let retiring = step.retiring_counters.iter();
        let retiring: BTreeSet<CounterKey> = retiring.map(|c| counter_key(&c.location)).collect();
        let removed = removed_counters(step, known_counters).into_iter();
        let more = removed
            .filter(|(key, accounts)| {
                !retiring.contains(*key) && snapshot.value(key, accounts).is_some()
            })
            .filter_map(|(key, _)| parse_key(key));
        let more = more.map(|location| AttributedCounter {
            location,
            rules: Vec::new(),
            audit: None,
        });
        step.retiring_counters.extend(more);
    }
}

/// The counters of `known_counters` that a step deletes, with their accounts.
fn removed_counters<'a>(
    step: &TxStep,
    known_counters: &'a CounterAccounts,
) -> BTreeMap<&'a CounterKey, &'a Vec<CountAccount>> {
    let within = |prefix: String| {
        (known_counters.iter()).filter(move |(key, _)| key.as_str().starts_with(&prefix))
    };
    let mut removed = BTreeMap::new();
    for op in &step.ops {
        match op {
            Op::DeleteTable => removed.extend(known_counters),
            Op::DeleteElement { set, key } => {
                let (set, key) = (set.clone(), key.clone());
                let key = counter_key(&CounterLocation::Element { set, key });
                removed.extend(known_counters.get_key_value(&key));
            }
            Op::DeleteChain { chain } | Op::FlushChain { chain } => {
                removed.extend(within(format!("{chain}#")));
            }
            Op::DeleteSet { set } => removed.extend(within(format!("{set} "))),
            _ => {}
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::Direction;
    use palisade_tables::{Phase, RuleId, VerdictCause};
    use std::sync::Arc;

    fn account(name: &str) -> CountAccount {
        CountAccount::Rule(Arc::new(VerdictCause::MissingProfile {
            profile: name.into(),
            direction: Direction::Egress,
        }))
    }

    fn element(number: u8) -> CounterLocation {
        CounterLocation::Element {
            set: "s".into(),
            key: ElementKey::Exact([number].into()),
        }
    }

    fn in_chain(index: usize) -> CounterLocation {
        CounterLocation::Rule {
            chain: "c".into(),
            index,
        }
    }

    fn counter_value_of(packets: u64) -> CounterValue {
        CounterValue {
            packets,
            bytes: packets * 10,
        }
    }

    /// A snapshot of elements with these packet counts.
    fn snapshot(counts: &[(u8, u64)]) -> TableCounters {
        let counted = |(number, packets): &(u8, u64)| {
            let element = Element {
                counter: Some(counter_value_of(*packets)),
                ..Element::default()
            };
            (ElementKey::Exact([*number].into()), element)
        };
        TableCounters {
            elements: [("s".into(), counts.iter().map(counted).collect())].into(),
            ..TableCounters::default()
        }
    }

    #[test]
    fn a_step_harvests_what_it_removes_and_only_what_is_there() {
        let rule = |comment: &str, verdict| NftRule {
            exprs: vec![Expr::Counter(counter_value_of(7)), Expr::Verdict(verdict)],
            comment: Some(comment.into()),
        };
        let mut live = snapshot(&[(1, 1), (2, 2), (3, 3)]);
        let chain = Chain {
            base_chain: None,
            rules: vec![
                rule("spoofed source", NftVerdict::Drop),
                rule("invalid", NftVerdict::Accept),
                rule("unknown interface", NftVerdict::Drop),
            ],
        };
        live.chains = [("c".into(), chain)].into();
        let reasons = drop_counters(&live.chains);
        assert_eq!(
            reasons,
            [
                (
                    counter_key(&in_chain(0)),
                    vec![CountAccount::Drop(ReportReason::Spoofed)]
                ),
                (
                    counter_key(&in_chain(2)),
                    vec![CountAccount::Drop(ReportReason::UnknownInterface)]
                ),
            ]
            .into()
        );
        let mut among: CounterAccounts = [
            (counter_key(&element(1)), vec![account("a")]),
            (counter_key(&element(2)), vec![account("a"), account("b")]),
            (counter_key(&element(9)), vec![account("b")]),
        ]
        .into();
        among.extend(reasons);
        let delete = |number: u8| Op::DeleteElement {
            set: "s".into(),
            key: ElementKey::Exact([number].into()),
        };
        let harvest = |location, rules| AttributedCounter {
            location,
            rules,
            audit: None,
        };
        let step = |ops, harvest| TxStep {
            phase: Phase::Delete,
            retiring_counters: harvest,
            ops,
            needs_grace_period: true,
        };
        let retiring = vec![harvest(element(1), vec![RuleId(1)])];
        let mut transaction = Transaction::new(
            "t".into(),
            vec![
                step(vec![delete(1), delete(2), delete(3), delete(9)], retiring),
                step(vec![Op::FlushChain { chain: "c".into() }], Vec::new()),
                step(vec![Op::DeleteTable], Vec::new()),
            ],
        );
        add_retiring_counters(&mut transaction, &among, &live);
        let locations: Vec<Vec<CounterLocation>> = transaction
            .steps
            .iter()
            .map(|step| {
                step.retiring_counters
                    .iter()
                    .map(|h| h.location.clone())
                    .collect()
            })
            .collect();
        assert_eq!(
            locations,
            [
                vec![element(1), element(2)],
                vec![in_chain(0), in_chain(2)],
                vec![in_chain(0), in_chain(2), element(1), element(2)],
            ]
        );
        // After the first rule is deleted, its index is not used for another reason.
        live.chains.values_mut().for_each(|chain| {
            chain.rules.remove(0);
        });
        assert_eq!(
            live.value(
                &counter_key(&in_chain(0)),
                &[CountAccount::Drop(ReportReason::Spoofed)]
            ),
            None
        );
    }

    #[test]
    fn locations_are_keys_and_back() {
        let element = |key| CounterLocation::Element {
            set: "p_port".into(),
            key,
        };
        let locations = [
            element(ElementKey::Exact([0, 0xab, 255].into())),
            element(ElementKey::Range([1].into(), [2].into())),
            element(ElementKey::CatchAll),
            CounterLocation::Rule {
                chain: "p_r1_3".into(),
                index: 7,
            },
        ];
        for location in locations {
            assert_eq!(parse_key(&counter_key(&location)), Some(location));
        }
        for text in ["", "x", "x#y", "x 0g", "x 00-"] {
            let odd = parse_key(&CounterKey::new(text));
            assert!(odd.is_none() || text.ends_with('-'), "{text}: {odd:?}");
        }
    }
}

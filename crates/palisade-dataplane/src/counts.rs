//! The locations of counters in the kernel, and the accounts that they are credited to.
//!
//! Promises: a value is only used if the location still counts for the same accounts; drops that no rule
//! decides are identified by the comments of the skeleton's rules. Never: reads the kernel, or adds retired
//! counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use palisade_model::Str;
use palisade_nft::{
    Chain, CounterLocation, CounterValue, CreditedCounter, Element, ElementKey, Expr, NftRule,
    NftVerdict, Op, Ruleset, Transaction, TxStep,
};
use palisade_tables::{Credit, RuleId};

/// Comment of a counted drop in the skeleton, and the reason it is reported as.
const DROP_REASONS: [(&str, &str); 4] = [
    ("spoofed source", "spoofed"),
    ("unknown interface", "unknown-interface"),
    ("invalid", "invalid"),
    ("no point", "no-point"),
];

/// What a count is credited to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CountAccount {
    /// A rule, tier default or profile.
    Rule(Arc<Credit>),
    /// A drop that no rule decided: its reason.
    Reason(&'static str),
}

/// The accounts of each counter.
pub(crate) type CounterAccounts = BTreeMap<CounterLocation, Vec<CountAccount>>;

/// Sets and chains read from the kernel, with their counters.
#[derive(Debug, Default)]
pub(crate) struct CounterSnapshot {
    pub(crate) elements: BTreeMap<Str, BTreeMap<ElementKey, Element>>,
    pub(crate) chains: BTreeMap<Str, Chain>,
}

impl CounterSnapshot {
    /// The value of a counter; `None` if nothing at the location counts for these accounts any more.
    pub(crate) fn value_at(
        &self,
        place: &CounterLocation,
        accounts: &[CountAccount],
    ) -> Option<CounterValue> {
        match place {
            CounterLocation::Element { set, key } => self.elements.get(set)?.get(key)?.counter,
            CounterLocation::Rule { chain, index } => {
                let rule = self.chains.get(chain)?.rules.get(*index)?;
                // When a rule is deleted, the next one takes its index.
                let same = match accounts {
                    [CountAccount::Reason(reason)] => drop_reason(rule) == Some(reason),
                    _ => true,
                };
                same.then(|| rule.exprs.iter().find_map(counter_value))?
            }
        }
    }

    /// The counters of drops that no rule decides.
    pub(crate) fn drop_counters(&self) -> CounterAccounts {
        drop_counters(&self.chains)
    }
}

impl From<Ruleset> for CounterSnapshot {
    fn from(ruleset: Ruleset) -> Self {
        let sets = ruleset.sets.into_iter();
        CounterSnapshot {
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

/// The reason of a text; `None` if it is not one.
pub(crate) fn parse_drop_reason(text: &str) -> Option<&'static str> {
    let mut known = DROP_REASONS.into_iter().map(|(_, reason)| reason);
    known.find(|reason| *reason == text)
}

/// The reason of a drop rule that is no policy decision.
fn drop_reason(rule: &NftRule) -> Option<&'static str> {
    let comment = rule.comment.as_deref()?;
    let known = DROP_REASONS.into_iter().find(|(text, _)| *text == comment);
    let drops = matches!(
        rule.exprs.last(),
        Some(Expr::Verdict(NftVerdict::Drop | NftVerdict::Goto(_)))
    );
    known.filter(|_| drops).map(|(_, reason)| reason)
}

/// The counters of drops that no rule decides.
pub(crate) fn drop_counters(chains: &BTreeMap<Str, Chain>) -> CounterAccounts {
    let mut out = CounterAccounts::new();
    for (chain, content) in chains {
        for (index, rule) in content.rules.iter().enumerate() {
            if let (Some(reason), Some(_)) =
                (drop_reason(rule), rule.exprs.iter().find_map(counter_value))
            {
                let chain = chain.clone();
                out.insert(
                    CounterLocation::Rule { chain, index },
                    vec![CountAccount::Reason(reason)],
                );
            }
        }
    }
    out
}

pub(crate) fn add(total: &mut CounterValue, count: CounterValue) {
    total.packets = total.packets.saturating_add(count.packets);
    total.bytes = total.bytes.saturating_add(count.bytes);
}

/// The accounts of rules; unknown numbers are left out.
pub(crate) fn rule_accounts(
    of: &[RuleId],
    rules: &BTreeMap<RuleId, Arc<Credit>>,
) -> Vec<CountAccount> {
    let known = of.iter().filter_map(|rule| rules.get(rule));
    known.cloned().map(CountAccount::Rule).collect()
}

/// The accounts of counters.
pub(crate) fn counter_accounts(
    places: Vec<CreditedCounter>,
    rules: &BTreeMap<RuleId, Arc<Credit>>,
) -> CounterAccounts {
    places
        .into_iter()
        .map(
            |CreditedCounter {
                 location: place,
                 rules: of,
             }| (place, rule_accounts(&of, rules)),
        )
        .collect()
}

/// Adds to each step the counters of `known_counters` that it deletes and that exist.
pub(crate) fn add_retiring_counters(
    transaction: &mut Transaction,
    known_counters: &CounterAccounts,
    snapshot: &CounterSnapshot,
) {
    for step in &mut transaction.steps {
        let known: BTreeSet<CounterLocation> = step
            .retiring_counters
            .iter()
            .map(|h| h.location.clone())
            .collect();
        let there =
            |place: &&CounterLocation| snapshot.value_at(place, &known_counters[*place]).is_some();
        let places: BTreeSet<&CounterLocation> = removed_counters(step, known_counters);
        let more = places.into_iter().filter(|place| !known.contains(*place));
        step.retiring_counters
            .extend(more.filter(there).map(|place| CreditedCounter {
                location: place.clone(),
                rules: Vec::new(),
            }));
    }
}

/// The counters of `known_counters` that a step deletes.
fn removed_counters<'a>(
    step: &TxStep,
    known_counters: &'a CounterAccounts,
) -> BTreeSet<&'a CounterLocation> {
    let mut removed = BTreeSet::new();
    for op in &step.ops {
        match op {
            Op::DeleteTable => removed.extend(known_counters.keys()),
            Op::DeleteElement { set, key } => {
                let (set, key) = (set.clone(), key.clone());
                let known = known_counters.get_key_value(&CounterLocation::Element { set, key });
                removed.extend(known.map(|(place, _)| place));
            }
            Op::DeleteChain { chain: gone } | Op::FlushChain { chain: gone } => {
                let within = |place: &&CounterLocation| matches!(place, CounterLocation::Rule { chain, .. } if chain == gone);
                removed.extend(known_counters.keys().filter(within));
            }
            Op::DeleteSet { set: gone } => {
                let within = |place: &&CounterLocation| matches!(place, CounterLocation::Element { set, .. } if set == gone);
                removed.extend(known_counters.keys().filter(within));
            }
            _ => {}
        }
    }
    removed
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use palisade_model::Direction;
    use palisade_tables::Phase;

    pub(crate) fn account(name: &str) -> CountAccount {
        CountAccount::Rule(Arc::new(Credit::MissingProfile {
            profile: name.into(),
            direction: Direction::Egress,
        }))
    }

    pub(crate) fn element(number: u8) -> CounterLocation {
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

    pub(crate) fn counter_value_of(packets: u64) -> CounterValue {
        CounterValue {
            packets,
            bytes: packets * 10,
        }
    }

    /// A snapshot of elements with these packet counts.
    pub(crate) fn snapshot(counts: &[(u8, u64)]) -> CounterSnapshot {
        let counted = |(number, packets): &(u8, u64)| {
            let element = Element {
                counter: Some(counter_value_of(*packets)),
                ..Element::default()
            };
            (ElementKey::Exact([*number].into()), element)
        };
        CounterSnapshot {
            elements: [("s".into(), counts.iter().map(counted).collect())].into(),
            ..CounterSnapshot::default()
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
        let reasons = live.drop_counters();
        assert_eq!(
            reasons,
            [
                (in_chain(0), vec![CountAccount::Reason("spoofed")]),
                (in_chain(2), vec![CountAccount::Reason("unknown-interface")]),
            ]
            .into()
        );
        let mut among: CounterAccounts = [
            (element(1), vec![account("a")]),
            (element(2), vec![account("a"), account("b")]),
            (element(9), vec![account("b")]),
        ]
        .into();
        among.extend(reasons);
        let delete = |number: u8| Op::DeleteElement {
            set: "s".into(),
            key: ElementKey::Exact([number].into()),
        };
        let harvest = |place, rules| CreditedCounter {
            location: place,
            rules,
        };
        let step = |ops, harvest| TxStep {
            phase: Phase::Delete,
            retiring_counters: harvest,
            ops,
            needs_grace_period: true,
        };
        let known = vec![harvest(element(1), vec![RuleId(1)])];
        let mut transaction = Transaction {
            table: "t".into(),
            steps: vec![
                step(vec![delete(1), delete(2), delete(3), delete(9)], known),
                step(vec![Op::FlushChain { chain: "c".into() }], Vec::new()),
                step(vec![Op::DeleteTable], Vec::new()),
            ],
        };
        add_retiring_counters(&mut transaction, &among, &live);
        let places: Vec<Vec<CounterLocation>> = transaction
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
            places,
            [
                vec![element(1), element(2)],
                vec![in_chain(0), in_chain(2)],
                vec![element(1), element(2), in_chain(0), in_chain(2)],
            ]
        );
        // After the first rule is deleted, its index is not used for another reason.
        live.chains.values_mut().for_each(|chain| {
            chain.rules.remove(0);
        });
        assert_eq!(
            live.value_at(&in_chain(0), &[CountAccount::Reason("spoofed")]),
            None
        );
    }
}

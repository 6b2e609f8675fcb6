//! Counts that never go back.
//!
//! Promises: a count is told as long as the agent lives, wherever it was kept:
//! in the kernel, or harvested from what is gone. Never: reads the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use palisade_model::Str;
use palisade_nft::{Chain, Count, Element, Expr, Harvest, Key, Op, Place, Transaction, Verdict};
use palisade_tables::{Credit, RuleId};

use crate::driver::{Counters, Harvested};

/// Comment of a counted drop in the skeleton, and the reason it is told as.
const REASONS: [(&str, &str); 4] = [
    ("spoofed source", "spoofed"),
    ("unknown interface", "unknown-interface"),
    ("invalid", "invalid"),
    ("no point", "no-point"),
];

/// Who is credited with each place's count.
pub(crate) type Credits = BTreeMap<Place, Vec<Arc<Credit>>>;

/// What was read that can hold counts.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) elements: BTreeMap<Str, BTreeMap<Key, Element>>,
    pub(crate) chains: BTreeMap<Str, Chain>,
}

impl Live {
    fn at(&self, place: &Place) -> Option<Count> {
        match place {
            Place::Element { set, key } => self.elements.get(set)?.get(key)?.counter,
            Place::Rule { chain, index } => {
                let rule = self.chains.get(chain)?.rules.get(*index)?;
                rule.exprs.iter().find_map(counter)
            }
        }
    }

    /// What is credited to rules.
    pub(crate) fn by_rule(&self, credits: &Credits) -> BTreeMap<Arc<Credit>, Count> {
        let mut out = BTreeMap::new();
        for (place, to) in credits {
            if let Some(count) = self.at(place) {
                credit(&mut out, to, count);
            }
        }
        out
    }

    /// What is dropped without a rule's word.
    pub(crate) fn reasons(&self) -> BTreeMap<&'static str, Count> {
        let mut out: BTreeMap<_, Count> = BTreeMap::new();
        for rule in self.chains.values().flat_map(|chain| &chain.rules) {
            let Some(comment) = &rule.comment else {
                continue;
            };
            let drops = matches!(
                rule.exprs.last(),
                Some(Expr::Verdict(Verdict::Drop | Verdict::Goto(_)))
            );
            let reason = REASONS.into_iter().find(|(text, _)| *text == &**comment);
            if let (true, Some((_, reason)), Some(count)) =
                (drops, reason, rule.exprs.iter().find_map(counter))
            {
                add(out.entry(reason).or_default(), count);
            }
        }
        out
    }
}

fn counter(expr: &Expr) -> Option<Count> {
    match expr {
        Expr::Counter(count) => Some(*count),
        _ => None,
    }
}

fn add(to: &mut Count, count: Count) {
    to.packets = to.packets.saturating_add(count.packets);
    to.bytes = to.bytes.saturating_add(count.bytes);
}

fn credit(out: &mut BTreeMap<Arc<Credit>, Count>, to: &[Arc<Credit>], count: Count) {
    for credit in to {
        add(out.entry(credit.clone()).or_default(), count);
    }
}

/// Who a place's rules stand for; rules that stand for nothing are left out.
pub(crate) fn credits(places: Vec<Harvest>, rules: &BTreeMap<RuleId, Arc<Credit>>) -> Credits {
    places
        .into_iter()
        .map(|Harvest { place, rules: of }| {
            let to = of.iter().filter_map(|rule| rules.get(rule).cloned());
            (place, to.collect())
        })
        .collect()
}

/// Counts of what is no longer in the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone(Counters);

impl Gone {
    pub(crate) fn add(&mut self, to: &[Arc<Credit>], count: Count) {
        if count != Count::default() {
            credit(&mut self.0.by_rule, to, count);
        }
    }

    pub(crate) fn add_all(&mut self, counters: &Counters) {
        for (credit, count) in &counters.by_rule {
            self.add(std::slice::from_ref(credit), *count);
        }
        for (reason, count) in &counters.reasons {
            add(self.0.reasons.entry(reason).or_default(), *count);
        }
    }

    pub(crate) fn harvested(&self) -> Harvested {
        let counts = self.0.by_rule.iter();
        counts.map(|(to, count)| ((**to).clone(), *count)).collect()
    }

    /// Takes in the live counts at `places`.
    pub(crate) fn add_places(&mut self, places: &BTreeSet<Place>, credits: &Credits, live: &Live) {
        for place in places {
            if let (Some(to), Some(count)) = (credits.get(place), live.at(place)) {
                self.add(to, count);
            }
        }
    }

    /// Takes in all of these.
    pub(crate) fn merge(&mut self, other: &Gone) {
        self.add_all(&other.0);
    }

    /// These counts and live ones together.
    pub(crate) fn with(&self, live: &Counters) -> Counters {
        let mut all = self.clone();
        all.add_all(live);
        all.0
    }
}

/// Whether a transaction replaces the whole table.
pub(crate) fn replaces_table(transaction: &Transaction) -> bool {
    let mut ops = transaction.steps.iter().flat_map(|step| &step.ops);
    ops.any(|op| matches!(op, Op::DeleteTable))
}

/// The places that a transaction removes without harvesting them.
pub(crate) fn removed_silently(transaction: &Transaction, among: &Credits) -> BTreeSet<Place> {
    let mut removed = BTreeSet::new();
    let mut harvested = BTreeSet::new();
    for step in &transaction.steps {
        harvested.extend(step.harvest.iter().map(|harvest| &harvest.place));
        for op in &step.ops {
            match op {
                Op::DeleteElement { set, key } => {
                    removed.insert(Place::Element {
                        set: set.clone(),
                        key: key.clone(),
                    });
                }
                Op::DeleteChain { chain: gone } | Op::FlushChain { chain: gone } => {
                    let of_chain = among.keys().filter(
                        |place| matches!(place, Place::Rule { chain, .. } if chain == gone),
                    );
                    removed.extend(of_chain.cloned());
                }
                _ => {}
            }
        }
    }
    removed.retain(|place| among.contains_key(place) && !harvested.contains(place));
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::Direction;
    use palisade_nft::{Rule, TxStep};
    use palisade_tables::Phase;

    fn who(name: &str) -> Arc<Credit> {
        Arc::new(Credit::MissingProfile {
            profile: name.into(),
            direction: Direction::Egress,
        })
    }

    fn element(number: u8) -> Place {
        Place::Element {
            set: "s".into(),
            key: Key::Exact([number].into()),
        }
    }

    fn in_chain(index: usize) -> Place {
        Place::Rule {
            chain: "c".into(),
            index,
        }
    }

    fn count(packets: u64) -> Count {
        Count {
            packets,
            bytes: packets * 10,
        }
    }

    fn live() -> Live {
        let counted = |n: u8| {
            let element = Element {
                counter: Some(count(n.into())),
                ..Element::default()
            };
            (Key::Exact([n].into()), element)
        };
        let rule = |comment: &str, verdict| Rule {
            exprs: vec![Expr::Counter(count(7)), Expr::Verdict(verdict)],
            comment: Some(comment.into()),
        };
        let chain = Chain {
            base: None,
            rules: vec![
                rule("spoofed source", Verdict::Drop),
                rule("invalid", Verdict::Accept),
                rule("spoofed source", Verdict::Drop),
            ],
        };
        Live {
            elements: [("s".into(), [counted(1), counted(2), counted(3)].into())].into(),
            chains: [("c".into(), chain)].into(),
        }
    }

    fn known() -> Credits {
        [
            (element(1), vec![who("a")]),
            (element(2), vec![who("a"), who("b")]),
            (element(9), vec![who("b")]),
            (in_chain(0), vec![who("c")]),
        ]
        .into()
    }

    #[test]
    fn live_counts_go_to_everyone_credited() {
        let by_rule: BTreeMap<_, _> = [
            (who("a"), count(3)),
            (who("b"), count(2)),
            (who("c"), count(7)),
        ]
        .into();
        assert_eq!(live().by_rule(&known()), by_rule);
        assert_eq!(live().reasons(), [("spoofed", count(14))].into());
    }

    #[test]
    fn what_goes_unharvested_is_found_and_kept() {
        let delete = |number: u8| Op::DeleteElement {
            set: "s".into(),
            key: Key::Exact([number].into()),
        };
        let flush = Op::FlushChain { chain: "c".into() };
        let transaction = Transaction {
            table: "t".into(),
            steps: vec![TxStep {
                phase: Phase::Delete,
                harvest: vec![Harvest {
                    place: element(1),
                    rules: vec![RuleId(1)],
                }],
                ops: vec![delete(1), delete(2), delete(3), flush],
            }],
        };
        assert!(!replaces_table(&transaction));
        let places = removed_silently(&transaction, &known());
        assert_eq!(places, [element(2), in_chain(0)].into());
        let mut gone = Gone::default();
        gone.add_places(&places, &known(), &live());
        let kept: Harvested = [("a", count(2)), ("b", count(2)), ("c", count(7))]
            .map(|(name, count)| ((*who(name)).clone(), count))
            .into();
        assert_eq!(gone.harvested(), kept);
        let all = gone.with(&Counters {
            by_rule: [(who("a"), count(5))].into(),
            reasons: [("invalid", count(1))].into(),
        });
        assert_eq!(all.by_rule[&who("a")], count(7));
        assert_eq!(all.reasons, [("invalid", count(1))].into());
    }
}

//! Where counts are in the kernel, and whom they are for.
//!
//! Promises: a place is only taken for what it counts for; drops without a rule's word are told apart
//! by the comments of the skeleton's rules. Never: reads the kernel, or adds up what is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use palisade_model::Str;
use palisade_nft::{
    Chain, Count, Element, Expr, Harvest, Key, Op, Place, Rule, Ruleset, Transaction, TxStep,
    Verdict,
};
use palisade_tables::{Credit, RuleId};

/// Comment of a counted drop in the skeleton, and the reason it is told as.
const REASONS: [(&str, &str); 4] = [
    ("spoofed source", "spoofed"),
    ("unknown interface", "unknown-interface"),
    ("invalid", "invalid"),
    ("no point", "no-point"),
];

/// What a count is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    /// A rule, or what stands for one.
    Rule(Arc<Credit>),
    /// A drop that no rule decided.
    Reason(&'static str),
}

/// Whom each place counts for.
pub(crate) type Credits = BTreeMap<Place, Vec<Who>>;

/// What was read that can hold counts.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) elements: BTreeMap<Str, BTreeMap<Key, Element>>,
    pub(crate) chains: BTreeMap<Str, Chain>,
}

impl Live {
    /// The count of a place; `None` where nothing counts for these any more.
    pub(crate) fn at(&self, place: &Place, to: &[Who]) -> Option<Count> {
        match place {
            Place::Element { set, key } => self.elements.get(set)?.get(key)?.counter,
            Place::Rule { chain, index } => {
                let rule = self.chains.get(chain)?.rules.get(*index)?;
                // A rule that was deleted leaves its index to the next one.
                let same = match to {
                    [Who::Reason(reason)] => dropped(rule) == Some(reason),
                    _ => true,
                };
                same.then(|| rule.exprs.iter().find_map(counter))?
            }
        }
    }

    /// The places of drops that no rule decides.
    pub(crate) fn reasons(&self) -> Credits {
        reasons(&self.chains)
    }
}

impl From<Ruleset> for Live {
    fn from(ruleset: Ruleset) -> Self {
        let sets = ruleset.sets.into_iter();
        Live {
            elements: sets.map(|(name, set)| (name, set.elements)).collect(),
            chains: ruleset.chains,
        }
    }
}

fn counter(expr: &Expr) -> Option<Count> {
    match expr {
        Expr::Counter(count) => Some(*count),
        _ => None,
    }
}

/// The reason that a text stands for.
pub(crate) fn reason(text: &str) -> Option<&'static str> {
    let mut known = REASONS.into_iter().map(|(_, reason)| reason);
    known.find(|reason| *reason == text)
}

/// The reason that a rule drops for without a word of policy.
fn dropped(rule: &Rule) -> Option<&'static str> {
    let comment = rule.comment.as_deref()?;
    let known = REASONS.into_iter().find(|(text, _)| *text == comment);
    let drops = matches!(
        rule.exprs.last(),
        Some(Expr::Verdict(Verdict::Drop | Verdict::Goto(_)))
    );
    known.filter(|_| drops).map(|(_, reason)| reason)
}

/// The places of drops that no rule decides.
pub(crate) fn reasons(chains: &BTreeMap<Str, Chain>) -> Credits {
    let mut out = Credits::new();
    for (chain, content) in chains {
        for (index, rule) in content.rules.iter().enumerate() {
            if let (Some(reason), Some(_)) = (dropped(rule), rule.exprs.iter().find_map(counter)) {
                let chain = chain.clone();
                out.insert(Place::Rule { chain, index }, vec![Who::Reason(reason)]);
            }
        }
    }
    out
}

pub(crate) fn add(to: &mut Count, count: Count) {
    to.packets = to.packets.saturating_add(count.packets);
    to.bytes = to.bytes.saturating_add(count.bytes);
}

/// The accounts of rules; what stands for nothing is left out.
pub(crate) fn accounts(of: &[RuleId], rules: &BTreeMap<RuleId, Arc<Credit>>) -> Vec<Who> {
    let known = of.iter().filter_map(|rule| rules.get(rule));
    known.cloned().map(Who::Rule).collect()
}

/// Who a place's rules stand for.
pub(crate) fn credits(places: Vec<Harvest>, rules: &BTreeMap<RuleId, Arc<Credit>>) -> Credits {
    places
        .into_iter()
        .map(|Harvest { place, rules: of }| (place, accounts(&of, rules)))
        .collect()
}

/// Has every step harvest all the places of `among` that it removes, and that are there.
pub(crate) fn harvest_all(transaction: &mut Transaction, among: &Credits, live: &Live) {
    for step in &mut transaction.steps {
        let known: BTreeSet<Place> = step.harvest.iter().map(|h| h.place.clone()).collect();
        let there = |place: &&Place| live.at(place, &among[*place]).is_some();
        let places: BTreeSet<&Place> = removed(step, among);
        let more = places.into_iter().filter(|place| !known.contains(*place));
        step.harvest.extend(more.filter(there).map(|place| Harvest {
            place: place.clone(),
            rules: Vec::new(),
        }));
    }
}

/// The places of `among` that a step removes.
fn removed<'a>(step: &TxStep, among: &'a Credits) -> BTreeSet<&'a Place> {
    let mut removed = BTreeSet::new();
    for op in &step.ops {
        match op {
            Op::DeleteTable => removed.extend(among.keys()),
            Op::DeleteElement { set, key } => {
                let (set, key) = (set.clone(), key.clone());
                let known = among.get_key_value(&Place::Element { set, key });
                removed.extend(known.map(|(place, _)| place));
            }
            Op::DeleteChain { chain: gone } | Op::FlushChain { chain: gone } => {
                let within =
                    |place: &&Place| matches!(place, Place::Rule { chain, .. } if chain == gone);
                removed.extend(among.keys().filter(within));
            }
            Op::DeleteSet { set: gone } => {
                let within =
                    |place: &&Place| matches!(place, Place::Element { set, .. } if set == gone);
                removed.extend(among.keys().filter(within));
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

    pub(crate) fn who(name: &str) -> Who {
        Who::Rule(Arc::new(Credit::MissingProfile {
            profile: name.into(),
            direction: Direction::Egress,
        }))
    }

    pub(crate) fn element(number: u8) -> Place {
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

    pub(crate) fn count(packets: u64) -> Count {
        Count {
            packets,
            bytes: packets * 10,
        }
    }

    /// Elements that counted so much.
    pub(crate) fn live(counts: &[(u8, u64)]) -> Live {
        let counted = |(number, packets): &(u8, u64)| {
            let element = Element {
                counter: Some(count(*packets)),
                ..Element::default()
            };
            (Key::Exact([*number].into()), element)
        };
        Live {
            elements: [("s".into(), counts.iter().map(counted).collect())].into(),
            ..Live::default()
        }
    }

    #[test]
    fn a_step_harvests_what_it_removes_and_only_what_is_there() {
        let rule = |comment: &str, verdict| Rule {
            exprs: vec![Expr::Counter(count(7)), Expr::Verdict(verdict)],
            comment: Some(comment.into()),
        };
        let mut live = live(&[(1, 1), (2, 2), (3, 3)]);
        let chain = Chain {
            base: None,
            rules: vec![
                rule("spoofed source", Verdict::Drop),
                rule("invalid", Verdict::Accept),
                rule("unknown interface", Verdict::Drop),
            ],
        };
        live.chains = [("c".into(), chain)].into();
        let reasons = live.reasons();
        assert_eq!(
            reasons,
            [
                (in_chain(0), vec![Who::Reason("spoofed")]),
                (in_chain(2), vec![Who::Reason("unknown-interface")]),
            ]
            .into()
        );
        let mut among: Credits = [
            (element(1), vec![who("a")]),
            (element(2), vec![who("a"), who("b")]),
            (element(9), vec![who("b")]),
        ]
        .into();
        among.extend(reasons);
        let delete = |number: u8| Op::DeleteElement {
            set: "s".into(),
            key: Key::Exact([number].into()),
        };
        let harvest = |place, rules| Harvest { place, rules };
        let step = |ops, harvest| TxStep {
            phase: Phase::Delete,
            harvest,
            ops,
            waits: true,
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
        harvest_all(&mut transaction, &among, &live);
        let places: Vec<Vec<Place>> = transaction
            .steps
            .iter()
            .map(|step| step.harvest.iter().map(|h| h.place.clone()).collect())
            .collect();
        assert_eq!(
            places,
            [
                vec![element(1), element(2)],
                vec![in_chain(0), in_chain(2)],
                vec![element(1), element(2), in_chain(0), in_chain(2)],
            ]
        );
        // Where the first rule was deleted, its index is not taken for another reason's.
        live.chains.values_mut().for_each(|chain| {
            chain.rules.remove(0);
        });
        assert_eq!(live.at(&in_chain(0), &[Who::Reason("spoofed")]), None);
    }
}

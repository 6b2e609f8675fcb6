//! What an identity meets in a policy set: the rules it matches, up to those that decide everything.

use crate::bodies::Body;
use crate::classes::{Credits, Programs};
use crate::encapsulation::deny_encapsulation;
use crate::faults::{Fault, on};
use crate::identities::IdentityKey;
use crate::index::Place;
use crate::policies::Policies;
use crate::pool::HashMap;
use crate::program::{Does, Sequence, Step, compile};
use crate::sets::{Block, Set};
use crate::traffic::{End, is_total};
use alloc::vec::Vec;
use palisade_model::{Action, Direction, Encapsulations, Protocol, Str, Traffic};
use palisade_tables::{ClassId, Credit, RuleId};

/// One thing that an identity meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Meets {
    /// A rule: the place of its source, what that says, and the rule's place in it.
    Rule(u32, u32, u32),
    /// The stop of a block.
    Stop,
}

/// What decides the class of an identity in a set: what it meets, by block, and its ports where a
/// rule asks for them.
pub(crate) type Met = (Vec<(u32, Meets)>, Vec<(Str, Protocol, u16)>);

/// Classes compiled in one go, by what was met.
pub(crate) type Known = HashMap<Met, ClassId>;

/// Those who turn what is met into classes.
pub(crate) struct Makers<'a> {
    pub(crate) policies: &'a Policies,
    pub(crate) credits: &'a mut Credits,
    pub(crate) programs: &'a mut Programs,
    /// What endpoints may not send although rules allow it.
    pub(crate) denied_encapsulation: Encapsulations,
    /// How many elements a program may have.
    pub(crate) most: usize,
}

/// The sources that say one thing, from some place on.
struct Cursor<'a> {
    at: &'a [u32],
    rules: &'a [Place],
}

impl Set {
    /// The class of an identity. It is not used yet. `None` where its program has more elements than
    /// it may.
    pub(crate) fn class(
        &self,
        who: &IdentityKey,
        makers: &mut Makers<'_>,
        known: &mut Known,
    ) -> Option<ClassId> {
        let met = self.met(who);
        if let Some(class) = known.get(&met) {
            return Some(*class);
        }
        let program = self.compile(&met, makers)?;
        let class = makers.programs.number(program, makers.most)?;
        known.insert(met, class);
        Some(class)
    }

    /// What decides the class of an identity.
    pub(crate) fn met(&self, who: &IdentityKey) -> Met {
        let ports = match self.index.asks_ports() {
            true => who.ports.clone(),
            false => Vec::new(),
        };
        (self.meets(who), ports)
    }

    pub(crate) fn body(&self, (kind, rule): Place) -> Option<&Body> {
        self.kind(kind)?.1.rules.get(rule as usize)
    }

    fn meets(&self, who: &IdentityKey) -> Vec<(u32, Meets)> {
        let peers = |place| self.body(place).map_or(&[][..], |body| &*body.peers);
        let matched = self.index.matched(who, peers);
        let mut cursors: Vec<Cursor<'_>> = matched
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|rules| {
                let (kind, _) = self.kind(rules.first()?.0)?;
                Some(Cursor {
                    at: &kind.at,
                    rules,
                })
            })
            .collect();
        let mut met = Vec::new();
        for (number, block) in (0..).zip(&self.blocks) {
            let mut passes = false;
            let mut decided = false;
            while !decided {
                let next = cursors.iter_mut().filter(|c| !c.at.is_empty());
                let Some(cursor) = next.min_by_key(|cursor| cursor.at[0]) else {
                    break;
                };
                let at = cursor.at[0];
                if at >= block.end {
                    break;
                }
                cursor.at = &cursor.at[1..];
                let own = self.segments.get(at as usize).map_or(0, |s| s.own);
                for place in cursor.rules {
                    let Some(body) = self.body(*place) else {
                        continue;
                    };
                    let fits = body.own.is_none_or(|test| {
                        let place = (own + test) as usize;
                        self.key.own.get(place).copied().unwrap_or(false)
                    });
                    if !fits {
                        continue;
                    }
                    met.push((number, Meets::Rule(at, place.0, place.1)));
                    passes |= body.action == Action::Pass;
                    if body.action != Action::Log && self.terms(body).any(is_total) {
                        decided = true;
                        break;
                    }
                }
            }
            for cursor in &mut cursors {
                let after = cursor.at.partition_point(|at| *at < block.end);
                cursor.at = &cursor.at[after..];
            }
            if !decided && block.stop.is_some() {
                met.push((number, Meets::Stop));
                decided = true;
            }
            if decided && !(passes && block.profile.is_none()) {
                break;
            }
        }
        met
    }

    /// The traffic terms of a rule that can hold for the points of this set.
    fn terms<'a>(&self, body: &'a Body) -> impl Iterator<Item = &'a Traffic> {
        let family = self.key.family;
        body.traffic.iter().filter(move |term| {
            term.family.is_none() || term.family == family || on(Fault::FamiliesMixed)
        })
    }

    fn compile(&self, met: &Met, makers: &mut Makers<'_>) -> Option<palisade_tables::Program> {
        let key = &self.key;
        let own_end = match key.direction {
            Direction::Ingress => End::Destination,
            Direction::Egress => End::Source,
        };
        let named = |end: End, name: &Str, protocol: Protocol| {
            let ports = if end == own_end { &key.ports } else { &met.1 };
            let any = on(Fault::NamedPortAnyProtocol);
            ports
                .iter()
                .find(|(n, p, _)| n == name && (any || *p == protocol))
                .map(|(_, _, port)| *port)
        };
        let step = |(block, what): &(u32, Meets)| -> Option<Step<'_>> {
            let of = self.blocks.get(*block as usize)?;
            let Meets::Rule(at, kind, rule) = *what else {
                let (id, verdict) = of.stop?;
                return Some(Step {
                    id,
                    does: Does::Stop(verdict),
                });
            };
            let body = self.body((kind, rule))?;
            Some(Step {
                id: self.credit(makers, of, at, body)?,
                does: Does::Rule {
                    action: match body.action {
                        Action::Pass if of.profile.is_some() && !on(Fault::PassInProfileAllows) => {
                            Action::Deny
                        }
                        Action::Pass if of.profile.is_some() => Action::Allow,
                        action => action,
                    },
                    next: met.0.partition_point(|(other, _)| other <= block),
                    terms: self.terms(body).collect(),
                },
            })
        };
        let sequence = Sequence {
            direction: key.direction,
            steps: met.0.iter().filter_map(step).collect(),
        };
        let program = compile(&sequence, named, makers.most)?;
        Some(match key.direction {
            Direction::Ingress => program,
            Direction::Egress => deny_encapsulation(program, makers.denied_encapsulation, || {
                makers.credits.number(Credit::Encapsulated)
            }),
        })
    }

    /// The number of what a rule of the source at a place is credited as.
    fn credit(
        &self,
        makers: &mut Makers<'_>,
        block: &Block,
        at: u32,
        body: &Body,
    ) -> Option<RuleId> {
        let direction = self.key.direction;
        let origin = &body.origin;
        if let Some(profile) = block.profile.and_then(|place| self.key.profiles.get(place)) {
            return Some(makers.credits.number(Credit::ProfileRule {
                profile: profile.clone(),
                direction,
                origin: origin.clone(),
            }));
        }
        let policy = *self.key.policies.get(at as usize)?;
        let policies = makers.policies;
        makers.credits.rule(policy, direction, origin, || {
            Some(Credit::Rule {
                policy: policies.id(policy)?,
                direction,
                origin: origin.clone(),
            })
        })
    }
}

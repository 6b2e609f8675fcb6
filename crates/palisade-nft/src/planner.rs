//! From deltas to transactions.
//!
//! The planner keeps a copy of the decision tables and the kernel's numbers, so a delta costs what it
//! changes. It promises that each step can be applied alone and atomically, that a packet on its way
//! while a step is made gets what it would have got before or after it, and that no count is removed
//! unharvested.

use crate::bases::{Bases, Coming, take_code};
use crate::batch::{Batch, push_chain};
use crate::content::{ClassContent, Form, class_content, fingerprint};
use crate::flat::{Flat, Run, address_of};
use crate::names::{self, CLASS, GENERATION, IF_OURS, IF_SAME, LIVE, PAIR, concat, mark, marks};
use crate::numbers::Numbers;
use crate::own::Own;
use crate::skeleton::{generation_of, generation_rule, pending, skeleton};
use crate::{Config, Datum, Element, Fault, Harvest, Key, Op, Place, Ruleset, Transaction, TxStep};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_model::{Family, Prefix};
use palisade_tables::{Change, ClassId, Defaults, Delta, IdentityId, Phase, Point, Program};
use palisade_tables::{PolicySet, RuleId, SetId, Tables};

/// Plans for one table, and what it knows of the kernel's content.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(crate) config: Config,
    pub(crate) tables: Tables,
    pub(crate) generation: u32,
    pub(crate) numbers: AllNumbers,
    /// The prefixes of `tables` that hold more than one address.
    nets: BTreeMap<Prefix, IdentityId>,
    flat: [Flat; 2],
    /// How many addresses and class rows name an identity.
    identity_uses: BTreeMap<IdentityId, usize>,
    /// How many class rows of a set have a class, by the kernel's numbers.
    pairs: BTreeMap<(u32, u32), usize>,
    /// Pairs that no row has any more, and the step in which they lost the last: they go in a later
    /// one, since a packet may be between the two lookups.
    retired: BTreeMap<(u32, u32), usize>,
    pub(crate) own: Own,
    /// The step being planned, from 1.
    step: usize,
    /// Whether the kernel has the mark of a revocation under way.
    pub(crate) pending: bool,
    /// The classes that could share a base, by what they must agree in.
    pub(crate) large: BTreeMap<Defaults, BTreeSet<ClassId>>,
    /// The bases of classes that the step being planned will write.
    pub(crate) coming: Coming,
}

/// The kernel's numbers of everything.
#[derive(Clone, Debug)]
pub(crate) struct AllNumbers {
    pub(crate) identities: Numbers<IdentityId>,
    pub(crate) sets: Numbers<SetId>,
    pub(crate) classes: Numbers<ClassId>,
    /// The codes of each class's residues, in the order of their making.
    pub(crate) residues: BTreeMap<ClassId, Vec<u32>>,
    pub(crate) next_residue: u32,
    pub(crate) bases: Bases,
}

impl Default for AllNumbers {
    fn default() -> Self {
        AllNumbers {
            identities: Numbers::within(1, u32::MAX),
            sets: Numbers::within(1, u32::MAX),
            classes: Numbers::within(1, names::FIRST_BASE - 1),
            residues: BTreeMap::new(),
            next_residue: names::LAST_VERDICT + 1,
            bases: Bases::default(),
        }
    }
}

/// The edits of one step of a delta. Where the default of a policy set changes together with its
/// rows, a packet that found no row must still find the old default: so rows are written first, then
/// defaults, and rows that go last, each a step of its own.
#[derive(Default)]
struct Buckets {
    first: Batch,
    defaults: Batch,
    last: Batch,
    /// The sets whose default changes in this step.
    moving: BTreeSet<SetId>,
}

/// Which bases the classes of whole tables refer to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Those that are known; what has none is written whole.
    Known,
    /// Those that are found for them.
    Chosen,
}

impl Planner {
    /// For a table that holds only the skeleton with this generation (not 0).
    pub fn new(config: Config, generation: u32) -> Self {
        Planner::with_numbers(config, generation, AllNumbers::default())
    }

    pub(crate) fn with_numbers(config: Config, generation: u32, numbers: AllNumbers) -> Self {
        let tables = Tables {
            judge_host_traffic: config.judge_host_traffic,
            ..Tables::default()
        };
        Planner {
            config,
            tables,
            generation,
            numbers,
            nets: BTreeMap::new(),
            flat: Default::default(),
            identity_uses: BTreeMap::new(),
            pairs: BTreeMap::new(),
            retired: BTreeMap::new(),
            own: Own::default(),
            step: 0,
            pending: false,
            large: BTreeMap::new(),
            coming: Coming::new(),
        }
    }

    /// The decision tables after everything planned so far.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The generation after everything planned so far.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The parameters of the layout.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Plans a delta on top of everything planned so far.
    ///
    /// The delta's steps become the transaction's, some of them split; the counts of what goes are
    /// named to be harvested.
    pub fn plan(&mut self, delta: &Delta) -> Transaction {
        let mut steps: Vec<TxStep> = Vec::new();
        let revokes = delta.steps.iter().any(|step| step.phase == Phase::Revoke);
        for (at, step) in delta.steps.iter().enumerate() {
            self.step += 1;
            let waits = delta.waits_after(at, &self.tables);
            if step.phase == Phase::Revoke {
                let ops = self.revoke();
                push_step(&mut steps, Phase::Revoke, Vec::new(), ops, true);
                continue;
            }
            let mut buckets = Buckets {
                moving: self.moving_defaults(&step.changes),
                ..Buckets::default()
            };
            self.choose_bases(&step.changes, &mut buckets.first);
            for change in &step.changes {
                self.change(change, &mut buckets);
            }
            self.leave_coming(&mut buckets.first);
            for mut batch in [buckets.first, buckets.defaults, buckets.last] {
                if revokes && !self.pending && step.phase < Phase::Revoke && !batch.is_empty() {
                    let (set, key, element) = pending();
                    batch.edit(set, key, None, Some(element));
                    self.pending = true;
                }
                let (harvest, ops) = batch.into_ops();
                push_step(&mut steps, step.phase, harvest, ops, waits);
            }
        }
        self.sweep_pairs(&mut steps);
        self.own.plan(&self.config, &self.tables, delta, &mut steps);
        Transaction {
            table: self.config.table.clone(),
            steps,
        }
    }

    /// What the table holds after everything planned so far, counts apart.
    pub fn ruleset(&self) -> Ruleset {
        let mut fresh =
            Planner::with_numbers(self.config.clone(), self.generation, self.numbers.clone());
        let batch = fresh.load(&self.tables, Sharing::Known);
        let mut ruleset = skeleton(&self.config, self.generation);
        let (elements, chains) = batch.into_elements();
        for (set, key, element) in elements {
            if let Some(set) = ruleset.sets.get_mut(set) {
                set.elements.insert(key, element);
            }
        }
        if self.pending {
            let (set, key, element) = pending();
            if let Some(set) = ruleset.sets.get_mut(set) {
                set.elements.insert(key, element);
            }
        }
        ruleset.chains.extend(chains);
        ruleset
    }

    /// One atomic step that makes the whole table, in place of what is there.
    ///
    /// What the kernel calls goes first. Once the new rules hold, the elements of the old table are there
    /// no more, but its rules go on being asked until the kernel comes to the chain that they are in: it
    /// takes away what is deleted in the order of the transaction, and what it asks then finds nothing and
    /// drops. Among a whole table that took a millisecond.
    pub fn rebuild(&self, replaced: Option<&Ruleset>) -> Transaction {
        let ruleset = self.ruleset();
        let mut ops = Vec::new();
        if let Some(replaced) = replaced {
            let called = replaced.chains.iter().filter(|(_, of)| of.base.is_some());
            for (chain, _) in called {
                let chain = chain.clone();
                ops.push(Op::FlushChain {
                    chain: chain.clone(),
                });
                ops.push(Op::DeleteChain { chain });
            }
            ops.push(Op::DeleteTable);
        }
        let comment = ruleset.comment.clone();
        let flags = ruleset.flags;
        ops.push(Op::AddTable { comment, flags });
        let mut elements = Vec::new();
        for (name, set) in ruleset.sets {
            let decl = set.decl;
            ops.push(Op::AddSet {
                set: name.clone(),
                decl,
            });
            for (key, element) in set.elements {
                let set = name.clone();
                elements.push(Op::AddElement { set, key, element });
            }
        }
        // Chains first, so that every rule and element finds the one it goes to; then rules, since the
        // kernel looks at all elements of a map that a new rule asks.
        let mut rules = Vec::new();
        for (name, content) in ruleset.chains {
            push_chain(&mut rules, name, content);
        }
        let (mut chains, rules): (Vec<Op>, Vec<Op>) = rules
            .into_iter()
            .partition(|op| matches!(op, Op::AddChain { .. }));
        ops.append(&mut chains);
        ops.extend(rules);
        ops.append(&mut elements);
        let step = TxStep {
            phase: Phase::Tighten,
            harvest: Vec::new(),
            ops,
            waits: true,
        };
        Transaction {
            table: self.config.table.clone(),
            steps: [step].into(),
        }
    }

    /// Takes in whole tables, as if each entry were new.
    pub(crate) fn load(&mut self, tables: &Tables, sharing: Sharing) -> Batch {
        let mut buckets = Buckets::default();
        let changes = changes_of(tables);
        match sharing {
            Sharing::Known => self.write_known_bases(&mut buckets.first),
            Sharing::Chosen => self.choose_bases(&changes, &mut buckets.first),
        }
        for change in changes {
            self.change(&change, &mut buckets);
        }
        for (set, key) in self.own.elements() {
            let element = Some(Element::default());
            buckets.first.edit(set, key, None, element);
        }
        buckets.first
    }

    /// Pairs that are in the kernel although no row has them.
    pub(crate) fn retire(&mut self, pairs: impl IntoIterator<Item = (u32, u32)>) {
        self.retired.extend(pairs.into_iter().map(|pair| (pair, 0)));
    }

    pub(crate) fn flat(&self, family: Family) -> &Flat {
        &self.flat[family as usize]
    }

    /// What a class has in the kernel; the program is that of the tables.
    pub(crate) fn content(&self, class: ClassId, program: &Program) -> ClassContent {
        let number = self.numbers.classes.get(class).unwrap_or_default();
        let codes = self.numbers.residues.get(&class);
        let mut codes = codes.into_iter().flatten().copied();
        let print = fingerprint(&self.tables, program);
        let form = self.form(class, &print);
        class_content(&self.config, number, program, form, &mut || {
            codes.next().unwrap_or_default()
        })
    }

    /// How a class of this fingerprint is written.
    fn form<'a>(&'a self, class: ClassId, print: &'a str) -> Form<'a> {
        let bases = &self.numbers.bases;
        let base = bases.of(class);
        match base.and_then(|number| Some((number, bases.program(number)?))) {
            Some((number, base)) => Form::Beside(print, number, base),
            None => Form::Whole(print),
        }
    }

    /// Raises the generation: established flows are judged again.
    pub(crate) fn revoke(&mut self) -> Vec<Op> {
        let mut batch = Batch::default();
        if self.pending {
            let (set, key, element) = pending();
            batch.edit(set, key, Some(element), None);
            self.pending = false;
        }
        if Fault::GenerationNotBumped.is_on() {
            return batch.into_ops().1;
        }
        let live = |generation| Key::Exact(mark(self.config.mark(generation)));
        let next = self.config.next_generation(self.generation);
        let old = Some(Element::default());
        batch.edit(LIVE, live(self.generation), old, None);
        batch.edit(LIVE, live(next), None, Some(Element::default()));
        self.generation = next;
        let mut ops = batch.into_ops().1;
        let chain: palisade_model::Str = GENERATION.into();
        let rule = generation_rule(&self.config, next);
        ops.push(Op::FlushChain {
            chain: chain.clone(),
        });
        ops.push(Op::AddRule { chain, rule });
        ops
    }

    /// The policy sets whose default these changes replace.
    fn moving_defaults(&self, changes: &[Change]) -> BTreeSet<SetId> {
        let moves = |change: &Change| match change {
            Change::Set(id, Some(new)) => {
                let old = self.tables.sets.get(id);
                old.is_some_and(|old| old != new).then_some(*id)
            }
            _ => None,
        };
        changes.iter().filter_map(moves).collect()
    }

    fn change(&mut self, change: &Change, buckets: &mut Buckets) {
        match change {
            Change::Interface(name, ours) => {
                let key = Key::Exact(names::ifname(name));
                let before = self.tables.interfaces.contains(name);
                let member = |there: bool| there.then(Element::default);
                let same = Key::Exact(concat(&[&names::ifname(name), &names::ifname(name)]));
                let batch = &mut buckets.first;
                batch.edit(IF_OURS, key, member(before), member(*ours));
                batch.edit(IF_SAME, same, member(before), member(*ours));
            }
            Change::Address(prefix, id) => self.address(*prefix, *id, &mut buckets.first),
            Change::Point(point, set) => self.point(point, *set, &mut buckets.first),
            Change::Set(id, set) => self.set(*id, *set, buckets),
            Change::Class(set, id, class) => self.row(*set, *id, *class, buckets),
            Change::Program(class, program) => {
                self.drop_class(*class, &mut buckets.first);
                if let Some(program) = program {
                    self.add_class(*class, program, &mut buckets.first);
                }
            }
            Change::Rule(..) => {}
        }
        self.own.change(&self.tables, change);
        self.tables.apply(change);
    }

    fn address(&mut self, prefix: Prefix, id: Option<IdentityId>, batch: &mut Batch) {
        let before = self.tables.addresses.get(&prefix).copied();
        if let Some(id) = id {
            self.use_identity(id);
        }
        if prefix.is_host() {
            let key = Key::Exact(names::address(prefix.address()));
            let before = before.map(|id| value(self.identity(id)));
            let after = id.map(|id| value(self.identity(id)));
            batch.edit(names::hosts(prefix.family()), key, before, after);
        } else {
            match id {
                Some(id) => self.nets.insert(prefix, id),
                None => self.nets.remove(&prefix),
            };
            let family = prefix.family();
            let mut runs: Vec<(Run, bool)> = Vec::new();
            self.flat[family as usize].refresh(&self.nets, prefix, |run, added| {
                runs.push((run, added));
            });
            for ((first, last, id), added) in runs {
                let end = |number| names::address(address_of(family, number));
                let element = Some(value(self.identity(id)));
                let (before, after) = if added {
                    (None, element)
                } else {
                    (element, None)
                };
                batch.edit(
                    names::nets(family),
                    Key::Range(end(first), end(last)),
                    before,
                    after,
                );
            }
        }
        if let Some(before) = before {
            self.release_identity(before);
        }
    }

    fn point(&mut self, point: &Point, set: Option<SetId>, batch: &mut Batch) {
        let name = names::ifname(&point.interface);
        let key = Key::Exact(concat(&[&name, &names::address(point.address)]));
        let map = names::points(Family::of(point.address), point.direction);
        let before = self.tables.points.get(point).copied();
        let before = before.map(|set| value(self.numbers.sets.number(set)));
        let after = set.map(|set| value(self.numbers.sets.number(set)));
        batch.edit(map, key, before, after);
    }

    fn set(&mut self, id: SetId, set: Option<PolicySet>, buckets: &mut Buckets) {
        let number = self.numbers.sets.number(id);
        let before = self.tables.sets.get(&id).copied();
        let before = before.map(|set| value(self.numbers.classes.number(set.default)));
        let mut after = set.map(|set| value(self.numbers.classes.number(set.default)));
        if Fault::DefaultClassMissed.is_on() {
            after = None;
        }
        let batch = if buckets.moving.contains(&id) {
            &mut buckets.defaults
        } else {
            &mut buckets.first
        };
        batch.edit(PAIR, marks(&[number, 0]), before, after);
        if set.is_none() {
            // No packet is in a set that goes.
            for (pair, step) in &mut self.retired {
                if pair.0 == number {
                    *step = 0;
                }
            }
            self.numbers.sets.free(id);
        }
    }

    fn row(&mut self, set: SetId, id: IdentityId, class: Option<ClassId>, buckets: &mut Buckets) {
        let set_number = self.numbers.sets.number(set);
        let before = self.tables.classes.get(&(set, id)).copied();
        if class.is_some() {
            self.use_identity(id);
        }
        let key = marks(&[set_number, self.identity(id)]);
        let number = |planner: &mut Planner, class| planner.numbers.classes.number(class);
        let before_number = before.map(|class| number(self, class));
        let after_number = class.map(|class| number(self, class));
        if let Some(class) = after_number {
            let pair = (set_number, class);
            let uses = self.pairs.entry(pair).or_default();
            *uses += 1;
            if *uses == 1 && self.retired.remove(&pair).is_none() {
                let key = marks(&[set_number, class]);
                buckets.first.edit(PAIR, key, None, Some(value(class)));
            }
        }
        let batch = if class.is_none() && buckets.moving.contains(&set) {
            &mut buckets.last
        } else {
            &mut buckets.first
        };
        batch.edit(
            CLASS,
            key,
            before_number.map(value),
            after_number.map(value),
        );
        if let Some(class) = before_number {
            let pair = (set_number, class);
            if let Some(uses) = self.pairs.get_mut(&pair) {
                *uses -= 1;
                if *uses == 0 {
                    self.pairs.remove(&pair);
                    self.retired.insert(pair, self.step);
                }
            }
            self.release_identity(id);
        }
    }

    fn add_class(&mut self, class: ClassId, program: &Arc<Program>, batch: &mut Batch) {
        self.settle_base(class, program);
        let number = self.numbers.classes.number(class);
        let print = fingerprint(&self.tables, program);
        let known = self.numbers.residues.get(&class).cloned();
        let mut known = known.unwrap_or_default().into_iter();
        let mut made = Vec::new();
        let mut next_residue = self.numbers.next_residue;
        let form = self.form(class, &print);
        let content = class_content(&self.config, number, program, form, &mut || {
            let known = known.next();
            let code = known.unwrap_or_else(|| take_code(&mut next_residue));
            made.push(code);
            code
        });
        self.numbers.next_residue = next_residue;
        if !made.is_empty() {
            self.numbers.residues.insert(class, made);
        }
        for ((set, key), element) in content.elements {
            batch.edit(set, key, None, Some(element));
        }
        batch.new_chains.extend(content.chains);
    }

    fn drop_class(&mut self, class: ClassId, batch: &mut Batch) {
        let Some(program) = self.tables.programs.get(&class).cloned() else {
            return;
        };
        let content = self.content(class, &program);
        for ((set, key), element) in content.elements {
            batch.edit(set, key, Some(element), None);
        }
        let chains = content.chains.into_iter().rev();
        batch.dead_chains.extend(chains.map(|(name, _)| name));
        batch.harvest.extend(harvests(content.credits));
        self.leave_base(class, &program, batch);
        self.numbers.residues.remove(&class);
        self.numbers.classes.free(class);
    }

    /// The kernel's number of an identity.
    fn identity(&mut self, id: IdentityId) -> u32 {
        match id {
            IdentityId::NOBODY => 0,
            id => self.numbers.identities.number(id),
        }
    }

    fn use_identity(&mut self, id: IdentityId) {
        *self.identity_uses.entry(id).or_default() += 1;
    }

    fn release_identity(&mut self, id: IdentityId) {
        if let Some(uses) = self.identity_uses.get_mut(&id) {
            *uses -= 1;
            if *uses == 0 {
                self.identity_uses.remove(&id);
                self.numbers.identities.free(id);
            }
        }
    }

    /// Removes the pairs that no row has any more, in the last step or one after it.
    fn sweep_pairs(&mut self, steps: &mut Vec<TxStep>) {
        let set: palisade_model::Str = PAIR.into();
        let delete = |(number, class): (u32, u32)| Op::DeleteElement {
            set: set.clone(),
            key: marks(&[number, class]),
        };
        let last = core::mem::take(&mut self.step);
        let retired = core::mem::take(&mut self.retired).into_iter();
        let (fresh, safe): (Vec<_>, Vec<_>) = retired.partition(|(_, step)| *step == last);
        let ops = safe.into_iter().map(|(pair, _)| delete(pair));
        match steps.last_mut() {
            Some(step) if step.phase == Phase::Delete => step.ops.extend(ops),
            _ => push_step(steps, Phase::Delete, Vec::new(), ops.collect(), true),
        }
        let ops = fresh.into_iter().map(|(pair, _)| delete(pair));
        push_step(steps, Phase::Delete, Vec::new(), ops.collect(), true);
    }
}

/// What places count for rules.
pub(crate) fn harvests(credits: Vec<(Place, Vec<RuleId>)>) -> impl Iterator<Item = Harvest> {
    let credited = credits.into_iter().filter(|(_, rules)| !rules.is_empty());
    credited.map(|(place, rules)| Harvest { place, rules })
}

/// The generation that flows are marked with after a transaction, if it changes that.
pub fn raised_generation(config: &Config, transaction: &Transaction) -> Option<u32> {
    let ops = transaction.steps.iter().flat_map(|step| &step.ops);
    ops.rev().find_map(|op| match op {
        Op::AddRule { chain, rule } if **chain == *GENERATION => generation_of(config, rule),
        _ => None,
    })
}

fn push_step(
    steps: &mut Vec<TxStep>,
    phase: Phase,
    harvest: Vec<Harvest>,
    ops: Vec<Op>,
    waits: bool,
) {
    if !ops.is_empty() {
        steps.push(TxStep {
            phase,
            harvest,
            ops,
            waits,
        });
    }
}

/// An element that maps to a number.
fn value(number: u32) -> Element {
    Element {
        data: Some(Datum::Value(mark(number))),
        ..Element::default()
    }
}

/// Changes that make these tables out of empty ones, in an order in which each can be made.
fn changes_of(tables: &Tables) -> Vec<Change> {
    let mut out: Vec<Change> = Vec::new();
    let rules = tables.rules.iter();
    out.extend(rules.map(|(id, credit)| Change::Rule(*id, Some(credit.clone()))));
    let programs = tables.programs.iter();
    out.extend(programs.map(|(id, program)| Change::Program(*id, Some(program.clone()))));
    let sets = tables.sets.iter();
    out.extend(sets.map(|(id, set)| Change::Set(*id, Some(*set))));
    let rows = tables.classes.iter();
    out.extend(rows.map(|((set, id), class)| Change::Class(*set, *id, Some(*class))));
    let addresses = tables.addresses.iter();
    out.extend(addresses.map(|(prefix, id)| Change::Address(*prefix, Some(*id))));
    let interfaces = tables.interfaces.iter();
    out.extend(interfaces.map(|name| Change::Interface(name.clone(), true)));
    let points = tables.points.iter();
    out.extend(points.map(|(point, set)| Change::Point(point.clone(), Some(*set))));
    out
}

//! The planner: from deltas to transactions.
//!
//! The planner keeps a copy of the decision tables and the kernel's numbers, so the cost of a delta depends
//! on its changes only. Promises: each step can be applied alone and atomically; a packet in flight during a
//! step gets the verdict from before or after it; no counter is deleted without being listed in
//! [`TxStep::retiring_counters`].

mod counters;
mod host_points;
mod local_addresses;

use crate::content::{ClassContent, ClassForm, class_content, fingerprint, redirect_rules};
use crate::edit_batch::{EditBatch, push_chain};
use crate::kernel_numbers::{BaseCodes, KernelNumbers};
use crate::names::{
    self, GENERATION, IDENTITY_CLASS, IF_HAIRPIN, IF_OURS, LIVE_MARK, SET_CLASS, concat_fields,
    mark_bytes, zero_prefixed_marks,
};
use crate::redirect;
use crate::redirect_ports::RedirectPorts;
use crate::skeleton::{generation_of, generation_rule, pending_revocation, skeleton};
use crate::{
    AttributedCounter, Config, Element, ElementKey, MapValue, NftFault, Op, Ruleset, Transaction,
    TxStep,
};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_layout::{
    BaseSelection, IdentityUses, LocalAddresses, PairUses, PrefixRanges, ReleasedBase, ValueRange,
};
use palisade_model::{Direction, Family, Prefix, address_from_number};
use palisade_tables::{
    ClassId, Delta, DnsRules, IdentityId, Phase, Point, PolicySet, PolicySetId, Program,
    TableChange, Tables,
};

use host_points::{HostPointPlan, HostPointPlanner};

/// Plans transactions for one table, and tracks the kernel's content.
#[derive(Clone, Debug)]
pub struct Planner {
    pub(crate) config: Config,
    pub(crate) tables: Tables,
    pub(crate) generation: u32,
    pub(crate) numbers: KernelNumbers,
    /// The prefixes of `tables` that hold more than one address, by family.
    networks: [PrefixRanges<IdentityId>; 2],
    identity_uses: IdentityUses,
    /// The (set, class) pairs in the kernel's numbers.
    pair_uses: PairUses,
    pub(crate) local_addresses: LocalAddresses,
    host_points: HostPointPlan,
    /// Whether the kernel has the element for a pending revocation.
    pub(crate) revocation_pending: bool,
    base_selection: BaseSelection,
    /// The ports of the classes that redirect packets: the kernel has the chains for it while there is one.
    redirect_ports: RedirectPorts,
}

/// The name of the map of a point, by family and direction.
type PointMap = fn(Family, Direction) -> &'static str;

/// How the classes of whole tables get their bases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaseSearch {
    /// Known bases only; classes without one are written whole.
    Existing,
    /// A base is searched for each class.
    Search,
}

impl Planner {
    /// A planner for a table that holds only the skeleton with this generation (not 0).
    pub fn new(config: Config, generation: u32) -> Self {
        Planner::with_numbers(config, generation, KernelNumbers::default())
    }

    pub(crate) fn with_numbers(config: Config, generation: u32, numbers: KernelNumbers) -> Self {
        let tables = Tables {
            judgement: config.judgement.clone(),
            ..Tables::default()
        };
        let base_selection = BaseSelection::new(config.min_shared_elements);
        Planner {
            config,
            tables,
            generation,
            numbers,
            networks: Default::default(),
            identity_uses: IdentityUses::default(),
            pair_uses: PairUses::default(),
            local_addresses: LocalAddresses::default(),
            host_points: HostPointPlan::default(),
            revocation_pending: false,
            base_selection,
            redirect_ports: RedirectPorts::default(),
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

    /// The DNS rules that packets are redirected to, by the number in the mark of these packets, after everything planned
    /// so far. A number is not given to other rules before all others were.
    pub fn dns_rules(&self) -> BTreeMap<u32, Arc<DnsRules>> {
        let mut all = BTreeMap::new();
        for (class, numbers) in &self.numbers.redirects {
            if let Some(program) = self.tables.programs.get(class) {
                all.extend(numbers.iter().copied().zip(redirect_rules(program)));
            }
        }
        all
    }

    /// The parameters of the layout.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Plans a delta on top of everything planned so far.
    ///
    /// Each step of the delta becomes one of the transaction; what is deleted after a grace period, and own
    /// addresses, may add steps. Counters that are deleted are listed in [`TxStep::retiring_counters`].
    pub fn plan(&mut self, delta: &Delta) -> Transaction {
        let mut steps: Vec<TxStep> = Vec::new();
        let revokes = delta.steps.iter().any(|step| step.phase == Phase::Revoke);
        for (at, step) in delta.steps.iter().enumerate() {
            self.pair_uses.begin_step();
            let waits = delta.needs_grace_period_after(at, &self.tables);
            if step.phase == Phase::Revoke {
                let ops = self.revoke();
                push_step(&mut steps, Phase::Revoke, Vec::new(), ops, true);
                continue;
            }
            let mut batch = EditBatch::default();
            self.assign_bases(&step.changes, &mut batch);
            for change in &step.changes {
                self.apply_change(change, &mut batch);
            }
            self.release_unused_bases(&mut batch);
            let may_tighten = step.phase < Phase::Revoke && !batch.is_empty();
            if revokes && may_tighten && !self.revocation_pending {
                let (set, key, element) = pending_revocation();
                batch.edit(set, key, None, Some(element));
                self.revocation_pending = true;
            }
            let (retiring_counters, ops) = batch.into_ops();
            push_step(&mut steps, step.phase, retiring_counters, ops, waits);
        }
        self.delete_unused_pairs(&mut steps);
        local_addresses::change_local_addresses(self, delta, &mut steps);
        let only_loosens_addresses = delta.only_loosens_addresses() && steps.len() == 1;
        Transaction {
            only_loosens_addresses,
            ..Transaction::new(self.config.table.clone(), steps)
        }
    }

    /// The table's content after everything planned so far, with all counters zero.
    pub fn ruleset(&self) -> Ruleset {
        let mut fresh =
            Planner::with_numbers(self.config.clone(), self.generation, self.numbers.clone());
        let batch = fresh.load(&self.tables, BaseSearch::Existing);
        let mut ruleset = skeleton(&self.config, self.generation);
        let (elements, chains) = batch.into_elements();
        for (set, key, element) in elements {
            if let Some(set) = ruleset.sets.get_mut(set) {
                set.elements.insert(key, element);
            }
        }
        if self.revocation_pending {
            let (set, key, element) = pending_revocation();
            if let Some(set) = ruleset.sets.get_mut(set) {
                set.elements.insert(key, element);
            }
        }
        ruleset.chains.extend(chains);
        ruleset
    }

    /// One atomic step that creates the whole table in place of the existing one.
    ///
    /// The base chains are deleted first. Once the new rules are active, the old table's elements are
    /// inactive, but its rules still run until the kernel has unregistered their base chain: it processes
    /// deletions in the order of the transaction, and until then their lookups find nothing and the packet
    /// is dropped. When the base chain was deleted among the whole table, this took a millisecond.
    pub fn rebuild(&self, replaced: Option<&Ruleset>) -> Transaction {
        let ruleset = self.ruleset();
        let mut ops = Vec::new();
        if let Some(replaced) = replaced {
            let called = replaced
                .chains
                .iter()
                .filter(|(_, chain)| chain.base_chain.is_some());
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
        // Chains first, so that every rule and element finds its target; then rules, since the kernel
        // validates all elements of a map that a new rule looks up.
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
            retiring_counters: Vec::new(),
            ops,
            needs_grace_period: true,
        };
        Transaction::new(self.config.table.clone(), [step].into())
    }

    /// Loads whole tables, as if each entry were new.
    pub(crate) fn load(&mut self, tables: &Tables, sharing: BaseSearch) -> EditBatch {
        let mut batch = EditBatch::default();
        let changes = tables.entries();
        match sharing {
            BaseSearch::Existing => self.write_known_bases(&mut batch),
            BaseSearch::Search => self.assign_bases(&changes, &mut batch),
        }
        for change in changes {
            self.apply_change(&change, &mut batch);
        }
        for address in self.local_addresses.install_all() {
            let (set, key) = local_addresses::address_element(address);
            batch.edit(set, key, None, Some(Element::default()));
        }
        batch
    }

    /// Adds pairs that are in the kernel although no row has them.
    pub(crate) fn add_unused_pairs(&mut self, pairs: impl IntoIterator<Item = (u32, u32)>) {
        self.pair_uses.add_unused(pairs);
    }

    /// The kernel content of a class; `program` is its program in the tables.
    pub(crate) fn class_content(&self, class: ClassId, program: &Program) -> ClassContent {
        let number = self.numbers.objects.classes.get(class).unwrap_or_default();
        let mut numbers = self.numbers.of_class(class);
        let print = fingerprint(&self.tables, program);
        let form = self.class_form(class, &print);
        class_content(&self.config, number, program, form, &mut numbers)
    }

    /// The form in which a class with this fingerprint is encoded.
    fn class_form<'a>(&'a self, class: ClassId, print: &'a str) -> ClassForm<'a> {
        let bases = &self.numbers.bases;
        let base = bases.base_of(class);
        match base.and_then(|number| Some((number, bases.program(number)?))) {
            Some((number, base)) => ClassForm::Refining(print, number, base),
            None => ClassForm::Whole(print),
        }
    }

    /// Raises the generation, so that established flows are judged again.
    pub(crate) fn revoke(&mut self) -> Vec<Op> {
        let mut batch = EditBatch::default();
        if self.revocation_pending {
            let (set, key, element) = pending_revocation();
            batch.edit(set, key, Some(element), None);
            self.revocation_pending = false;
        }
        if NftFault::GenerationNotBumped.is_injected() {
            return batch.into_ops().1;
        }
        let live = |generation| ElementKey::Exact(mark_bytes(self.config.mark(generation)));
        let next = self.config.next_generation(self.generation);
        let old = Some(Element::default());
        batch.edit(LIVE_MARK, live(self.generation), old, None);
        batch.edit(LIVE_MARK, live(next), None, Some(Element::default()));
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

    fn apply_change(&mut self, change: &TableChange, batch: &mut EditBatch) {
        HostPointPlanner(self).change_interface(change, batch);
        match change {
            TableChange::Interface(name, ours) => {
                let key = ElementKey::Exact(names::interface_name(name));
                let before = self.tables.interfaces.contains(name);
                let member = |is_member: bool| is_member.then(Element::default);
                let same = ElementKey::Exact(concat_fields(&[
                    &names::interface_name(name),
                    &names::interface_name(name),
                ]));
                batch.edit(IF_OURS, key, member(before), member(*ours));
                if !self.config.judgement.judge_hairpin {
                    batch.edit(IF_HAIRPIN, same, member(before), member(*ours));
                }
            }
            TableChange::Address(prefix, id) => self.change_address(*prefix, *id, batch),
            TableChange::Point(point, set) => self.change_point(point, *set, batch),
            TableChange::Set(id, set) => self.change_set(*id, *set, batch),
            TableChange::Class(set, id, class) => self.change_row(*set, *id, *class, batch),
            TableChange::Program(class, program) => {
                self.remove_class(*class, batch);
                if let Some(program) = program {
                    self.add_class(*class, program, batch);
                }
            }
            TableChange::Rule(..) | TableChange::HostInterface(..) => {}
        }
        self.local_addresses.apply_change(&self.tables, change);
        self.tables.apply(change);
    }

    fn change_address(&mut self, prefix: Prefix, id: Option<IdentityId>, batch: &mut EditBatch) {
        let before = self.tables.addresses.get(&prefix).copied();
        if let Some(id) = id {
            self.identity_uses.acquire(id);
        }
        if prefix.is_host() {
            let key = ElementKey::Exact(names::address_bytes(prefix.address()));
            let before = before.map(|id| mark_element(self.identity_number(id)));
            let after = id.map(|id| mark_element(self.identity_number(id)));
            batch.edit(names::host_map(prefix.family()), key, before, after);
        } else {
            let family = prefix.family();
            let mut ranges: Vec<(ValueRange<IdentityId>, bool)> = Vec::new();
            self.networks[family as usize].change(prefix, id, |range, added| {
                ranges.push((range, added));
            });
            for ((first, last, id), added) in ranges {
                let end = |number| names::address_bytes(address_from_number(family, number));
                let element = Some(mark_element(self.identity_number(id)));
                let (before, after) = if added {
                    (None, element)
                } else {
                    (element, None)
                };
                batch.edit(
                    names::network_map(family),
                    ElementKey::Range(end(first), end(last)),
                    before,
                    after,
                );
            }
        }
        if let Some(before) = before {
            self.release_identity(before);
        }
    }

    fn change_point(&mut self, point: &Point, set: Option<PolicySetId>, batch: &mut EditBatch) {
        let (map, (interface, address)) = match (point.workload(), point.hairpin()) {
            (Some(local), _) => (names::point_map as PointMap, local),
            // Hairpin traffic is judged as any other.
            (_, Some(_)) if self.config.judgement.judge_hairpin => return,
            (_, Some(local)) => (names::hairpin_point_map as PointMap, local),
            _ => return HostPointPlanner(self).change_host_point(point, set, batch),
        };
        let name = names::interface_name(interface);
        let key = ElementKey::Exact(concat_fields(&[&name, &names::address_bytes(address)]));
        let map = map(Family::of(address), point.direction);
        let before = self.tables.points.get(point).copied();
        let before = before.map(|set| mark_element(self.numbers.objects.sets.get_or_allocate(set)));
        let after = set.map(|set| mark_element(self.numbers.objects.sets.get_or_allocate(set)));
        batch.edit(map, key, before, after);
    }

    fn change_set(&mut self, id: PolicySetId, set: Option<PolicySet>, batch: &mut EditBatch) {
        let number = self.numbers.objects.sets.get_or_allocate(id);
        let before = self.tables.sets.get(&id).copied();
        let before = before
            .map(|set| mark_element(self.numbers.objects.classes.get_or_allocate(set.default)));
        let mut after =
            set.map(|set| mark_element(self.numbers.objects.classes.get_or_allocate(set.default)));
        if NftFault::DefaultClassMissed.is_injected() {
            after = None;
        }
        batch.edit(SET_CLASS, zero_prefixed_marks(&[number, 0]), before, after);
        if set.is_none() {
            self.pair_uses.release_set(number);
            self.numbers.objects.sets.release(id);
        }
    }

    fn change_row(
        &mut self,
        set: PolicySetId,
        id: IdentityId,
        class: Option<ClassId>,
        batch: &mut EditBatch,
    ) {
        let set_number = self.numbers.objects.sets.get_or_allocate(set);
        let before = self.tables.classes.get(&(set, id)).copied();
        if class.is_some() {
            self.identity_uses.acquire(id);
        }
        let key = zero_prefixed_marks(&[set_number, self.identity_number(id)]);
        let number =
            |planner: &mut Planner, class| planner.numbers.objects.classes.get_or_allocate(class);
        let before_number = before.map(|class| number(self, class));
        let after_number = class.map(|class| number(self, class));
        if let Some(class) = after_number
            && self.pair_uses.acquire((set_number, class))
        {
            let key = zero_prefixed_marks(&[set_number, class]);
            batch.edit(SET_CLASS, key, None, Some(mark_element(class)));
        }
        batch.edit(
            IDENTITY_CLASS,
            key,
            before_number.map(mark_element),
            after_number.map(mark_element),
        );
        if let Some(class) = before_number {
            self.pair_uses.release((set_number, class));
            self.release_identity(id);
        }
    }

    fn add_class(&mut self, class: ClassId, program: &Arc<Program>, batch: &mut EditBatch) {
        let bases = &mut self.numbers.bases;
        self.base_selection.bind(bases, class, program);
        let number = self.numbers.objects.classes.get_or_allocate(class);
        let print = fingerprint(&self.tables, program);
        let form = self.class_form(class, &print);
        let mut fresh = self
            .numbers
            .allocation(class, program, self.config.redirect);
        let content = class_content(&self.config, number, program, form, &mut fresh);
        let allocated = fresh.finish();
        self.numbers.assign(class, allocated);
        if self.redirect_ports.add(&content, batch) {
            batch.add_chains(redirect::chains(&self.config));
            batch.fill_chains(redirect::own_chains(&self.config));
        }
        batch.add_content(content);
    }

    fn remove_class(&mut self, class: ClassId, batch: &mut EditBatch) {
        let Some(program) = self.tables.programs.get(&class).cloned() else {
            return;
        };
        let content = self.class_content(class, &program);
        if self.redirect_ports.remove(&content, batch) {
            batch.delete_chains(redirect::chains(&self.config));
            batch.empty_chains(redirect::own_chains(&self.config));
        }
        batch.delete_content(content);
        let bases = &mut self.numbers.bases;
        if let Some(base) = self.base_selection.unbind(bases, class, &program) {
            self.release_base(&base, batch);
        }
        self.numbers.release(class);
    }

    /// The kernel's number of an identity.
    fn identity_number(&mut self, id: IdentityId) -> u32 {
        self.numbers.objects.identity(id)
    }

    fn release_identity(&mut self, id: IdentityId) {
        if self.identity_uses.release(id) {
            self.numbers.objects.identities.release(id);
        }
    }

    /// Assigns bases to the classes that these changes create, and writes new bases.
    fn assign_bases(&mut self, changes: &[TableChange], batch: &mut EditBatch) {
        let KernelNumbers {
            bases,
            base_codes,
            next_code,
            ..
        } = &mut self.numbers;
        let config = &self.config;
        let add = |number, program: &Program| {
            let mut fresh = BaseCodes::new(next_code);
            let content = class_content(config, number, program, ClassForm::Base, &mut fresh);
            batch.add_content(content);
            base_codes.insert(number, fresh.codes);
        };
        self.base_selection
            .assign(bases, &self.tables, changes, add);
    }

    /// Releases the bases of classes that were not written.
    fn release_unused_bases(&mut self, batch: &mut EditBatch) {
        for base in self.base_selection.release_pending(&mut self.numbers.bases) {
            self.release_base(&base, batch);
        }
    }

    fn release_base(&mut self, base: &ReleasedBase, batch: &mut EditBatch) {
        if base.is_unused || NftFault::BaseDroppedEarly.is_injected() {
            batch.delete_content(self.base_content(base.number, &base.program));
        }
        if base.is_unused {
            self.numbers.base_codes.remove(&base.number);
        }
    }

    /// Deletes the pairs without rows, in the last step or one after it.
    fn delete_unused_pairs(&mut self, steps: &mut Vec<TxStep>) {
        let set: palisade_model::Str = SET_CLASS.into();
        let delete = |(number, class): (u32, u32)| Op::DeleteElement {
            set: set.clone(),
            key: zero_prefixed_marks(&[number, class]),
        };
        let (safe, fresh) = self.pair_uses.take_unused();
        let ops = safe.into_iter().map(delete);
        match steps.last_mut() {
            Some(step) if step.phase == Phase::Delete => step.ops.extend(ops),
            _ => push_step(steps, Phase::Delete, Vec::new(), ops.collect(), true),
        }
        let ops = fresh.into_iter().map(delete);
        push_step(steps, Phase::Delete, Vec::new(), ops.collect(), true);
    }
}

/// The generation that flows are marked with after a transaction, if the transaction changes it.
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
    harvest: Vec<AttributedCounter>,
    ops: Vec<Op>,
    waits: bool,
) {
    if !ops.is_empty() {
        steps.push(TxStep {
            phase,
            retiring_counters: harvest,
            ops,
            needs_grace_period: waits,
        });
    }
}

/// An element with a number as its value.
fn mark_element(number: u32) -> Element {
    Element {
        data: Some(MapValue::Value(mark_bytes(number))),
        ..Element::default()
    }
}

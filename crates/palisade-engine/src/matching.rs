//! Determines which rules of a policy set an identity matches, up to those that decide everything.

use crate::active_rules::ResolvedRule;
use crate::compiler::{RuleSequence, SequenceStep, StepOperation, compile};
use crate::dns_observation::{allow_unread_dns, observe_dns};
use crate::encapsulation::deny_encapsulation;
use crate::faults::EngineFault;
use crate::identities::IdentityKey;
use crate::judged_traffic::JudgedTraffic;
use crate::peer_rule_index::RulePosition;
use crate::program_pool::{CausePool, ProgramPool};
use crate::sets::{DecisionBlock, PolicySetRules};
use crate::store::{HashMap, NamedPolicies};
use crate::traffic::{PortEnd, is_total};
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;
use hashbrown::hash_map::Entry;
use palisade_model::{
    Action, Direction, DomainPattern, Encapsulations, PolicyView, Protocol, Str, TrafficMatch,
    UnreadDnsAction,
};
use palisade_tables::{ClassId, Program, RuleId, Verdict, VerdictCause};

/// One step that applies to an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MatchedStep {
    /// A rule, with the position of its source.
    Rule(u32, RulePosition),
    /// The fallback of a block.
    Fallback,
}

/// The named ports of an identity.
type NamedPorts = Vec<(Str, Protocol, u16)>;

/// Matched steps with their blocks.
type MatchedSteps = Vec<(u32, MatchedStep)>;

/// What determines the class of an identity in a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    /// What is enforced.
    steps: MatchedSteps,
    /// What would be enforced if nothing were in audit; `None` where nothing in audit applies.
    audit_steps: Option<MatchedSteps>,
    /// The identity's named ports, if rules use them.
    ports: NamedPorts,
}

impl ClassKey {
    /// The steps if nothing were in audit.
    pub(crate) fn audited_steps(&self) -> &[(u32, MatchedStep)] {
        self.audit_steps.as_ref().unwrap_or(&self.steps)
    }
}

/// The programs of a pass that are compiled without a template, which takes longer for a few.
const WITHOUT_TEMPLATE: usize = 4;

/// What was compiled during one pass over the identities of a set.
#[derive(Default)]
pub(crate) struct ClassCache {
    classes: HashMap<ClassKey, ClassId>,
    /// The rule number and the operation of each matched step in each view.
    steps: HashMap<(PolicyView, u32, MatchedStep), (RuleId, TemplateStep)>,
    /// Numbers of traffic: rules with equal terms have the same.
    traffic: HashMap<Vec<TrafficMatch>, usize>,
    /// Numbers of the names by which rules decide.
    names: HashMap<Arc<BTreeSet<DomainPattern>>, usize>,
    /// By operations and named ports. Many identities differ only in which of several rules with
    /// equal traffic name them.
    templates: HashMap<(Vec<TemplateStep>, NamedPorts), ProgramTemplate>,
    /// The rule numbers of audit causes, by what would be counted and the verdict.
    audit_rules: HashMap<(RuleId, Verdict), RuleId>,
}

/// The operation of a step in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TemplateStep {
    /// The block, the action, the number of the traffic, and that of the names.
    Rule(u32, Action, usize, Option<usize>),
    /// The block and its fallback.
    Fallback(u32, Verdict),
}

/// A program that has the indexes of its steps as rule numbers.
struct ProgramTemplate {
    program: Program,
    /// Whether it has the number of steps as the number of the denial of encapsulations.
    denies_encapsulation: bool,
}

/// What compiling a class needs.
pub(crate) struct CompileContext<'a> {
    pub(crate) policies: NamedPolicies<'a>,
    pub(crate) causes: &'a mut CausePool,
    pub(crate) programs: &'a mut ProgramPool,
    /// Encapsulations that endpoints may not send even where rules allow them.
    pub(crate) denied_encapsulation: Encapsulations,
    /// What happens to DNS that rules with names judge and nobody reads.
    pub(crate) unread_dns: UnreadDnsAction,
    /// The most elements that a program may have.
    pub(crate) max_elements: usize,
}

/// The steps of one view that an identity matches, with its named ports.
#[derive(Clone, Copy)]
struct StepsOfView<'a> {
    view: PolicyView,
    steps: &'a [(u32, MatchedStep)],
    ports: &'a [(Str, Protocol, u16)],
}

/// The positions of a rule group's sources that are not yet processed, and its matching rules.
struct GroupCursor<'a> {
    positions: &'a [u32],
    rules: &'a [RulePosition],
}

impl PolicySetRules {
    /// The class of an identity, without counting a use. `None` if its program exceeds the limit of
    /// elements.
    pub(crate) fn class_of(
        &self,
        identity: &IdentityKey,
        context: &mut CompileContext<'_>,
        cache: &mut ClassCache,
    ) -> Option<ClassId> {
        let key = self.class_key(identity);
        if let Some(class) = cache.classes.get(&key) {
            return Some(*class);
        }
        let program = self.compile(&key, context, cache)?;
        let class = context.programs.intern(program, context.max_elements)?;
        cache.classes.insert(key, class);
        Some(class)
    }

    /// What determines the class of an identity.
    pub(crate) fn class_key(&self, identity: &IdentityKey) -> ClassKey {
        let ports = if self.index.uses_peer_named_ports() {
            identity.ports.clone()
        } else {
            Vec::new()
        };
        let audited = self.is_audited()
            && self.omits_audit().is_none()
            && !EngineFault::AuditVerdictLost.is_injected();
        let peers = |position| self.rule(position).map_or(&[][..], |body| &*body.peers);
        let matched = self.index.matching_rules(identity, peers);
        ClassKey {
            steps: self.matched_steps(&matched, PolicyView::Enforced),
            audit_steps: audited.then(|| self.matched_steps(&matched, PolicyView::Audit)),
            ports,
        }
    }

    pub(crate) fn rule(&self, position: RulePosition) -> Option<&ResolvedRule> {
        self.group(position.group)?
            .1
            .rules
            .get(position.index as usize)
    }

    /// The steps of a view, given the rules that match, in order.
    fn matched_steps(&self, matched: &[RulePosition], view: PolicyView) -> MatchedSteps {
        let mut cursors: Vec<GroupCursor<'_>> = matched
            .chunk_by(|a, b| a.group == b.group)
            .filter_map(|rules| {
                let (kind, _) = self.group(rules.first()?.group)?;
                Some(GroupCursor {
                    positions: &kind.positions,
                    rules,
                })
            })
            .collect();
        let mut steps = Vec::new();
        for (number, block) in (0..).zip(&self.blocks) {
            let mut passes = false;
            let mut decided = false;
            while !decided {
                let next = cursors.iter_mut().filter(|c| !c.positions.is_empty());
                let Some(cursor) = next.min_by_key(|cursor| cursor.positions[0]) else {
                    break;
                };
                let at = cursor.positions[0];
                if at >= block.end {
                    break;
                }
                cursor.positions = &cursor.positions[1..];
                let Some(segment) = self.segments.get(at as usize) else {
                    continue;
                };
                if !view.includes(segment.mode) {
                    continue;
                }
                let own = segment.first_local_test;
                for position in cursor.rules {
                    let Some(body) = self.rule(*position) else {
                        continue;
                    };
                    let fits = body.local_test.is_none_or(|test| {
                        let position = (own + test) as usize;
                        self.key.local_tests.get(position).copied().unwrap_or(false)
                    });
                    if !fits || body.dns_names.is_some() && !self.reads_queries() {
                        continue;
                    }
                    steps.push((number, MatchedStep::Rule(at, *position)));
                    passes |= body.action == Action::Pass;
                    let decides_all = body.action != Action::Log && body.dns_names.is_none();
                    if decides_all && self.applicable_traffic(body).any(is_total) {
                        decided = true;
                        break;
                    }
                }
            }
            for cursor in &mut cursors {
                let after = cursor.positions.partition_point(|at| *at < block.end);
                cursor.positions = &cursor.positions[after..];
            }
            if !decided && block.fallback_in(view).is_some() {
                steps.push((number, MatchedStep::Fallback));
                decided = true;
            }
            if decided && !(passes && block.profile.is_none()) {
                break;
            }
        }
        steps
    }

    /// Whether DNS queries can be read, so that rules may decide by name.
    fn reads_queries(&self) -> bool {
        (self.key.direction == Direction::Egress && self.key.traffic == JudgedTraffic::Workload)
            || EngineFault::DnsRuleAnywhere.is_injected()
    }

    /// The traffic terms of a rule that can hold for the address family of this set.
    fn applicable_traffic<'a>(
        &self,
        body: &'a ResolvedRule,
    ) -> impl Iterator<Item = &'a TrafficMatch> {
        let family = self.key.family;
        body.traffic.iter().filter(move |term| {
            term.family.is_none()
                || term.family == family
                || EngineFault::FamiliesMixed.is_injected()
        })
    }

    /// The program of a class, with what would be decided if nothing were in audit where that applies.
    fn compile(
        &self,
        class_key: &ClassKey,
        context: &mut CompileContext<'_>,
        cache: &mut ClassCache,
    ) -> Option<Program> {
        let ports = &class_key.ports;
        let enforced = StepsOfView {
            view: PolicyView::Enforced,
            steps: &class_key.steps,
            ports,
        };
        let program = self.compile_view(enforced, context, cache)?;
        let program = allow_unread_dns(program, context.unread_dns);
        let Some(steps) = &class_key.audit_steps else {
            return Some(program);
        };
        let audited = StepsOfView {
            view: PolicyView::Audit,
            steps,
            ports,
        };
        let audit = self.compile_view(audited, context, cache)?;
        if EngineFault::AuditVerdictEnforced.is_injected() {
            return Some(audit);
        }
        let ClassCache { audit_rules, .. } = cache;
        let causes = &mut *context.causes;
        let audit_rule = |rule, verdict| {
            *audit_rules
                .entry((rule, verdict))
                .or_insert_with(|| causes.intern_audit(rule, verdict))
        };
        Some(program.with_audit(&audit, self.key.direction, audit_rule))
    }

    /// The program of the steps of a view.
    fn compile_view(
        &self,
        class_key: StepsOfView<'_>,
        context: &mut CompileContext<'_>,
        cache: &mut ClassCache,
    ) -> Option<Program> {
        let StepsOfView { view, steps, ports } = class_key;
        if cache.classes.len() < WITHOUT_TEMPLATE {
            let rule =
                |(block, step): &(u32, MatchedStep)| self.step_rule(view, *block, *step, context);
            let rules: Option<Vec<RuleId>> = steps.iter().map(rule).collect();
            return self.compile_alone(class_key, &rules?, context);
        }
        let mut rules = Vec::with_capacity(steps.len() + 1);
        let mut operations = Vec::with_capacity(steps.len());
        for step in steps {
            let (rule, operation) = self.template_step(view, *step, context, cache)?;
            rules.push(rule);
            operations.push(operation);
        }
        let mut distinct = rules.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.len() < rules.len() {
            // Cells that a template tells apart may be equal.
            return self.compile_alone(class_key, &rules, context);
        }
        let template = match cache.templates.entry((operations, ports.to_vec())) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let indexes: Vec<RuleId> = (0..).map(RuleId).take(rules.len()).collect();
                let mut denies_encapsulation = false;
                let denial = || {
                    denies_encapsulation = true;
                    RuleId(u32::try_from(rules.len()).unwrap_or(u32::MAX))
                };
                let (denied, most) = (context.denied_encapsulation, context.max_elements);
                let program = self.compile_rules(class_key, &indexes, denied, most, denial)?;
                new.insert(ProgramTemplate {
                    program,
                    denies_encapsulation,
                })
            }
        };
        if template.denies_encapsulation {
            rules.push(context.causes.intern(VerdictCause::Encapsulated));
        }
        template.program.with_rules(&rules)
    }

    /// The program of these steps, compiled without a template.
    fn compile_alone(
        &self,
        class_key: StepsOfView<'_>,
        rules: &[RuleId],
        context: &mut CompileContext<'_>,
    ) -> Option<Program> {
        let causes = &mut *context.causes;
        let denial = || causes.intern(VerdictCause::Encapsulated);
        let (denied, most) = (context.denied_encapsulation, context.max_elements);
        self.compile_rules(class_key, rules, denied, most, denial)
    }

    /// The rule number of a step of a view.
    fn step_rule(
        &self,
        view: PolicyView,
        block: u32,
        step: MatchedStep,
        context: &mut CompileContext<'_>,
    ) -> Option<RuleId> {
        let block = self.blocks.get(block as usize)?;
        match step {
            MatchedStep::Fallback => Some(block.fallback_in(view)?.0),
            MatchedStep::Rule(at, position) => {
                self.rule_cause(context, block, at, self.rule(position)?)
            }
        }
    }

    /// The rule number and the operation of a step of a view.
    fn template_step(
        &self,
        view: PolicyView,
        (block, matched): (u32, MatchedStep),
        context: &mut CompileContext<'_>,
        cache: &mut ClassCache,
    ) -> Option<(RuleId, TemplateStep)> {
        if let Some(known) = cache.steps.get(&(view, block, matched)) {
            return Some(*known);
        }
        let operation = match matched {
            MatchedStep::Fallback => {
                let decision_block = self.blocks.get(block as usize)?;
                let (_, verdict) = decision_block.fallback_in(view)?;
                TemplateStep::Fallback(block, verdict)
            }
            MatchedStep::Rule(_, position) => {
                let body = self.rule(position)?;
                let next = cache.traffic.len();
                let traffic = match cache.traffic.get(&*body.traffic) {
                    Some(number) => *number,
                    None => *cache.traffic.entry(body.traffic.clone()).or_insert(next),
                };
                let next = cache.names.len();
                let names = body
                    .dns_names
                    .as_ref()
                    .map(|names| match cache.names.get(names) {
                        Some(number) => *number,
                        None => *cache.names.entry(names.clone()).or_insert(next),
                    });
                TemplateStep::Rule(block, body.action, traffic, names)
            }
        };
        let step = (self.step_rule(view, block, matched, context)?, operation);
        cache.steps.insert((view, block, matched), step);
        Some(step)
    }

    /// The program of these steps, which have these rule numbers.
    fn compile_rules(
        &self,
        class_key: StepsOfView<'_>,
        rules: &[RuleId],
        denied_encapsulation: Encapsulations,
        max_elements: usize,
        denial: impl FnOnce() -> RuleId,
    ) -> Option<Program> {
        let key = &self.key;
        let StepsOfView {
            view,
            steps,
            ports: peer_ports,
        } = class_key;
        let local_end = match key.direction {
            Direction::Ingress => PortEnd::Destination,
            Direction::Egress => PortEnd::Source,
        };
        let resolve_port = |end: PortEnd, name: &Str, protocol: Protocol| {
            let ports = if end == local_end {
                &key.ports
            } else {
                peer_ports
            };
            let any = EngineFault::NamedPortAnyProtocol.is_injected();
            ports
                .iter()
                .find(|(n, p, _)| n == name && (any || *p == protocol))
                .map(|(_, _, port)| *port)
        };
        let step = |((block, matched), id): (&(u32, MatchedStep), &RuleId)| {
            let decision_block = self.blocks.get(*block as usize)?;
            let MatchedStep::Rule(_, position) = *matched else {
                return Some(SequenceStep {
                    id: *id,
                    operation: StepOperation::Fallback(decision_block.fallback_in(view)?.1),
                });
            };
            let body = self.rule(position)?;
            Some(SequenceStep {
                id: *id,
                operation: StepOperation::Rule {
                    action: match body.action {
                        Action::Pass
                            if decision_block.profile.is_some()
                                && !EngineFault::PassInProfileAllows.is_injected() =>
                        {
                            Action::Deny
                        }
                        Action::Pass if decision_block.profile.is_some() => Action::Allow,
                        action => action,
                    },
                    next: steps.partition_point(|(other, _)| other <= block),
                    terms: self.applicable_traffic(body).collect(),
                    dns_names: body.dns_names.as_deref(),
                },
            })
        };
        let sequence = RuleSequence {
            direction: key.direction,
            steps: steps.iter().zip(rules).filter_map(step).collect(),
        };
        let program = compile(&sequence, resolve_port, max_elements)?;
        Some(match key.direction {
            Direction::Ingress => program,
            Direction::Egress if key.traffic != JudgedTraffic::Workload => program,
            Direction::Egress => {
                let program = deny_encapsulation(program, denied_encapsulation, denial);
                if self.observes_dns() {
                    observe_dns(program)
                } else {
                    program
                }
            }
        })
    }

    /// The cause number of a rule of the source at a position.
    fn rule_cause(
        &self,
        context: &mut CompileContext<'_>,
        block: &DecisionBlock,
        at: u32,
        body: &ResolvedRule,
    ) -> Option<RuleId> {
        let direction = self.key.direction;
        let origin = &body.origin;
        if let Some(profile) = block
            .profile
            .and_then(|position| self.key.profiles.get(position))
        {
            return Some(context.causes.intern(VerdictCause::ProfileRule {
                profile: profile.clone(),
                direction,
                origin: origin.clone(),
            }));
        }
        let policy = *self.key.policies.get(at as usize)?;
        let policies = context.policies;
        context.causes.intern_rule(policy, direction, origin, || {
            Some(VerdictCause::Rule {
                policy: policies.id(policy)?,
                direction,
                origin: origin.clone(),
            })
        })
    }
}

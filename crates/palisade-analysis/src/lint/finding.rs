//! Findings as they are reported: the policy, the rule, the line, what is wrong and what to do.
//!
//! This module writes texts; it never decides whether there is a finding.

use super::names::NameMistake;
use super::selection::{SelectorHint, SelectorMiss};
use crate::rules::StateRules;
use palisade_api::{LintCode, LintFinding, MAX_RELATED_RULES, ObjectRef, RuleRef};
use palisade_model::{Direction, Policy, SourceLine, Str};
use std::collections::BTreeSet;

/// The place of a finding in a report: known lines first, by file and line, then by policy and rule.
pub(super) type FindingKey = (bool, Option<SourceLine>, u32, u32, LintCode, usize);

/// The findings so far.
pub(super) struct FindingList<'s, 'a> {
    rules: &'s StateRules<'a>,
    findings: Vec<(FindingKey, LintFinding)>,
}

/// What is wrong, and what to do.
struct FindingText {
    message: String,
    suggestion: String,
}

impl<'s, 'a> FindingList<'s, 'a> {
    /// A list that begins with these findings.
    pub(super) fn new(rules: &'s StateRules<'a>, findings: Vec<(FindingKey, LintFinding)>) -> Self {
        FindingList { rules, findings }
    }

    /// The findings, by file and line.
    pub(super) fn into_findings(self) -> Vec<LintFinding> {
        sort_findings(self.findings)
    }

    /// The policy of a rule; `None` for a rule of a profile.
    pub(super) fn policy_of(&self, rule: u32) -> Option<u32> {
        let ranges = &self.rules.policy_rules;
        let at = ranges.partition_point(|range| range.end <= rule as usize);
        let found = ranges
            .get(at)
            .filter(|range| range.contains(&(rule as usize)));
        found.and_then(|_| u32::try_from(at).ok())
    }

    /// The policy's subject selects nothing.
    pub(super) fn add_subject_miss(&mut self, policy: u32, miss: &SelectorMiss) {
        let otherwise = "correct the selector, or remove the policy if what it selected is gone";
        let text = FindingText {
            message: format!("it selects nothing: {}", miss.reason),
            suggestion: suggestion(miss, otherwise),
        };
        self.add_policy_finding(LintCode::SubjectSelectsNothing, policy, text);
    }

    /// A peer of a rule, at this index, matches nothing.
    pub(super) fn add_peer_miss(&mut self, rule: u32, peer: usize, miss: &SelectorMiss) {
        let name = match self.rules.all[rule as usize].rule.peers.len() {
            1 => "its peer".to_owned(),
            _ => format!("peer {peer} of the rule"),
        };
        let otherwise = "correct the selector, or remove the peer if what it matched is gone";
        let text = FindingText {
            message: format!("{name} matches nothing: {}", miss.reason),
            suggestion: suggestion(miss, otherwise),
        };
        self.add_rule_finding(
            LintCode::PeerSelectsNothing,
            rule,
            peer,
            text,
            &BTreeSet::new(),
        );
    }

    /// Other rules decide everything that a rule matches.
    pub(super) fn add_unreached(&mut self, rule: u32, deciders: &BTreeSet<u32>) {
        let own = self.policy_of(rule);
        let action = |rule: u32| self.rules.all[rule as usize].rule.action;
        let repeats = |other: &u32| self.policy_of(*other) == own && action(*other) == action(rule);
        let advice = if deciders.iter().all(repeats) {
            "remove it: the policy does the same without it"
        } else {
            "remove it, or evaluate it before the rules that decide instead"
        };
        let verb = if deciders.len() == 1 {
            "decides"
        } else {
            "decide"
        };
        let text = FindingText {
            message: format!(
                "no flow reaches it: {} always {verb} first",
                self.list_rules(own, deciders)
            ),
            suggestion: advice.to_owned(),
        };
        self.add_rule_finding(LintCode::RuleNeverReached, rule, 0, text, deciders);
    }

    /// Later rules of the policy do the same as a rule.
    pub(super) fn add_redundant(&mut self, rule: u32, substitutes: &BTreeSet<u32>) {
        let own = self.policy_of(rule);
        let verb = if substitutes.len() == 1 { "does" } else { "do" };
        let text = FindingText {
            message: format!(
                "it adds nothing: {} {verb} the same with all that it matches",
                self.list_rules(own, substitutes)
            ),
            suggestion: "remove it: the policy does the same without it".to_owned(),
        };
        self.add_rule_finding(LintCode::RuleAddsNothing, rule, 0, text, substitutes);
    }

    /// A rule passes to tiers without policies.
    pub(super) fn add_pass_into_nothing(&mut self, rule: u32) {
        let text = FindingText {
            message: "it passes to later tiers, and none of them has a policy for what the policy selects: \
                      what it matches is decided as if no policy applied"
                .to_owned(),
            suggestion: "say Allow or Deny if that is meant, or add the policies to which it should pass"
                .to_owned(),
        };
        self.add_rule_finding(LintCode::PassIntoNothing, rule, 0, text, &BTreeSet::new());
    }

    /// A policy changes nothing.
    pub(super) fn add_without_effect(&mut self, policy: u32) {
        let text = FindingText {
            message: "it changes nothing: without it every connection here is the same".to_owned(),
            suggestion: "remove it, or correct what it was meant to change; keep it if it is meant for pods or \
                         policies to come"
                .to_owned(),
        };
        self.add_policy_finding(LintCode::PolicyChangesNothing, policy, text);
    }

    /// A rule of a policy contradicts rules of policies of the same order with lesser names.
    pub(super) fn add_contradiction(&mut self, rule: u32, others: &BTreeSet<u32>) {
        let own = self.policy_of(rule);
        let text = FindingText {
            message: format!(
                "its policy has the same order as others that decide differently: it contradicts {}, and only \
                 the names of the policies decide",
                self.list_rules(own, others)
            ),
            suggestion: "give one of the policies another order or priority".to_owned(),
        };
        self.add_rule_finding(LintCode::OrderDecidedByName, rule, 0, text, others);
    }

    /// A rule by name is in vain.
    pub(super) fn add_name_mistake(&mut self, rule: u32, mistake: &NameMistake) {
        let (code, message, suggestion) = match mistake {
            NameMistake::NoDns => (
                LintCode::NamesWithoutDns,
                "what the policy selects cannot learn its names: nothing allows it to send DNS (port 53)".to_owned(),
                "allow UDP and TCP to port 53 of the DNS servers",
            ),
            NameMistake::NotRead => (
                LintCode::NamesNeverLearned,
                "its names have addresses only if other workloads ask for them: nobody reads the DNS answers that \
                 what the policy selects gets"
                    .to_owned(),
                "add a rule for DNS queries by name for what the policy selects",
            ),
            NameMistake::NotAsked(names) => (
                LintCode::NameNeverAsked,
                format!(
                    "it allows {}, and no rule allows what the policy selects to ask for {}",
                    names.join(", "),
                    if names.len() == 1 { "it" } else { "them" }
                ),
                "allow DNS queries for it, or correct the name",
            ),
        };
        let text = FindingText {
            message,
            suggestion: suggestion.to_owned(),
        };
        self.add_rule_finding(code, rule, 0, text, &BTreeSet::new());
    }

    fn add_policy_finding(&mut self, code: LintCode, policy: u32, text: FindingText) {
        let model_policy: &Policy = self.rules.policies[policy as usize];
        let finding = LintFinding {
            code,
            policy: ObjectRef::new(&model_policy.id.object, model_policy.line.as_ref()),
            direction: None,
            rule: None,
            rule_name: None,
            line: model_policy.line.as_ref().map(ToString::to_string),
            message: text.message,
            suggestion: text.suggestion,
            related: Vec::new(),
        };
        let key = (
            model_policy.line.is_none(),
            model_policy.line.clone(),
            policy,
            0,
            code,
            0,
        );
        self.findings.push((key, finding));
    }

    fn add_rule_finding(
        &mut self,
        code: LintCode,
        rule: u32,
        peer: usize,
        text: FindingText,
        related: &BTreeSet<u32>,
    ) {
        let Some(policy) = self.policy_of(rule) else {
            return;
        };
        let model_policy: &Policy = self.rules.policies[policy as usize];
        let placed = &self.rules.all[rule as usize];
        let origin = &placed.rule.origin;
        let line = origin.line.as_ref().or(model_policy.line.as_ref());
        let finding = LintFinding {
            code,
            policy: ObjectRef::new(&model_policy.id.object, model_policy.line.as_ref()),
            direction: Some(placed.direction),
            rule: Some(origin.index),
            rule_name: origin.name.as_ref().map(Str::to_string),
            line: line.map(ToString::to_string),
            message: text.message,
            suggestion: text.suggestion,
            related: related
                .iter()
                .take(MAX_RELATED_RULES)
                .filter_map(|rule| self.rule_ref(*rule))
                .collect(),
        };
        let key = (line.is_none(), line.cloned(), policy, rule, code, peer);
        self.findings.push((key, finding));
    }

    fn rule_ref(&self, rule: u32) -> Option<RuleRef> {
        let policy = self.rules.policies[self.policy_of(rule)? as usize];
        let placed = &self.rules.all[rule as usize];
        let origin = &placed.rule.origin;
        Some(RuleRef {
            policy: Some(ObjectRef::new(&policy.id.object, policy.line.as_ref())),
            profile: None,
            direction: placed.direction,
            index: origin.index,
            name: origin.name.as_ref().map(Str::to_string),
            line: origin.line.as_ref().map(ToString::to_string),
            action: placed.rule.action,
        })
    }

    /// Names rules; those of the policy `own` without the policy.
    fn list_rules(&self, own: Option<u32>, rules: &BTreeSet<u32>) -> String {
        let shown = rules.iter().take(MAX_RELATED_RULES);
        let mut texts: Vec<String> = shown.map(|rule| self.rule_text(own, *rule)).collect();
        let others = rules.len().saturating_sub(MAX_RELATED_RULES);
        if others > 0 {
            texts.push(format!("{others} more"));
        }
        match texts.split_last() {
            Some((last, before)) if !before.is_empty() => {
                format!("{} and {last}", before.join(", "))
            }
            _ => texts.concat(),
        }
    }

    fn rule_text(&self, own: Option<u32>, rule: u32) -> String {
        let policy = self.policy_of(rule);
        let placed = &self.rules.all[rule as usize];
        let origin = &placed.rule.origin;
        let direction = match placed.direction {
            Direction::Ingress => "ingress",
            Direction::Egress => "egress",
        };
        let mut text = format!("{direction} rule {}", origin.index);
        if let Some(policy) = policy.filter(|policy| Some(*policy) != own) {
            let object = &self.rules.policies[policy as usize].id.object;
            text.push_str(&format!(" of {}", ObjectRef::new(object, None)));
        }
        if let Some(line) = &origin.line {
            text.push_str(&format!(" ({line})"));
        }
        text
    }
}

/// Findings by file and line; those of one place as they were found.
pub(super) fn sort_findings(mut findings: Vec<(FindingKey, LintFinding)>) -> Vec<LintFinding> {
    findings.sort_by(|(a, _), (b, _)| a.cmp(b));
    findings.into_iter().map(|(_, finding)| finding).collect()
}

fn suggestion(miss: &SelectorMiss, otherwise: &str) -> String {
    match &miss.hint {
        Some(SelectorHint::Nearest(nearest)) => format!("did you mean {nearest}?"),
        Some(SelectorHint::Values(values)) => format!("{otherwise}; here there is {values}"),
        None => otherwise.to_owned(),
    }
}

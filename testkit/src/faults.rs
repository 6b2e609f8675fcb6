//! Named mistakes of the crates under test, switched on one at a time: each names the stage of the
//! differential that must find it, and only what that very stage finds counts, which proves that each
//! stage can. So mistakes in the order of steps are found by what they do to packets, not by a test of
//! sortedness before it.
//!
//! Only in builds with the feature `faults`. A mistake is on for the whole process.

use crate::differential::{GeneratorKind, RunOptions, StageFailure, StageFilter, first_failure};
use palisade_dialects::faults::DialectFault;
use palisade_engine::EngineFault;
use palisade_nft::NftFault;
use palisade_tables::TransitionFault;

/// Cases within which each mistake must be found.
pub const WITHIN: u64 = 12_000;

/// The least number of mistakes there must be.
pub const AT_LEAST: usize = 30;

/// A mistake, by the crate that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// In the reading of Kubernetes objects.
    Dialects(DialectFault),
    /// In the decision tables.
    Engine(EngineFault),
    /// In the steps from old tables to new.
    Tables(TransitionFault),
    /// In the nftables plan.
    Nft(NftFault),
}

impl InjectedFault {
    /// Every mistake there is.
    #[must_use]
    pub fn all() -> Vec<InjectedFault> {
        // BudgetIgnored changes what policy takes, and no verdict.
        let engine = EngineFault::ALL
            .iter()
            .filter(|fault| **fault != EngineFault::BudgetIgnored);
        let dialects = DialectFault::ALL
            .iter()
            .map(|fault| InjectedFault::Dialects(*fault));
        let tables = TransitionFault::ALL
            .iter()
            .map(|fault| InjectedFault::Tables(*fault));
        let nft = NftFault::ALL.iter().map(|fault| InjectedFault::Nft(*fault));
        let engine = engine.map(|fault| InjectedFault::Engine(*fault));
        dialects.chain(engine).chain(tables).chain(nft).collect()
    }

    /// Its name: the crate, then the mistake.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            InjectedFault::Dialects(fault) => format!("dialects:{fault:?}"),
            InjectedFault::Engine(fault) => format!("engine:{fault:?}"),
            InjectedFault::Tables(fault) => format!("tables:{fault:?}"),
            InjectedFault::Nft(fault) => format!("nft:{fault:?}"),
        }
    }

    /// The mistake of a name; the crate may be left out where that is not ambiguous.
    #[must_use]
    pub fn parse(name: &str) -> Option<InjectedFault> {
        let all = InjectedFault::all();
        let whole = all.iter().find(|fault| fault.name() == name);
        let mut ends = all.iter().filter(|fault| {
            fault
                .name()
                .split_once(':')
                .is_some_and(|(_, end)| end == name)
        });
        match (whole, ends.next(), ends.next()) {
            (Some(fault), ..) | (None, Some(fault), None) => Some(*fault),
            _ => None,
        }
    }

    /// Switches it on, and every other off.
    pub fn inject(self) {
        clear();
        match self {
            InjectedFault::Dialects(fault) => DialectFault::inject(Some(fault)),
            InjectedFault::Engine(fault) => EngineFault::inject(Some(fault)),
            InjectedFault::Tables(fault) => TransitionFault::inject(Some(fault)),
            InjectedFault::Nft(fault) => NftFault::inject(Some(fault)),
        }
    }

    /// The worlds in which it can be found: nothing that is lowered already passes a dialect.
    fn generator_kind(self) -> Option<GeneratorKind> {
        match self {
            InjectedFault::Dialects(fault) if fault.is_of_policy_api() => {
                Some(GeneratorKind::PolicyApi)
            }
            InjectedFault::Dialects(fault) if fault.is_of_cilium() => Some(GeneratorKind::Cilium),
            InjectedFault::Dialects(fault) if fault.is_of_calico() => Some(GeneratorKind::Calico),
            InjectedFault::Dialects(_) => Some(GeneratorKind::Kubernetes),
            InjectedFault::Engine(_) | InjectedFault::Tables(_) | InjectedFault::Nft(_) => None,
        }
    }

    /// The stage of the differential that must find it.
    #[must_use]
    pub fn stage(self) -> &'static str {
        match self {
            InjectedFault::Dialects(_) => "naive reading and oracle",
            InjectedFault::Engine(fault) => match fault {
                // Only the way there is wrong.
                EngineFault::NamespaceLabelsStale | EngineFault::HostNodeLabelsStale => {
                    "roundabout and from scratch"
                }
                EngineFault::DeletedPolicyStays => "updates and state",
                _ => "oracle and tables",
            },
            InjectedFault::Tables(fault) => match fault {
                // What is referred to is not there yet, or not any more.
                TransitionFault::SplitAfterLoosen | TransitionFault::DeleteFirst => {
                    "checker: dangling"
                }
                // A packet is judged by one end as before and by the other as after.
                TransitionFault::TightenAfterLoosen
                | TransitionFault::PassesChangeAlone
                | TransitionFault::PassesRemovedFirst => "checker: neither",
                TransitionFault::MergeBeforeLoosen | TransitionFault::IntersectionSkipped => {
                    "checker: broken promise"
                }
                TransitionFault::RevokeForgotten => "checker: not revoked",
                // Only it asks first whether a packet is hairpin traffic.
            },
            InjectedFault::Nft(_) => "tables and nftables",
        }
    }

    /// Switched on, after how many cases its stage finds it, and how; switched off again afterwards.
    #[must_use]
    pub fn find(self, seed: u64) -> Option<(u64, StageFailure)> {
        self.inject();
        let options = RunOptions {
            cases: WITHIN,
            seed,
            only: self.generator_kind(),
        };
        let found = first_failure(&options, StageFilter::only(self.stage()));
        clear();
        found
    }

    /// Switched on, what finds it first, whatever stage it is.
    fn find_at_any_stage(self, seed: u64) -> Option<(u64, StageFailure)> {
        self.inject();
        let options = RunOptions {
            cases: WITHIN,
            seed,
            only: self.generator_kind(),
        };
        let found = first_failure(&options, StageFilter::ANY);
        clear();
        found
    }
}

/// Switches every mistake off.
pub fn clear() {
    DialectFault::inject(None);
    EngineFault::inject(None);
    TransitionFault::inject(None);
    NftFault::inject(None);
}

/// Hunts every mistake, or those that are found in one kind of world only; says where each was found, and whether
/// all were.
pub fn find_all(seed: u64, only: Option<GeneratorKind>, say: &mut dyn FnMut(&str)) -> bool {
    let mut all = InjectedFault::all();
    all.retain(|fault| only.is_none() || fault.generator_kind() == only);
    let mut missed = Vec::new();
    for fault in &all {
        let name = fault.name();
        match fault.find(seed) {
            Some((cases, failure)) => say(&format!(
                "{name:<42} found at case {cases:>5} by {}",
                failure.stage
            )),
            None => {
                let stage = fault.stage();
                let other = fault.find_at_any_stage(seed);
                let other = other.map(|(cases, f)| format!("; case {cases} fails by {}", f.stage));
                let other = other.unwrap_or_default();
                say(&format!(
                    "{name:<42} NOT FOUND in {WITHIN} cases by {stage}{other}"
                ));
                missed.push(name);
            }
        }
    }
    let options = RunOptions {
        cases: WITHIN,
        seed,
        only,
    };
    let clean = first_failure(&options, StageFilter::ANY);
    if let Some((cases, failure)) = &clean {
        say(&format!(
            "without any mistake, case {cases} fails as well: {}: {}",
            failure.stage, failure.detail
        ));
    }
    say(&format!(
        "{} faults, {} found, {} not found",
        all.len(),
        all.len() - missed.len(),
        missed.len()
    ));
    missed.is_empty() && clean.is_none() && (all.len() >= AT_LEAST || only.is_some())
}

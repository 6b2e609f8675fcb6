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
use std::collections::BTreeMap;

/// Cases within which each mistake must be found.
pub const WITHIN: u64 = 12_000;

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

/// Whether a mistake is one of what nftables does with the bit of proven packets.
fn is_of_proof(fault: NftFault) -> bool {
    matches!(
        fault,
        NftFault::ProofOfAnyInterface
            | NftFault::ProofUntracksAnything
            | NftFault::ProofTracked
            | NftFault::ProofBitLeft
            | NftFault::ErrorAboutAnything
    )
}

impl InjectedFault {
    /// Every mistake that a stage of the differential can find.
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
        // No world has a fast path: those of its bit are found by the test `faults` of palisade-nft.
        let nft = NftFault::ALL.iter().filter(|fault| !is_of_proof(**fault));
        let nft = nft.map(|fault| InjectedFault::Nft(*fault));
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
                | TransitionFault::StagesChangeAlone
                | TransitionFault::StagesRemovedFirst => "checker: neither",
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

/// A part of a hunt: every `of`th mistake, from this one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HuntPart {
    /// The number of this part, less than `of`.
    pub index: usize,
    /// How many parts there are.
    pub of: usize,
}

impl HuntPart {
    /// All of it.
    pub const WHOLE: HuntPart = HuntPart { index: 0, of: 1 };
}

/// What a hunt came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HuntCount {
    /// The mistakes that were switched on.
    pub hunted: usize,
    /// Those that their stage found.
    pub found: usize,
    /// Whether a case without any mistake fails as well, of those that the mistakes took to be found.
    pub is_unsound: bool,
}

impl HuntCount {
    /// Whether every mistake of these was found, and for its own sake.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self.found == self.hunted && !self.is_unsound
    }
}

impl std::fmt::Display for HuntCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let HuntCount { hunted, found, .. } = self;
        write!(
            f,
            "{hunted} faults, {found} found, {} not found",
            hunted - found
        )
    }
}

/// Hunts a part of the mistakes, or of those that are found in one kind of world only; says where each was found.
pub fn find_all(
    seed: u64,
    only: Option<GeneratorKind>,
    part: HuntPart,
    say: &mut dyn FnMut(&str),
) -> HuntCount {
    let mut all = InjectedFault::all();
    all.retain(|fault| only.is_none() || fault.generator_kind() == only);
    let mut count = HuntCount::default();
    // By the kind of worlds, the last case by which a mistake was found.
    let mut latest: BTreeMap<Option<GeneratorKind>, u64> = BTreeMap::new();
    for fault in all.iter().skip(part.index).step_by(part.of.max(1)) {
        let name = fault.name();
        count.hunted += 1;
        match fault.find(seed) {
            Some((cases, failure)) => {
                count.found += 1;
                let latest = latest.entry(fault.generator_kind()).or_default();
                *latest = cases.max(*latest);
                say(&format!(
                    "{name:<42} found at case {cases:>5} by {}",
                    failure.stage
                ));
            }
            None => {
                let stage = fault.stage();
                let other = fault.find_at_any_stage(seed);
                let other = other.map(|(cases, f)| format!("; case {cases} fails by {}", f.stage));
                let other = other.unwrap_or_default();
                say(&format!(
                    "{name:<42} NOT FOUND in {WITHIN} cases by {stage}{other}"
                ));
            }
        }
    }
    // A case that fails without a mistake proves nothing of one.
    for (only, cases) in latest {
        let options = RunOptions { cases, seed, only };
        if let Some((case, failure)) = first_failure(&options, StageFilter::ANY) {
            count.is_unsound = true;
            say(&format!(
                "without any mistake, case {case} fails as well: {}: {}",
                failure.stage, failure.detail
            ));
        }
    }
    count
}

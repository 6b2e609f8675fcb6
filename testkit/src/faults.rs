//! Named mistakes of the crates under test, switched on one at a time: each names the stage of the
//! differential that must find it, and only what that very stage finds counts, which proves that each
//! stage can. So mistakes in the order of steps are found by what they do to packets, not by a test of
//! sortedness before it.
//!
//! Only in builds with the feature `faults`. A mistake is on for the whole process.

use crate::differential::{Failure, Half, Options, Sought, first_failure};

/// Cases within which each mistake must be found.
pub const WITHIN: u64 = 12_000;

/// The least number of mistakes there must be.
pub const AT_LEAST: usize = 30;

/// A mistake, by the crate that makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// In the reading of Kubernetes objects.
    Dialects(palisade_dialects::faults::Fault),
    /// In the decision tables and the steps to them.
    Engine(palisade_engine::faults::Fault),
    /// In the nftables plan.
    Nft(palisade_nft::Fault),
}

impl Fault {
    /// Every mistake there is.
    #[must_use]
    pub fn all() -> Vec<Fault> {
        let dialects = palisade_dialects::faults::Fault::ALL.map(Fault::Dialects);
        let engine = palisade_engine::faults::Fault::ALL.map(Fault::Engine);
        let nft = palisade_nft::Fault::ALL.map(Fault::Nft);
        dialects.into_iter().chain(engine).chain(nft).collect()
    }

    /// Its name: the crate, then the mistake.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Fault::Dialects(fault) => format!("dialects:{fault:?}"),
            Fault::Engine(fault) => format!("engine:{fault:?}"),
            Fault::Nft(fault) => format!("nft:{fault:?}"),
        }
    }

    /// The mistake of a name; the crate may be left out where that is not ambiguous.
    #[must_use]
    pub fn named(name: &str) -> Option<Fault> {
        let all = Fault::all();
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
    pub fn switch_on(self) {
        switch_off();
        match self {
            Fault::Dialects(fault) => palisade_dialects::faults::set(Some(fault)),
            Fault::Engine(fault) => palisade_engine::faults::set(Some(fault)),
            Fault::Nft(fault) => palisade_nft::Fault::set(Some(fault)),
        }
    }

    /// The worlds in which it can be found: nothing that is lowered already passes a dialect.
    fn half(self) -> Option<Half> {
        match self {
            Fault::Dialects(_) => Some(Half::Kubernetes),
            Fault::Engine(_) | Fault::Nft(_) => None,
        }
    }

    /// The stage of the differential that must find it.
    #[must_use]
    pub fn stage(self) -> &'static str {
        use palisade_engine::faults::Fault as Engine;
        match self {
            Fault::Dialects(_) => "naive reading and oracle",
            Fault::Engine(fault) => match fault {
                // What is referred to is not there yet, or not any more.
                Engine::SplitAfterLoosen | Engine::DeleteFirst => "checker: dangling",
                // A packet is judged by one end as before and by the other as after.
                Engine::TightenAfterLoosen => "checker: neither",
                Engine::MergeBeforeLoosen | Engine::IntersectionSkipped => {
                    "checker: broken promise"
                }
                Engine::RevokeForgotten => "checker: not revoked",
                // Only the way there is wrong.
                Engine::NamespaceLabelsStale => "roundabout and from scratch",
                Engine::DeletedPolicyStays => "updates and state",
                _ => "oracle and tables",
            },
            Fault::Nft(_) => "tables and nftables",
        }
    }

    /// Switched on, after how many cases its stage finds it, and how; switched off again afterwards.
    #[must_use]
    pub fn hunt(self, seed: u64) -> Option<(u64, Failure)> {
        self.switch_on();
        let options = Options {
            cases: WITHIN,
            seed,
            only: self.half(),
        };
        let found = first_failure(&options, Sought::only(self.stage()));
        switch_off();
        found
    }

    /// Switched on, what finds it first, whatever stage it is.
    fn found_anyhow(self, seed: u64) -> Option<(u64, Failure)> {
        self.switch_on();
        let options = Options {
            cases: WITHIN,
            seed,
            only: self.half(),
        };
        let found = first_failure(&options, Sought::ANY);
        switch_off();
        found
    }
}

/// Switches every mistake off.
pub fn switch_off() {
    palisade_dialects::faults::set(None);
    palisade_engine::faults::set(None);
    palisade_nft::Fault::set(None);
}

/// Hunts every mistake, says where each was found, and whether all were.
pub fn hunt_all(seed: u64, say: &mut dyn FnMut(&str)) -> bool {
    let all = Fault::all();
    let mut missed = Vec::new();
    for fault in &all {
        let name = fault.name();
        match fault.hunt(seed) {
            Some((cases, failure)) => say(&format!(
                "{name:<42} found at case {cases:>5} by {}",
                failure.stage
            )),
            None => {
                let stage = fault.stage();
                let other = fault.found_anyhow(seed);
                let other = other.map(|(cases, f)| format!("; case {cases} fails by {}", f.stage));
                let other = other.unwrap_or_default();
                say(&format!(
                    "{name:<42} NOT FOUND in {WITHIN} cases by {stage}{other}"
                ));
                missed.push(name);
            }
        }
    }
    let options = Options {
        cases: WITHIN,
        seed,
        only: None,
    };
    let clean = first_failure(&options, Sought::ANY);
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
    missed.is_empty() && clean.is_none() && all.len() >= AT_LEAST
}

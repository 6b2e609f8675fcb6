//! What records of flows say of their verdicts, made once for all flows that have it in common.
//!
//! Promises: a decision names rules as they are defined at its use; memory is bounded. Never: judges.

use super::attribution::AuditAttribution;
use palisade_api::FlowDecision;
use palisade_model::PolicyStage;
use palisade_tables::VerdictCause;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The greatest number of decisions, about 1 KB each.
const MAX_DECISIONS: usize = 2_048;

/// What lets a flow pass at one end.
#[derive(Clone)]
pub(super) struct EndCause {
    pub(super) cause: Arc<VerdictCause>,
    pub(super) audit: Option<AuditAttribution>,
    pub(super) host_stage: Option<PolicyStage>,
}

/// What tells decisions apart. Causes are told apart by their place in memory, where each stays as long as it is kept
/// here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DecisionKey {
    cause: usize,
    /// Whether the verdict without audit lets pass, and its cause.
    audit: Option<(bool, usize)>,
    stage: Option<PolicyStage>,
    /// The revision that judged.
    revision: u64,
    is_past: bool,
}

/// Decisions of one state of the policy.
#[derive(Default)]
pub(super) struct DecisionCache(Mutex<CachedDecisions>);

#[derive(Default)]
struct CachedDecisions {
    /// The revision of the definitions, and the one that the kernel enforces.
    revisions: (u64, u64),
    decisions: BTreeMap<DecisionKey, (EndCause, Arc<FlowDecision>)>,
}

impl DecisionCache {
    /// The decision of a cause by the tables of a revision that may be past; `make` makes it if it is not known.
    /// `revisions` are that of the definitions and the one that the kernel enforces.
    pub(super) fn decision(
        &self,
        revisions: (u64, u64),
        end: &EndCause,
        (revision, is_past): (u64, bool),
        make: impl FnOnce() -> FlowDecision,
    ) -> Arc<FlowDecision> {
        let audit = end.audit.as_ref().map(|audit| {
            let cause = audit.causes.last().map(Arc::as_ptr);
            (
                audit.verdict.passes(),
                cause.map_or(0, |cause| cause.addr()),
            )
        });
        let key = DecisionKey {
            cause: Arc::as_ptr(&end.cause).addr(),
            audit,
            stage: end.host_stage,
            revision,
            is_past,
        };
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.revisions != revisions || cached.decisions.len() >= MAX_DECISIONS {
            cached.decisions.clear();
            cached.revisions = revisions;
        }
        let entry = cached.decisions.entry(key);
        let (_, decision) = entry.or_insert_with(|| (end.clone(), Arc::new(make())));
        Arc::clone(decision)
    }
}

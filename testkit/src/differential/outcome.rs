//! What came of judging one world.

/// Two readings that disagree, or one that gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFailure {
    /// Which comparison failed.
    pub stage: &'static str,
    /// The flow it failed for, if it was about one.
    pub flow: Option<usize>,
    /// What each said.
    pub detail: String,
}

impl StageFailure {
    /// A failure that is not about a flow.
    pub(crate) fn new(stage: &'static str, detail: impl Into<String>) -> Self {
        StageFailure {
            stage,
            flow: None,
            detail: detail.into(),
        }
    }

    /// A failure of one flow.
    pub(crate) fn at_flow(stage: &'static str, flow: usize, detail: impl Into<String>) -> Self {
        StageFailure {
            stage,
            flow: Some(flow),
            detail: detail.into(),
        }
    }
}

/// What everybody agreed on: for each flow, whether egress and ingress allow it.
pub type CaseOutcome = Result<Vec<(bool, bool)>, StageFailure>;

/// Which stage's findings count: one, or all.
///
/// Where one is sought, whatever another finds is passed over, so that a mistake is found by the stage
/// that must see it and not by one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageFilter(Option<&'static str>);

impl StageFilter {
    /// The findings of all stages.
    pub const ANY: StageFilter = StageFilter(None);

    /// Those of one stage only.
    #[must_use]
    pub const fn only(stage: &'static str) -> Self {
        StageFilter(Some(stage))
    }

    /// Whether a stage is the very one that is sought.
    pub(crate) fn is_only(self, stage: &str) -> bool {
        self.0 == Some(stage)
    }

    /// Whether it is one of the checker of intermediate states.
    pub(crate) fn is_checker_stage(self) -> bool {
        self.0.is_some_and(|stage| stage.starts_with("checker"))
    }

    /// Leaves a failure out that is not sought.
    pub(crate) fn filter<T: Default>(
        self,
        outcome: Result<T, StageFailure>,
    ) -> Result<T, StageFailure> {
        match outcome {
            Err(failure) if self.0.is_some() && !self.is_only(failure.stage) => Ok(T::default()),
            other => other,
        }
    }

    /// Fails if the failure is sought.
    pub(crate) fn filter_failure(self, failure: StageFailure) -> Result<(), StageFailure> {
        self.filter(Err(failure))
    }
}

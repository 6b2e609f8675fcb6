//! What came of judging one world.

/// Two readings that disagree, or one that gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which comparison failed.
    pub stage: &'static str,
    /// The flow it failed for, if it was about one.
    pub flow: Option<usize>,
    /// What each said.
    pub detail: String,
}

impl Failure {
    /// A failure that is not about a flow.
    pub(crate) fn of(stage: &'static str, detail: impl Into<String>) -> Self {
        Failure {
            stage,
            flow: None,
            detail: detail.into(),
        }
    }

    /// A failure of one flow.
    pub(crate) fn at(stage: &'static str, flow: usize, detail: impl Into<String>) -> Self {
        Failure {
            stage,
            flow: Some(flow),
            detail: detail.into(),
        }
    }
}

/// What everybody agreed on: for each flow, whether egress and ingress allow it.
pub type Outcome = Result<Vec<(bool, bool)>, Failure>;

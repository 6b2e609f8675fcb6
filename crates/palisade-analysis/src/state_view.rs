//! The policies of a state that an analysis takes into account.

use palisade_model::{PolicyView, State};

/// A state, and which of its policies decide.
#[derive(Clone, Copy, Debug)]
pub struct StateView<'a> {
    /// The state.
    pub state: &'a State,
    /// What is enforced, or what would be enforced if nothing were in audit.
    pub view: PolicyView,
}

impl<'a> StateView<'a> {
    /// What would be enforced if nothing were in audit.
    pub fn audit(state: &'a State) -> Self {
        StateView {
            state,
            view: PolicyView::Audit,
        }
    }
}

impl<'a> From<&'a State> for StateView<'a> {
    fn from(state: &'a State) -> Self {
        StateView {
            state,
            view: PolicyView::Enforced,
        }
    }
}

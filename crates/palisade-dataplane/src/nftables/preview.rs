//! What a transaction would write, as text.
//!
//! Never: communicates with a kernel.

use palisade_nft::{Config, Ruleset, Transaction, print_transaction, table_flag};

use crate::driver::PlanPreview;

/// A transaction on a table with this content.
pub(super) fn preview_of(transaction: &Transaction, observed: Option<&Ruleset>) -> PlanPreview {
    let declaration = |name: &str| {
        let set = observed?.sets.get(name)?;
        Some(set.decl.clone())
    };
    PlanPreview {
        writes: count_writes(transaction),
        text: print_transaction(transaction, declaration),
    }
}

/// The number of objects and elements that a transaction writes.
pub(super) fn count_writes(transaction: &Transaction) -> usize {
    transaction.steps.iter().map(|step| step.ops.len()).sum()
}

/// The table as it is once an agent has taken it over: that does not change its content.
pub(super) fn take_over(observed: &mut Ruleset, config: &Config) {
    if config.owned && observed.flags == table_flag::PERSIST {
        observed.flags = table_flag::OWNED;
    }
}

//! The DNS rules that packets are redirected to, stored where the proxy reads them, and whether the kernel can redirect.
//!
//! Promises: the kernel never has the number of rules that are not stored. Never: decides a query.

use palisade_nft::redirect_probe;
use palisade_sys::nfnetlink::Nfnetlink;
use palisade_tables::{CounterValue, Delta, DnsRules, Phase, TableChange};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::netlink::Executor;
use crate::driver::DnsRuleStore;
use crate::error::{DriverError, DriverErrorKind};
use palisade_nft::{AttributedCounter, Transaction, TxStep};

/// DNS rules by the number in the mark of packets.
pub(super) type NumberedDnsRules = BTreeMap<u32, Arc<DnsRules>>;

/// What is stored of the DNS rules; without a store nothing is.
#[derive(Default)]
pub(super) struct StoredDnsRules {
    /// Whether the configuration asks for redirects.
    pub(super) wants_redirect: bool,
    store: Option<Box<dyn DnsRuleStore>>,
    stored: NumberedDnsRules,
}

impl fmt::Debug for StoredDnsRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("StoredDnsRules");
        text.field("stored", &self.stored).finish_non_exhaustive()
    }
}

impl StoredDnsRules {
    /// Nothing is stored yet.
    pub(super) fn new(wants_redirect: bool) -> Self {
        StoredDnsRules {
            wants_redirect,
            ..StoredDnsRules::default()
        }
    }

    /// Uses this store, and what an agent before has left in it: the kernel may have its numbers.
    pub(super) fn set_store(&mut self, mut store: Box<dyn DnsRuleStore>) {
        self.stored = store.load();
        self.store = Some(store);
    }

    /// Whether a delta may change the rules.
    pub(super) fn are_changed_by(delta: &Delta) -> bool {
        let mut changes = delta.steps.iter().flat_map(|step| &step.changes);
        changes.any(|change| matches!(change, TableChange::Program(..)))
    }

    /// Stores these rules beside those that are stored, before the kernel has their numbers.
    ///
    /// # Errors
    /// If they cannot be stored.
    pub(super) fn add(&mut self, rules: NumberedDnsRules) -> Result<(), DriverError> {
        let mut all = self.stored.clone();
        all.extend(rules);
        self.write(all)
    }

    /// Stores these rules alone: the kernel has no other number any more.
    pub(super) fn retain(&mut self, rules: NumberedDnsRules) {
        // Rules too many do no harm; the next write is tried as well.
        let _ = self.write(rules);
    }

    fn write(&mut self, rules: NumberedDnsRules) -> Result<(), DriverError> {
        if let Some(store) = self.store.as_mut().filter(|_| rules != self.stored) {
            store.store(&rules).map_err(|error| {
                DriverError::new(
                    DriverErrorKind::Retryable,
                    "storing",
                    "the DNS rules",
                    error,
                )
            })?;
            self.stored = rules;
        }
        Ok(())
    }
}

/// Whether the kernel can redirect packets: it executes a transaction that leaves nothing.
pub(super) fn can_redirect<N: Nfnetlink, G: palisade_sys::grace::GracePeriod>(
    executor: &mut Executor<N, G>,
    table: &str,
) -> bool {
    let name = format!("{table}_probe").as_str().into();
    let transaction = Transaction::new(
        name,
        vec![TxStep {
            phase: Phase::Delete,
            retiring_counters: Vec::new(),
            ops: redirect_probe(),
            needs_grace_period: false,
        }],
    );
    let name = transaction.table.clone();
    let result = executor.with_table(name, BTreeMap::new(), |executor| {
        executor.execute(
            &transaction,
            &mut |_: &AttributedCounter, _: CounterValue| {},
        )
    });
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_tables::Verdict;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// What is stored, and whether storing fails.
    #[derive(Clone, Default)]
    struct MemoryStore(Arc<Mutex<(NumberedDnsRules, bool)>>);

    impl DnsRuleStore for MemoryStore {
        fn load(&mut self) -> NumberedDnsRules {
            self.0.lock().unwrap().0.clone()
        }

        fn store(&mut self, rules: &NumberedDnsRules) -> std::io::Result<()> {
            let mut stored = self.0.lock().unwrap();
            if stored.1 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            stored.0 = rules.clone();
            Ok(())
        }
    }

    fn rules(numbers: &[u32]) -> NumberedDnsRules {
        let none = Arc::new(DnsRules {
            names: BTreeSet::new(),
            default: Verdict::Deny,
        });
        numbers
            .iter()
            .map(|number| (*number, Arc::clone(&none)))
            .collect()
    }

    #[test]
    fn rules_are_stored_before_the_kernel_has_them_and_go_after() {
        let memory = MemoryStore::default();
        memory.0.lock().unwrap().0 = rules(&[7]);
        let mut stored = StoredDnsRules::default();
        stored.add(rules(&[1])).unwrap();
        stored.set_store(Box::new(memory.clone()));
        stored.add(rules(&[1, 2])).unwrap();
        let present = || -> BTreeSet<u32> { memory.0.lock().unwrap().0.keys().copied().collect() };
        assert_eq!(
            present(),
            [1, 2, 7].into(),
            "with those of the agent before"
        );
        stored.retain(rules(&[2]));
        assert_eq!(present(), [2].into());
        memory.0.lock().unwrap().1 = true;
        stored.add(rules(&[2])).unwrap();
        let error = stored.add(rules(&[3])).unwrap_err();
        assert_eq!(error.to_string(), "storing the DNS rules");
        memory.0.lock().unwrap().1 = false;
        stored.add(rules(&[3])).unwrap();
        assert_eq!(present(), [2, 3].into(), "stored after a failure");
    }
}

//! The incremental graph from updates to decision-table deltas.
//!
//! [`Engine::apply`] takes a batch of updates and returns the steps that lead from the tables as they
//! were to the tables that the objects of now ask for. It promises that the tables are a function of
//! the objects alone, up to numbering, whatever the order, batching and repetition of updates; and
//! that between the steps no packet gets a verdict that is neither the old nor the new. It is
//! synchronous and deterministic, does no IO, and never judges a packet itself.

#![no_std]

extern crate alloc;

mod desired;
#[cfg(feature = "faults")]
pub mod faults;
#[cfg(not(feature = "faults"))]
mod faults;
mod numbers;
mod program;
mod sequencer;
mod status;
mod traffic;

pub use status::{AppliedPolicy, Conflict, Counts, IdentityView, MissingReferences};

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::IpAddr;
use desired::Registry;
use faults::{Fault, on};
use palisade_model::{EndpointId, Object, ObjectKey, State, Str, Update};
use palisade_tables::{Delta, IdentityId, SetId, Tables};
use sequencer::Differences;

/// What is configured rather than written as policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether packets that this host's own stack makes are judged on their way into its endpoints.
    pub judge_host_traffic: bool,
}

/// The graph: every object that sources have said, and the tables they ask for.
#[derive(Debug)]
pub struct Engine {
    options: Options,
    state: State,
    registry: Registry,
    tables: Tables,
    owners: BTreeMap<IpAddr, (EndpointId, Option<Str>)>,
    revision: u64,
}

impl Engine {
    /// An engine without objects, at revision 0.
    pub fn new(options: Options) -> Self {
        Engine {
            options,
            state: State::default(),
            registry: Registry::default(),
            tables: Tables {
                judge_host_traffic: options.judge_host_traffic,
                ..Tables::default()
            },
            owners: BTreeMap::new(),
            revision: 0,
        }
    }

    /// Takes in a batch of updates and raises the revision. The delta leads from the tables as they
    /// were to [`Engine::tables`] as they are now.
    pub fn apply(&mut self, updates: impl IntoIterator<Item = Update>) -> Delta {
        for update in updates {
            self.take(update);
        }
        self.revision += 1;
        let registry = &mut self.registry;
        let wanted = desired::tables(&self.state, self.options.judge_host_traffic, registry);
        let differences = Differences::between(&self.tables, &wanted);
        let owners = self.settle_owners();
        let Registry {
            identities,
            sets,
            programs,
            ..
        } = &mut self.registry;
        let steps = sequencer::steps(
            &self.tables,
            &wanted,
            &differences,
            &mut || IdentityId(identities.fresh()),
            &mut || SetId(sets.fresh()),
            programs,
            owners,
        );
        self.tables = wanted;
        self.sweep();
        Delta {
            revision: self.revision,
            steps,
        }
    }

    /// The tables that the objects ask for: what is in force once the last delta is written.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The number of batches taken in.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Every object taken in.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn take(&mut self, update: Update) {
        let ignored = match &update {
            Update::Upsert(Object::Namespace(namespace)) => {
                on(Fault::NamespaceLabelsStale)
                    && self.state.namespaces.contains_key(&namespace.name)
            }
            Update::Delete(ObjectKey::Policy(_)) => on(Fault::DeletedPolicyStays),
            _ => false,
        };
        if !ignored {
            self.state.apply(update);
        }
    }

    /// Notes who holds which address. Returns whether an address changed hands.
    fn settle_owners(&mut self) -> bool {
        let owners: BTreeMap<IpAddr, (EndpointId, Option<Str>)> = desired::owners(&self.state)
            .into_iter()
            .map(|(address, owner)| (address, (owner.id.clone(), owner.interface.clone())))
            .collect();
        let handed = owners
            .iter()
            .any(|(address, owner)| self.owners.get(address).is_some_and(|was| was != owner));
        self.owners = owners;
        handed
    }

    /// Forgets what nothing uses any more.
    fn sweep(&mut self) {
        let tables = &self.tables;
        let registry = &mut self.registry;
        let used: BTreeSet<u32> = tables
            .addresses
            .values()
            .map(|identity| identity.0)
            .collect();
        registry.identities.keep(|number| used.contains(&number));
        let mut selectors: BTreeSet<u32> = BTreeSet::new();
        for (key, _) in registry.identities.iter() {
            selectors.extend(&key.selectors);
        }
        registry
            .selectors
            .keep(|number| selectors.contains(&number));
        registry
            .sets
            .keep(|number| tables.sets.contains_key(&SetId(number)));
        registry
            .rules
            .keep(|number| tables.rules.contains_key(&palisade_tables::RuleId(number)));
        registry.programs.keep(|number| {
            tables
                .programs
                .contains_key(&palisade_tables::ClassId(number))
        });
    }
}

//! Restore, detach and rollback of workloads, step by step; [`super::attach`]
//! attaches them.
//!
//! A workload is saved as pending before its interface is created, saved as attached when it is open,
//! and its record is removed after its interface is deleted; after a crash, [`Workloads::restore`] takes
//! workloads over or removes them. A failed attach is rolled back; what cannot be rolled back stays
//! recorded with its addresses, and is retried.

use super::addresses::{masquerade_policy, release_addresses};
use super::{WorkloadError, Workloads};
use crate::registry::Workload;
use palisade_api::EndpointState;
use palisade_model::{EndpointId, Update};
use palisade_network::node_state::NodeState;
use palisade_node::workload_store::{ClosedInterface, WorkloadRecord};
use palisade_sys::fault;
use palisade_text::error_chain;

impl Workloads {
    /// Restores the workloads from disk, before any address is allocated.
    ///
    /// # Errors
    /// If the workload store cannot be read or written, or the host's interfaces cannot be inspected.
    pub fn restore(&mut self, node: &mut NodeState) -> Result<(), WorkloadError> {
        let mut updates = Vec::new();
        let stored = self.records.read()?;
        node.forwarding.restore();
        let mut changed = stored.is_older;
        let judged = if stored.is_absent {
            self.unowned_judged_interfaces(node)
        } else {
            Vec::new()
        };
        for closed in stored.closed.into_iter().chain(judged) {
            let name = self.network.link_name(closed.index);
            let now = name.map_err(WorkloadError::inspect(format!(
                "interface {}",
                closed.interface
            )))?;
            changed |= now.as_deref() != Some(&*closed.interface);
            if let Some(now) = now {
                let interface = now.as_str().into();
                updates.push(self.registry.close_interface(ClosedInterface {
                    interface,
                    ..closed
                }));
            }
        }
        for record in stored.records {
            if fault::is_injected("restart-forgets-workloads") {
                continue;
            }
            let id = record.id();
            for address in &record.addresses {
                if let Err(error) = self.ipam.claim(*address) {
                    tracing::warn!(workload = %id, %error, "claiming the address of a workload record failed");
                }
            }
            let joined = self.network.has_interface(&record);
            let joined = joined.map_err(WorkloadError::inspect(&id))?;
            let is_gone = !joined && (record.chained || !self.network.netns_exists(&record));
            let interrupted = record.pending && !fault::is_injected("interrupted-kept");
            if interrupted || is_gone {
                if record.pending {
                    tracing::info!(workload = %id, "removed a workload whose attach was interrupted")
                } else {
                    tracing::info!(workload = %id, netns = record.netns, "the workload no longer exists: record removed")
                }
                changed = true;
                self.remove_unregistered(record);
                continue;
            }
            let (state, reason) = if joined {
                (EndpointState::Closed, None)
            } else {
                (
                    EndpointState::Lost,
                    Some(format!("its interface {} is gone", record.interface)),
                )
            };
            updates.extend(self.registry.insert(
                Workload {
                    record,
                    state,
                    reason,
                },
                None,
            ));
        }
        if changed {
            self.save_records()?;
        }
        node.enforcer.apply(updates);
        let wanted = masquerade_policy(self, node);
        node.enforcer.masquerade.set_wanted(wanted);
        Ok(())
    }

    /// Interfaces of other plugins that the kernel's tables have policy for, if there are no records:
    /// they belonged to workloads whose policy is no longer known.
    fn unowned_judged_interfaces(&mut self, node: &mut NodeState) -> Vec<ClosedInterface> {
        let installed = match node.enforcer.dataplane.observe() {
            Ok(held) => held,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "listing interfaces that have policy failed");
                return Vec::new();
            }
        };
        let prefix = self.sections.workloads.interface_prefix.clone();
        let of_others = installed
            .interfaces
            .into_iter()
            .filter(|name| !name.starts_with(&*prefix));
        let mut found = Vec::new();
        for interface in of_others {
            if let Ok(Some(index)) = self.network.link_index(&interface) {
                tracing::warn!(%interface, "interface has policy but no workload: closed until it is deleted");
                found.push(ClosedInterface { interface, index });
            }
        }
        found
    }

    /// Deletes what is left of a workload that is not in the engine.
    fn remove_unregistered(&mut self, record: WorkloadRecord) {
        let deleted = self.delete_interfaces(std::slice::from_ref(&record));
        match deleted.into_iter().collect() {
            Ok(()) => release_addresses(self, &record),
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "removing an interrupted workload failed; will retry");
                self.add_leftover(record);
            }
        }
    }

    /// The update that keeps the interface of a detached workload closed, if another plugin created it
    /// and it still exists.
    fn close_orphaned_interface(&mut self, record: &WorkloadRecord) -> Option<Update> {
        if !record.chained {
            return None;
        }
        let name_and_index = match record.index {
            Some(index) => self
                .network
                .link_name(index)
                .map(|name| name.zip(Some(index))),
            None => self
                .network
                .link_index(&record.interface)
                .map(|index| Some(record.interface.to_string()).zip(index)),
        };
        match name_and_index {
            Ok(None) => None,
            Ok(Some((name, index))) => Some(self.registry.close_interface(ClosedInterface {
                interface: name.as_str().into(),
                index,
            })),
            Err(error) => {
                // If it was closed without need, the next link notification corrects that.
                tracing::warn!(workload = %record.id(), error = %error_chain(&error), "looking up the workload's interface failed");
                Some(self.registry.close_interface(ClosedInterface {
                    interface: record.interface.clone(),
                    index: record.index.unwrap_or(0),
                }))
            }
        }
    }

    /// Rolls back failed attaches. What cannot be rolled back stays recorded.
    pub(crate) fn roll_back(&mut self, node: &mut NodeState, failed: &[WorkloadRecord]) {
        for record in failed {
            let id = record.id();
            self.opening.attaching.remove(&id);
            self.opening.unopened.remove(&id);
        }
        let results = self.teardown(node, failed);
        for (record, removed) in failed.iter().zip(results) {
            let Err(error) = removed else { continue };
            let id = record.id();
            tracing::error!(workload = %id, error = %error_chain(&error), "rolling back a failed attach failed; will retry");
            if let Some((_, mut updates)) = self.registry.remove(&id) {
                updates.extend(self.close_orphaned_interface(record));
                node.enforcer.apply(updates);
            }
            self.add_leftover(record.clone());
            if let Err(error) = self.save_records() {
                tracing::error!(workload = %id, error = %error_chain(&error), "saving the workload records failed");
            }
        }
    }

    /// Detaches workloads, with one flush; false for one that does not exist. Their policy is removed from
    /// the kernel after their interfaces are deleted. A workload whose interface cannot be deleted stays
    /// attached; if a later step fails, a repeated call continues. The results are in the order of the ids,
    /// which must not repeat.
    pub(crate) fn detach_all(
        &mut self,
        node: &mut NodeState,
        ids: &[EndpointId],
    ) -> Vec<Result<bool, WorkloadError>> {
        let mut results = Vec::new();
        let mut records = Vec::new();
        for id in ids {
            let cleared = self.clear_leftovers(node, Some(id));
            let attached = self.registry.get(id).filter(|_| cleared.is_ok());
            records.push(attached.map(|workload| workload.record.clone()));
            results.push(cleared);
        }
        let attached: Vec<WorkloadRecord> = records.iter().flatten().cloned().collect();
        let mut removed = self.teardown(node, &attached).into_iter();
        for (result, _) in results
            .iter_mut()
            .zip(&records)
            .filter(|(_, r)| r.is_some())
        {
            let removed = removed.next().unwrap_or(Ok(()));
            *result = removed.map(|()| true);
        }
        results
    }

    /// Detaches one workload; false if there is none.
    ///
    /// # Errors
    /// As for [`Workloads::detach_all`].
    pub fn detach(&mut self, node: &mut NodeState, id: &EndpointId) -> Result<bool, WorkloadError> {
        let results = self.detach_all(node, std::slice::from_ref(id));
        results.into_iter().last().unwrap_or(Ok(false))
    }

    /// Retries the removal of leftovers: of one workload, or all. Returns whether there were any.
    pub(crate) fn clear_leftovers(
        &mut self,
        node: &mut NodeState,
        only: Option<&EndpointId>,
    ) -> Result<bool, WorkloadError> {
        let is_of = |record: &WorkloadRecord| only.is_none_or(|id| *id == record.id());
        let all = std::mem::take(&mut self.leftovers);
        let (retried, others): (Vec<WorkloadRecord>, _) = all.into_iter().partition(is_of);
        self.leftovers = others;
        let found = !retried.is_empty();
        let mut failed = None;
        for record in retried {
            if let Err(error) = self.teardown_one(node, &record) {
                self.add_leftover(record);
                failed = Some(error);
            }
        }
        failed.map_or(Ok(found), Err)
    }

    fn teardown_one(
        &mut self,
        node: &mut NodeState,
        record: &WorkloadRecord,
    ) -> Result<(), WorkloadError> {
        let results = self.teardown(node, std::slice::from_ref(record));
        results.into_iter().collect()
    }

    /// Removes interface, policy, record and addresses in this order, so that nothing is released
    /// before its users are gone; the policies of all records with one flush.
    fn teardown(
        &mut self,
        node: &mut NodeState,
        records: &[WorkloadRecord],
    ) -> Vec<Result<(), WorkloadError>> {
        let mut updates = Vec::new();
        let mut results = self.delete_interfaces(records);
        for (record, result) in records.iter().zip(&mut results) {
            if result.is_ok() {
                self.unregister(record, &mut updates);
            }
        }
        if !updates.is_empty() {
            node.enforcer.apply(updates);
        }
        // The rules and the file are those of all workloads, so one write of each is enough.
        let (mut is_masqueraded, mut is_saved) = (false, false);
        let mut remove = |workloads: &mut Self, record: &WorkloadRecord| {
            if !is_masqueraded {
                workloads.apply_masquerade_for(node, &record.id())?;
            }
            is_masqueraded = true;
            if !is_saved {
                workloads.save_records()?;
            }
            is_saved = true;
            release_addresses(workloads, record);
            Ok(())
        };
        for (record, result) in records.iter().zip(&mut results) {
            if result.is_ok() {
                *result = remove(self, record);
                if result.is_err() {
                    self.add_leftover(record.clone());
                }
            }
        }
        results
    }

    /// Removes a workload whose interfaces are deleted from the registry; adds the updates of its policy.
    fn unregister(&mut self, record: &WorkloadRecord, updates: &mut Vec<Update>) {
        let id = record.id();
        // Another container may have replaced it.
        let is_it = |w: &Workload| w.record.interface == record.interface;
        if self.registry.get(&id).is_some_and(is_it)
            && let Some((_, of_endpoints)) = self.registry.remove(&id)
        {
            self.opening.unopened.remove(&id);
            updates.extend(of_endpoints);
            updates.extend(self.close_orphaned_interface(record));
        }
    }

    fn delete_interfaces(&mut self, records: &[WorkloadRecord]) -> Vec<Result<(), WorkloadError>> {
        if records.is_empty() {
            return Vec::new();
        }
        let results = self.network.delete_interfaces(records).into_iter();
        let results = records.iter().zip(results).map(|(record, result)| {
            result.map_err(|source| WorkloadError::Detach {
                id: record.id().to_string(),
                interface: record.interface.to_string(),
                source: Box::new(source),
            })
        });
        results.collect()
    }
}

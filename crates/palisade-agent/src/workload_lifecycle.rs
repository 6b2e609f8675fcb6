//! Restore, detach and rollback of workloads, step by step (see [`crate::attach_steps`]);
//! [`crate::attach`] attaches them.
//!
//! A workload is saved as pending before its interface is created, saved as attached when it is open,
//! and its record is removed after its interface is deleted; after a crash, [`Core::restore`] takes
//! workloads over or removes them. The host side is brought up only when its policy is in the kernel. A
//! failed attach is rolled back; what cannot be rolled back stays recorded with its addresses, and is
//! retried.

use crate::attach_steps::{AttachStep, StepHook};
use crate::config::Config;
use crate::core::Core;
use crate::error_chain::error_chain;
use crate::ipam::IpamError;
use crate::network_driver::NetworkDriverError;
use crate::registry::{Workload, WorkloadRegistry};
use crate::workload_store::{ClosedInterface, WorkloadRecord};
use crate::workloads::WorkloadError;
use palisade_api::EndpointState;
use palisade_dataplane::MasqueradePolicy;
use palisade_model::{EndpointId, Family, Str, Update};
use palisade_sys::fault;
use palisade_sys::netns::{NetNs, NetNsError};
use std::net::IpAddr;
use std::time::Duration;

/// The timeout for opening a namespace.
pub const NETNS_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// How many addresses of a pool are tried to find one that the host does not use.
const MAX_UNUSABLE_ADDRESSES: usize = 256;

/// A namespace opened outside the core's thread, or why that failed; `None`: not opened yet.
pub type PreopenedNetns = Option<Result<NetNs, NetNsError>>;

impl Core {
    /// Sets a hook that is called before every step; for tests.
    pub fn set_step_hook(&mut self, hook: StepHook) {
        self.step_hook = Some(hook);
    }

    pub(crate) fn announce_step(&mut self, step: AttachStep) -> Result<(), WorkloadError> {
        match &mut self.step_hook {
            None => Ok(()),
            Some(hook) => hook(step).map_err(|reason| WorkloadError::Stopped { step, reason }),
        }
    }

    /// Restores the workloads and counters from disk, before any address is allocated.
    ///
    /// # Errors
    /// If the workload store cannot be read or written, or the host's interfaces cannot be inspected.
    pub fn restore(&mut self) -> Result<(), WorkloadError> {
        self.enforcer.restore_counts(&self.config);
        let mut updates = Vec::new();
        let stored = self.records.read()?;
        // Forwarding stays enabled while there are no workloads: other software may rely on it by now.
        self.forwarding_enabled = match self.settings.read() {
            Ok(changed) => !self.config.dry_run && !changed.is_empty(),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "cannot read which sysctls were changed");
                false
            }
        };
        let mut changed = stored.is_older;
        let judged = match stored.is_absent {
            true => self.unowned_judged_interfaces(),
            false => Vec::new(),
        };
        for closed in stored.closed.into_iter().chain(judged) {
            let name = self.network.link_name(closed.index);
            let now = name.map_err(|source| WorkloadError::Inspect {
                id: format!("interface {}", closed.interface),
                source: Box::new(source),
            })?;
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
            let joined =
                self.network
                    .has_interface(&record)
                    .map_err(|source| WorkloadError::Inspect {
                        id: id.to_string(),
                        source: Box::new(source),
                    })?;
            let is_gone = !joined && (record.chained || !self.network.netns_exists(&record));
            let interrupted = record.pending && !fault::is_injected("interrupted-kept");
            if interrupted || is_gone {
                match record.pending {
                    true => {
                        tracing::info!(workload = %id, "removed a workload whose attach was interrupted")
                    }
                    false => {
                        tracing::info!(workload = %id, netns = record.netns, "the workload no longer exists: record removed")
                    }
                }
                changed = true;
                self.remove_unregistered(record);
                continue;
            }
            let (state, reason) = match joined {
                true => (EndpointState::Closed, None),
                false => (
                    EndpointState::Lost,
                    Some(format!("its interface {} is gone", record.interface)),
                ),
            };
            updates.push(self.registry.insert(
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
        self.apply(updates);
        Ok(())
    }

    /// Interfaces of other plugins that the kernel's tables have policy for, if there are no records:
    /// they belonged to workloads whose policy is no longer known.
    fn unowned_judged_interfaces(&mut self) -> Vec<ClosedInterface> {
        let installed = match self.enforcer.dataplane.observe() {
            Ok(held) => held,
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "listing interfaces that have policy failed");
                return Vec::new();
            }
        };
        let prefix = self.config.interface_prefix.clone();
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
        match self.delete_interfaces(&record) {
            Ok(()) => self.release_addresses(&record),
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "removing an interrupted workload failed; will retry");
                self.add_leftover(record);
            }
        }
    }

    /// The namespace of a path: the one opened before, else it is opened now.
    pub(crate) fn open_netns(
        &mut self,
        path: &str,
        netns: PreopenedNetns,
    ) -> Result<Option<NetNs>, NetworkDriverError> {
        match (netns, self.network.opener()) {
            (Some(opened), _) => Ok(Some(opened?)),
            (None, Some(opener)) => Ok(Some(opener.open(path, NETNS_OPEN_TIMEOUT)?)),
            (None, None) => Ok(None),
        }
    }

    /// Saves all workloads and closed interfaces to disk.
    pub(crate) fn save_records(&mut self) -> Result<(), WorkloadError> {
        let closed = self.registry.closed_interfaces();
        Ok(self.records.write(self.known_records(), closed)?)
    }

    /// The records of all workloads; those that are being attached, or could not be rolled back, are
    /// pending.
    pub(crate) fn known_records(&self) -> impl Iterator<Item = &WorkloadRecord> {
        let attached = self.registry.iter();
        let attached = attached.filter(|(id, _)| !self.attaching.contains_key(*id));
        let attached = attached.map(|(_, workload)| &workload.record);
        attached
            .chain(self.attaching.values())
            .chain(&self.leftovers)
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
    pub(crate) fn roll_back(&mut self, failed: &[WorkloadRecord]) {
        for record in failed {
            let id = record.id();
            self.attaching.remove(&id);
            self.unopened.remove(&id);
        }
        let results = self.teardown(failed);
        for (record, removed) in failed.iter().zip(results) {
            let Err(error) = removed else { continue };
            let id = record.id();
            tracing::error!(workload = %id, error = %error_chain(&error), "rolling back a failed attach failed; will retry");
            if let Some((_, update)) = self.registry.remove(&id) {
                let mut updates = vec![update];
                updates.extend(self.close_orphaned_interface(record));
                self.apply(updates);
            }
            self.add_leftover(record.clone());
            if let Err(error) = self.save_records() {
                tracing::error!(workload = %id, error = %error_chain(&error), "saving the workload records failed");
            }
        }
    }

    /// Keeps a workload that could not be removed, for a retry; its addresses stay allocated.
    fn add_leftover(&mut self, record: WorkloadRecord) {
        if !self
            .leftovers
            .iter()
            .any(|left| left.interface == record.interface)
        {
            self.leftovers.push(WorkloadRecord {
                pending: true,
                ..record
            });
        }
        self.ensure_retry();
    }

    /// Detaches a workload; false if there is none. Its policy is removed from the kernel after its
    /// interface is deleted.
    ///
    /// # Errors
    /// If the interface cannot be deleted; it then stays attached. If a later step fails; a repeated
    /// call then continues.
    pub(crate) fn detach(&mut self, id: &EndpointId) -> Result<bool, WorkloadError> {
        let had_leftover = self.clear_leftovers(Some(id))?;
        let Some(record) = self.registry.get(id).map(|w| w.record.clone()) else {
            return Ok(had_leftover);
        };
        self.teardown_one(&record)?;
        self.announce_step(AttachStep::ReportDetached)?;
        Ok(true)
    }

    /// Retries the removal of leftovers: of one workload, or all. Returns whether there were any.
    pub(crate) fn clear_leftovers(
        &mut self,
        only: Option<&EndpointId>,
    ) -> Result<bool, WorkloadError> {
        let is_of = |record: &WorkloadRecord| only.is_none_or(|id| *id == record.id());
        let all = std::mem::take(&mut self.leftovers);
        let (retried, others): (Vec<WorkloadRecord>, _) = all.into_iter().partition(is_of);
        self.leftovers = others;
        let found = !retried.is_empty();
        let mut failed = None;
        for record in retried {
            if let Err(error) = self.teardown_one(&record) {
                self.add_leftover(record);
                failed = Some(error);
            }
        }
        failed.map_or(Ok(found), Err)
    }

    fn teardown_one(&mut self, record: &WorkloadRecord) -> Result<(), WorkloadError> {
        let results = self.teardown(std::slice::from_ref(record));
        results.into_iter().collect()
    }

    /// Removes interface, policy, record and addresses in this order, so that nothing is released
    /// before its users are gone; the policies of all records with one flush.
    fn teardown(&mut self, records: &[WorkloadRecord]) -> Vec<Result<(), WorkloadError>> {
        let mut results: Vec<Result<(), WorkloadError>> = Vec::new();
        let mut updates = Vec::new();
        for record in records {
            results.push(self.teardown_interfaces(record, &mut updates));
        }
        if !updates.is_empty() {
            self.apply(updates);
        }
        // The rules and the file are those of all workloads, so one write of each is enough.
        let (mut is_masqueraded, mut is_saved) = (false, false);
        let mut remove = |core: &mut Self, record: &WorkloadRecord| {
            if !is_masqueraded {
                core.apply_masquerade_for(&record.id())?;
            }
            is_masqueraded = true;
            core.announce_step(AttachStep::RemoveRecord)?;
            if !is_saved {
                core.save_records()?;
            }
            is_saved = true;
            core.announce_step(AttachStep::ReleaseAddresses)?;
            core.release_addresses(record);
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

    /// Deletes the interfaces of a workload, and removes it from the registry; adds the updates of its
    /// policy.
    fn teardown_interfaces(
        &mut self,
        record: &WorkloadRecord,
        updates: &mut Vec<Update>,
    ) -> Result<(), WorkloadError> {
        let id = record.id();
        self.announce_step(AttachStep::DeleteInterfaces)?;
        self.delete_interfaces(record)?;
        self.announce_step(AttachStep::RemovePolicy)?;
        // Another container may have replaced it.
        let is_it = |w: &Workload| w.record.interface == record.interface;
        if self.registry.get(&id).is_some_and(is_it)
            && let Some((_, update)) = self.registry.remove(&id)
        {
            self.unopened.remove(&id);
            updates.push(update);
            updates.extend(self.close_orphaned_interface(record));
        }
        Ok(())
    }

    /// Releases the addresses of a removed workload.
    fn release_addresses(&mut self, record: &WorkloadRecord) {
        for address in &record.addresses {
            let uses_it = |other: &WorkloadRecord| other.addresses.contains(address);
            if !self.known_records().any(uses_it) {
                self.ipam.release(*address);
            }
        }
    }

    /// Applies the masquerade rules for one workload.
    pub(crate) fn apply_masquerade_for(&mut self, id: &EndpointId) -> Result<(), WorkloadError> {
        let wanted = masquerade_policy(&self.config, &self.registry);
        match self.enforcer.apply_masquerade(&wanted) {
            Ok(_) => Ok(()),
            Err(error) => Err(WorkloadError::NotMasqueraded {
                id: id.to_string(),
                source: Box::new(error),
            }),
        }
    }

    fn delete_interfaces(&mut self, record: &WorkloadRecord) -> Result<(), WorkloadError> {
        self.network
            .delete_interfaces(record)
            .map_err(|source| WorkloadError::Detach {
                id: record.id().to_string(),
                interface: record.interface.to_string(),
                source: Box::new(source),
            })
    }

    /// Opens the workloads that wait for their policy, once the kernel holds it.
    pub(crate) fn open_pending(&mut self) {
        let refused =
            self.enforcer.kernel_failure.is_some() && !fault::is_injected("opened-though-refused");
        if refused || !self.enforcer.in_sync {
            return;
        }
        let is_pending = |(id, workload): &(&EndpointId, &Workload)| {
            workload.state == EndpointState::Closed
                && !self.attaching.contains_key(*id)
                && self.registry.closed_reason(id).is_none()
        };
        let pending = self.registry.iter().filter(is_pending);
        let waiting: Vec<WorkloadRecord> = pending.map(|(_, w)| w.record.clone()).collect();
        for record in waiting {
            if let Err(error) = self.open_workload(&record) {
                tracing::warn!(workload = %record.id(), error = %error_chain(&error), "bringing the workload's interface up failed");
            }
        }
    }

    /// Opens a workload and notifies the waiters.
    pub(crate) fn open_workload(
        &mut self,
        record: &WorkloadRecord,
    ) -> Result<(), NetworkDriverError> {
        let forwarding = self.enable_forwarding();
        let opened = forwarding.and_then(|()| self.network.bring_up(record));
        let id = record.id();
        if let Some(workload) = self.registry.get_mut(&id) {
            workload.reason = opened.as_ref().err().map(|error| error_chain(error));
            if opened.is_ok() {
                workload.state = EndpointState::Ready;
            }
        }
        if opened.is_ok() {
            if let Some(received_at) = self.unopened.remove(&id) {
                let took = self
                    .clock
                    .monotonic()
                    .saturating_duration_since(received_at);
                self.enforcer.metrics.observe_attach(took);
            }
            let (notified, remaining) = std::mem::take(&mut self.open_waiters)
                .into_iter()
                .filter(|(_, waiting)| !waiting.is_closed())
                .partition(|(of, _)| *of == id);
            self.open_waiters = remaining;
            let notified: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)> = notified;
            for (_, waiting) in notified {
                // The receiver may have stopped waiting.
                let _ = waiting.send(());
            }
        }
        opened
    }

    /// Generates an interface name that no interface has, and that no former interface with a remaining
    /// dispatch entry had: derived from the workload and the time, and checked against all of them.
    pub(crate) fn generate_interface_name(
        &mut self,
        namespace: &str,
        name: &str,
        netns: &str,
    ) -> Result<Str, WorkloadError> {
        let prefix = self.config.interface_prefix.clone();
        let digits = (15 - prefix.len()).min(11);
        let mut tries = 0_u32;
        loop {
            let nanos = self.clock.wall().as_nanos();
            let text = format!("{namespace}/{name}@{netns} {nanos} {tries}");
            tries += 1;
            let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
            let candidate: Str =
                format!("{prefix}{}", &format!("{hash:016x}")[16 - digits..]).into();
            let known = self.known_records();
            let points = self.enforcer.engine.tables().points.keys();
            let is_taken = known
                .map(|record| &record.interface)
                .any(|n| *n == candidate)
                || points
                    .map(|point| &point.interface)
                    .any(|n| *n == candidate)
                || self
                    .network
                    .link_index(&candidate)
                    .map(|index| index.is_some())
                    .map_err(|source| WorkloadError::Inspect {
                        id: format!("{namespace}/{name}"),
                        source: Box::new(source),
                    })?;
            if !is_taken {
                return Ok(candidate);
            }
        }
    }

    pub(crate) fn claim_addresses(
        &mut self,
        record: &mut WorkloadRecord,
        families: &[u8],
    ) -> Result<(), WorkloadError> {
        let id = record.id().to_string();
        let requested = std::mem::take(&mut record.addresses);
        let claimed = if requested.is_empty() {
            let wanted: Vec<Family> = match families {
                [] => self.ipam.families().collect(),
                some => some
                    .iter()
                    .map(|n| if *n == 4 { Family::V4 } else { Family::V6 })
                    .collect(),
            };
            if wanted.is_empty() {
                let reason = "this host has no address pool; specify addresses".to_owned();
                return Err(WorkloadError::Invalid {
                    field: "addresses",
                    reason,
                });
            }
            let is_root = record.owner.is_none();
            wanted.into_iter().try_for_each(|family| {
                let taken = self.allocate_address(family, &id, is_root)?;
                record.addresses.push(taken);
                Ok(())
            })
        } else {
            requested.into_iter().try_for_each(|address| {
                let claimed = self.ipam.claim(address);
                claimed.map_err(|source| self.address_error(id.clone(), source))?;
                record.addresses.push(address);
                Ok(())
            })
        };
        claimed.inspect_err(|_| {
            for address in record.addresses.drain(..) {
                self.ipam.release(address);
            }
        })
    }

    /// Allocates an address that this host does not use; if none is left, also those of containers
    /// whose namespace is gone.
    fn allocate_address(
        &mut self,
        family: Family,
        id: &str,
        is_root: bool,
    ) -> Result<IpAddr, WorkloadError> {
        let mut unusable = Vec::new();
        let allocated = loop {
            let address = match self.allocate_from_pools(family) {
                Ok(address) => address,
                Err(source) => break Err(self.address_error(id.to_owned(), source)),
            };
            let pool = self.ipam.pool_of(address);
            match self.address_use(address, pool, !is_root) {
                Ok(Some(used)) if unusable.len() < MAX_UNUSABLE_ADDRESSES => {
                    tracing::warn!(%address, reason = %used, "address is in use on this host; not allocated");
                    unusable.push(address);
                }
                Ok(Some(used)) => {
                    self.ipam.release(address);
                    let reason = format!("no usable address: {address}: {used}");
                    break Err(WorkloadError::Invalid {
                        field: "addresses",
                        reason,
                    });
                }
                Ok(None) => break Ok(address),
                Err(error) => {
                    self.ipam.release(address);
                    break Err(error);
                }
            }
        };
        for address in unusable {
            self.ipam.release(address);
        }
        allocated
    }

    fn allocate_from_pools(&mut self, family: Family) -> Result<IpAddr, IpamError> {
        match self.ipam.allocate(family) {
            Err(IpamError::Exhausted { .. }) => {
                if let Err(error) = self.detach_vanished() {
                    tracing::warn!(error = %error_chain(&error), "detaching containers without a namespace failed");
                }
                self.ipam.allocate(family)
            }
            other => other,
        }
    }

    fn address_error(&self, id: String, source: IpamError) -> WorkloadError {
        let attached = self.registry.records().chain(self.attaching.values());
        let mut holders = attached.filter(|record| match source {
            IpamError::InUse(address) => record.addresses.contains(&address),
            _ => false,
        });
        if let IpamError::InUse(address) = source
            && let Some(holder) = holders.next()
        {
            let holder = holder.id().to_string();
            return WorkloadError::AddressTaken {
                id,
                address,
                holder,
            };
        }
        WorkloadError::Address { id, source }
    }
}

/// Whether the traffic of a workload to external networks is masqueraded.
pub(crate) fn is_masqueraded(config: &Config, record: &WorkloadRecord) -> bool {
    !record.chained && record.masquerade.unwrap_or(config.masquerade)
}

/// The masquerade rules of all workloads.
pub(crate) fn masquerade_policy(config: &Config, registry: &WorkloadRegistry) -> MasqueradePolicy {
    let records = registry.records();
    let masqueraded = records.filter(|record| is_masqueraded(config, record));
    let exempt = config.pools.iter().chain(&config.masquerade_except);
    MasqueradePolicy {
        addresses: masqueraded
            .flat_map(|record| record.addresses.iter().copied())
            .collect(),
        exempt_prefixes: exempt.copied().collect(),
    }
}

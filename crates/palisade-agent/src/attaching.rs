//! Attaching and detaching, step by step: claim, remember, join, furnish, judge, open, settle.
//!
//! A workload is remembered on disk as pending before its interface is made, as attached when it is
//! open, and forgotten after its interface is gone: what a crash leaves, [`Core::restore`] takes over
//! or clears away. The host side comes up only when its policy is in the kernel. What fails is undone;
//! what cannot be undone stays remembered with its addresses, and is tried again.

use crate::attach::AttachError;
use crate::core::{Core, chain};
use crate::ipam::IpamError;
use crate::record::Record;
use crate::registry::{NO_POD, Workload};
use crate::steps::{Step, StepHook};
use crate::workloads::WorkloadError;
use palisade_api::EndpointState;
use palisade_model::{EndpointId, Family, Str};
use std::net::IpAddr;

impl Core {
    /// Has every step announced; for tests.
    pub fn on_step(&mut self, hook: StepHook) {
        self.on_step = Some(hook);
    }

    fn reach(&mut self, step: Step) -> Result<(), WorkloadError> {
        match &mut self.on_step {
            None => Ok(()),
            Some(hook) => hook(step).map_err(|reason| WorkloadError::Stopped { step, reason }),
        }
    }

    /// Takes over the workloads and counts remembered on disk, before any address is given out.
    ///
    /// # Errors
    /// If the file of workloads cannot be read or written, or the host's interfaces cannot be looked
    /// at.
    pub fn restore(&mut self) -> Result<(), WorkloadError> {
        self.restore_counts();
        let mut updates = Vec::new();
        let found = self.records.read()?;
        let mut changed = found.is_older;
        for record in found.records {
            let id = record.id();
            for address in &record.addresses {
                if let Err(error) = self.ipam.claim(*address) {
                    tracing::warn!(workload = %id, %error, "claiming a remembered address");
                }
            }
            let joined = self
                .attach
                .is_joined(&record)
                .map_err(|source| WorkloadError::Look {
                    id: id.to_string(),
                    source: Box::new(source),
                })?;
            let is_gone = !joined && (record.chained || !self.attach.netns_exists(&record));
            if record.pending || is_gone {
                match record.pending {
                    true => {
                        tracing::info!(workload = %id, "attaching it was interrupted: cleared away")
                    }
                    false => {
                        tracing::info!(workload = %id, netns = record.netns, "it is gone: forgotten")
                    }
                }
                changed = true;
                self.clear_away(record);
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
            self.remember()?;
        }
        self.apply(updates);
        Ok(())
    }

    /// Removes what is left of one that is not in the engine.
    fn clear_away(&mut self, record: Record) {
        match self.part(&record) {
            Ok(()) => self.free(&record),
            Err(error) => {
                tracing::error!(error = %chain(&error), "clearing away; it is tried again");
                self.leftovers.push(Record {
                    pending: true,
                    ..record
                });
            }
        }
    }

    /// Attaches what a record says, with addresses of these families where it brings none; returns
    /// when its policy is in the kernel.
    ///
    /// # Errors
    /// See [`WorkloadError`]; then nothing of it is left.
    pub(crate) fn attach(
        &mut self,
        mut record: Record,
        families: &[u8],
    ) -> Result<Record, WorkloadError> {
        self.clear_leftovers(Some(&record.id()))?;
        self.reach(Step::Claim)?;
        self.claim_addresses(&mut record, families)?;
        let id = record.id();
        self.attaching = Some(id.clone());
        let attached = self.attach_claimed(&record);
        self.attaching = None;
        if let Err(error) = attached {
            tracing::warn!(workload = %id, error = %chain(&error), "attaching failed; undone");
            self.undo(record);
            return Err(error);
        }
        Ok(record)
    }

    fn attach_claimed(&mut self, record: &Record) -> Result<(), WorkloadError> {
        let id = record.id();
        self.reach(Step::Remember)?;
        let pending = Record {
            pending: true,
            ..record.clone()
        };
        let remembered = self.registry.records().chain(&self.leftovers);
        self.records.write(remembered.chain([&pending]))?;
        let refused = |source| WorkloadError::Attach {
            id: id.to_string(),
            netns: record.netns.clone(),
            source: Box::new(source),
        };
        self.reach(Step::Join)?;
        self.attach.join(record).map_err(refused)?;
        self.reach(Step::Furnish)?;
        self.attach.furnish(record).map_err(refused)?;
        self.reach(Step::Judge)?;
        let pod = self.engine.endpoint(&id);
        let workload = Workload {
            record: record.clone(),
            state: EndpointState::Closed,
            reason: None,
        };
        let update = self.registry.insert(workload, pod);
        self.apply(vec![update]);
        if let Some(reason) = self.failure.clone() {
            let id = id.to_string();
            return Err(WorkloadError::NotEnforced { id, reason });
        }
        self.reach(Step::Masquerade)?;
        self.translate_workloads(&id)?;
        self.reach(Step::Open)?;
        self.attaching = None;
        if self.registry.awaits_pod(&id) {
            if let Some(workload) = self.registry.get_mut(&id) {
                workload.reason = Some(NO_POD.to_owned());
            }
        } else if let Err(error) = self.open(record) {
            return Err(refused(error));
        }
        self.reach(Step::Settle)?;
        self.remember()?;
        self.reach(Step::Answer)
    }

    /// Writes every workload to disk.
    fn remember(&mut self) -> Result<(), WorkloadError> {
        let all = self.registry.records().chain(&self.leftovers);
        Ok(self.records.write(all)?)
    }

    /// Takes back everything a failed attach did. What cannot be, stays remembered.
    fn undo(&mut self, record: Record) {
        let id = record.id();
        if let Err(error) = self.take_down(&record) {
            tracing::error!(workload = %id, error = %chain(&error), "undoing a failed attach; it is tried again");
            if let Some((_, update)) = self.registry.remove(&id) {
                self.apply(vec![update]);
            }
            self.leave(record);
            if let Err(error) = self.remember() {
                tracing::error!(workload = %id, error = %chain(&error), "remembering what is left");
            }
        }
    }

    /// Keeps what could not be taken down, to be tried again; its addresses stay its own.
    fn leave(&mut self, record: Record) {
        if !self
            .leftovers
            .iter()
            .any(|left| left.interface == record.interface)
        {
            self.leftovers.push(Record {
                pending: true,
                ..record
            });
        }
    }

    /// Detaches a workload; false if there is none. Its policy leaves the kernel after its interface
    /// is gone.
    ///
    /// # Errors
    /// If the interface cannot be removed; then it stays attached. If what comes after that fails;
    /// then asking again goes on.
    pub(crate) fn detach(&mut self, id: &EndpointId) -> Result<bool, WorkloadError> {
        let was_left = self.clear_leftovers(Some(id))?;
        let Some(record) = self.registry.get(id).map(|w| w.record.clone()) else {
            return Ok(was_left);
        };
        self.take_down(&record)?;
        self.reach(Step::Gone)?;
        Ok(true)
    }

    /// Tries again to remove what could not be: of one workload, or all. Says whether there was any.
    pub(crate) fn clear_leftovers(
        &mut self,
        of: Option<&EndpointId>,
    ) -> Result<bool, WorkloadError> {
        let is_of = |record: &Record| of.is_none_or(|id| *id == record.id());
        let all = std::mem::take(&mut self.leftovers);
        let (again, others): (Vec<Record>, _) = all.into_iter().partition(is_of);
        self.leftovers = others;
        let found = !again.is_empty();
        let mut failed = None;
        for record in again {
            if let Err(error) = self.take_down(&record) {
                self.leave(record);
                failed = Some(error);
            }
        }
        failed.map_or(Ok(found), Err)
    }

    /// Interface, policy, disk, addresses: in this order, so that nothing is free before whatever
    /// could use it is gone.
    fn take_down(&mut self, record: &Record) -> Result<(), WorkloadError> {
        let id = record.id();
        self.reach(Step::Part)?;
        self.part(record)?;
        self.reach(Step::Withdraw)?;
        // Another container may have taken its place.
        let is_it = |w: &Workload| w.record.interface == record.interface;
        if self.registry.get(&id).is_some_and(is_it)
            && let Some((_, update)) = self.registry.remove(&id)
        {
            self.apply(vec![update]);
        }
        let forgotten = self.forget(record);
        if forgotten.is_err() {
            self.leave(record.clone());
        }
        forgotten
    }

    fn forget(&mut self, record: &Record) -> Result<(), WorkloadError> {
        self.translate_workloads(&record.id())?;
        self.reach(Step::Forget)?;
        self.remember()?;
        self.reach(Step::Release)?;
        self.free(record);
        Ok(())
    }

    /// Frees the addresses of a workload that is gone.
    fn free(&mut self, record: &Record) {
        for address in &record.addresses {
            let mut others = self.registry.records().chain(&self.leftovers);
            if !others.any(|other| other.addresses.contains(address)) {
                self.ipam.release(*address);
            }
        }
    }

    /// The same, for the sake of one.
    fn translate_workloads(&mut self, id: &EndpointId) -> Result<(), WorkloadError> {
        match self.masquerade() {
            Ok(_) => Ok(()),
            Err(error) => Err(WorkloadError::NotTranslated {
                id: id.to_string(),
                source: Box::new(error),
            }),
        }
    }

    /// Whether what a workload sends to the outside leaves with this host's address.
    pub(crate) fn is_masqueraded(&self, record: &Record) -> bool {
        !record.chained && record.masquerade.unwrap_or(self.config.masquerade)
    }

    /// Has the kernel translate what workloads send to the outside; returns how much was written.
    pub(crate) fn masquerade(&mut self) -> Result<usize, palisade_dataplane::Error> {
        let config = &self.config;
        let translated = self
            .registry
            .records()
            .filter(|record| self.is_masqueraded(record))
            .flat_map(|record| record.addresses.iter().copied());
        let near = config.pools.iter().chain(&config.masquerade_except);
        let wanted = palisade_dataplane::Masquerade {
            table: config.table.as_str().into(),
            interface_prefix: config.interface_prefix.as_str().into(),
            near: near.copied().collect(),
            addresses: translated.collect(),
        };
        let written = self.dataplane.masquerade(&wanted);
        self.untranslated = written.as_ref().err().map(|error| chain(error));
        written
    }

    fn part(&mut self, record: &Record) -> Result<(), WorkloadError> {
        self.attach
            .part(record)
            .map_err(|source| WorkloadError::Detach {
                id: record.id().to_string(),
                interface: record.interface.to_string(),
                source: Box::new(source),
            })
    }

    /// Opens the workloads that wait for their policy, once the kernel holds it.
    pub(crate) fn open_waiting(&mut self) {
        if self.failure.is_some() || !self.in_sync {
            return;
        }
        let waits = |(id, workload): &(&EndpointId, &Workload)| {
            workload.state == EndpointState::Closed
                && self.attaching.as_ref() != Some(*id)
                && !self.registry.awaits_pod(id)
        };
        let waiting = self.registry.iter().filter(waits);
        let waiting: Vec<Record> = waiting.map(|(_, w)| w.record.clone()).collect();
        for record in waiting {
            if let Err(error) = self.open(&record) {
                tracing::warn!(workload = %record.id(), error = %chain(&error), "opening");
            }
        }
    }

    /// Opens one, and tells whoever waits for it.
    fn open(&mut self, record: &Record) -> Result<(), AttachError> {
        let opened = self.attach.open(record);
        let id = record.id();
        if let Some(workload) = self.registry.get_mut(&id) {
            workload.reason = opened.as_ref().err().map(|error| chain(error));
            if opened.is_ok() {
                workload.state = EndpointState::Ready;
            }
        }
        if opened.is_ok() {
            let (told, still) = std::mem::take(&mut self.waiting_for_open)
                .into_iter()
                .filter(|(_, waiting)| !waiting.is_closed())
                .partition(|(of, _)| *of == id);
            self.waiting_for_open = still;
            let told: Vec<(EndpointId, tokio::sync::oneshot::Sender<()>)> = told;
            for (_, waiting) in told {
                // Whoever stopped waiting needs no answer.
                let _ = waiting.send(());
            }
        }
        opened
    }

    /// A name that no interface has, and none had whose dispatch entry still lives: made of what is
    /// attached and when, and looked for wherever it could be.
    pub(crate) fn interface_name(
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
            let found: Str = format!("{prefix}{}", &format!("{hash:016x}")[16 - digits..]).into();
            let known = self.registry.records().chain(&self.leftovers);
            let points = self.engine.tables().points.keys();
            let is_taken = known.map(|record| &record.interface).any(|n| *n == found)
                || points.map(|point| &point.interface).any(|n| *n == found)
                || self
                    .attach
                    .has_link(&found)
                    .map_err(|source| WorkloadError::Look {
                        id: format!("{namespace}/{name}"),
                        source: Box::new(source),
                    })?;
            if !is_taken {
                return Ok(found);
            }
        }
    }

    fn claim_addresses(
        &mut self,
        record: &mut Record,
        families: &[u8],
    ) -> Result<(), WorkloadError> {
        let id = record.id().to_string();
        let given = std::mem::take(&mut record.addresses);
        let claimed = if given.is_empty() {
            let wanted: Vec<Family> = match families {
                [] => self.ipam.families().collect(),
                some => some
                    .iter()
                    .map(|n| if *n == 4 { Family::V4 } else { Family::V6 })
                    .collect(),
            };
            if wanted.is_empty() {
                let reason = "this host has no pool; give addresses".to_owned();
                return Err(WorkloadError::Invalid {
                    field: "addresses",
                    reason,
                });
            }
            wanted.into_iter().try_for_each(|family| {
                record.addresses.push(self.take_address(family)?);
                Ok(())
            })
        } else {
            given.into_iter().try_for_each(|address| {
                self.ipam.claim(address)?;
                record.addresses.push(address);
                Ok(())
            })
        };
        claimed.map_err(|source| {
            for address in record.addresses.drain(..) {
                self.ipam.release(address);
            }
            self.address_error(id, source)
        })
    }

    /// A free address; where none is left, also of containers whose namespace is gone.
    fn take_address(&mut self, family: Family) -> Result<IpAddr, IpamError> {
        match self.ipam.take(family) {
            Err(IpamError::Exhausted { .. }) => {
                if let Err(error) = self.sweep() {
                    tracing::warn!(error = %chain(&error), "looking for containers that are gone");
                }
                self.ipam.take(family)
            }
            other => other,
        }
    }

    fn address_error(&self, id: String, source: IpamError) -> WorkloadError {
        let holder_of = |address| {
            let mut workloads = self.registry.iter();
            workloads.find(|(_, workload)| workload.record.addresses.contains(&address))
        };
        if let IpamError::Taken(address) = source
            && let Some((holder, _)) = holder_of(address)
        {
            let holder = holder.to_string();
            return WorkloadError::AddressTaken {
                id,
                address,
                holder,
            };
        }
        WorkloadError::Address { id, source }
    }
}

//! Attaching and detaching, step by step: claim, remember, join, furnish, judge, open, settle.
//!
//! A workload is remembered on disk as pending before its interface is made, as attached when it is
//! open, and forgotten after its interface is gone: what a crash leaves, [`Core::restore`] takes over
//! or clears away. The host side comes up only when its policy is in the kernel. What fails is undone;
//! what cannot be undone stays remembered with its addresses, and is tried again.

use crate::attach::AttachError;
use crate::core::{Core, chain};
use crate::ipam::IpamError;
use crate::record::{ClosedInterface, NetnsIdentity, Record};
use crate::registry::Workload;
use crate::steps::{Step, StepHook};
use crate::workloads::WorkloadError;
use palisade_api::EndpointState;
use palisade_model::{EndpointId, Family, Str, Update};
use palisade_sys::fault;
use palisade_sys::netns::{NetNs, NetNsError};
use std::net::IpAddr;
use std::time::Duration;

/// How long opening a namespace may take.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How many addresses of a pool are looked at for one that this host uses for nothing else.
const MOST_UNFIT: usize = 256;

/// A namespace that was opened off the core's thread, or why it could not be; `None`: not yet.
pub type Opened = Option<Result<NetNs, NetNsError>>;

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
        // Kept on also while there is none: somebody may rely on it by now.
        self.forwards = match self.settings.read() {
            Ok(changed) => !self.config.dry_run && !changed.is_empty(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "which settings were changed is not known");
                false
            }
        };
        let mut changed = found.is_older;
        let unknown = match found.is_absent {
            true => self.judged_interfaces(),
            false => Vec::new(),
        };
        for closed in found.closed.into_iter().chain(unknown) {
            let now = self.attach.name_of(closed.index);
            let now = now.map_err(|source| WorkloadError::Look {
                id: format!("interface {}", closed.interface),
                source: Box::new(source),
            })?;
            changed |= now.as_deref() != Some(&*closed.interface);
            if let Some(now) = now {
                let interface = now.as_str().into();
                updates.push(self.registry.close(ClosedInterface {
                    interface,
                    ..closed
                }));
            }
        }
        for record in found.records {
            if fault::is_on("restart-forgets-workloads") {
                continue;
            }
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
            let interrupted = record.pending && !fault::is_on("interrupted-kept");
            if interrupted || is_gone {
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

    /// The interfaces of others that the kernel's tables judge: where nothing is remembered, they were
    /// workloads', and nobody knows of which policy.
    fn judged_interfaces(&mut self) -> Vec<ClosedInterface> {
        let held = match self.dataplane.held() {
            Ok(held) => held,
            Err(error) => {
                tracing::warn!(error = %chain(&error), "looking for interfaces that were judged before");
                return Vec::new();
            }
        };
        let prefix = self.config.interface_prefix.clone();
        let of_others = held
            .interfaces
            .into_iter()
            .filter(|name| !name.starts_with(&*prefix));
        let mut found = Vec::new();
        for interface in of_others {
            if let Ok(Some(index)) = self.attach.index_of(&interface) {
                tracing::warn!(%interface, "judged before, and no workload's: closed until it goes");
                found.push(ClosedInterface { interface, index });
            }
        }
        found
    }

    /// Removes what is left of one that is not in the engine.
    fn clear_away(&mut self, record: Record) {
        match self.part(&record) {
            Ok(()) => self.free(&record),
            Err(error) => {
                tracing::error!(error = %chain(&error), "clearing away; it is tried again");
                self.leave(record);
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
        netns: Opened,
    ) -> Result<Record, WorkloadError> {
        self.clear_leftovers(Some(&record.id()))?;
        self.reach(Step::Claim)?;
        self.claim_addresses(&mut record, families)?;
        let id = record.id();
        self.attaching = Some(id.clone());
        let attached = self.attach_claimed(&mut record, netns);
        self.attach.hold(None);
        self.attaching = None;
        if let Err(error) = attached {
            tracing::warn!(workload = %id, error = %chain(&error), "attaching failed; undone");
            if !fault::is_on("failed-attach-left") {
                self.undo(record);
            }
            return Err(error);
        }
        Ok(record)
    }

    fn attach_claimed(&mut self, record: &mut Record, netns: Opened) -> Result<(), WorkloadError> {
        let (id, path) = (record.id(), record.netns.clone());
        let refused = |source| WorkloadError::Attach {
            id: id.to_string(),
            netns: path.clone(),
            source: Box::new(source),
        };
        let netns = self.opened(&path, netns).map_err(refused)?;
        record.netns_identity = netns.as_ref().map(NetnsIdentity::of);
        self.attach.hold(netns);
        self.reach(Step::Remember)?;
        let pending = Record {
            pending: true,
            ..record.clone()
        };
        let remembered = self.registry.records().chain(&self.leftovers);
        let closed = self.registry.closed();
        self.records.write(remembered.chain([&pending]), closed)?;
        self.reach(Step::Join)?;
        self.attach.join(record).map_err(refused)?;
        record.index = self.attach.index_of(&record.interface).map_err(refused)?;
        self.reach(Step::Furnish)?;
        self.attach.furnish(record).map_err(refused)?;
        self.reach(Step::Judge)?;
        if fault::is_on("opened-before-flush") {
            self.attach.open(record).map_err(refused)?;
        }
        let pod = self.engine.endpoint(&id);
        let workload = Workload {
            record: record.clone(),
            state: EndpointState::Closed,
            reason: None,
        };
        let mut updates = vec![self.registry.insert(workload, pod)];
        updates.extend(self.registry.let_go(&record.interface));
        self.apply(updates);
        let refusal = self.failure.clone();
        if let Some(reason) = refusal.filter(|_| !fault::is_on("opened-though-refused")) {
            let id = id.to_string();
            return Err(WorkloadError::NotEnforced { id, reason });
        }
        self.reach(Step::Masquerade)?;
        self.translate_workloads(&id)?;
        self.reach(Step::Open)?;
        self.attaching = None;
        if let Some(because) = self.registry.closed_because(&id) {
            if let Some(workload) = self.registry.get_mut(&id) {
                workload.reason = Some(because.to_owned());
            }
        } else if let Err(error) = self.open(record) {
            return Err(refused(error));
        }
        self.reach(Step::Settle)?;
        self.remember()?;
        self.reach(Step::Answer)
    }

    /// The namespace of a path: as it was opened already, else opened now.
    pub(crate) fn opened(
        &mut self,
        path: &str,
        netns: Opened,
    ) -> Result<Option<NetNs>, AttachError> {
        match (netns, self.attach.opener()) {
            (Some(opened), _) => Ok(Some(opened?)),
            (None, Some(opener)) => Ok(Some(opener.open(path, PATIENCE)?)),
            (None, None) => Ok(None),
        }
    }

    /// Writes every workload to disk, and which interfaces stay closed.
    pub(crate) fn remember(&mut self) -> Result<(), WorkloadError> {
        let all = self.registry.records().chain(&self.leftovers);
        Ok(self.records.write(all, self.registry.closed())?)
    }

    /// What keeps the interface of a workload closed that is being taken away: another plugin made it,
    /// and it is still there.
    fn keep_closed(&mut self, record: &Record) -> Option<Update> {
        if !record.chained {
            return None;
        }
        let known = match record.index {
            Some(index) => self.attach.name_of(index).map(|name| name.zip(Some(index))),
            None => self
                .attach
                .index_of(&record.interface)
                .map(|index| Some(record.interface.to_string()).zip(index)),
        };
        match known {
            Ok(None) => None,
            Ok(Some((name, index))) => Some(self.registry.close(ClosedInterface {
                interface: name.as_str().into(),
                index,
            })),
            Err(error) => {
                // Closed without need is put right by the next notice of a link.
                tracing::warn!(workload = %record.id(), error = %chain(&error), "looking for its interface");
                Some(self.registry.close(ClosedInterface {
                    interface: record.interface.clone(),
                    index: record.index.unwrap_or(0),
                }))
            }
        }
    }

    /// Takes back everything a failed attach did. What cannot be, stays remembered.
    fn undo(&mut self, record: Record) {
        let id = record.id();
        if let Err(error) = self.take_down(&record) {
            tracing::error!(workload = %id, error = %chain(&error), "undoing a failed attach; it is tried again");
            if let Some((_, update)) = self.registry.remove(&id) {
                let mut updates = vec![update];
                updates.extend(self.keep_closed(&record));
                self.apply(updates);
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
        self.plan_retry();
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
            let mut updates = vec![update];
            updates.extend(self.keep_closed(record));
            self.apply(updates);
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
        let refused = self.failure.is_some() && !fault::is_on("opened-though-refused");
        if refused || !self.in_sync {
            return;
        }
        let waits = |(id, workload): &(&EndpointId, &Workload)| {
            workload.state == EndpointState::Closed
                && self.attaching.as_ref() != Some(*id)
                && self.registry.closed_because(id).is_none()
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
        let forwarding = self.forward();
        let opened = forwarding.and_then(|()| self.attach.open(record));
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
                    .index_of(&found)
                    .map(|index| index.is_some())
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
            let is_root = record.owner.is_none();
            wanted.into_iter().try_for_each(|family| {
                let taken = self.take_address(family, &id, is_root)?;
                record.addresses.push(taken);
                Ok(())
            })
        } else {
            given.into_iter().try_for_each(|address| {
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

    /// A free address that this host uses for nothing else; where none is left, also of containers
    /// whose namespace is gone.
    fn take_address(
        &mut self,
        family: Family,
        id: &str,
        is_root: bool,
    ) -> Result<IpAddr, WorkloadError> {
        let mut unfit = Vec::new();
        let taken = loop {
            let address = match self.next_address(family) {
                Ok(address) => address,
                Err(source) => break Err(self.address_error(id.to_owned(), source)),
            };
            let pool = self.ipam.pool_of(address);
            match self.address_use(address, pool, !is_root) {
                Ok(Some(used)) if unfit.len() < MOST_UNFIT => {
                    tracing::warn!(%address, reason = %used, "not given out");
                    unfit.push(address);
                }
                Ok(Some(used)) => {
                    self.ipam.release(address);
                    let reason = format!("none is fit: of {address}, {used}");
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
        for address in unfit {
            self.ipam.release(address);
        }
        taken
    }

    fn next_address(&mut self, family: Family) -> Result<IpAddr, IpamError> {
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

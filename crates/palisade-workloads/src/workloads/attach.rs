//! Attaching workloads in batches: requests that wait together are attached with one flush.
//!
//! The first half of each attach (addresses, interfaces, configuration of the namespace) runs for all of
//! them, then one flush writes the policy of all, then the second half (masquerading, bringing the
//! interface up) runs for each. The records are written once for each half. Promises: a request that fails
//! is rolled back alone; one that succeeds returns when its policy is in the kernel and its record is on
//! disk. While it is in progress its record is on disk as pending, whatever else is saved meanwhile.

use super::addresses::claim_addresses;
use super::attach_plan::AttachPlan;
use super::{PreopenedNetns, WorkloadError, Workloads, cni, named};
use crate::access::Caller;
use crate::registry::Workload;
use palisade_api::{CniAddRequest, CniAttachment, EndpointState, WorkloadAddRequest};
use palisade_model::EndpointId;
use palisade_network::interfaces::announce_workload;
use palisade_network::network_driver::NetworkDriverError;
use palisade_network::node_state::NodeState;
use palisade_node::workload_store::{NetnsIdentity, WorkloadRecord};
use palisade_sys::fault;
use palisade_sys::netns::NetNs;
use palisade_text::error_chain;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What to attach.
pub enum AttachTarget {
    /// A container, for a container runtime.
    Container(CniAddRequest),
    /// A named workload, for a caller.
    Workload(WorkloadAddRequest, Caller),
}

/// A request to attach, with the namespace if it is open already.
pub struct AttachRequest {
    /// What to attach.
    pub target: AttachTarget,
    /// Its namespace.
    pub netns: PreopenedNetns,
    /// When the request arrived.
    pub received_at: Instant,
}

/// Something that only one operation of a batch may name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKey {
    /// A workload: its namespace and name.
    Workload(String, String),
    /// A container.
    Container(String),
    /// A network namespace, as it was given.
    Netns(String),
    /// A network namespace that is open: the device and inode of its file.
    OpenNetns(u64, u64),
    /// An interface that another plugin made.
    Interface(String),
}

/// The key of a container.
pub fn container_key(attachment: &CniAttachment) -> OperationKey {
    OperationKey::Container(attachment.container.clone())
}

impl AttachRequest {
    /// What this request is about. Two requests with a key in common are never in one batch, because the
    /// second depends on the result of the first.
    pub fn keys(&self) -> BTreeSet<OperationKey> {
        let workload = |namespace: &str, name: &str, netns: &str| {
            let netns = OperationKey::Netns(netns.to_owned());
            let workload = OperationKey::Workload(namespace.to_owned(), name.to_owned());
            BTreeSet::from([workload, netns])
        };
        let mut keys = match &self.target {
            AttachTarget::Container(request) => {
                let mut keys = workload(&request.namespace, &request.name, &request.netns);
                keys.insert(OperationKey::Container(request.container.clone()));
                let chained = request.chained.iter();
                keys.extend(chained.map(|c| OperationKey::Interface(c.host_interface.clone())));
                keys
            }
            AttachTarget::Workload(request, _) => {
                workload(&request.namespace, &request.name, &request.netns)
            }
        };
        if let Some(Ok(netns)) = &self.netns {
            let NetnsIdentity { device, inode } = NetnsIdentity::of(netns);
            keys.insert(OperationKey::OpenNetns(device, inode));
        }
        keys
    }
}

/// One attach of a batch.
struct AttachProgress {
    id: EndpointId,
    record: WorkloadRecord,
    netns: Option<NetNs>,
    /// The caller who named it.
    caller: Option<Caller>,
    /// It was attached before, so no step is left.
    is_present: bool,
    /// Why a step failed; the remaining steps are skipped.
    error: Option<WorkloadError>,
}

/// A batch in the order of its requests; an error: the request was rejected, and nothing has to be rolled
/// back.
type AttachBatch = [Result<AttachProgress, WorkloadError>];

impl AttachProgress {
    fn attach_error(&self) -> impl Fn(NetworkDriverError) -> WorkloadError + use<> {
        let (id, netns) = (self.id.to_string(), self.record.netns.clone());
        move |source| WorkloadError::Attach {
            id: id.clone(),
            netns: netns.clone(),
            source: Box::new(source),
        }
    }
}

/// Runs a step of every attach that is in progress.
fn run_step(
    batch: &mut AttachBatch,
    mut step: impl FnMut(&mut AttachProgress) -> Result<(), WorkloadError>,
) {
    let in_progress = |attach: &&mut AttachProgress| !attach.is_present && attach.error.is_none();
    for attach in batch.iter_mut().flatten().filter(in_progress) {
        attach.error = step(attach).err();
    }
}

impl Workloads {
    /// Attaches the workloads of these requests; returns when their policy is in the kernel. The results
    /// are in the order of the requests; failed attaches are rolled back.
    pub fn attach_all(
        &mut self,
        node: &mut NodeState,
        requests: Vec<AttachRequest>,
    ) -> Vec<Result<WorkloadRecord, WorkloadError>> {
        let requests = requests.into_iter();
        let mut batch: Vec<_> = requests
            .map(|request| self.begin_attach(node, request))
            .collect();
        self.attach_interfaces(&mut batch);
        self.attach_policies(node, &mut batch);
        self.open_attached(node, &mut batch);
        self.network.pin_netns(None);
        let mut failed = Vec::new();
        for attach in batch.iter().flatten() {
            if let Some(error) = &attach.error {
                tracing::warn!(workload = %attach.id, error = %error_chain(error), "attach failed; rolling back");
                failed.push(attach.record.clone());
            }
        }
        if fault::is_injected("failed-attach-left") {
            self.opening.attaching.clear()
        } else {
            self.roll_back(node, &failed)
        }
        run_step(&mut batch, |attach| {
            if let Some(caller) = attach.caller {
                tracing::info!(workload = %attach.id, by = %caller, netns = attach.record.netns, "attached");
            }
            Ok(())
        });
        let result = |attach: AttachProgress| attach.error.map_or(Ok(attach.record), Err);
        batch
            .into_iter()
            .map(|begun| begun.and_then(result))
            .collect()
    }

    /// Checks a request, claims its addresses, and opens its namespace.
    fn begin_attach(
        &mut self,
        node: &mut NodeState,
        request: AttachRequest,
    ) -> Result<AttachProgress, WorkloadError> {
        let received_at = request.received_at;
        let (caller, plan) = match request.target {
            AttachTarget::Container(container) => (
                None,
                cni::plan_container(self, node, &container, request.netns)?,
            ),
            AttachTarget::Workload(workload, caller) => {
                let plan = named::plan_workload(self, node, &workload, caller, request.netns)?;
                (Some(caller), plan)
            }
        };
        let (mut record, families, netns) = match plan {
            AttachPlan::Present(record) => {
                return Ok(AttachProgress {
                    id: record.id(),
                    record,
                    netns: None,
                    caller,
                    is_present: true,
                    error: None,
                });
            }
            AttachPlan::New {
                record,
                families,
                netns,
            } => (record, families, netns),
        };
        let id = record.id();
        self.clear_leftovers(node, Some(&id))?;
        claim_addresses(self, node, &mut record, &families)?;
        let mut attach = AttachProgress {
            id,
            record,
            netns: None,
            caller,
            is_present: false,
            error: None,
        };
        match self.open_netns(&attach.record.netns, netns) {
            Ok(netns) => {
                attach.record.netns_identity = netns.as_ref().map(NetnsIdentity::of);
                attach.netns = netns;
            }
            Err(error) => attach.error = Some(attach.attach_error()(error)),
        }
        let pending = WorkloadRecord {
            pending: true,
            ..attach.record.clone()
        };
        self.opening.attaching.insert(attach.id.clone(), pending);
        self.opening.unopened.insert(attach.id.clone(), received_at);
        Ok(attach)
    }

    /// The first half, up to the configured namespace: nothing passes, as the host sides are down.
    fn attach_interfaces(&mut self, batch: &mut AttachBatch) {
        // Each write saves the whole batch, so the first that succeeds is enough.
        let mut is_saved = false;
        run_step(batch, |_| {
            if !is_saved {
                self.save_records()?;
            }
            is_saved = true;
            Ok(())
        });
        run_step(batch, |attach| {
            let attach_error = attach.attach_error();
            self.network.pin_netns(attach.netns.clone());
            let created = self.network.create_interfaces(&attach.record);
            created.map_err(&attach_error)?;
            let index = self.network.link_index(&attach.record.interface);
            attach.record.index = index.map_err(&attach_error)?;
            let configured = self.network.configure_netns(&attach.record);
            configured.map_err(&attach_error)
        });
    }

    /// Writes the policy of all of them with one flush.
    fn attach_policies(&mut self, node: &mut NodeState, batch: &mut AttachBatch) {
        let mut updates = Vec::new();
        run_step(batch, |attach| {
            if fault::is_injected("opened-before-flush") {
                let opened = self.network.bring_up(&attach.record);
                opened.map_err(attach.attach_error())?;
            }
            announce_workload(&mut node.enforcer, &attach.record);
            let pod = node.enforcer.state().engine.endpoint(&attach.id);
            let workload = Workload {
                record: attach.record.clone(),
                state: EndpointState::Closed,
                reason: None,
            };
            updates.extend(self.registry.insert(workload, pod));
            let interface = &attach.record.interface;
            updates.extend(self.registry.forget_closed_interface(interface));
            Ok(())
        });
        if updates.is_empty() {
            return;
        }
        node.enforcer.apply(updates);
        let refusal = node.enforcer.policy.failure().map(str::to_owned);
        if let Some(reason) = refusal.filter(|_| !fault::is_injected("opened-though-refused")) {
            run_step(batch, |attach| {
                Err(WorkloadError::NotEnforced {
                    id: attach.id.to_string(),
                    reason: reason.clone(),
                })
            });
        }
    }

    /// The second half: masquerades their traffic, brings the host sides up, saves them as attached.
    fn open_attached(&mut self, node: &mut NodeState, batch: &mut AttachBatch) {
        // The rules are those of all workloads, so the first write that succeeds is enough.
        let mut is_masqueraded = false;
        run_step(batch, |attach| {
            if !is_masqueraded {
                self.apply_masquerade_for(node, &attach.id)?;
            }
            is_masqueraded = true;
            Ok(())
        });
        run_step(batch, |attach| {
            self.network.pin_netns(attach.netns.clone());
            if let Some(because) = self.registry.closed_reason(&attach.id) {
                if let Some(workload) = self.registry.get_mut(&attach.id) {
                    workload.reason = Some(because.to_owned());
                }
                return Ok(());
            }
            let opened = self.open_workload(node, &attach.record);
            opened.map_err(attach.attach_error())
        });
        let mut pending = BTreeMap::new();
        run_step(batch, |attach| {
            pending.extend(self.opening.attaching.remove_entry(&attach.id));
            Ok(())
        });
        let mut is_saved = false;
        run_step(batch, |attach| {
            if !is_saved && let Err(error) = self.save_records() {
                self.opening
                    .attaching
                    .extend(pending.remove_entry(&attach.id));
                return Err(error);
            }
            is_saved = true;
            Ok(())
        });
    }
}

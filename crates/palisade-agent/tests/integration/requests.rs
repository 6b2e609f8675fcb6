//! Requests to a core, as the API makes them.

use palisade_agent::core::{Core, CoreEvent, QueuedOperation};
use palisade_api::{
    CniAddRequest, CniAddResponse, CniAttachment, CniGcRequest, CniResponse, EndpointList,
    IpamCheckReport, IpamReport, Status, WorkloadAddRequest, WorkloadAddResponse,
    WorkloadRemoveRequest, WorkloadRemoveResponse,
};
use palisade_node::workload_store::WorkloadRecord;
use palisade_views::metrics::exposition::Exposition;
use palisade_workloads::access::Caller;
use palisade_workloads::workloads::attach::{AttachRequest, AttachTarget};
use palisade_workloads::workloads::{WorkloadError, cni, named};
use std::sync::mpsc::channel;

/// Requests to a core, made as the API makes them, and their responses.
#[allow(dead_code, reason = "each test uses some of them")]
pub(crate) trait CoreRequests {
    fn core(&mut self) -> &mut Core;

    fn attach(&mut self, target: AttachTarget) -> Result<WorkloadRecord, WorkloadError> {
        let request = AttachRequest {
            target,
            netns: None,
            received_at: self.core().clock().monotonic(),
        };
        let (sender, result) = channel();
        let answer = Box::new(move |_: &mut Core, attached| sender.send(attached).unwrap());
        let queued = vec![QueuedOperation {
            request,
            answer: answer as _,
        }];
        self.core().handle_event(CoreEvent::Attach(queued));
        result.recv().unwrap()
    }

    fn cni_add(&mut self, request: &CniAddRequest) -> Result<CniAddResponse, WorkloadError> {
        let record = self.attach(AttachTarget::Container(request.clone()))?;
        let (workloads, node) = self.core().parts();
        cni::add_response(workloads, node, &record)
    }

    fn add_workload(
        &mut self,
        request: &WorkloadAddRequest,
    ) -> Result<WorkloadAddResponse, WorkloadError> {
        let record = self.attach(AttachTarget::Workload(request.clone(), Caller::Root))?;
        let (workloads, node) = self.core().parts();
        Ok(named::add_response(workloads, node, &record))
    }

    fn remove_workload(
        &mut self,
        request: &WorkloadRemoveRequest,
    ) -> Result<WorkloadRemoveResponse, WorkloadError> {
        let (workloads, node) = self.core().parts();
        named::remove_workload(workloads, node, request, Caller::Root)
    }

    fn cni_del(&mut self, attachment: &CniAttachment) -> Result<CniResponse, WorkloadError> {
        let (sender, result) = channel();
        let answer = Box::new(move |_: &mut Core, removed| sender.send(removed).unwrap());
        let request = attachment.clone();
        let queued = vec![QueuedOperation {
            request,
            answer: answer as _,
        }];
        self.core().handle_event(CoreEvent::Detach(queued));
        result.recv().unwrap()
    }

    fn cni_gc(&mut self, request: &CniGcRequest) -> Result<CniResponse, WorkloadError> {
        let (workloads, node) = self.core().parts();
        cni::gc(workloads, node, request)
    }

    fn status(&mut self) -> Status {
        let counters = self.core().parts().1.recent_counters();
        palisade_views::status::status(&self.core().snapshot(), counters.as_deref())
    }

    fn endpoint_list(&mut self) -> EndpointList {
        palisade_views::endpoints::endpoint_list(&self.core().snapshot())
    }

    fn collect_metrics(&mut self) -> Exposition {
        let counters = self.core().parts().1.recent_counters();
        palisade_views::metrics::collect_metrics(&self.core().snapshot(), counters.as_deref())
    }

    fn ipam_report(&mut self) -> IpamReport {
        palisade_views::ipam::ipam_report(&self.core().snapshot())
    }

    fn ipam_check(&mut self) -> Result<IpamCheckReport, palisade_views::ipam::IpamCheckError> {
        let (workloads, node) = self.core().parts();
        palisade_views::ipam::ipam_check(workloads, node)
    }
}

impl CoreRequests for Core {
    fn core(&mut self) -> &mut Core {
        self
    }
}

//! Hosts that forward between interfaces of their own, with policy that is about others.

use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::Update;
use palisade_testkit::effective::effective_state;

/// What such a host does besides.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ForeignHost {
    /// Nothing.
    Plain,
    /// It tracks connections.
    Tracking,
    /// Palisade runs, without a host endpoint.
    Palisade,
    /// A host endpoint closes another interface.
    Endpoint,
    /// The same, with a policy that applies on forward.
    Forward,
    /// The same, with policies of every stage.
    EveryStage,
}

/// A workload, so that Palisade has something to do.
const WORKLOAD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
status: {podIP: 10.77.0.1, podIPs: [{ip: 10.77.0.1}]}
";

/// The interface that is closed: another one.
const ENDPOINT: &str = "
---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: other, labels: {role: node}}
spec: {node: n1, interfaceName: uplink9}
";

const FORWARD: &str = "
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: forward}
spec: {selector: role == 'node', applyOnForward: true, types: [Ingress, Egress], ingress: [{action: Deny}], egress: [{action: Deny}]}
";

const EARLY: &str = "
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: untracked}
spec: {selector: role == 'node', applyOnForward: true, doNotTrack: true, types: [Ingress, Egress], ingress: [{action: Deny}], egress: [{action: Deny}]}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: before-nat}
spec: {selector: role == 'node', applyOnForward: true, preDNAT: true, types: [Ingress], ingress: [{action: Deny}]}
";

impl ForeignHost {
    /// Those on which Palisade runs.
    pub(super) const WITH_PALISADE: [ForeignHost; 4] = [
        ForeignHost::Palisade,
        ForeignHost::Endpoint,
        ForeignHost::Forward,
        ForeignHost::EveryStage,
    ];

    /// Its name in a figure.
    pub(super) fn name(self) -> &'static str {
        match self {
            ForeignHost::Plain => "plain",
            ForeignHost::Tracking => "conntrack",
            ForeignHost::Palisade => "no-endpoint",
            ForeignHost::Endpoint => "endpoint",
            ForeignHost::Forward => "forward",
            ForeignHost::EveryStage => "every-stage",
        }
    }

    /// What its agent reads.
    ///
    /// # Errors
    /// If a manifest has a problem.
    pub(super) fn updates(self) -> Result<Vec<Update>, String> {
        let parts: &[&str] = match self {
            ForeignHost::Plain | ForeignHost::Tracking => &[],
            ForeignHost::Palisade => &[WORKLOAD],
            ForeignHost::Endpoint => &[WORKLOAD, ENDPOINT],
            ForeignHost::Forward => &[WORKLOAD, ENDPOINT, FORWARD],
            ForeignHost::EveryStage => &[WORKLOAD, ENDPOINT, FORWARD, EARLY],
        };
        let limits = Limits::default();
        let text = parts.concat();
        let read = extract_objects(parse("foreign.yaml", text.as_bytes(), &limits), &limits);
        if let Some(problem) = read.problems.first() {
            return Err(format!("foreign.yaml: {problem:?}"));
        }
        let (mut state, diagnostics) = effective_state(&read.objects);
        if let Some(problem) = diagnostics.first() {
            return Err(format!("foreign.yaml: {problem:?}"));
        }
        for endpoint in state
            .endpoints
            .values_mut()
            .filter(|endpoint| !endpoint.is_host())
        {
            endpoint.interface = Some("palweb".into());
        }
        Ok(state.objects().map(Update::Upsert).collect())
    }
}

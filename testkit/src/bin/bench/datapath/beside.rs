//! Workloads without rules by name, on a host where another workload has them.

use palisade_manifest::{Limits, extract_objects, parse};
use palisade_model::{DomainName, EndpointId, Object, ObjectKind, Update};
use palisade_names::{AnsweredAddress, ConnectionLookup, NameAnswer, NameCache, NameLimits};
use palisade_testkit::effective::effective_state;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// What the other workload has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NamesBeside {
    /// Other policy.
    Without,
    /// Policy by domain name, and a thousand addresses of names.
    With,
}

/// The two ends of the traffic, the other workload, and policy for the ends.
const WORKLOADS: &str = "
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: bench, labels: {app: client}}
status: {podIP: 10.66.0.1, podIPs: [{ip: 10.66.0.1}, {ip: 'fd66::1'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: bench, labels: {app: server}}
status: {podIP: 10.66.0.2, podIPs: [{ip: 10.66.0.2}, {ip: 'fd66::2'}]}
---
apiVersion: v1
kind: Pod
metadata: {name: asker, namespace: bench, labels: {app: asker}}
status: {podIP: 10.66.0.3, podIPs: [{ip: 10.66.0.3}, {ip: 'fd66::3'}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: bench}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: server}}}]
    ports: [{protocol: TCP, port: 10000}, {protocol: UDP, port: 10000}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: bench}
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}]
    ports: [{protocol: TCP, port: 10000}, {protocol: UDP, port: 10000}]
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: asker, namespace: bench}
spec:
  endpointSelector: {matchLabels: {app: asker}}
  egress:
  - toCIDR: [198.51.100.2/32]
    toPorts: [{ports: [{port: '53', protocol: ANY}]RULES}]
";
const DNS_RULES: &str = ", rules: {dns: [{matchPattern: '*.example.com'}]}";
const NAMES: &str = "
  - toFQDNs: [{matchPattern: '*.example.com'}]
    toPorts: [{ports: [{port: '443', protocol: TCP}]}]
";

impl NamesBeside {
    /// Its name in a figure.
    pub(super) fn name(self) -> &'static str {
        match self {
            NamesBeside::Without => "without",
            NamesBeside::With => "with",
        }
    }

    /// What its agent reads and learns.
    ///
    /// # Errors
    /// If a manifest has a problem.
    pub(super) fn updates(self) -> Result<Vec<Update>, String> {
        let (rules, more) = match self {
            NamesBeside::Without => ("", ""),
            NamesBeside::With => (DNS_RULES, NAMES),
        };
        let text = WORKLOADS.replace("RULES", rules) + more.trim_start_matches('\n');
        let limits = Limits::default();
        let read = extract_objects(parse("beside.yaml", text.as_bytes(), &limits), &limits);
        if let Some(problem) = read.problems.first() {
            return Err(format!("beside.yaml: {problem:?}"));
        }
        let (mut state, diagnostics) = effective_state(&read.objects);
        if let Some(problem) = diagnostics.first() {
            return Err(format!("beside.yaml: {problem:?}"));
        }
        for endpoint in state.endpoints.values_mut() {
            endpoint.interface = Some(format!("pal{}", endpoint.id.name).into());
        }
        let mut updates: Vec<Update> = state.objects().map(Update::Upsert).collect();
        if self == NamesBeside::With {
            updates.extend(names()?);
        }
        Ok(updates)
    }
}

/// No address is used.
struct NoConnections;

impl ConnectionLookup for NoConnections {
    fn has_connection(&self, _: &EndpointId, _: IpAddr) -> bool {
        false
    }
}

/// A hundred names of ten addresses each.
fn names() -> Result<Vec<Update>, String> {
    let workload = EndpointId {
        namespace: Some("bench".into()),
        name: "asker".into(),
        kind: ObjectKind::new("", "Pod"),
    };
    let mut cache = NameCache::new(NameLimits::default());
    let mut updates = Vec::new();
    for number in 0..100_u32 {
        let name: DomainName = format!("n{number}.example.com")
            .parse()
            .map_err(|_| "a name is not one")?;
        let addresses = (0..10).map(|at| AnsweredAddress {
            address: Ipv4Addr::from(u32::from(Ipv4Addr::new(198, 18, 0, 0)) + number * 10 + at)
                .into(),
            ttl: Duration::from_secs(3_600),
        });
        let answer = NameAnswer {
            name: name.clone(),
            workload: workload.clone(),
            addresses: addresses.collect(),
        };
        cache.learn(0, &answer, &NoConnections);
        let set = cache.network_set(&name);
        updates.extend(set.map(|set| Update::Upsert(Object::NetworkSet(set))));
    }
    Ok(updates)
}

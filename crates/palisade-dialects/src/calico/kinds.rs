//! The kinds of Calico that are read.

use super::policy_kind::CalicoPolicyKind;
use super::{
    CRD_GROUP, GROUP, host_endpoint, network_set, policy, profile, tier, workload_endpoint,
};
use crate::kind_reader::{KindRead, KindReader, Naming, ReadFn, ReadSeveralFn};

/// Every kind of an API group and version.
const fn kinds(group: &'static str, version: &'static str) -> [KindReader; 11] {
    const fn one(
        (group, version): (&'static str, &'static str),
        kind: &'static str,
        naming: Naming,
        read: ReadFn,
    ) -> KindReader {
        KindReader {
            group,
            version,
            kind,
            naming,
            object_group: GROUP,
            read: KindRead::One(read),
        }
    }
    const fn several(
        (group, version): (&'static str, &'static str),
        kind: &'static str,
        naming: Naming,
        read: ReadSeveralFn,
    ) -> KindReader {
        KindReader {
            group,
            version,
            kind,
            naming,
            object_group: GROUP,
            read: KindRead::Several(read),
        }
    }
    use Naming::{Cluster, Namespaced};
    let api = (group, version);
    [
        several(api, "NetworkPolicy", Namespaced, |object, report| {
            policy::read(object, CalicoPolicyKind::Namespaced, report)
        }),
        several(api, "GlobalNetworkPolicy", Cluster, |object, report| {
            policy::read(object, CalicoPolicyKind::Global, report)
        }),
        several(api, "StagedNetworkPolicy", Namespaced, |object, report| {
            policy::read(object, CalicoPolicyKind::StagedNamespaced, report)
        }),
        several(
            api,
            "StagedGlobalNetworkPolicy",
            Cluster,
            |object, report| policy::read(object, CalicoPolicyKind::StagedGlobal, report),
        ),
        several(
            api,
            "StagedKubernetesNetworkPolicy",
            Namespaced,
            policy::read_kubernetes,
        ),
        several(api, "Tier", Cluster, tier::read),
        several(api, "Profile", Cluster, profile::read),
        one(api, "NetworkSet", Namespaced, network_set::read),
        one(api, "GlobalNetworkSet", Cluster, network_set::read),
        one(api, "HostEndpoint", Cluster, host_endpoint::read),
        several(api, "WorkloadEndpoint", Namespaced, workload_endpoint::read),
    ]
}

/// The kinds of the API.
pub(crate) const KINDS: &[KindReader] = &kinds(GROUP, "v3");
/// The same kinds as resources of the API server.
pub(crate) const CRD_KINDS: &[KindReader] = &kinds(CRD_GROUP, "v1");

//! The kinds of Calico that are read.

use super::policy_kind::CalicoPolicyKind;
use super::{
    CRD_GROUP, GROUP, host_endpoint, network_set, policy, profile, tier, workload_endpoint,
};
use crate::kind_reader::{KindRead, KindReader, Naming};

/// Every kind of an API group and version.
const fn kinds(group: &'static str, version: &'static str) -> [KindReader; 11] {
    use KindRead::{One, Several};
    use Naming::{Cluster, Namespaced};
    const fn of(
        (group, version): (&'static str, &'static str),
        kind: &'static str,
        naming: Naming,
        read: KindRead,
    ) -> KindReader {
        KindReader {
            group,
            version,
            kind,
            naming,
            object_group: GROUP,
            read,
        }
    }
    const NAMESPACED: KindRead =
        Several(|object, report| policy::read(object, CalicoPolicyKind::Namespaced, report));
    const GLOBAL: KindRead =
        Several(|object, report| policy::read(object, CalicoPolicyKind::Global, report));
    const STAGED_NAMESPACED: KindRead =
        Several(|object, report| policy::read(object, CalicoPolicyKind::StagedNamespaced, report));
    const STAGED_GLOBAL: KindRead =
        Several(|object, report| policy::read(object, CalicoPolicyKind::StagedGlobal, report));
    const STAGED_KUBERNETES: KindRead = Several(policy::read_kubernetes);
    let api = (group, version);
    [
        of(api, "NetworkPolicy", Namespaced, NAMESPACED),
        of(api, "GlobalNetworkPolicy", Cluster, GLOBAL),
        of(api, "StagedNetworkPolicy", Namespaced, STAGED_NAMESPACED),
        of(api, "StagedGlobalNetworkPolicy", Cluster, STAGED_GLOBAL),
        of(
            api,
            "StagedKubernetesNetworkPolicy",
            Namespaced,
            STAGED_KUBERNETES,
        ),
        of(api, "Tier", Cluster, Several(tier::read)),
        of(api, "Profile", Cluster, Several(profile::read)),
        of(api, "NetworkSet", Namespaced, One(network_set::read)),
        of(api, "GlobalNetworkSet", Cluster, One(network_set::read)),
        of(api, "HostEndpoint", Cluster, Several(host_endpoint::read)),
        of(
            api,
            "WorkloadEndpoint",
            Namespaced,
            One(workload_endpoint::read),
        ),
    ]
}

/// The kinds of the API.
pub(crate) const KINDS: &[KindReader] = &kinds(GROUP, "v3");
/// The same kinds as resources of the API server.
pub(crate) const CRD_KINDS: &[KindReader] = &kinds(CRD_GROUP, "v1");

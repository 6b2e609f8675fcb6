//! The options of other crates, made from sections of the configuration. Each is made here and nowhere else.

use palisade_config::{EtcdConfig, KubernetesApi, KubernetesConfig, PolicyConfig};
use palisade_effective::CidrMatchMode;
use palisade_etcd::EtcdOptions;
use palisade_kubernetes::Credentials;
use std::path::Path;

/// The credentials for the API server, if there is one.
pub(crate) fn credentials(config: &KubernetesConfig) -> Option<Credentials> {
    match &config.api {
        KubernetesApi::Off => None,
        KubernetesApi::InCluster => Some(Credentials::InCluster),
        KubernetesApi::Kubeconfig(path) => Some(Credentials::Kubeconfig(path.clone())),
    }
}

/// The etcd that objects are read from, if there is one.
pub fn etcd_options(config: &EtcdConfig) -> Option<EtcdOptions> {
    let endpoints = config.urls();
    let owned = |(certificate, key): (&Path, &Path)| (certificate.to_owned(), key.to_owned());
    let user = config.user.clone();
    (!endpoints.is_empty()).then(|| EtcdOptions {
        endpoints,
        prefix: config.prefix.clone(),
        ca_file: config.ca_file.clone(),
        identity: config.identity().map(owned),
        user: user.map(|user| (user, config.password_file.clone())),
    })
}

/// What networks in Cilium's policies match.
pub(crate) fn cidr_match_mode(config: &PolicyConfig) -> CidrMatchMode {
    if config.cidrs_match_nodes {
        CidrMatchMode::Nodes
    } else {
        CidrMatchMode::Outside
    }
}

//! Which addresses are cluster addresses of Services, and which are this host's: for the names of the ends of flows.
//!
//! Promises: a change costs what it concerns; of two Services with the same address, which a cluster does not have, the
//! last by name is named. Never: decides anything.

use palisade_api::ServiceRef;
use palisade_model::{Object, ObjectKey, Service, Str, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Services by their addresses, and the addresses of this host.
#[derive(Default)]
pub(super) struct KnownAddresses {
    addresses: BTreeMap<Arc<ServiceRef>, Vec<IpAddr>>,
    services: BTreeMap<IpAddr, BTreeSet<Arc<ServiceRef>>>,
    host: BTreeSet<IpAddr>,
    /// How often those of this host changed.
    host_version: u64,
}

impl KnownAddresses {
    /// Takes updates in.
    pub(super) fn observe(&mut self, updates: &[Update]) {
        for update in updates {
            match update {
                Update::Upsert(Object::Service(service)) => {
                    let Service {
                        namespace,
                        name,
                        addresses,
                        ..
                    } = service;
                    self.set(namespace, name, addresses);
                }
                Update::Delete(ObjectKey::Service { namespace, name }) => {
                    self.set(namespace, name, &[]);
                }
                Update::Upsert(_) | Update::Delete(_) => {}
            }
        }
    }

    /// How often the addresses of this host changed: what was found at another number may be otherwise now.
    pub(super) fn host_version(&self) -> u64 {
        self.host_version
    }

    fn set(&mut self, namespace: &Str, name: &Str, addresses: &[IpAddr]) {
        let service = ServiceRef {
            namespace: namespace.clone(),
            name: name.clone(),
        };
        for address in self.addresses.remove(&service).unwrap_or_default() {
            if let Some(services) = self.services.get_mut(&address) {
                services.remove(&service);
                if services.is_empty() {
                    self.services.remove(&address);
                }
            }
        }
        if addresses.is_empty() {
            return;
        }
        let service = Arc::new(service);
        for address in addresses {
            let services = self.services.entry(*address).or_default();
            services.insert(Arc::clone(&service));
        }
        self.addresses.insert(service, addresses.to_vec());
    }

    /// Sets the addresses of this host.
    pub(super) fn set_host(&mut self, addresses: BTreeSet<IpAddr>) {
        self.host = addresses;
        self.host_version += 1;
    }

    /// Whether an address is one of this host.
    pub(super) fn is_of_host(&self, address: IpAddr) -> bool {
        self.host.contains(&address)
    }

    /// The Service with an address.
    pub(super) fn service(&self, address: IpAddr) -> Option<Arc<ServiceRef>> {
        self.services.get(&address)?.last().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::Labels;

    fn service(name: &str, addresses: &[IpAddr]) -> Update {
        Update::Upsert(Object::Service(Service {
            namespace: "shop".into(),
            name: name.into(),
            selector: Labels::new(),
            addresses: addresses.to_vec(),
            ports: Vec::new(),
            headless: false,
        }))
    }

    #[test]
    fn services_are_found_by_address() {
        let (first, second) = (
            IpAddr::from([10, 96, 0, 1]),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
        );
        let mut services = KnownAddresses::default();
        let name = |services: &KnownAddresses, address| {
            services
                .service(address)
                .map(|service| service.name.clone())
        };
        services.observe(&[service("db", &[first, second])]);
        assert_eq!(name(&services, first).as_deref(), Some("db"));
        assert_eq!(name(&services, second).as_deref(), Some("db"));
        // The address goes from one Service to another in one batch, the new one first.
        let gone = Update::Delete(ObjectKey::Service {
            namespace: "shop".into(),
            name: "db".into(),
        });
        services.observe(&[service("web", &[first]), gone]);
        assert_eq!(name(&services, first).as_deref(), Some("web"));
        assert_eq!(name(&services, second), None);
        services.observe(&[service("web", &[])]);
        assert!(services.services.is_empty() && services.addresses.is_empty());
    }
}

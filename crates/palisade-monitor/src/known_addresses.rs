//! Which addresses are cluster addresses of Services, and which are this host's: for the names of the ends of flows.
//!
//! Promises: a change costs what it concerns; of two Services with the same address, which a cluster does not have, the
//! last by name is named. Never: decides anything.

use palisade_api::ServiceRef;
use palisade_model::{Object, ObjectKey, Service, Str, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The name of a Service: namespace and name.
type ServiceName = (Str, Str);

/// Services by their addresses, and the addresses of this host.
#[derive(Default)]
pub(super) struct KnownAddresses {
    addresses: BTreeMap<ServiceName, Vec<IpAddr>>,
    services: BTreeMap<IpAddr, BTreeSet<ServiceName>>,
    host: BTreeSet<IpAddr>,
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
                    self.set((namespace.clone(), name.clone()), addresses);
                }
                Update::Delete(ObjectKey::Service { namespace, name }) => {
                    self.set((namespace.clone(), name.clone()), &[]);
                }
                Update::Upsert(_) | Update::Delete(_) => {}
            }
        }
    }

    fn set(&mut self, service: ServiceName, addresses: &[IpAddr]) {
        for address in self.addresses.remove(&service).unwrap_or_default() {
            if let Some(names) = self.services.get_mut(&address) {
                names.remove(&service);
                if names.is_empty() {
                    self.services.remove(&address);
                }
            }
        }
        if addresses.is_empty() {
            return;
        }
        for address in addresses {
            let names = self.services.entry(*address).or_default();
            names.insert(service.clone());
        }
        self.addresses.insert(service, addresses.to_vec());
    }

    /// Sets the addresses of this host.
    pub(super) fn set_host(&mut self, addresses: BTreeSet<IpAddr>) {
        self.host = addresses;
    }

    /// Whether an address is one of this host.
    pub(super) fn is_of_host(&self, address: IpAddr) -> bool {
        self.host.contains(&address)
    }

    /// The Service with an address.
    pub(super) fn service(&self, address: IpAddr) -> Option<ServiceRef> {
        let (namespace, name) = self.services.get(&address)?.last()?;
        Some(ServiceRef {
            namespace: namespace.to_string(),
            name: name.to_string(),
        })
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
            services.service(address).map(|service| service.name)
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

//! The network driver of tests without a kernel: every operation succeeds, unless a test's own host says
//! otherwise.

use palisade_dataplane::Interface;
use palisade_model::Prefix;
use palisade_network::forwarding::ForwardingDriver;
use palisade_network::forwarding::sysctls::{ChangedSetting, SettingsFile};
use palisade_network::network_driver::{
    AddressUse, HostDrivers, HostInterfaceState, HostInventory, NetnsFacts, NetnsInterface,
    NetworkDriver, NetworkDriverError,
};
use palisade_node::workload_store::WorkloadRecord;
use palisade_sys::link::MacAddr;
use palisade_sys::netns::{NetNs, NetNsOpener};
use std::net::IpAddr;

type Done<T> = Result<T, NetworkDriverError>;

/// Defines a test's host, and a driver on it, from one list of methods and their defaults.
macro_rules! test_host {
    ($($method:ident($($arg:ident: $kind:ty),*) -> $result:ty = $default:expr;)*) => {
        /// A host of a test; it has the methods of [`NetworkDriver`], and none is required.
        pub(crate) trait TestHost: Send {
            $(fn $method(&mut self, $($arg: $kind),*) -> Done<$result> {
                $(let _ = &$arg;)*
                Ok($default)
            })*

            fn delete_interface(&mut self, _: &WorkloadRecord) -> Done<()> {
                Ok(())
            }

            fn netns_exists(&self, _: &WorkloadRecord) -> bool {
                true
            }
        }

        impl<H: TestHost> NetworkDriver for OnHost<H> {
            $(fn $method(&mut self, $($arg: $kind),*) -> Done<$result> {
                self.0.$method($($arg),*)
            })*

            fn delete_interfaces(&mut self, records: &[WorkloadRecord]) -> Vec<Done<()>> {
                let delete = |record| self.0.delete_interface(record);
                records.iter().map(delete).collect()
            }

            fn netns_exists(&self, record: &WorkloadRecord) -> bool {
                self.0.netns_exists(record)
            }

            fn opener(&self) -> Option<NetNsOpener> {
                None
            }

            fn pin_netns(&mut self, _: Option<NetNs>) {}
        }
    };
}

/// A host that forwards.
pub(crate) struct ForwardingHost;

impl ForwardingDriver for ForwardingHost {
    fn plan_forwarding(&mut self, _: &str, _: &SettingsFile) -> Done<Vec<ChangedSetting>> {
        Ok(Vec::new())
    }

    fn apply_settings(&mut self, _: &SettingsFile, _: Vec<ChangedSetting>) -> Done<Vec<String>> {
        Ok(Vec::new())
    }

    fn restorable_settings(&mut self, _: &SettingsFile) -> Done<Vec<ChangedSetting>> {
        Ok(Vec::new())
    }

    fn restore_setting(&mut self, _: &ChangedSetting) -> Done<()> {
        Ok(())
    }
}

/// The drivers of a host with this network driver.
pub(crate) fn host_drivers(network: impl NetworkDriver + 'static) -> HostDrivers {
    HostDrivers {
        network: Box::new(network),
        forwarding: Box::new(ForwardingHost),
        node_routes: None,
        redirect_routes: None,
        connections: None,
    }
}

/// The network driver of a host.
pub(crate) struct OnHost<H>(pub(crate) H);

test_host! {
    create_interfaces(record: &WorkloadRecord) -> () = ();
    configure_netns(record: &WorkloadRecord) -> () = ();
    bring_up(record: &WorkloadRecord) -> () = ();
    has_interface(record: &WorkloadRecord) -> bool = true;
    netns_facts(record: &WorkloadRecord) -> NetnsFacts = NetnsFacts::default();
    address_use(address: IpAddr, pool: Option<Prefix>, whole: bool) -> Option<AddressUse> = None;
    link_index(name: &str) -> Option<u32> = None;
    link_name(index: u32) -> Option<String> = None;
    interfaces() -> Vec<Interface> = Vec::new();
    interface_addresses() -> Vec<(IpAddr, String)> = Vec::new();
    netns_interface(record: &WorkloadRecord) -> NetnsInterface = NetnsInterface {
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: record.mtu.unwrap_or(1500),
        addresses: record.addresses.clone(),
        routes: Vec::new(),
    };
    host_interface_states(records: &[WorkloadRecord]) -> Vec<HostInterfaceState> =
        records.iter().map(|_| HostInterfaceState::Intact).collect();
    restore_name(record: &WorkloadRecord, name: &str) -> () = ();
    inventory(prefix: &str) -> HostInventory = HostInventory::default();
    default_route_mtu() -> Option<u32> = None;
    veths() -> Vec<(String, u32)> = Vec::new();
    delete_link(name: &str) -> () = ();
    close_link(name: &str) -> () = ();
}

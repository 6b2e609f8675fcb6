//! What an endpoint claims: its addresses as far as the engine uses them, and whether it is attached to this host.

use crate::faults::EngineFault;
use crate::store::{AddressOwnerKind, AddressOwnerView};
use core::net::IpAddr;

/// The addresses of an endpoint that the engine uses; one fault ignores all but the first.
pub(super) fn effective_addresses<I: Iterator<Item = IpAddr>>(
    addresses: I,
) -> impl Iterator<Item = IpAddr> {
    let known = if EngineFault::SecondAddressIgnored.is_injected() {
        1
    } else {
        usize::MAX
    };
    addresses.take(known)
}

/// The addresses that an endpoint claims; none for a template.
pub(super) fn claimed_addresses<'a>(
    view: &Option<AddressOwnerView<'a>>,
) -> impl Iterator<Item = IpAddr> + use<'a> {
    let claiming = view.filter(|view| !view.is_template()).into_iter();
    claiming.flat_map(|view| effective_addresses(view.addresses()))
}

pub(super) fn is_local_view(view: &AddressOwnerView<'_>) -> bool {
    view.kind() == AddressOwnerKind::Endpoint && view.is_attached() && !view.is_template()
}

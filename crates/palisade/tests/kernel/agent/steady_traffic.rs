//! Steady traffic in a shop, each packet of a flow of its own, and each accounted for.

use super::shop::{ADDRESSES, Shop, address};
use palisade_testkit::lab::{Spray, SprayKind};
use std::net::SocketAddr;
use std::time::Duration;

/// The pace of each spray.
const PACE: Duration = Duration::from_millis(2);

/// Rules of api that allow what web sends, on port 8080, and no other port.
pub(crate) const ALLOWED_TRAFFIC: &str = "  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 8080}, {port: 8080, protocol: UDP}]
";

/// Continuous new flows, from an allowed and a denied source, in both families.
pub(crate) struct SteadyTraffic {
    sprays: Vec<(bool, Spray)>,
}

impl SteadyTraffic {
    /// Starts it.
    pub(crate) fn start(shop: &Shop) -> Self {
        let mut sprays = Vec::new();
        for (from, allowed) in [(0, true), (2, false)] {
            for (family, text) in ADDRESSES[1].iter().enumerate() {
                let to = SocketAddr::new(address(text), 8080);
                let source = (shop.pods[from], address(ADDRESSES[from][family]));
                let receiver = (shop.pods[1], to);
                let spray =
                    Spray::start(&shop.lab, source, receiver, SprayKind::Udp, PACE).unwrap();
                sprays.push((allowed, spray));
            }
        }
        SteadyTraffic { sprays }
    }

    /// Stops it: all allowed packets arrived except this many of each kind, and no denied one.
    pub(crate) fn end(self, what: &str, lost: u64) {
        for (allowed, mut spray) in self.sprays {
            spray.stop();
            let counts = spray.counts();
            let missing = counts.sent - counts.arrived;
            println!("{what}: allowed {allowed}: {counts:?}");
            assert!(counts.sent > 100, "{what}: {counts:?}");
            if allowed {
                assert!(
                    missing <= lost + spray.overflowed(),
                    "{what}: lost: {counts:?}"
                )
            } else {
                assert_eq!(counts.arrived, 0, "{what}: passed: {counts:?}")
            }
        }
    }
}

//! The result of ADD, in the form of each version of the specification.
//!
//! Never adds a field that a version does not have: runtimes decode strictly.

use palisade_api::CniAddResponse;
use serde_json::{Map, Value, json};

/// A version of the CNI specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the version numbers")]
pub enum CniVersion {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl CniVersion {
    /// Every supported version, oldest first.
    pub const ALL: [CniVersion; 7] = [
        CniVersion::V0_1_0,
        CniVersion::V0_2_0,
        CniVersion::V0_3_0,
        CniVersion::V0_3_1,
        CniVersion::V0_4_0,
        CniVersion::V1_0_0,
        CniVersion::V1_1_0,
    ];

    /// Its name in configurations and results.
    pub fn name(self) -> &'static str {
        match self {
            CniVersion::V0_1_0 => "0.1.0",
            CniVersion::V0_2_0 => "0.2.0",
            CniVersion::V0_3_0 => "0.3.0",
            CniVersion::V0_3_1 => "0.3.1",
            CniVersion::V0_4_0 => "0.4.0",
            CniVersion::V1_0_0 => "1.0.0",
            CniVersion::V1_1_0 => "1.1.0",
        }
    }

    /// Parses a version; the empty text is the first version.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "" => Some(CniVersion::V0_1_0),
            _ => Self::ALL.into_iter().find(|version| version.name() == name),
        }
    }
}

/// The result of ADD for a container attached by this plugin alone.
pub fn add_result(
    version: CniVersion,
    interface: &str,
    netns: &str,
    added: &CniAddResponse,
) -> Value {
    if version <= CniVersion::V0_2_0 {
        return legacy_result(version, added);
    }
    let mut host = json!({ "name": added.host_interface, "mac": added.host_mac });
    let mut inside = json!({ "name": interface, "mac": added.mac, "sandbox": netns });
    if version >= CniVersion::V1_1_0 {
        host["mtu"] = added.mtu.into();
        inside["mtu"] = added.mtu.into();
    }
    let ips: Vec<Value> = added
        .addresses
        .iter()
        .map(|address| {
            let mut ip = json!({
                "interface": 1,
                "address": address.address,
                "gateway": address.gateway,
            });
            // Removed in 1.0.0, where the address implies it.
            if version < CniVersion::V1_0_0 {
                ip["version"] = family(&address.address).into();
            }
            ip
        })
        .collect();
    let routes: Vec<Value> = added
        .routes
        .iter()
        .map(|route| json!({ "dst": route.destination, "gw": route.gateway }))
        .collect();
    json!({
        "cniVersion": version.name(),
        "interfaces": [host, inside],
        "ips": ips,
        "routes": routes,
        "dns": {},
    })
}

/// The form of 0.1.0 and 0.2.0: one address per family.
fn legacy_result(version: CniVersion, added: &CniAddResponse) -> Value {
    let mut result = Map::new();
    result.insert("cniVersion".to_owned(), version.name().into());
    for (key, wanted) in [("ip4", "4"), ("ip6", "6")] {
        let Some(address) = added
            .addresses
            .iter()
            .find(|address| family(&address.address) == wanted)
        else {
            continue;
        };
        let routes: Vec<Value> = added
            .routes
            .iter()
            .filter(|route| family(&route.destination) == wanted)
            .map(|route| json!({ "dst": route.destination, "gw": route.gateway }))
            .collect();
        let value = json!({
            "ip": address.address,
            "gateway": address.gateway,
            "routes": routes,
        });
        result.insert(key.to_owned(), value);
    }
    result.insert("dns".to_owned(), json!({}));
    Value::Object(result)
}

fn family(address: &str) -> &'static str {
    if address.contains(':') { "6" } else { "4" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_api::{CniAddress, CniRoute};

    fn added() -> CniAddResponse {
        CniAddResponse {
            api_version: palisade_api::api_version(),
            host_interface: "pal0123456789a".to_owned(),
            host_mac: "ee:ee:ee:ee:ee:ee".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            mtu: 1500,
            addresses: ["10.0.0.2/32", "fd00::2/128"]
                .into_iter()
                .zip(["169.254.1.1", "fe80::1"])
                .map(|(address, gateway)| CniAddress {
                    address: address.to_owned(),
                    gateway: gateway.to_owned(),
                })
                .collect(),
            routes: ["0.0.0.0/0", "::/0"]
                .into_iter()
                .zip(["169.254.1.1", "fe80::1"])
                .map(|(destination, gateway)| CniRoute {
                    destination: destination.to_owned(),
                    gateway: gateway.to_owned(),
                })
                .collect(),
            revision: 1,
            closed: None,
        }
    }

    #[test]
    fn each_version_has_its_own_form() {
        let result = |version| add_result(version, "eth0", "/run/netns/a", &added());
        assert_eq!(
            result(CniVersion::V1_1_0),
            json!({
                "cniVersion": "1.1.0",
                "interfaces": [
                    {"name": "pal0123456789a", "mac": "ee:ee:ee:ee:ee:ee", "mtu": 1500},
                    {"name": "eth0", "mac": "02:00:00:00:00:01", "mtu": 1500, "sandbox": "/run/netns/a"},
                ],
                "ips": [
                    {"interface": 1, "address": "10.0.0.2/32", "gateway": "169.254.1.1"},
                    {"interface": 1, "address": "fd00::2/128", "gateway": "fe80::1"},
                ],
                "routes": [
                    {"dst": "0.0.0.0/0", "gw": "169.254.1.1"},
                    {"dst": "::/0", "gw": "fe80::1"},
                ],
                "dns": {},
            })
        );
        let older = result(CniVersion::V0_4_0);
        assert_eq!(older["ips"][1]["version"], "6");
        assert_eq!(older["interfaces"][0].get("mtu"), None);
        assert_eq!(result(CniVersion::V1_0_0)["ips"][0].get("version"), None);
        assert_eq!(
            result(CniVersion::V0_2_0),
            json!({
                "cniVersion": "0.2.0",
                "ip4": {
                    "ip": "10.0.0.2/32",
                    "gateway": "169.254.1.1",
                    "routes": [{"dst": "0.0.0.0/0", "gw": "169.254.1.1"}],
                },
                "ip6": {
                    "ip": "fd00::2/128",
                    "gateway": "fe80::1",
                    "routes": [{"dst": "::/0", "gw": "fe80::1"}],
                },
                "dns": {},
            })
        );
    }

    #[test]
    fn names_of_versions_are_read_back() {
        for version in CniVersion::ALL {
            assert_eq!(CniVersion::parse(version.name()), Some(version));
        }
        assert_eq!(CniVersion::parse(""), Some(CniVersion::V0_1_0));
        assert_eq!(CniVersion::parse("1.2.0"), None);
    }
}

//! How a list of excluded protocols is stored: at most one as before lists, `null` or a number.
//!
//! Promises: what former agents stored is read. Never: changes the order of the list.

use crate::Protocol;
use alloc::vec::Vec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Deserialize)]
#[serde(untagged)]
enum StoredProtocols {
    AtMostOne(Option<Protocol>),
    List(Vec<Protocol>),
}

pub(crate) fn serialize<S: Serializer>(
    protocols: &[Protocol],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match protocols {
        [] => None::<Protocol>.serialize(serializer),
        [protocol] => Some(protocol).serialize(serializer),
        list => list.serialize(serializer),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Protocol>, D::Error> {
    Ok(match StoredProtocols::deserialize(deserializer)? {
        StoredProtocols::AtMostOne(protocol) => protocol.into_iter().collect(),
        StoredProtocols::List(list) => list,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Protocol, TrafficMatch};
    use alloc::{format, vec};

    #[test]
    fn excluded_protocols_are_stored_as_before_lists() {
        for (stored, protocols) in [
            ("null", vec![]),
            ("6", vec![Protocol::TCP]),
            ("[6,17]", vec![Protocol::TCP, Protocol::UDP]),
        ] {
            let term = TrafficMatch {
                not_protocols: protocols,
                ..TrafficMatch::any()
            };
            let text = serde_json::to_string(&term).unwrap();
            assert!(
                text.contains(&format!("\"not_protocol\":{stored}")),
                "{text}"
            );
            assert_eq!(serde_json::from_str::<TrafficMatch>(&text).unwrap(), term);
        }
    }
}

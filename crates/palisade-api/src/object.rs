//! How objects, protocols and other things that many types refer to are spelled.
//!
//! Values of enumerations are spelled like those of Kubernetes: in upper camel case (`DefaultDeny`), and
//! protocols and IP versions by their own names (`TCP`, `IPv4`).

use palisade_model::{Family, ObjectId, ObjectKind, Protocol, SourceLine};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

/// An enumeration with the name that each value has in text output and in the log.
macro_rules! named_enum {
    ($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$about])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum $name { $($(#[$variant_about])* $variant,)* }

        impl $name {
            /// Every value.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The name in text output and in the log.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
pub(crate) use named_enum;

/// Identifies an object, and where it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Its kind.
    pub kind: String,
    /// Its namespace, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// File and line, or resource and resource version of an object of a server, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

impl ObjectRef {
    /// An object, and the line where it is defined, if known.
    pub fn new(id: &ObjectId, line: Option<&SourceLine>) -> Self {
        ObjectRef {
            kind: kind_name(&id.kind),
            namespace: id.namespace.as_ref().map(ToString::to_string),
            name: id.name.to_string(),
            line: line.map(ToString::to_string),
        }
    }

    /// The object as commands name policies: `networkpolicy/shop/web`, `adminnetworkpolicy/deny-metrics`.
    pub fn path_name(&self) -> String {
        let kind = self.kind.to_lowercase();
        match &self.namespace {
            Some(namespace) => format!("{kind}/{namespace}/{}", self.name),
            None => format!("{kind}/{}", self.name),
        }
    }

    /// The object without its line.
    #[must_use]
    pub fn without_line(&self) -> Self {
        ObjectRef {
            line: None,
            ..self.clone()
        }
    }
}

/// The name of a kind. Calico's NetworkPolicy has the name of Kubernetes' and gets that of its group as well.
fn kind_name(kind: &ObjectKind) -> String {
    match (kind.group(), kind.name()) {
        (group, "NetworkPolicy") if group.ends_with("projectcalico.org") => {
            format!("NetworkPolicy.{group}")
        }
        (_, name) => name.to_owned(),
    }
}

impl Display for ObjectRef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)?;
        match &self.line {
            Some(line) => write!(f, " ({line})"),
            None => Ok(()),
        }
    }
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum IpFamily {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

impl From<Family> for IpFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => IpFamily::V4,
            Family::V6 => IpFamily::V6,
        }
    }
}

impl Display for IpFamily {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IpFamily::V4 => "IPv4",
            IpFamily::V6 => "IPv6",
        })
    }
}

/// An IP protocol: its name, or its number if it has no name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ProtocolName {
    /// TCP.
    #[serde(rename = "TCP")]
    Tcp,
    /// UDP.
    #[serde(rename = "UDP")]
    Udp,
    /// SCTP.
    #[serde(rename = "SCTP")]
    Sctp,
    /// ICMP.
    #[serde(rename = "ICMP")]
    Icmp,
    /// ICMPv6.
    #[serde(rename = "ICMPv6")]
    Icmpv6,
    /// In a list of protocols: every protocol that is not listed.
    Other,
    /// Another protocol.
    #[serde(untagged)]
    Number(u8),
}

impl From<Protocol> for ProtocolName {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::TCP => ProtocolName::Tcp,
            Protocol::UDP => ProtocolName::Udp,
            Protocol::SCTP => ProtocolName::Sctp,
            Protocol::ICMP => ProtocolName::Icmp,
            Protocol::ICMPV6 => ProtocolName::Icmpv6,
            Protocol(number) => ProtocolName::Number(number),
        }
    }
}

impl ProtocolName {
    /// The number of the protocol; `None` of every other one.
    pub fn number(self) -> Option<u8> {
        let protocol = match self {
            ProtocolName::Tcp => Protocol::TCP,
            ProtocolName::Udp => Protocol::UDP,
            ProtocolName::Sctp => Protocol::SCTP,
            ProtocolName::Icmp => Protocol::ICMP,
            ProtocolName::Icmpv6 => Protocol::ICMPV6,
            ProtocolName::Other => return None,
            ProtocolName::Number(number) => Protocol(number),
        };
        Some(protocol.0)
    }
}

impl Display for ProtocolName {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProtocolName::Tcp => "TCP",
            ProtocolName::Udp => "UDP",
            ProtocolName::Sctp => "SCTP",
            ProtocolName::Icmp => "ICMP",
            ProtocolName::Icmpv6 => "ICMPv6",
            ProtocolName::Other => "other",
            ProtocolName::Number(number) => return number.fmt(f),
        })
    }
}

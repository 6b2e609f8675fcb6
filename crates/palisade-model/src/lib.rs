//! Labels, selectors, addresses, ports, and the policy form to which every dialect is lowered.
//!
//! These are the types that the other crates share: sources produce [`Update`]s, the oracle and the
//! engine consume them. Where it is cheap, equal meanings are equal values (prefixes are masked,
//! selectors are canonical). This crate never computes a verdict: the oracle and the engine do.

#![no_std]

extern crate alloc;

mod address;
mod direction;
mod domain;
mod encapsulation;
mod endpoint;
mod failsafe;
mod faults;
mod flow;
mod label;
mod label_values;
mod net;
mod network_set;
mod node;
mod object;
mod object_id;
mod object_kind;
mod policy;
mod policy_stage;
mod ports;
mod prefix_map;
mod profile;
mod ranges;
pub mod reserved;
mod selector;
mod source_line;
mod state;
mod stored_protocols;

pub use address::{Family, address_from_number, address_to_number};
pub use direction::Direction;
pub use domain::{DomainName, DomainNameError, DomainPattern};
pub use encapsulation::{Encapsulation, Encapsulations};
pub use endpoint::{
    Endpoint, EndpointId, EndpointKind, EndpointMetadata, NamedPort, Owner, PodState,
};
pub use failsafe::{FailsafePort, FailsafePorts};
pub use flow::{
    DenyAction, Flow, FlowOrigin, HairpinAction, HostTrafficAction, L4, PreDnat, Protocol,
    UnreadDnsAction,
};
pub use label::{LabelKey, LabelLookup, LabelScope, Labels};
pub use label_values::LabelValues;
pub use net::{ParsePrefixError, Prefix};
pub use network_set::{NetworkSet, NetworkSetKind};
pub use node::Node;
pub use object::{Namespace, Object, ObjectKey, Service, ServiceAccount, ServicePort, Update};
pub use object_id::ObjectId;
pub use object_kind::ObjectKind;
pub use policy::{
    Action, DirectionRules, IcmpMatch, Order, Peer, Policy, PolicyId, PolicyMode, PolicyView,
    Precedence, Rule, RuleOrigin, Tier, TierDefault, TrafficMatch, builtin_tiers, tier_name,
};
pub use policy_stage::{PolicyStage, TrafficScope};
pub use ports::{PortMatch, PortRange, PortSpec};
pub use prefix_map::PrefixMap;
pub use profile::Profile;
pub use ranges::{NumberRange, RangeNumber, RangeSet};
pub use selector::Selector;
pub use source_line::SourceLine;
pub use state::{EndpointLabels, NetworkSetLabels, NodeLabels, State, own_node_value};

/// Immutable text: names, label keys and values. Up to 23 bytes are stored inline; longer text is shared.
pub type Str = smol_str::SmolStr;

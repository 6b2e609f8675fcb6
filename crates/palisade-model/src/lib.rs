//! Labels, selectors, addresses, ports, and the one policy form that every dialect is lowered to.
//!
//! This crate is the common language of the workspace: sources produce [`Update`]s, the oracle and
//! the engine consume them. It promises that equal meanings have equal values where that is cheap
//! (prefixes are masked, selectors are canonical), and it never decides what a packet gets: that is
//! the oracle's work, and the engine's.

#![no_std]

extern crate alloc;

mod encapsulation;
mod flow;
mod label;
mod label_values;
mod net;
mod object;
mod policy;
mod ports;
mod selector;
mod state;

pub use encapsulation::{Encapsulation, Encapsulations};
pub use flow::{Flow, FlowOrigin, L4, Protocol};
pub use label::{LabelKey, LabelLookup, LabelScope, Labels};
pub use label_values::LabelValues;
pub use net::{Family, ParsePrefixError, Prefix};
pub use object::{
    Endpoint, EndpointId, NamedPort, Namespace, NetworkSet, Node, Object, ObjectId, ObjectKey,
    Owner, Profile, Service, ServiceAccount, ServicePort, Update, reserved,
};
pub use policy::{
    Action, Direction, DirectionRules, IcmpMatch, Order, Peer, Policy, PolicyId, Precedence, Rule,
    RuleOrigin, SourceLine, Tier, TierDefault, TrafficMatch, builtin_tiers, tier_name,
};
pub use ports::{PortMatch, PortRange, PortSpec};
pub use selector::Selector;
pub use state::{EndpointLabels, NetworkSetLabels, NodeLabels, State};

/// Immutable text: names, label keys and values. Up to 23 bytes it is held in place, else it is shared.
pub type Str = smol_str::SmolStr;

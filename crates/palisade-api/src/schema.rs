//! Schemas of the model's enumerations that wire types contain: the model has none itself. A test holds that
//! the values are the model's.
#![allow(dead_code, reason = "only the schemas of these types are used")]

use schemars::JsonSchema;

/// The direction of traffic, relative to an endpoint.
#[derive(JsonSchema)]
#[schemars(rename = "Direction")]
pub(crate) enum DirectionSchema {
    /// Traffic to the endpoint.
    Ingress,
    /// Traffic from the endpoint.
    Egress,
}

/// The action of a rule.
#[derive(JsonSchema)]
#[schemars(rename = "Action")]
pub(crate) enum ActionSchema {
    /// The direction is allowed.
    Allow,
    /// The direction is denied.
    Deny,
    /// Evaluation continues with the next tier.
    Pass,
    /// The packet is reported, and evaluation continues.
    Log,
}

/// What a tier does with traffic that no rule matches.
#[derive(JsonSchema)]
#[schemars(rename = "TierDefault")]
pub(crate) enum TierDefaultSchema {
    /// It is denied.
    Deny,
    /// Evaluation continues with the next tier.
    Pass,
}

/// A tunnel protocol.
#[derive(JsonSchema)]
#[schemars(rename = "Encapsulation")]
pub(crate) enum EncapsulationSchema {
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// IP in IP.
    Ipip,
    /// GRE.
    Gre,
}

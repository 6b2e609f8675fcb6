//! A Kubernetes API server as a source of objects.
//!
//! [`ApiServer`] lists and watches the resources of [`RESOURCES`] and passes on what changes. Of each
//! object it keeps the name, the hash of the content that policy needs, and the resource version. That content
//! is stored on disk, so that an agent that starts while the server cannot be reached begins with it.
//!
//! Promises: an object is deleted only if the server said so, by an event or by a complete list without it; a
//! server that cannot be reached deletes nothing, and is reported as stale with the reason; an object that
//! cannot be read fails alone, by name; a change of fields that policy does not need changes nothing.
//!
//! [`NodeStatusWriter`] writes one object, the `NodePolicyStatus` of its node, and
//! [`PolicyFeedbackWriter`] events and conditions on policies, if it holds a lease. Everything else only reads.
//!
//! Never: decides what is in force.

mod api_client;
mod api_discovery;
mod api_error;
mod feedback_kind;
mod lease_election;
mod lease_holder;
mod line_reader;
mod list;
mod node_status_writer;
mod object_index;
mod permission;
mod policy_condition;
mod policy_feedback_writer;
mod resource;
mod resource_event;
mod resource_watch;
mod source;
mod writer_connection;

pub use api_client::Credentials;
pub use feedback_kind::{ACCEPTED, ConditionType, FEEDBACK, FeedbackKind, VALID};
pub use lease_holder::LEASE_NAME;
pub use node_status_writer::{
    NodeStatusWriter, STATUS_API_VERSION, STATUS_KIND, STATUS_PATH, StatusIntervals,
};
pub use permission::{Permission, PermissionScope, WRITTEN, permissions, role_rules};
pub use policy_condition::PolicyCondition;
pub use policy_feedback_writer::{
    FeedbackIntervals, PolicyFeedbackWriter, PolicyFindings, PolicyProblem,
};
pub use resource::{RESOURCES, ResourceType};
pub use source::{ApiServer, ApiServerObjects};

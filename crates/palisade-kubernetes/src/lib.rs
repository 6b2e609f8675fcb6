//! A Kubernetes API server as a source of objects.
//!
//! [`KubernetesSource`] lists and watches the resources of [`RESOURCES`] and passes on what changes. Of each
//! object it keeps the name, the hash of the content that policy needs, and the resource version.
//!
//! Promises: an object is deleted only if the server said so, by an event or by a complete list without it; a
//! server that cannot be reached deletes nothing, and is reported as stale with the reason; an object that
//! cannot be read fails alone, by name; a change of fields that policy does not need changes nothing.
//!
//! Never: writes to the server, or decides what is in force.

mod api_client;
mod api_error;
mod backoff;
mod line_reader;
mod list;
mod object_index;
mod resource;
mod resource_event;
mod resource_watch;
mod source;

pub use api_client::Credentials;
pub use resource::{RESOURCES, ResourceType};
pub use source::{KubernetesSource, SourceRefreshHandle, SourceStopHandle};

//! etcd as a source of objects, and what writes them there: for hosts without Kubernetes.
//!
//! [`Etcd`] reads the objects under a prefix at one revision and watches from the next one on. Each key
//! holds one object as a manifest, in YAML or JSON; [`EtcdOptions`] has the layout. [`push`] makes the
//! content of a folder the pushed objects, atomically.
//!
//! Promises: an object is deleted only if etcd said so, by an event or by a complete read without it; all
//! changes of one transaction come into force together; an etcd that cannot be reached deletes nothing, and is
//! reported as stale with the reason; a value that cannot be read fails alone, by its key.
//!
//! Never: decides what is in force; the source never writes to etcd.

mod client;
mod error;
mod key_index;
mod key_layout;
mod messages;
mod objects;
mod options;
mod push;
mod push_plan;
mod reader;
mod source;

pub use error::EtcdError;
pub use key_layout::{KEY_FORM, KeyArea};
pub use objects::EtcdObjects;
pub use options::EtcdOptions;
pub use push::{PushError, PushMode, PushOutcome, push};
pub use push_plan::{PushObject, PushPlan};
pub use source::Etcd;

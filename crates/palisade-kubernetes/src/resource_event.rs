//! What happens to the objects of a resource.

use crate::list::ObjectIdentity;

/// An event of the watch of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResourceEvent {
    /// All objects follow, from the beginning.
    ListBegins,
    /// An object exists with this JSON.
    Object(ObjectIdentity, Box<str>),
    /// An object was deleted.
    Deleted(ObjectIdentity),
    /// Objects that were not mentioned since the list began do not exist.
    ListEnds,
    /// The server is followed.
    Followed,
    /// Changes may be missed, for this reason.
    Interrupted(String),
    /// The server does not have the resource. That says nothing of objects that it had.
    Absent,
}

//! The numbers of identities, policy sets, classes and rules.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A set of addresses that every active policy treats alike. Local to the node.
    IdentityId, "i"
);
number!(
    /// A policy set: the applicable rules of one direction, shared by all points with the same rules.
    PolicySetId, "s"
);
number!(
    /// A class: the number of a program. Its program never changes while the class exists.
    ClassId, "c"
);
number!(
    /// The number of a [`VerdictCause`](crate::VerdictCause), which never changes while the number is in use.
    RuleId, "r"
);

impl IdentityId {
    /// The identity of every address without an entry: no active policy refers to such an address.
    pub const UNKNOWN: IdentityId = IdentityId(0);
}

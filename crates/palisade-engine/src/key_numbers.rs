//! Label keys as numbers: the number of the interned name, and the scope.
//!
//! A number is valid while the name is interned. Nothing here counts uses of names.

use crate::store::InternPool;
use palisade_model::{LabelKey, LabelScope, Str};

/// A label key as a number: the number of its name and its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyNumber(u32);

/// The number of bits for a scope.
const SCOPE_BITS: u32 = 3;

const SCOPE_MASK: u32 = (1 << SCOPE_BITS) - 1;

/// The number of a key whose name has this number.
pub(crate) fn key_number(scope: LabelScope, name: u32) -> KeyNumber {
    KeyNumber(name << SCOPE_BITS | scope as u32)
}

/// The scope and the number of the name of a key.
pub(crate) fn key_parts(key: KeyNumber) -> (LabelScope, u32) {
    let scope = match key.0 & SCOPE_MASK {
        0 => LabelScope::Own,
        1 => LabelScope::Namespace,
        2 => LabelScope::ServiceAccount,
        3 => LabelScope::Reserved,
        _ => LabelScope::Node,
    };
    (scope, key.0 >> SCOPE_BITS)
}

/// The number of a key, if its name is interned.
pub(crate) fn find_key(names: &InternPool<Str>, key: &LabelKey) -> Option<KeyNumber> {
    Some(key_number(key.scope, names.find::<str>(&key.name)?))
}

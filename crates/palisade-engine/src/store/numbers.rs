//! The numbers that the stores give: one type for each kind of number.
//!
//! A number is valid until what it stands for is freed, and may be given again afterwards.

/// No slot, name or signature.
pub(crate) const NONE: u32 = u32::MAX;

/// The number of an owner of addresses in the store, until it is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AddressOwnerSlot(pub(crate) u32);

impl AddressOwnerSlot {
    /// The slot of no owner.
    pub(crate) const NONE: AddressOwnerSlot = AddressOwnerSlot(NONE);
    /// Marks what has several owners, which are in a separate map. No slot equals it.
    pub(crate) const MULTIPLE: AddressOwnerSlot = AddressOwnerSlot(NONE - 1);
}

/// The number of a label signature, see [`crate::label_index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SignatureNumber(pub(crate) u32);

impl SignatureNumber {
    /// No signature.
    pub(crate) const NONE: SignatureNumber = SignatureNumber(NONE);
}

/// The number of a policy name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PolicyNumber(pub(crate) u32);

impl PolicyNumber {
    /// The least number.
    pub(crate) const MIN: PolicyNumber = PolicyNumber(0);
    /// The greatest number.
    pub(crate) const MAX: PolicyNumber = PolicyNumber(u32::MAX);
}

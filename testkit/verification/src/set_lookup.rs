//! Finds elements of a set as the kernel does: by ranges, and by a catch-all element.

use palisade_nft::{Element, ElementKey, NftSet};

/// Whether a range overlaps an existing one (in every field, if there are several).
pub(crate) fn overlaps(set: &NftSet, key: &ElementKey) -> bool {
    let ElementKey::Range(first, last) = key else {
        return false;
    };
    if let [_] = set.decl.key.as_slice() {
        // Elements are sorted by first value, so only the neighbours can overlap.
        let before = set.elements.range(..key).next_back();
        let after = set.elements.range(key..).next();
        return before.is_some_and(|(k, _)| matches!(k, ElementKey::Range(_, end) if end >= first))
            || after
                .is_some_and(|(k, _)| matches!(k, ElementKey::Range(start, _) if start <= last));
    }
    set.elements.keys().any(|other| match other {
        ElementKey::Range(a, b) => set.decl.fields().all(|(at, len)| {
            a[at..at + len] <= last[at..at + len] && first[at..at + len] <= b[at..at + len]
        }),
        _ => false,
    })
}

/// The element that matches a key.
pub(crate) fn find_element<'a>(
    set: &'a NftSet,
    key: &[u8],
) -> Option<(&'a ElementKey, &'a Element)> {
    let holds = |range: &ElementKey| match range {
        ElementKey::Range(first, last) => set.decl.fields().all(|(at, len)| {
            let field = &key[at..at + len];
            first[at..at + len] <= *field && *field <= last[at..at + len]
        }),
        _ => false,
    };
    let found = if !set.decl.interval {
        set.elements.get_key_value(&ElementKey::Exact(key.into()))
    } else if let [_] = set.decl.key.as_slice() {
        let top = ElementKey::Range(key.into(), [0xff; 16].into());
        let nearest = set.elements.range(..=top).next_back();
        nearest.filter(|(range, _)| holds(range))
    } else {
        set.elements.iter().find(|(range, _)| holds(range))
    };
    found.or_else(|| set.elements.get_key_value(&ElementKey::CatchAll))
}

//! Suggestions for unknown words.

/// The known word nearest to `text`, if it is near enough to be the intended one.
pub fn nearest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    // A text longer than any field is not a typo, and the comparison would be expensive.
    if text.len() > 64 {
        return None;
    }
    let near_enough = (text.chars().count() / 3).clamp(1, 4);
    known
        .iter()
        .map(|word| (edit_distance(text, word), *word))
        .filter(|(distance, _)| *distance <= near_enough)
        .min()
        .map(|(_, word)| word)
}

/// The number of letters to insert, delete, replace or swap with a neighbour to turn one word into the other,
/// ignoring case.
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    strsim::osa_distance(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let words = [
            "podSelector",
            "policyTypes",
            "ingress",
            "egress",
            "from",
            "to",
        ];
        for (text, meant) in [
            ("podselector", Some("podSelector")),
            ("podSelectors", Some("podSelector")),
            ("policyType", Some("policyTypes")),
            ("ingres", Some("ingress")),
            ("form", Some("from")),
            ("t", Some("to")),
            ("replicas", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, &words), meant, "{text}");
        }
    }
}

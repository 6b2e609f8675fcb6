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
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX - 1);
            let mut best = (at(&last, j) + usize::from(x != y))
                .min(at(&last, j + 1) + 1)
                .min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = [
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
            assert_eq!(nearest(text, &known), meant, "{text}");
        }
    }
}

//! Names near to one that is not there.

/// Up to three of the names that a misspelling may stand for, nearest first.
pub(super) fn near(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
    let mut scored: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|name| {
            let whole = distance(wanted, &name);
            let own = distance(&last(wanted), &last(&name)) + 1;
            let bound = wanted.chars().count() / 3 + 1;
            let score = whole.min(own);
            (score <= bound).then_some((score, name))
        })
        .collect();
    scored.sort();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// How many insertions, deletions and replacements lead from one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_and_wrong_namespaces() {
        let names = || ["shop/web", "shop/api", "shop/db", "other/web"].map(str::to_owned);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(near("shop/wbe", names()), ["shop/web"]);
        assert_eq!(near("default/api", names()), ["shop/api"]);
        assert_eq!(near("shop/unheard-of", names()), Vec::<String>::new());
    }
}

//! Suggestions for a name that does not exist.

/// The names (at most three) that a misspelled `namespace/name` most likely means.
pub(crate) fn similar_names(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let (wanted_namespace, wanted_own) = split_name(wanted);
    let mut scored: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|name| {
            let (namespace, own) = split_name(&name);
            let differing = strsim::levenshtein(wanted_own, own);
            let shortest = wanted_own.chars().count().min(own.chars().count());
            let plausible = differing <= wanted_own.chars().count() / 3 + 1 && differing < shortest;
            let namespace_penalty = usize::from(namespace != wanted_namespace);
            plausible.then_some((differing + namespace_penalty, name))
        })
        .collect();
    scored.sort();
    scored.dedup();
    let best = scored.first().map(|(score, _)| *score);
    let best = scored.into_iter().filter(|(score, _)| Some(*score) == best);
    best.take(3).map(|(_, name)| name).collect()
}

fn split_name(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or(("", name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_and_wrong_namespaces() {
        let names = || ["shop/web", "shop/api", "shop/db", "other/web"].map(str::to_owned);
        assert_eq!(similar_names("shop/wbe", names()), ["shop/web"]);
        assert_eq!(similar_names("default/api", names()), ["shop/api"]);
        assert_eq!(
            similar_names("shop/unheard-of", names()),
            Vec::<String>::new()
        );
    }
}

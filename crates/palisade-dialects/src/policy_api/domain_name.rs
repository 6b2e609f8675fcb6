//! Domain names of peers.

/// Why a text is not a domain name, or a domain name after `*.`; `None` if it is.
///
/// The labels are those that the published CRD allows: letters, digits, `-` and `_`, with a letter or digit
/// first and last; at least two; a dot at the end is allowed.
pub(super) fn rejection(text: &str) -> Option<&'static str> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.contains('*') {
        return Some("`*` stands for whole labels, and only in front: `*.example.com`");
    }
    if !name.split('.').all(is_label) {
        return Some(
            "labels have letters, digits, '-' and '_', with a letter or digit first and last",
        );
    }
    (!name.contains('.')).then_some("at least two labels are required")
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    let is_inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    // The pattern of the CRD also allows what ASCII has between `Z` and `a`; of that, only `_` is in use.
    let is_first = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    match bytes {
        [only] => is_first(only),
        [first, inner @ .., last] => {
            is_first(first) && inner.iter().all(is_inner) && last.is_ascii_alphanumeric()
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::rejection;

    #[test]
    fn names_as_the_pattern_of_the_crd() {
        for name in [
            "kubernetes.io",
            "*.kubernetes.io",
            "a.b.c.d",
            "A-1.Example.COM",
            "example.com.",
            "1.2",
            "a_b.example.com",
            "_dmarc.example.com",
        ] {
            assert_eq!(rejection(name), None, "{name}");
        }
        for (name, part) in [
            ("", "labels have"),
            ("localhost", "at least two"),
            ("*.io", "at least two"),
            ("*", "stands for whole labels"),
            ("*a.example.com", "stands for whole labels"),
            ("a.*.example.com", "stands for whole labels"),
            ("*.*.example.com", "stands for whole labels"),
            ("a..example.com", "labels have"),
            (".example.com", "labels have"),
            ("-a.example.com", "labels have"),
            ("a-.example.com", "labels have"),
            ("a b.example.com", "labels have"),
            ("example.com..", "labels have"),
            ("bücher.example", "labels have"),
        ] {
            let reason = rejection(name).unwrap_or_default();
            assert!(reason.contains(part), "{name}: {reason}");
        }
    }
}

//! Properties of every text: no panic, limits respected, JSON read back unchanged.

use palisade_manifest::{Limits, ManifestNode, ManifestValue, extract_objects, parse, to_json};
use proptest::prelude::*;
use serde_json::Value as Json;

fn small() -> Limits {
    Limits {
        file_bytes: 4096,
        documents: 8,
        depth: 10,
        nodes: 200,
        alias_nodes: 100,
        alias_bytes: 1_000,
        objects: 4,
        problems: 6,
    }
}

/// The number of values in a tree, including keys, and its depth.
fn measure(node: &ManifestNode) -> (usize, usize) {
    let sum = |parts: Vec<(usize, usize)>, own: usize| {
        let nodes = parts.iter().map(|part| part.0).sum::<usize>() + own;
        let height = parts.iter().map(|part| part.1).max().unwrap_or(0) + 1;
        (nodes, height)
    };
    match &node.value {
        ManifestValue::List(items) => sum(items.iter().map(measure).collect(), 1),
        ManifestValue::Map(map) => sum(
            map.iter().map(|e| measure(&e.value)).collect(),
            1 + map.len(),
        ),
        _ => (1, 0),
    }
}

fn lines_of(text: &[u8]) -> u32 {
    let breaks = text.iter().filter(|b| matches!(b, b'\n' | b'\r')).count();
    u32::try_from(breaks).unwrap() + 1
}

fn reads_within_bounds(text: &[u8]) {
    let limits = small();
    let reading = parse("f", text, &limits);
    let mut nodes = 0;
    for document in &reading.documents {
        let (size, height) = measure(&document.root);
        nodes += size;
        assert!(height <= limits.depth, "{height} levels");
        assert!(document.root.location.line <= lines_of(text));
    }
    assert!(nodes <= limits.nodes + limits.alias_nodes, "{nodes} values");
    for problem in &reading.problems {
        assert!(
            (1..=lines_of(text)).contains(&problem.location.line),
            "{problem}"
        );
        assert!(problem.location.column >= 1);
        assert!(!problem.reason.is_empty());
        assert!(!problem.reason.contains("parser failed"), "{problem}");
    }
    let found = extract_objects(reading, &limits);
    assert!(found.objects.len() <= limits.objects);
}

/// Pieces that form YAML-like text when concatenated.
fn yaml_ish() -> impl Strategy<Value = String> {
    let pieces = [
        "a",
        "b: ",
        "kind: List\n",
        "items:",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        "\"",
        "'",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        ": ",
        "&x ",
        "*x",
        "#",
        " # c",
        "|",
        ">-",
        "!",
        "!!str ",
        "!!int ",
        "? ",
        "%YAML 1.2\n",
        "\n---\n",
        "\n...\n",
        "<<: ",
        "<<",
        "\t",
        "\r\n",
        "\r",
        "~",
        "@",
        "`",
        "é",
        "\\",
        "\\u00",
        "\u{feff}",
        "\u{2028}",
        "0x1f",
        "-1",
        ".inf",
        "on",
        "metadata: {name: x}\n",
        "apiVersion: v1\n",
        "&y [*x, *x]",
        "*y",
        "\0",
        "&z {a: *y}",
        "<<: *z",
    ];
    proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..60)
        .prop_map(|parts| parts.concat())
}

fn json_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Json::from),
        any::<String>().prop_map(Json::from),
        "[a-z0-9:. ]{0,8}".prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            proptest::collection::hash_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

/// Floats with integer values become integers, as in kubectl.
fn settled(value: Json) -> Json {
    match value {
        Json::Array(items) => items.into_iter().map(settled).collect(),
        Json::Object(map) => Json::Object(map.into_iter().map(|(k, v)| (k, settled(v))).collect()),
        Json::Number(number) => match number.as_f64().filter(|_| !number.is_i64()) {
            Some(float) if float.fract() == 0.0 && float.abs() < 9_223_372_036_854_775_808.0 => {
                Json::from(float.to_string().parse::<i64>().unwrap())
            }
            _ => Json::Number(number),
        },
        other => other,
    }
}

/// The value in YAML block style, every string in double quotes.
fn block_style(value: &Json, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent);
    match value {
        Json::Array(items) if !items.is_empty() => {
            for item in items {
                *out += &format!("\n{pad}-");
                block_style(item, indent + 2, out);
            }
        }
        Json::Object(map) if !map.is_empty() => {
            for (key, item) in map {
                *out += &format!("\n{pad}{}:", escaped(key));
                block_style(item, indent + 2, out);
            }
        }
        Json::String(text) => *out += &format!(" {}", escaped(text)),
        other => *out += &format!(" {other}"),
    }
}

/// A string in double quotes, everything but printable ASCII escaped.
fn escaped(text: &str) -> String {
    let mut out = "\"".to_owned();
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            ' '..='~' => out.push(character),
            _ => out += &format!("\\U{:08X}", u32::from(character)),
        }
    }
    out + "\""
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        reads_within_bounds(&bytes);
    }

    #[test]
    fn any_text(text in any::<String>()) {
        reads_within_bounds(text.as_bytes());
    }

    #[test]
    fn any_yaml_ish_text(text in yaml_ish()) {
        reads_within_bounds(text.as_bytes());
    }

    #[test]
    fn any_cut_of_a_manifest(cut in 0usize..400, text in yaml_ish()) {
        let manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: \"a\"\n---\n{\"kind\": [1, 2]}\n";
        let at = cut % manifest.len();
        reads_within_bounds(format!("{}{text}{}", &manifest[..at], &manifest[at..]).as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_is_read_back(value in json_value(), pretty in any::<bool>()) {
        let wrapped = Json::Array(vec![value]);
        let text = if pretty { format!("{wrapped:#}") } else { wrapped.to_string() };
        let reading = parse("f", text.as_bytes(), &Limits::default());
        prop_assert_eq!(&reading.problems, &vec![]);
        prop_assert_eq!(to_json(&reading.documents[0].root), settled(wrapped));
    }

    #[test]
    fn yaml_is_read_back(value in json_value()) {
        let mut text = "k:".to_owned();
        block_style(&value, 1, &mut text);
        let reading = parse("f", text.as_bytes(), &Limits::default());
        if let Some(problem) = reading.problems.first() {
            // A key of more than 1024 characters, which YAML does not allow.
            prop_assert!(text.lines().any(|line| line.len() > 1024), "{}\n{}", problem, text);
            return Ok(());
        }
        prop_assert_eq!(to_json(reading.documents[0].root.get("k").unwrap()), settled(value));
    }
}

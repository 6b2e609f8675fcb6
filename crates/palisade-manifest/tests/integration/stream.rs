//! A file read object by object gives the same result as a file read in one piece.

use palisade_manifest::{
    FieldFilter, Limits, ObjectSink, ParsedObjects, RawObject, extract_objects, parse, read_stream,
};
use palisade_manifest::{Problem, to_json};
use proptest::prelude::*;

/// The result of reading a file; rolled back documents are removed.
#[derive(Default)]
struct Told {
    objects: Vec<RawObject>,
    problems: Vec<Problem>,
    marked: (usize, usize),
}

impl ObjectSink for Told {
    fn push_object(&mut self, object: RawObject) {
        self.objects.push(object);
    }

    fn push_problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    fn begin_document(&mut self) {
        self.marked = (self.objects.len(), self.problems.len());
    }

    fn rollback_document(&mut self) {
        self.objects.truncate(self.marked.0);
        self.problems.truncate(self.marked.1);
    }
}

fn in_pieces(text: &[u8], step: usize, limits: &Limits) -> ParsedObjects {
    let mut told = Told::default();
    let mut reader = text;
    let keep = |_: Option<&str>| -> &'static FieldFilter { &FieldFilter::All };
    read_stream("f", &mut reader, limits, Some(step), keep, &mut told).unwrap();
    told.objects.sort_by(|a, b| a.location.cmp(&b.location));
    told.problems.sort();
    ParsedObjects {
        objects: told.objects,
        problems: told.problems,
    }
}

fn in_one_piece(text: &[u8], limits: &Limits) -> ParsedObjects {
    let mut whole = extract_objects(parse("f", text, limits), limits);
    whole.objects.sort_by(|a, b| a.location.cmp(&b.location));
    whole.problems.sort();
    whole
}

/// The objects; for `items` of an object that is not a list only their presence.
fn brief(objects: &ParsedObjects) -> Vec<String> {
    let brief = |object: &RawObject| {
        let mut root = to_json(&object.root);
        if let Some(items) = root.get_mut("items") {
            *items = serde_json::Value::Null;
        }
        format!("{} {} {object} {root}", object.location, object.api_version)
    };
    objects.objects.iter().map(brief).collect()
}

#[track_caller]
fn same(text: &[u8], step: usize) {
    let limits = Limits::default();
    let whole = in_one_piece(text, &limits);
    let pieces = in_pieces(text, step, &limits);
    let shown = String::from_utf8_lossy(text);
    let refused = |p: &Problem| p.reason.starts_with("the document is not JSON");
    if text.trim_ascii_start().starts_with(b"{") && pieces.problems.iter().any(refused) {
        // It may be YAML in flow style, or that parser may have read further.
        let is_json = |text: &str| {
            let values = serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>();
            values.into_iter().all(|value| value.is_ok())
        };
        assert!(!shown.split("\n---\n").all(is_json), "step {step}: {shown}");
        return;
    }
    let mut problems = pieces.problems.clone();
    for problem in problems
        .iter_mut()
        .filter(|p| p.reason.starts_with("the text is not UTF-8"))
    {
        // When read in pieces the item is known.
        (problem.object, problem.field) = (None, String::new());
    }
    assert_eq!(problems, whole.problems, "step {step}: {shown}");
    assert_eq!(brief(&pieces), brief(&whole), "step {step}: {shown}");
}

const STEPS: [usize; 7] = [1, 2, 3, 8, 31, 120, 1_000];

const JSON: &[&str] = &[
    r#"{"apiVersion": "v1", "items": [], "kind": "List"}"#,
    r#"{"apiVersion": "v1", "kind": "List", "items": null}"#,
    r#"{}"#,
    "  {\n} ",
    r#"{"kind": "List", "items": {"a": 1}}"#,
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"items": "x"}}"#,
    r#"{"apiVersion": "v1", "items": [1, null, {"kind": "Pod"}], "kind": "List"}"#,
    "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n        {\n            \"apiVersion\": \"v1\",\n            \"kind\": \"Pod\",\n            \"metadata\": {\n                \"name\": \"a\",\n                \"namespace\": \"é\\u00e9\\ud83d\\ude00\"\n            },\n            \"spec\": {\"n\": [1, -2.5e3, 0, 1e2, 12345678901234567890, true, false, null]}\n        },\n        {\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"b\"}}\n    ],\n    \"kind\": \"List\",\n    \"metadata\": {\n        \"resourceVersion\": \"\"\n    }\n}\n",
    // Items of a typed list get its kind, wherever the kind is written.
    r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}, {"metadata": {}}]}"#,
    r#"{"apiVersion": "v1", "items": [{"metadata": {"name": "a"}}, {"kind": "Node", "metadata": {"name": "n"}}], "kind": "PodList"}"#,
    // A kind that merely ends in `List`.
    r#"{"apiVersion": "x/v1", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}], "kind": "AllowList", "metadata": {"name": "l"}, "spec": {}}"#,
    r#"{"apiVersion": "x/v1", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}], "kind": "Allow", "metadata": {"name": "l"}}"#,
    // Nested lists.
    r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, {}]}]}"#,
    // Several values in a row.
    "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"b\"}}\n\n---\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"c\"}}\n",
    // Values that are no objects, after an object: longer than a chunk, or a number that ends with the file.
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}0"#,
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}} -12.5e3"#,
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}} 12."#,
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}} "a long text, longer than the first chunks" true"#,
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}[1, 2, {"a": "b"}, [[[[[[[[[["c"]]]]]]]]]]] {}"#,
    // Invalid.
    r#"{"apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "x": 01}}], "kind": "List"}"#,
    r#"{"apiVersion": "v1", "items": [{"kind": "Pod", "metadata": {"name": "a"}}, {"kind": "Pod", "metadata": {"name": "b", "name": "c"}}]}"#,
    r#"{"apiVersion": "v1", "items": [{"kind": "Pod"} {"kind": "Pod"}]}"#,
    r#"{"apiVersion": "v1", "items": [{"kind": "Pod"}], "apiVersion": "v2"}"#,
    r#"{"apiVersion": "v1", "items": [{"kind": "Pod"}], "items": []}"#,
    r#"{"apiVersion": "v1" "items": []}"#,
    r#"{"apiVersion": "v1", items: [{"kind": "Pod", "metadata": {"name": "a"}}]}"#,
    r#"{"kind": "List", "items": [{"kind": "Pod", "s": "\ud800"}]}"#,
    r#"{"kind": "List", "items": [{"kind": "Pod", "n": 1e999}]}"#,
    "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\", \"s\": \"a\tb\"}]}",
    "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\"",
    "{\"kind\": \"List\", \"items\": [",
    "{\"kind\": \"List\", \"items\"",
    "{\"kind\": \"Li",
    // An error affects documents after `---` no more than when read in one piece.
    "{\"kind\": [}\n---\n{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {\"name\": \"c\"}}\n",
    "{\"kind\": \"List\", \"items\": [{\"kind\": \"Pod\"},]}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: c}\n",
];

const YAML: &[&str] = &[
    "",
    "\n\n# nothing\n",
    "---\n---\n",
    "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    annotations:\n      text: |\n        - apiVersion: v1\n        items:\n\n        kind: x\n      # comment\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: b\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
    "apiVersion: v1\nkind: PodList\nitems:\n  # first\n  - metadata:\n      name: a\n  - metadata: {name: b}\n",
    "apiVersion: v1\nitems:\n- metadata:\n    name: a\n- metadata: {name: b}\nkind: PodList\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: c}\n",
    "apiVersion: v1\nkind: List\nitems: # all\n-\n  apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n",
    "apiVersion: v1\r\nkind: List\r\nitems:\r\n- apiVersion: v1\r\n  kind: Pod\r\n  metadata: {name: a}\r\n- apiVersion: v1\r\n  kind: Pod\r\n  metadata: {name: b}\r\n",
    "apiVersion: v1\nkind: AllowList\nmetadata: {name: x}\nspec: {}\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n",
    "%YAML 1.2\n---\napiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: a}\n",
    "--- # here\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n--- x\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n",
    "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  kind: Pod\n  metadata: {name: a}\n- apiVersion: v1\n",
    "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a}}]\n",
    "\u{feff}apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
];

#[test]
fn json_says_the_same_in_pieces() {
    for text in JSON {
        for step in STEPS {
            same(text.as_bytes(), step);
        }
    }
}

#[test]
fn yaml_says_the_same_in_pieces() {
    for text in YAML {
        for step in STEPS {
            same(text.as_bytes(), step);
        }
    }
}

#[test]
fn what_is_no_text_is_found_in_pieces_too() {
    let list = b"{\"kind\": \"List\", \"apiVersion\": \"v1\", \"items\": [{\"kind\": \"Pod\", \"n\": \"\xff\"}]}\n";
    let utf16 = b"{\0\"\0k\0";
    for text in [&list[..], &utf16[..]] {
        for step in STEPS.into_iter().filter(|step| *step >= 4) {
            same(text, step);
        }
    }
}

/// A text with one of its characters changed, removed or duplicated.
fn damaged(text: &str, at: usize, how: u8, by: char) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    if characters.is_empty() {
        return text.to_owned();
    }
    let at = at % characters.len();
    match how % 4 {
        0 => characters[at] = by,
        1 => drop(characters.remove(at)),
        2 => characters.insert(at, by),
        _ => characters.truncate(at),
    }
    characters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_json_says_the_same_in_pieces(
        text in 0..JSON.len(), at in any::<usize>(), how in any::<u8>(),
        by in prop::sample::select(vec!['"', '\\', '{', '}', '[', ']', ',', ':', '0', '-', 'n', ' ', '\n', 'é', '\u{1}']),
        step in 1_usize..200,
    ) {
        let text = damaged(JSON[text], at, how, by);
        same(text.as_bytes(), step);
    }
}

#[test]
fn what_is_left_out_is_checked() {
    static META: FieldFilter = FieldFilter::Only(&[
        ("apiVersion", FieldFilter::All),
        ("kind", FieldFilter::All),
        ("metadata", FieldFilter::Only(&[("name", FieldFilter::All)])),
        (
            "spec",
            FieldFilter::Only(&[("list", FieldFilter::Only(&[("kept", FieldFilter::All)]))]),
        ),
    ]);
    let keep = |kind: Option<&str>| -> &'static FieldFilter {
        match kind {
            Some("Pod") => &META,
            _ => &FieldFilter::All,
        }
    };
    let told = |text: &str| {
        let mut told = Told::default();
        let mut reader = text.as_bytes();
        read_stream(
            "f",
            &mut reader,
            &Limits::default(),
            Some(40),
            keep,
            &mut told,
        )
        .unwrap();
        told
    };
    let list = |inside: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"items\": [{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \
             \"metadata\": {{\"name\": \"a\", \"managedFields\": [{inside}]}}, \"status\": {inside}, \
             \"spec\": {{\"list\": [{{\"kept\": 1, \"other\": {inside}}}]}}}}], \"kind\": \"List\"}}"
        )
    };
    let many: Vec<String> = (0..200).map(|n| format!("\"k{n}\": {n}")).collect();
    let sound = [
        "{}",
        "{\"a\": [1, -0.5e+3, \"\\u00e9\\ud83d\\ude00 \\\" \", null, true, false, {\"a\": {}}]}",
        &format!("{{{}}}", many.join(", ")),
    ];
    for inside in sound {
        let told = told(&list(inside));
        assert_eq!(told.problems, [], "{inside}");
        let expected = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"list":[{"kept":1}]}}"#;
        let roots: Vec<String> = told
            .objects
            .iter()
            .map(|o| to_json(&o.root).to_string())
            .collect();
        assert_eq!(roots, [expected]);
    }
    let twice = format!("{{{}, \"k7\": 1}}", many.join(", "));
    let wrong = [
        "{\"a\": 1, \"b\": 2, \"a\": 3}",
        "{\"a\": 1, \"\\u0061\": 3}",
        &twice,
        "{\"a\": 01}",
        "{\"a\": 1e999}",
        "{\"a\": tru}",
        "{\"a\": \"\\ud800\"}",
        "{\"a\": \"\\x\"}",
        "{\"a\": \"\u{1}\"}",
        "{\"a\": [1,]}",
        "{\"a\" 1}",
        "{a: 1}",
        "[1 2]",
        &("[".repeat(200) + &"]".repeat(200)),
    ];
    for inside in wrong {
        let text = list(inside);
        let whole = in_one_piece(text.as_bytes(), &Limits::default());
        let told = told(&text);
        assert_eq!(told.objects, [], "{inside}");
        let [problem] = &told.problems[..] else {
            panic!("{inside}: {:?}", told.problems);
        };
        assert!(
            problem
                .field
                .starts_with("items[0].metadata.managedFields[0]"),
            "{problem}"
        );
        let json = |p: &Problem| p.reason.starts_with("the document is not JSON");
        if !inside.starts_with("[[") && whole.problems.iter().any(json) {
            assert_eq!(told.problems, whole.problems);
        }
    }
}

#[test]
fn a_piece_that_is_too_long_ends_the_file_and_a_long_file_does_not() {
    let limits = Limits {
        file_bytes: 400,
        ..Limits::default()
    };
    let pod = |name: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"metadata\": {{\"name\": \"{name}\"}}}}"
        )
    };
    let list =
        |pods: &[String]| format!("{{\"items\": [{}], \"kind\": \"List\"}}", pods.join(",\n"));
    let many: Vec<String> = (0..100).map(|n| pod(&format!("p{n}"))).collect();
    let told = in_pieces(list(&many).as_bytes(), 64, &limits);
    assert_eq!((told.objects.len(), told.problems.len()), (100, 0));
    let mut one = many.clone();
    one.insert(50, pod(&"x".repeat(500)));
    let told = in_pieces(list(&one).as_bytes(), 64, &limits);
    assert_eq!(told.objects.len(), 0);
    let shown: Vec<String> = told.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "f:51:1: items[50]: this document, or this item of a list, has more than 400 bytes; from \
          here on nothing is read"
        ]
    );
    let zeros = in_pieces(&[0; 5_000], 64, &limits);
    assert!(zeros.problems.len() == 1 && zeros.problems[0].reason.contains("more than 400 bytes"));
    let yaml: String = (0..100)
        .map(|n| format!("- apiVersion: v1\n  kind: Pod\n  metadata: {{name: p{n}}}\n"))
        .collect();
    let told = in_pieces(
        format!("kind: List\nitems:\n{yaml}").as_bytes(),
        64,
        &limits,
    );
    assert_eq!((told.objects.len(), told.problems.len()), (100, 0));
}

//! The documents of a file: where they begin and end, and the effect of an error on the others.

use palisade_manifest::{Limits, ParsedFile, parse, to_json};
use serde_json::{Value as Json, json};

fn parts(text: impl AsRef<[u8]>, limits: &Limits) -> (Vec<Json>, Vec<String>) {
    let ParsedFile {
        documents,
        problems,
    } = parse("f", text.as_ref(), limits);
    (
        documents.iter().map(|d| to_json(&d.root)).collect(),
        problems.iter().map(ToString::to_string).collect(),
    )
}

#[track_caller]
fn check(text: impl AsRef<[u8]>, documents: &[Json], problems: &[&str]) {
    let (found, wrong) = parts(text.as_ref(), &Limits::default());
    let shown = String::from_utf8_lossy(text.as_ref()).into_owned();
    assert_eq!(found, documents, "{shown:?}: {wrong:?}");
    assert_eq!(wrong, problems, "{shown:?}");
}

#[test]
fn one_and_several() {
    check("a: 1", &[json!({"a": 1})], &[]);
    check(
        "a: 1\n---\nb: 2\n",
        &[json!({"a": 1}), json!({"b": 2})],
        &[],
    );
    check(
        "---\na: 1\n---\nb: 2",
        &[json!({"a": 1}), json!({"b": 2})],
        &[],
    );
    check(
        "--- # first\na: 1\n---   \nb: 2",
        &[json!({"a": 1}), json!({"b": 2})],
        &[],
    );
    check(
        "a: 1\r\n---\r\nb: 2\r\n",
        &[json!({"a": 1}), json!({"b": 2})],
        &[],
    );
    check(
        "a: |\n  x\n  ---\n  y\n",
        &[json!({"a": "x\n---\ny\n"})],
        &[],
    );
    check(
        "a: 1\n...\n---\nb: 2\n...\n",
        &[json!({"a": 1}), json!({"b": 2})],
        &[],
    );
    check(
        "{\"a\": 1}\n---\nb: 2\n---\n[3]",
        &[json!({"a": 1}), json!({"b": 2}), json!([3])],
        &[],
    );
    check("a: 1\n# the end", &[json!({"a": 1})], &[]);
    check(
        "a: 1 # why\nb: '#'\nc: x#y\n",
        &[json!({"a": 1, "b": "#", "c": "x#y"})],
        &[],
    );
}

#[test]
fn nothing_is_nothing() {
    for text in [
        "",
        "\n",
        "---",
        "---\n",
        "---\n---\n---\n",
        "# c\n",
        "---\n# c\n---\nnull\n",
        "~",
    ] {
        check(text, &[], &[]);
    }
    check("\u{feff}", &[], &[]);
}

#[test]
fn byte_order_marks_and_encodings() {
    check("\u{feff}a: 1", &[json!({"a": 1})], &[]);
    check("\u{feff}{\"a\": 1}", &[json!({"a": 1})], &[]);
    let utf16 = ["f:1:1: the file is UTF-16; only UTF-8 is read"];
    check(b"\xff\xfea\x00:\x00", &[], &utf16);
    check(b"\xfe\xff\x00a\x00:", &[], &utf16);
    check(b"a\x00:\x00 \x001\x00", &[], &utf16);
    check(b"\x00a\x00:\x00 \x001", &[], &utf16);
    check(
        b"a: 1\n---\nb: \xc3\xa9\xff\n---\nc: 3",
        &[json!({"a": 1}), json!({"c": 3})],
        &["f:3:5: the text is not UTF-8: invalid byte 0xff"],
    );
}

#[test]
fn characters_that_cannot_stand() {
    check(
        "a: 1\nb: x\0y\n",
        &[],
        &["f:2:5: the control character U+0000 is not allowed in YAML"],
    );
    check(
        "a: \u{7}",
        &[],
        &["f:1:4: the control character U+0007 is not allowed in YAML"],
    );
    check(
        "a: \u{7f}",
        &[],
        &["f:1:4: the control character U+007F is not allowed in YAML"],
    );
    check(
        "a: b\u{feff}",
        &[],
        &["f:1:5: the control character U+FEFF is not allowed in YAML"],
    );
    for (character, code) in [
        ('\u{85}', "0085"),
        ('\u{2028}', "2028"),
        ('\u{2029}', "2029"),
    ] {
        let text = format!("a: 1 # c{character}b: 2");
        let problem = format!(
            "f:1:9: U+{code} is a line break in kubectl, but not in other YAML parsers; write it as an \
             escape in double quotes"
        );
        check(text, &[], &[&problem]);
    }
    // In JSON they are ordinary text.
    check(
        "{\"a\": \"\u{2028}\u{7f}\"}",
        &[json!({"a": "\u{2028}\u{7f}"})],
        &[],
    );
}

#[test]
fn a_broken_document_takes_no_other_with_it() {
    check(
        "a: 1\n---\nb: [\n---\nc: 3\n---\nd: {x: 1\n",
        &[json!({"a": 1}), json!({"c": 3})],
        &[
            "f:4:1: b[0]: the document is not YAML: while parsing a node, did not find expected \
             node content",
            "f:8:1: d: the document is not YAML: while parsing a flow mapping, did not find \
             expected ',' or '}'",
        ],
    );
    check(
        "a: 1\n--- b\nc: 3\n---\nd: 4",
        &[json!({"a": 1}), json!({"d": 4})],
        &["f:2:5: only a comment may follow `---` on its line; this document is not read"],
    );
    check(
        "a: 1\n...\nb: 2\n---\nc: 3",
        &[json!({"c": 3})],
        &[
            "f:3:1: a second document after `...`, which kubectl would drop; separate documents \
             with `---`",
        ],
    );
    check(
        "a: 1\n  b: 2\n",
        &[],
        &["f:2:4: the document is not YAML: mapping values are not allowed in this context"],
    );
    check(
        "a:\n\t- b\n",
        &[],
        &[
            "f:2:2: a: the document is not YAML: tabs disallowed within this context (block indentation)",
        ],
    );
}

#[test]
fn a_problem_names_the_object_it_is_in() {
    let text = "kind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\nspec:\n  ingress:\n  \
                - from:\n    - ipBlock: {cidr: a, cidr: b}\n";
    let reading = parse("f", text.as_bytes(), &Limits::default());
    let [problem] = reading.problems.as_slice() else {
        panic!("{reading:?}");
    };
    assert_eq!(problem.object.as_deref(), Some("NetworkPolicy shop/web"));
    assert_eq!(
        problem.to_string(),
        "f:6:26: spec.ingress[0].from[0].ipBlock.cidr: the field \"cidr\" is written twice in one \
         object, in line 6 and in line 6"
    );
    let text = "kind: Pod\nmetadata:\n  name: x\n  labels: {a: 1, a: 2}\n";
    let reading = parse("f", text.as_bytes(), &Limits::default());
    assert_eq!(reading.problems[0].object.as_deref(), Some("Pod x"));
}

#[test]
fn directives() {
    check("%YAML 1.2\n---\na: 1", &[json!({"a": 1})], &[]);
    check(
        "# c\n%TAG !e! tag:yaml.org,2002:\n---\na: !e!str 1",
        &[json!({"a": "1"})],
        &[],
    );
    check(
        "%YAML 1.1\n---\na: 1\n---\nb: on",
        &[json!({"a": 1}), json!({"b": true})],
        &[],
    );
}

#[test]
fn duplicate_keys() {
    check(
        "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n---\nok: 1",
        &[json!({"ok": 1})],
        &["f:5:3: b.c: the field \"c\" is written twice in one object, in line 3 and in line 5"],
    );
    check(
        "1: a\n'1': b",
        &[],
        &["f:2:1: 1: the field \"1\" is written twice in one object, in line 1 and in line 2"],
    );
    check(
        "{\"a\": 1,\n \"a\": 2}",
        &[],
        &["f:2:2: a: the field \"a\" is written twice in one object, in line 1 and in line 2"],
    );
    // Enough fields for a map to keep an index.
    let many: String = (0..100).map(|n| format!("k{n}: {n}\n")).collect();
    let (found, wrong) = parts(&many, &Limits::default());
    assert_eq!((found[0]["k99"].clone(), wrong.len()), (json!(99), 0));
    check(
        many + "k7: again",
        &[],
        &[
            "f:101:1: k7: the field \"k7\" is written twice in one object, in line 8 and in line 101",
        ],
    );
}

#[test]
fn anchors_and_merge_keys() {
    check(
        "a: &x [1, 2]\nb: *x",
        &[json!({"a": [1, 2], "b": [1, 2]})],
        &[],
    );
    check("a: &x k\n*x : v", &[json!({"a": "k", "k": "v"})], &[]);
    check("&x k: v\nb: *x", &[json!({"k": "v", "b": "k"})], &[]);
    check(
        "a: &x 1\nb: &x 2\nc: *x",
        &[json!({"a": 1, "b": 2, "c": 2})],
        &[],
    );
    check(
        "base: &b {p: 1, q: 2}\nx:\n  <<: *b\n  q: 3\n",
        &[json!({"base": {"p": 1, "q": 2}, "x": {"q": 3, "p": 1}})],
        &[],
    );
    check(
        "a: &a {p: 1}\nb: &b {p: 2, q: 2}\nx:\n  <<: [*a, *b, {r: 3}]\n  s: 4\n",
        &[json!({"a": {"p": 1}, "b": {"p": 2, "q": 2},
                 "x": {"s": 4, "p": 1, "q": 2, "r": 3}})],
        &[],
    );
    check(
        "x: {<<: {a: 1}, b: 2}",
        &[json!({"x": {"b": 2, "a": 1}})],
        &[],
    );
    check("x: {'<<': {a: 1}}", &[json!({"x": {"<<": {"a": 1}}})], &[]);
    check("x: {!!merge <<: {a: 1}}", &[json!({"x": {"a": 1}})], &[]);
    check("{\"<<\": {\"a\": 1}}", &[json!({"<<": {"a": 1}})], &[]);
    check(
        "a: &a {p: 1}\nx:\n  p: 2\n  <<: *a\n",
        &[],
        &[
            "f:4:7: x: the field \"p\" of line 3 is also set by the merge key of line 4; \
           kubectl uses the merged value, YAML 1.1 that of the object: put `<<` before the other fields",
        ],
    );
    check(
        "x:\n  <<: 1",
        &[],
        &["f:2:7: x: a merge key `<<` takes an object or a list of objects, not the number 1"],
    );
    check(
        "x:\n  <<: {a: 1}\n  <<: {b: 1}",
        &[],
        &["f:3:3: x: the field \"<<\" is written twice in one object, in line 2 and in line 3"],
    );
    check(
        "a: &x\n  b: *x",
        &[],
        &["f:2:6: a.b: the YAML alias refers to a value that contains it"],
    );
    check(
        "a: *nope",
        &[],
        &["f:1:4: a: the document is not YAML: while parsing node, found unknown anchor"],
    );
    check(
        "a: &x 1\n---\nb: *x",
        &[json!({"a": 1})],
        &["f:3:4: b: the document is not YAML: while parsing node, found unknown anchor"],
    );
}

fn limited(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[test]
fn limits_end_in_a_problem() {
    let cases = [
        (
            "a: 1\nb: 2",
            limited(|l| l.file_bytes = 8),
            vec![],
            "f:1:1: the file has more than 8 bytes and is not read",
        ),
        (
            "a: 1\n---\nb: 2\n---\nc: 3\n---\nd: 4",
            limited(|l| l.documents = 2),
            vec![json!({"a": 1}), json!({"b": 2})],
            "f:4:1: the file has more than 2 documents; the rest is not read",
        ),
        (
            "a: [[1]]\n---\nb: [[[1]]]\n---\nc: 1",
            limited(|l| l.depth = 3),
            vec![json!({"a": [[1]]}), json!({"c": 1})],
            "f:3:6: b[0][0]: lists and objects are nested deeper than 3 levels",
        ),
        (
            "{\"a\": [[[1]]]}",
            limited(|l| l.depth = 3),
            vec![],
            "f:1:9: a[0][0]: lists and objects are nested deeper than 3 levels",
        ),
        (
            "a: &x [[1]]\nb: [*x]",
            limited(|l| l.depth = 3),
            vec![],
            "f:2:5: b[0]: lists and objects are nested deeper than 3 levels",
        ),
        (
            "a: 1\n---\n[1, 2, 3]\n---\nb: 1",
            limited(|l| l.nodes = 6),
            vec![json!({"a": 1})],
            "f:3:8: [2]: the file has more than 6 values; the rest of it is not read",
        ),
        (
            "a: &x [1, 1]\nb: [*x, *x]\n---\nc: 1",
            limited(|l| l.alias_nodes = 7),
            vec![],
            "f:2:9: b[1]: anchors and aliases of this file expand to more than 7 values; the rest \
             of it is not read",
        ),
    ];
    for (text, limits, documents, problem) in cases {
        let (found, wrong) = parts(text, &limits);
        assert_eq!(
            (found, wrong),
            (documents, vec![problem.to_owned()]),
            "{text:?}"
        );
    }
}

#[test]
fn a_billion_laughs_are_not_laughed() {
    let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..40 {
        let names = vec![format!("*a{}", level - 1); 9].join(", ");
        text += &format!("a{level}: &a{level} [{names}]\n");
    }
    let (found, wrong) = parts(&text, &Limits::default());
    assert_eq!(found, Vec::<Json>::new());
    assert_eq!(wrong.len(), 1);
    assert!(
        wrong[0].contains("expand to more than 200000 values"),
        "{wrong:?}"
    );
}

#[test]
fn whatever_the_depth_it_is_bounded() {
    for text in [
        "[".repeat(200_000),
        "{\"a\":".repeat(200_000),
        "- ".repeat(200_000),
        "a: ".to_owned() + &"[".repeat(200_000),
        "? ".repeat(100_000),
        (0..3000).map(|n| " ".repeat(n) + "a:\n").collect(),
    ] {
        let (found, wrong) = parts(&text, &limited(|l| l.depth = usize::MAX));
        assert_eq!((found.len(), wrong.len()), (0, 1), "{}", &text[..10]);
    }
}

#[test]
fn places_of_keys_and_values() {
    let text = "\u{feff}# c\nmetadata:\n  name: wéb\n  list:\n  - a\n  - {k: é, l: 2}\n---\n{\"x\":\n  [1]}";
    let reading = parse("dir/f.yaml", text.as_bytes(), &Limits::default());
    assert_eq!(reading.problems, []);
    let metadata = reading.documents[0].root.get("metadata").unwrap();
    let entry = metadata.as_map().unwrap().entry("name").unwrap();
    assert_eq!(entry.location.to_string(), "dir/f.yaml:3:3");
    assert_eq!(entry.value.location.to_string(), "dir/f.yaml:3:9");
    let list = metadata.get("list").unwrap();
    assert_eq!(
        list.index(0).unwrap().location.to_string(),
        "dir/f.yaml:5:5"
    );
    let map = list.index(1).unwrap();
    assert_eq!(map.location.to_string(), "dir/f.yaml:6:5");
    assert_eq!(
        map.get("l").unwrap().location.to_string(),
        "dir/f.yaml:6:15"
    );
    let json = &reading.documents[1].root;
    assert_eq!(json.location.to_string(), "dir/f.yaml:8:1");
    let item = json.get("x").unwrap().index(0).unwrap();
    assert_eq!(item.location.to_string(), "dir/f.yaml:9:4");
}

#[test]
fn a_byte_order_mark_may_stand_before_any_document() {
    for text in [
        "\u{feff}a: 1\n---\n\u{feff}b: 2\n",
        "\u{feff}a: 1\n\u{feff}---\nb: 2\n",
        "a: 1\n\u{feff}---\n\u{feff}b: 2\n",
        "a: 1\r\n---\r\n\u{feff}b: 2\r\n",
        "{\"a\": 1}\n---\n\u{feff}{\"b\": 2}\n",
        "{\"a\": 1}\n\u{feff}---\n{\"b\": 2}\n",
        "---\na: 1\n--- # next\n\u{feff}# first\nb: 2\n",
    ] {
        let reading = palisade_manifest::parse("f", text.as_bytes(), &Default::default());
        assert_eq!(reading.problems, [], "{text:?}");
        let keys: Vec<(String, u32)> = reading
            .documents
            .iter()
            .flat_map(|document| document.root.as_map().into_iter().flatten())
            .map(|entry| (entry.key.to_string(), entry.location.line))
            .collect();
        let line = |key: &str| {
            let at = text.lines().position(|line| {
                line.contains(&format!("{key}\":")) || line.contains(&format!("{key}: "))
            });
            u32::try_from(at.unwrap() + 1).unwrap()
        };
        let expected = [("a".to_owned(), line("a")), ("b".to_owned(), line("b"))];
        assert_eq!(keys, expected, "{text:?}");
    }
}

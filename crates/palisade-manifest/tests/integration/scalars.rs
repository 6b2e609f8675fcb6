//! The resolution of YAML scalars, case by case, checked against sigs.k8s.io/yaml.

use palisade_manifest::{Limits, ManifestNode, ManifestValue, parse, to_json};
use serde_json::{Value as Json, json};

fn value(text: &str) -> Result<ManifestNode, String> {
    let reading = parse("t", text.as_bytes(), &Limits::default());
    match (reading.documents.as_slice(), reading.problems.as_slice()) {
        ([document], []) => Ok(document.root.clone()),
        (_, [problem]) => Err(problem.to_string()),
        other => panic!("{text:?}: {other:?}"),
    }
}

/// The value of `a: <text>`.
fn scalar(text: &str) -> Result<Json, String> {
    value(&format!("a: {text}\n")).map(|root| to_json(root.get("a").unwrap()))
}

#[test]
fn nulls() {
    for text in ["", "~", "null", "Null", "NULL", "!!null ~", "!!null \"\""] {
        assert_eq!(scalar(text), Ok(Json::Null), "{text}");
    }
    for text in ["nULL", "none", "nil", "\"\"", "'~'", "!!str", "!!str null"] {
        assert!(scalar(text).unwrap().is_string(), "{text}");
    }
}

#[test]
fn booleans() {
    let yes = [
        "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
    ];
    let no = [
        "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
    ];
    for (texts, expected) in [(yes, true), (no, false)] {
        for text in texts {
            assert_eq!(scalar(text), Ok(json!(expected)), "{text}");
            assert_eq!(
                scalar(&format!("!!bool '{text}'")),
                Ok(json!(expected)),
                "{text}"
            );
            assert_eq!(scalar(&format!("'{text}'")), Ok(json!(text)), "{text}");
        }
    }
    for text in ["yES", "tRUE", "oN", "nO", "oFF", "fALSE", "t", "f"] {
        assert_eq!(scalar(text), Ok(json!(text)), "{text}");
    }
}

#[test]
fn numbers() {
    let cases = [
        ("0", json!(0)),
        ("-0", json!(0)),
        ("+12", json!(12)),
        ("-12", json!(-12)),
        ("1_000", json!(1000)),
        ("1__0_", json!(10)),
        ("010", json!(8)),
        ("0o10", json!(8)),
        ("0O10", json!(8)),
        ("-010", json!(-8)),
        ("0x1F", json!(31)),
        ("0X1f", json!(31)),
        ("-0x10", json!(-16)),
        ("0b11", json!(3)),
        ("-0b11", json!(-3)),
        ("0b-1", json!(-1)),
        ("0b+1", json!(1)),
        ("08", json!(8)),
        ("080", json!(80)),
        ("80.0", json!(80)),
        ("8.", json!(8)),
        ("1e3", json!(1000)),
        ("1E-3", json!(0.001)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("-.5", json!(-0.5)),
        ("1_0.5", json!(10.5)),
        (".5_0", json!(0.5)),
        ("-0.0", json!(0)),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808.0)),
        ("18446744073709551615", json!(18_446_744_073_709_551_615.0)),
        ("99999999999999999999", json!(1e20)),
        ("+18446744073709551615", json!(18_446_744_073_709_551_615.0)),
        ("!!int '7'", json!(7)),
        ("!!float 3", json!(3)),
        ("!!float 3.5", json!(3.5)),
    ];
    for (text, expected) in cases {
        assert_eq!(scalar(text), Ok(expected), "{text}");
    }
}

#[test]
fn texts() {
    let same = [
        "1.2.3.4",
        "10.0.0.0/8",
        "fd00::1",
        "::/0",
        "1:2:3",
        "190:20:30",
        "2001-01-01",
        "2001-12-14T21:59:43Z",
        "0x",
        "0xg",
        "0b2",
        "0o8",
        "1e400",
        "1e",
        ".",
        "._5",
        ".5_",
        ".5__0",
        "+",
        "--1",
        "+-1",
        "1 2",
        "Infinity",
        "NaN",
        "inf",
        "nan",
        "0x-1",
        "0o-1",
        "é",
        "<<",
        "a:b",
        "a#b",
        "http://x/",
        "=",
    ];
    for text in same {
        assert_eq!(scalar(text), Ok(json!(text)), "{text}");
    }
    let cases = [
        ("'12'", "12"),
        ("\"12\"", "12"),
        ("!!str 12", "12"),
        ("!own 12", "12"),
        ("! 12", "12"),
        ("!!timestamp 2001-01-01", "2001-01-01"),
        ("!!binary aGk=", "hi"),
        ("!!binary \"\"", ""),
        ("!!binary aGVsbG8h", "hello!"),
        ("\"a\\tb\\u00e9\\x41\"", "a\tbéA"),
        ("'it''s'", "it's"),
        ("|\n  12\n  on\n", "12\non\n"),
        ("|-\n  12\n\n", "12"),
        ("|+\n  12\n", "12\n\n"),
        (">\n  a\n  b\n\n  c\n", "a b\nc\n"),
        ("a\n  b", "a b"),
        ("!<tag:yaml.org,2002:str> 5", "5"),
    ];
    for (text, expected) in cases {
        assert_eq!(scalar(text), Ok(json!(expected)), "{text}");
    }
}

#[test]
fn refused() {
    let cases = [
        (
            ".inf",
            "t:1:4: a: \".inf\" is an infinite number, which JSON, and so a Kubernetes object, cannot \
             represent",
        ),
        (
            "-.INF",
            "t:1:4: a: \"-.INF\" is an infinite number, which JSON, and so a Kubernetes object, cannot \
             represent",
        ),
        (
            ".nan",
            "t:1:4: a: \".nan\" is not a number, which JSON, and so a Kubernetes object, cannot represent",
        ),
        ("!!int x", "t:1:4: a: \"x\" is not valid for its tag !!int"),
        (
            "!!int 1.5",
            "t:1:4: a: \"1.5\" is not valid for its tag !!int",
        ),
        (
            "!!bool 1",
            "t:1:4: a: \"1\" is not valid for its tag !!bool",
        ),
        (
            "!!null x",
            "t:1:4: a: \"x\" is not valid for its tag !!null",
        ),
        (
            "!!float x",
            "t:1:4: a: \"x\" is not valid for its tag !!float",
        ),
        (
            "!!binary a",
            "t:1:4: a: \"a\" is not valid for its tag !!binary",
        ),
        (
            "!!binary a===",
            "t:1:4: a: \"a===\" is not valid for its tag !!binary",
        ),
        (
            "!!binary /w==",
            "t:1:4: a: \"/w==\" is binary data that is not UTF-8, which JSON, and so a Kubernetes object, \
             cannot represent",
        ),
        (
            "?x",
            "t:1:4: a: YAML parsers differ in text that begins with `?`; put it in quotes",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(scalar(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn source_text_is_kept_where_the_value_differs_from_it() {
    let cases = [
        ("080", ManifestValue::Int(80), Some("080")),
        ("0x40", ManifestValue::Int(64), Some("0x40")),
        ("on", ManifestValue::Bool(true), Some("on")),
        ("~", ManifestValue::Null, Some("~")),
        ("1e3", ManifestValue::Int(1000), Some("1e3")),
        ("text", ManifestValue::String("text".into()), None),
    ];
    for (text, expected, source) in cases {
        let root = value(&format!("a: {text}")).unwrap();
        let node = root.get("a").unwrap();
        assert_eq!(node.value, expected, "{text}");
        assert_eq!(node.source_text.as_deref(), source, "{text}");
    }
}

#[test]
fn keys() {
    let cases = [
        ("a", "a"),
        ("'1'", "1"),
        ("1", "1"),
        ("0x10", "16"),
        ("010", "8"),
        ("on", "true"),
        ("No", "false"),
        ("1.5", "1.5"),
        ("80.0", "80"),
        ("1000000.0", "1e+06"),
        ("1234567.5", "1.2345675e+06"),
        ("100000.0", "100000"),
        ("0.0001", "0.0001"),
        ("0.00001", "1e-05"),
        (".inf", ".inf"),
        ("-.inf", "-.inf"),
        (".nan", ".nan"),
        ("'~'", "~"),
        ("!!str 1", "1"),
        ("'<<'", "<<"),
        ("app.kubernetes.io/name", "app.kubernetes.io/name"),
    ];
    for (key, expected) in cases {
        let root = value(&format!("{key}: v")).unwrap();
        let keys: Vec<&str> = root.as_map().unwrap().iter().map(|e| &*e.key).collect();
        assert_eq!(keys, [expected], "{key}");
    }
    let refused = [
        (
            "~: v",
            "t:1:1: a key has to be text, a number or a boolean, not null",
        ),
        (
            "? [a]\n: v",
            "t:1:3: a key has to be text, a number or a boolean, not a list",
        ),
        (
            "? {a: b}\n: v",
            "t:1:3: a key has to be text, a number or a boolean, not an object",
        ),
        (
            "18446744073709551615: v",
            "t:1:1: a key has to be text, a number or a boolean, not the number 18446744073709551615",
        ),
    ];
    for (text, expected) in refused {
        assert_eq!(value(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn a_colon_before_a_bracket_belongs_to_the_text() {
    let cases = [
        ("[fd00::]", json!(["fd00::"])),
        ("[fd00::, a]", json!(["fd00::", "a"])),
        ("[::]", json!(["::"])),
        ("{cidr: fd00::}", json!({"cidr": "fd00::"})),
        ("{cidr: fd00::, b: 1}", json!({"cidr": "fd00::", "b": 1})),
        (
            "{\"a\":[1], \"b\":{\"c\":2}}",
            json!({"a": [1], "b": {"c": 2}}),
        ),
        ("{'a':[x:]}", json!({"a": ["x:"]})),
        ("{a :}", json!({"a :": null})),
        ("'[x:]'", json!("[x:]")),
        ("\"{x:}\"", json!("{x:}")),
        ("|\n  x:]\n  # y:}\n", json!("x:]\n# y:}\n")),
        ("x:] # y:]", json!("x:]")),
        ("\"\u{f0000}:]\"", json!("\u{f0000}:]")),
    ];
    for (text, expected) in cases {
        // On a later line, so that the document does not look like JSON.
        assert_eq!(scalar(text), Ok(expected), "{text}");
    }
}

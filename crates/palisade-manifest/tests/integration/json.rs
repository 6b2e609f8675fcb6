//! JSON text: several values in a row, by the rules of JSON.

use palisade_manifest::{Limits, parse, to_json};
use serde_json::{Value as Json, json};

#[track_caller]
fn check(text: &str, documents: &[Json], problems: &[&str]) {
    let reading = parse("f", text.as_bytes(), &Limits::default());
    let found: Vec<Json> = reading.documents.iter().map(|d| to_json(&d.root)).collect();
    let wrong: Vec<String> = reading.problems.iter().map(ToString::to_string).collect();
    assert_eq!(found, documents, "{text:?}: {wrong:?}");
    assert_eq!(wrong, problems, "{text:?}");
}

#[test]
fn values() {
    check(
        " {\"a\" : [ 1 , -2,0, 1.5, 1e2, 1E-1 ,true,false,null,\"x\",{},[] ] }\n",
        &[json!({"a": [1, -2, 0, 1.5, 100, 0.1, true, false, null, "x", {}, []]})],
        &[],
    );
    check(
        "{\"on\": \"on\", \"1\": \"010\"}",
        &[json!({"on": "on", "1": "010"})],
        &[],
    );
    check("{\t\"a\":\t1\t}", &[json!({"a": 1})], &[]);
    check(
        "{\"a\": 9223372036854775808}",
        &[json!({"a": 9_223_372_036_854_775_808.0})],
        &[],
    );
    check("{\"a\": 80.0}", &[json!({"a": 80})], &[]);
    let long = "k".repeat(5000);
    check(&format!("{{\"{long}\": 1}}"), &[json!({long: 1})], &[]);
}

#[test]
fn strings() {
    check(
        r#"{"a": "\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00", "\u0061b": "é😀"}"#,
        &[json!({"a": "\"\\/\u{8}\u{c}\n\r\té€😀", "ab": "é😀"})],
        &[],
    );
    let half = "the document is not JSON: an unpaired surrogate";
    check(r#"{"a": "\ud83d"}"#, &[], &[&format!("f:1:14: a: {half}")]);
    check(r#"{"a": "\ude00"}"#, &[], &[&format!("f:1:14: a: {half}")]);
    check(
        r#"{"a": "\ud83d\u0041"}"#,
        &[],
        &[&format!("f:1:20: a: {half}")],
    );
}

#[test]
fn several_values_follow_each_other() {
    check(
        "{\"a\":1}{\"b\":2}\n[3] {}",
        &[json!({"a": 1}), json!({"b": 2}), json!([3]), json!({})],
        &[],
    );
    check(
        "{\"a\":1}\nnull\n{\"b\":2}",
        &[json!({"a": 1}), json!({"b": 2})],
        &[],
    );
    check(
        "{\"a\":1}\n{\"b\":",
        &[json!({"a": 1})],
        &["f:2:6: b: the document is not JSON: expected a value, found the end of the text"],
    );
    check(
        "{\"a\":1} x\n---\n{\"b\":2}",
        &[json!({"a": 1}), json!({"b": 2})],
        &["f:1:9: the document is not JSON: expected a value, found `x`"],
    );
}

#[test]
fn broken() {
    let cases = [
        (
            "{\"a\": @}",
            "f:1:7: a: the document is not JSON: expected a value, found `@`",
        ),
        (
            "{\"a\": \"x",
            "f:1:9: a: the document is not JSON: expected the closing `\"` of a string, found the end of the text",
        ),
        (
            "{\"a\": 1e999}",
            "f:1:12: a: \"1e999\" is a number outside the 64-bit range, which JSON, and so a Kubernetes \
             object, cannot represent",
        ),
        (
            "{\"a\": [1, 2",
            "f:1:12: a[2]: the document is not JSON: expected `,` or `]`, found the end of the text",
        ),
        (
            "[{\"a\": 1}\n{\"b\": 2}]",
            "f:2:1: [1]: the document is not JSON: expected `,` or `]`, found `{`",
        ),
        (
            "{\"a\":1,\n\"b\" 2}",
            "f:2:5: b: the document is not JSON: expected `:`, found `2`",
        ),
    ];
    for (text, problem) in cases {
        check(text, &[], &[problem]);
    }
}

#[test]
fn yaml_in_flow_style_is_no_json() {
    check(
        "{a: b, c: [1, on]}",
        &[json!({"a": "b", "c": [1, true]})],
        &[],
    );
    check("{\"a\": }", &[json!({"a": null})], &[]);
    check("{\"a\": 1,}", &[json!({"a": 1})], &[]);
    check("[a, b]\n", &[json!(["a", "b"])], &[]);
    check("{\"a\": 'x'} # c", &[json!({"a": "x"})], &[]);
}

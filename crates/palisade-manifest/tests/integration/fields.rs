//! The field cursor: paths, types and errors.

use palisade_manifest::{Field, FieldPath, IntOrString, Limits, ManifestNode, parse};

fn root(text: &str) -> ManifestNode {
    let reading = parse("f", text.as_bytes(), &Limits::default());
    assert_eq!(reading.problems, []);
    reading.documents[0].root.clone()
}

fn said<T: std::fmt::Debug>(result: Result<T, palisade_manifest::FieldError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn paths() {
    let spec = FieldPath::root().key("spec");
    let cases = [
        (FieldPath::root(), ""),
        (spec.clone(), "spec"),
        (
            spec.key("ingress")
                .index(0)
                .key("from")
                .index(1)
                .key("ipBlock"),
            "spec.ingress[0].from[1].ipBlock",
        ),
        (
            spec.key("labels").key("app.kubernetes.io/name"),
            "spec.labels[app.kubernetes.io/name]",
        ),
        (FieldPath::root().index(2).key("a"), "[2].a"),
        (FieldPath::root().key("a\nb"), "[a\\nb]"),
        (spec.key(""), "spec[]"),
    ];
    for (path, expected) in cases {
        assert_eq!(path.to_string(), expected);
    }
}

#[test]
fn values() {
    let node = root(
        "spec:\n  port: 80\n  name: http\n  on: true\n  half: 0.5\n  none: null\n  \
         list: [a, b]\n",
    );
    let spec = Field::root(&node).require("spec").unwrap();
    let at = |key: &str| spec.require(key).unwrap();
    assert_eq!(at("port").as_i64(), Ok(80));
    assert_eq!(at("port").as_int_or_string(), Ok(IntOrString::Int(80)));
    assert_eq!(
        at("name").as_int_or_string(),
        Ok(IntOrString::String("http"))
    );
    assert_eq!(at("name").as_str(), Ok("http"));
    assert_eq!(at("true").as_bool(), Ok(true));
    assert_eq!(
        at("list").items().unwrap()[1].path.to_string(),
        "spec.list[1]"
    );
    assert!(spec.get("none").unwrap().is_none());
    assert!(spec.get("nothing").unwrap().is_none());
}

#[test]
fn refusals() {
    let node = root(
        "spec:\n  port: 0x1FFFF\n  on: on\n  list: [1, x]\n  neg: -1\n  half: .5\n  m: {a: 1}\n",
    );
    let spec = Field::root(&node).require("spec").unwrap();
    let at = |key: &str| spec.require(key).unwrap();
    let cases = [
        (
            said(spec.require("none")),
            "f:2:3: spec.none: is required, but missing",
        ),
        (
            said(at("port").as_str()),
            "f:2:9: spec.port: expected text, found the number 131071 (written `0x1FFFF`)",
        ),
        (
            said(at("true").as_str()),
            "f:3:7: spec.true: expected text, found the boolean true (written `on`)",
        ),
        (
            said(at("half").as_i64()),
            "f:6:9: spec.half: expected a whole number, found the number 0.5 (written `.5`)",
        ),
        (
            said(at("list").items().unwrap()[0].as_str()),
            "f:4:10: spec.list[0]: expected text, found the number 1",
        ),
        (
            said(at("list").get("x")),
            "f:4:9: spec.list: expected an object, found a list",
        ),
        (
            said(at("m").items()),
            "f:7:6: spec.m: expected a list, found an object",
        ),
        (
            said(at("m").require("a").unwrap().as_str()),
            "f:7:10: spec.m.a: expected text, found the number 1",
        ),
        (
            said(at("m").as_bool()),
            "f:7:6: spec.m: expected true or false, found an object",
        ),
        (
            said(at("half").as_int_or_string()),
            "f:6:9: spec.half: expected a whole number or text, found the number 0.5 (written `.5`)",
        ),
        (
            said(Field::root(&node).as_list()),
            "f:1:1: expected a list, found an object",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
    let problem = at("neg").problem(Some("Pod a".to_owned()), "is below zero");
    assert_eq!(problem.to_string(), "f:5:8: spec.neg: is below zero");
    assert_eq!(problem.object.as_deref(), Some("Pod a"));
}

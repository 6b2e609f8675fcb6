//! Documents to objects: names, lists and errors.

use palisade_manifest::{Limits, ParsedObjects, extract_objects, parse};

fn all(text: &str, limits: &Limits) -> ParsedObjects {
    extract_objects(parse("f", text.as_bytes(), limits), limits)
}

/// Each object as `location group/version reference uid`.
#[track_caller]
fn check(text: &str, expected: &[&str], problems: &[&str]) {
    let found = all(text, &Limits::default());
    let shown: Vec<String> = found
        .objects
        .iter()
        .map(|o| {
            let uid = o
                .uid
                .as_deref()
                .map(|uid| format!(" uid {uid}"))
                .unwrap_or_default();
            format!("{} [{}] {} {o}{uid}", o.location, o.group(), o.version())
        })
        .collect();
    let wrong: Vec<String> = found
        .problems
        .iter()
        .map(|p| format!("{p} ({})", p.object.as_deref().unwrap_or("-")))
        .collect();
    assert_eq!(shown, expected, "{text}: {wrong:?}");
    assert_eq!(wrong, problems, "{text}");
}

#[test]
fn plain_objects() {
    check(
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n# c\n---\n\
         apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
         metadata: {name: web, namespace: shop, uid: u-1}\n",
        &[
            "f:1:1 [] v1 Namespace shop",
            "f:7:1 [networking.k8s.io] v1 NetworkPolicy shop/web uid u-1",
        ],
        &[],
    );
}

#[test]
fn lists() {
    check(
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n\
         - {apiVersion: v1, kind: Service, metadata: {name: b, namespace: ns}}\n",
        &["f:4:3 [] v1 Pod a", "f:5:3 [] v1 Service ns/b"],
        &[],
    );
    check(
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1\"},\n\
         \"items\":[{\"metadata\":{\"name\":\"a\",\"namespace\":\"n\"}},\n\
         {\"metadata\":{\"name\":\"b\"},\"kind\":\"Pod\"},\n\
         {\"metadata\":{\"name\":\"c\"},\"kind\":\"Node\",\"apiVersion\":\"v1\"}]}",
        &[
            "f:2:10 [] v1 Pod n/a",
            "f:3:1 [] v1 Pod b",
            "f:4:1 [] v1 Node c",
        ],
        &[],
    );
    check(
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nitems:\n- metadata: {name: a}\n",
        &["f:4:3 [networking.k8s.io] v1 NetworkPolicy a"],
        &[],
    );
    for text in [
        "apiVersion: v1\nkind: List\n",
        "apiVersion: v1\nkind: List\nitems: []\n",
        "apiVersion: v1\nkind: PodList\nitems: null\n",
        "apiVersion: v1\nkind: PodList\nmetadata: {}\n",
    ] {
        check(text, &[], &[]);
    }
    // A list in a list, and a custom kind whose name only ends in `List`.
    check(
        "kind: List\napiVersion: v1\nitems:\n- kind: List\n  apiVersion: v1\n  items:\n  \
         - {apiVersion: v1, kind: Pod, metadata: {name: a}}\n",
        &["f:7:5 [] v1 Pod a"],
        &[],
    );
    check(
        "apiVersion: x.io/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {}\n",
        &["f:1:1 [x.io] v1 AllowList a"],
        &[],
    );
}

#[test]
fn an_item_fails_alone() {
    check(
        "kind: List\napiVersion: v1\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n\
         - 7\n- {kind: Pod, metadata: {name: b, namespace: ns}}\n- {metadata: {name: c}}\n\
         - {apiVersion: v1, kind: Pod, metadata: {name: d}}\n",
        &["f:4:3 [] v1 Pod a", "f:8:3 [] v1 Pod d"],
        &[
            "f:5:3: items[1]: expected an object with apiVersion and kind, found the number 7 (-)",
            "f:6:3: items[2].apiVersion: is required, but missing (Pod ns/b)",
            "f:7:3: items[3].apiVersion: is required, but missing (-)",
            "f:7:3: items[3].kind: is required, but missing (-)",
        ],
    );
    check(
        "kind: PodList\napiVersion: v1\nitems:\n- {metadata: {name: a}, kind: Node}\n- null\n",
        &[],
        &[
            "f:4:3: items[0].apiVersion: is required, but missing (Node a)",
            "f:5:3: items[1]: expected an object with apiVersion and kind, found null (written \
             `null`) (-)",
        ],
    );
}

#[test]
fn refused() {
    let cases = [
        (
            "[1]",
            "f:1:1: expected an object with apiVersion and kind, found a list (-)",
        ),
        (
            "text",
            "f:1:1: expected an object with apiVersion and kind, found the text \"text\" (-)",
        ),
        (
            "kind: Pod\nmetadata: {name: a}",
            "f:1:1: apiVersion: is required, but missing (Pod a)",
        ),
        (
            "apiVersion: v1\nmetadata: {name: a}",
            "f:1:1: kind: is required, but missing (-)",
        ),
        (
            "apiVersion: v1\nkind: Pod\n",
            "f:1:1: metadata: is required, but missing (Pod)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {namespace: ns}",
            "f:3:11: metadata.name: is required, but missing (Pod)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: ''}",
            "f:3:18: metadata.name: is required, but missing (Pod)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}",
            "f:3:11: metadata.name: is required: generateName works only in the API server (Pod)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: 0x40, namespace: ns}",
            "f:3:18: metadata.name: expected text, found the number 64 (written `0x40`) (Pod)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: on}",
            "f:3:32: metadata.namespace: expected text, found the boolean true (written `on`) (Pod a)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: []",
            "f:3:11: metadata: expected an object, found an empty list (Pod)",
        ),
        (
            "apiVersion: 1\nkind: Pod\nmetadata: {name: a}",
            "f:1:13: apiVersion: expected text, found the number 1 (Pod a)",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: {a: b}",
            "f:3:8: items: expected a list, found an object (List)",
        ),
    ];
    for (text, problem) in cases {
        check(text, &[], &[problem]);
    }
}

#[test]
fn an_empty_namespace_is_none() {
    let found = all(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: '', uid: null}",
        &Limits::default(),
    );
    assert_eq!(found.problems, []);
    assert_eq!(found.objects[0].namespace, None);
    assert_eq!(found.objects[0].uid, None);
}

#[test]
fn bounds() {
    let item = "{apiVersion: v1, kind: Pod, metadata: {name: a}}";
    let text =
        format!("kind: List\napiVersion: v1\nitems:\n- {item}\n- {item}\n- {item}\n- {item}\n");
    let limits = Limits {
        objects: 2,
        ..Limits::default()
    };
    let found = all(&text, &limits);
    assert_eq!(found.objects.len(), 2);
    let problems: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        ["f:6:3: items[2]: the file has more than 2 objects; the rest is left out"]
    );

    // Problems are limited too: those of the file and those of its objects.
    let limits = Limits {
        problems: 2,
        ..Limits::default()
    };
    for (text, last) in [
        (
            "a: [\n---\n".repeat(9),
            "f:4:1: the file has more than 2 problems; the rest of it is not read",
        ),
        (
            "7\n---\n".repeat(9),
            "f:5:1: the file has more than 2 problems; the rest is left out",
        ),
    ] {
        let found = all(&text, &limits);
        assert_eq!(found.problems.len(), 3);
        assert_eq!(found.problems[2].to_string(), last);
    }

    let mut nested = item.to_owned();
    for _ in 0..6 {
        nested = format!("{{kind: List, apiVersion: v1, items: [{nested}]}}");
    }
    let found = all(&nested, &Limits::default());
    assert_eq!(found.objects, []);
    assert_eq!(found.problems.len(), 1);
    assert_eq!(
        found.problems[0].reason,
        "lists are nested in lists more than 4 deep"
    );
}

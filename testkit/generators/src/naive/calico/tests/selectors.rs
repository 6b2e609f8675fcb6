//! The language of selectors, against labels.

use super::super::holder::NaiveHolder;
use super::super::selector::{NaiveSubject, parse, selects};
use crate::kubernetes::ClusterWorld;
use serde_json::Value;

fn holder() -> NaiveHolder {
    let labels = [
        ("app", "web"),
        ("contains", "x"),
        ("a.b/c-d_e", ""),
        ("in", "y"),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    NaiveHolder {
        namespace: None,
        labels: labels.into_iter().collect(),
    }
}

#[test]
fn each_operator() {
    for (text, wanted) in [
        ("", true),
        ("  \t", true),
        ("all()", true),
        ("all( )", true),
        ("app == 'web'", true),
        ("app==\"web\"", true),
        ("app == 'we'", false),
        ("gone == ''", false),
        ("app != 'web'", false),
        ("gone != 'web'", true),
        ("app in {'db', \"web\"}", true),
        ("app in{ 'web' , }", true),
        ("app in {}", false),
        ("gone in {'web'}", false),
        ("app not in {'web'}", false),
        ("app not\tin {'db'}", true),
        ("app not in {}", true),
        ("gone not in {'web'}", true),
        ("app contains 'e'", true),
        ("gone contains ''", false),
        ("a.b/c-d_e contains ''", true),
        ("app starts with 'we'", true),
        ("app startswith 'eb'", false),
        ("app ends with 'eb'", true),
        ("app endswith\"we\"", false),
        ("has(app)", true),
        ("has( app )", true),
        ("has(gone)", false),
        ("contains contains \"x\"", true),
        ("in in {'y'}", true),
        ("has == 'x'", false),
        ("all != 'x'", true),
    ] {
        assert_eq!(
            selects(text, NaiveSubject::Holder, &holder()),
            wanted,
            "{text}"
        );
    }
}

#[test]
fn operators_bind_in_this_order() {
    for (text, wanted) in [
        ("has(app) || has(gone) && has(gone)", true),
        ("(has(app) || has(gone)) && has(gone)", false),
        ("has(gone) && has(gone) || has(app)", true),
        ("!has(app)", false),
        ("!!has(app)", true),
        ("! ! !has(gone)", true),
        ("!has(gone) && has(app)", true),
        ("!(has(gone) && has(app))", true),
        ("!(has(gone) || has(app))", false),
        ("((app == 'web'))", true),
        ("!app == 'web'", false),
    ] {
        assert_eq!(
            selects(text, NaiveSubject::Holder, &holder()),
            wanted,
            "{text}"
        );
    }
}

#[test]
fn what_is_no_selector() {
    for text in [
        "app",
        "app = 'web'",
        "app == web",
        "app == 'web",
        "app in {'a' 'b'}",
        "app in {,}",
        "app in 'a'",
        "has (app)",
        "has()",
        "all",
        "all ()",
        "(app == 'web'",
        "app == 'web')",
        "app == 'web' &&",
        "app == 'web' & has(app)",
        "app not 'web'",
        "'app' == 'web'",
        "app == 'web'\n",
    ] {
        assert_eq!(parse(text), None, "{text}");
    }
    assert!(parse(&format!("has({})", "a".repeat(512))).is_some());
    assert!(parse(&format!("has({})", "a".repeat(513))).is_none());
}

#[test]
fn all_and_global_depend_on_what_is_selected() {
    let mut inside = holder();
    inside.namespace = Some("shop".to_owned());
    let of = NaiveSubject::Namespace;
    assert!(selects("all()", of, &inside) && !selects("all()", of, &holder()));
    assert!(!selects("global()", of, &inside) && selects("global()", of, &holder()));
    assert!(selects("!all()", of, &holder()));
    assert!(selects("all()", NaiveSubject::ServiceAccount, &holder()));
    assert!(
        !selects("has(app)", of, &inside),
        "labels of the namespace only"
    );
}

/// Every text of a selector within a value.
fn collect<'a>(value: &'a Value, into: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field
                    .as_str()
                    .filter(|_| name.to_lowercase().ends_with("selector"))
                {
                    Some(text) => into.push(text),
                    None => collect(field, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, into)),
        _ => {}
    }
}

#[test]
fn what_is_drawn_is_a_selector() {
    let mut count = 0;
    for case in 0..300 {
        let world = ClusterWorld::generate_with_calico_policies(1, case, 1);
        for object in &world.objects() {
            let mut texts = Vec::new();
            collect(object, &mut texts);
            for text in texts {
                assert!(parse(text).is_some(), "{text}");
                count += 1;
            }
        }
    }
    assert!(count > 1_000, "{count}");
}

//! Damage by hand: other values in a map, another rule, other properties of a chain.

use crate::agent::nft;
use crate::agent::shop::Shop;

/// The script that gives a map's first element another value and changes nothing else; a set loses an
/// element, or has another one instead.
pub(crate) fn altered_elements(shop: &Shop, kind: &str, name: &str) -> String {
    let listed = nft(&shop.lab, &format!("list {kind} inet palisade {name}"));
    let (_, rest) = listed.split_once("elements = {").unwrap();
    let (elements, _) = rest.rsplit_once("\n\t}").unwrap();
    let elements = elements.trim_end().strip_suffix('}').unwrap();
    let mut elements = elements.to_owned();
    if name.starts_with("p_net") {
        // `nft` 1.0 crashes on ranges beside a catch-all element: that one is then removed, too.
        let catch_all = elements.find("* : ").unwrap();
        elements.truncate(catch_all);
    }
    let elements = match elements.split_once(" : ") {
        Some((key, rest)) => {
            let end = rest.find(',').unwrap_or(rest.trim_end().len());
            format!("{key} : {}{}", other_value(&rest[..end]), &rest[end..])
        }
        None => match elements.split_once(',') {
            Some((_, rest)) => rest.to_owned(),
            None => other_value(elements.trim()),
        },
    };
    format!("flush {kind} inet palisade {name}; add element inet palisade {name} {{ {elements} }}")
}

/// The script that changes every element of a map with one value to another value.
pub(crate) fn all_altered(shop: &Shop, name: &str, from: &str, to: &str) -> String {
    let listed = nft(&shop.lab, &format!("list map inet palisade {name}"));
    let (_, rest) = listed.split_once("elements = {").unwrap();
    let (elements, _) = rest.rsplit_once("\n\t}").unwrap();
    let elements = elements.trim_end().strip_suffix('}').unwrap();
    let elements = elements.replace(&format!(" : {from}"), &format!(" : {to}"));
    format!("flush map inet palisade {name}; add element inet palisade {name} {{ {elements} }}; ")
}

fn other_value(value: &str) -> String {
    let number = value
        .strip_prefix("0x")
        .and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match (value, number) {
        // Denied becomes allowed, and so on.
        (_, Some(1)) => "0x00000002".to_owned(),
        (_, Some(2)) => "0x00000001".to_owned(),
        (_, Some(number)) => format!("0x{:08x}", number ^ 0x100),
        ("accept", _) => "drop".to_owned(),
        ("echo-request", _) => "echo-reply".to_owned(),
        _ if value.starts_with('"') => "\"nobody0\"".to_owned(),
        _ => "accept".to_owned(),
    }
}

/// The rules of a chain as they are listed, each with its handle.
pub(crate) fn rules(listed: &str) -> Vec<(String, String)> {
    let lines = listed.lines().skip_while(|line| !line.contains("chain "));
    let rules = lines
        .skip(1)
        .filter(|line| !line.contains("type filter hook"));
    rules
        .filter_map(|line| line.rsplit_once(" # handle "))
        .map(|(rule, handle)| (rule.trim().to_owned(), handle.to_owned()))
        .collect()
}

/// The rule with another interface, another limit or another verdict.
pub(crate) fn other_rule(rule: &str) -> String {
    if rule.contains("[invalid type]") {
        return "accept".to_owned();
    }
    for (from, to) in [
        ("\"pal*\"", "\"pax*\""),
        ("1000/second", "7/second"),
        ("0xffffff00", "0x00000f00"),
        ("reply", "original"),
        ("accept", "drop"),
        ("drop", "accept"),
    ] {
        if rule.contains(from) {
            return rule.replacen(from, to, 1);
        }
    }
    "accept".to_owned()
}

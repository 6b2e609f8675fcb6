//! The whole ruleset of a host in the kernel: properties and elements of each set, hook of each chain, and
//! each expression of each rule. Without counters and handles.
//!
//! It is read with `nft`, never with the product. The listing of `nft` omits how the expressions of a rule
//! are connected, so its netlink debug output is used as well.

use crate::agent::shop::Shop;
use std::collections::BTreeMap;
use std::process::Command;

/// Whether this is the end of a range at key 0.
fn is_end_at_zero(line: &str) -> bool {
    let element = line.trim().strip_prefix("element ");
    let key = element.and_then(|rest| rest.strip_suffix(" : 1 [end]"));
    key.is_some_and(|key| !key.trim().is_empty() && key.chars().all(|c| c == '0' || c == ' '))
}

/// The objects of a host by kind and name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Ruleset {
    objects: BTreeMap<String, Vec<String>>,
    /// The mark of established connections.
    pub(crate) generation: String,
}

fn nft(shop: &Shop, args: &[&str]) -> String {
    let name = shop.lab.namespace_name(shop.lab.host());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name, "nft"]).args(args);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

impl Ruleset {
    /// Reads the present ruleset.
    pub(crate) fn read(shop: &Shop) -> Self {
        let mut objects: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let expressions = nft(shop, &["--debug=netlink", "list", "ruleset"]);
        let mut object = String::new();
        for line in expressions.lines() {
            if line.starts_with("table ") {
                // The normal listing begins here.
                break;
            }
            match line.strip_prefix("inet ") {
                // A set, or a rule with its handle and that of the one before it.
                Some(head) => {
                    let is_number = |word: &&str| word.parse::<u64>().is_err();
                    let names = head.split(' ').filter(is_number);
                    object = names.collect::<Vec<_>>().join(" ");
                    if !object.contains('@') {
                        objects
                            .entry(object.clone())
                            .or_default()
                            .push("rule".to_owned());
                    }
                }
                None if line.contains("counter pkts") => {
                    objects
                        .entry(object.clone())
                        .or_default()
                        .push("counter".to_owned());
                }
                None => objects
                    .entry(object.clone())
                    .or_default()
                    .push(line.to_owned()),
            }
        }
        let mut generation = String::new();
        for (name, lines) in &mut objects {
            if name.contains('@') {
                // `nft` writes the end of no range before the first one: it has no meaning.
                lines.retain(|line| !is_end_at_zero(line));
                // A set has no order.
                lines.sort();
            }
            if name == "palisade @p_live" {
                let word = lines.iter().find_map(|line| line.split_whitespace().nth(1));
                generation = word.unwrap_or_default().to_owned();
            }
        }
        for lines in objects.values_mut().flatten() {
            if !generation.is_empty() {
                *lines = lines.replace(&generation, "GENERATION");
            }
        }
        // Properties of each object: flags, hooks, sizes. It has rules, but not elements.
        let mut table = "";
        let listed = nft(shop, &["-s", "-t", "list", "ruleset"]);
        for block in listed.split("\n\n").flat_map(|block| block.split("\n}\n")) {
            let block = match block.strip_prefix("table ") {
                Some(rest) => {
                    table = rest.split(" {").next().unwrap();
                    rest
                }
                None => block,
            };
            let mut lines: Vec<String> = block.lines().map(|line| line.trim().to_owned()).collect();
            if lines.iter().any(|line| line.contains("chain p_generation")) {
                lines.retain(|line| !line.contains("ct mark set"));
            }
            let Some(name) = lines.iter().find(|line| line.ends_with('{')).cloned() else {
                continue;
            };
            objects.insert(format!("{table}: {}", name), lines);
        }
        Ruleset {
            objects,
            generation,
        }
    }

    /// Number of objects, and of their lines.
    pub(crate) fn size(&self) -> (usize, usize) {
        (
            self.objects.len(),
            self.objects.values().map(Vec::len).sum(),
        )
    }

    /// The differences from another ruleset, except the generation.
    pub(crate) fn differs(&self, other: &Self) -> Vec<String> {
        let names = self.objects.keys().chain(other.objects.keys());
        let mut out: Vec<String> = names
            .filter(|name| self.objects.get(*name) != other.objects.get(*name))
            .map(|name| {
                let (was, is) = (self.objects.get(name), other.objects.get(name));
                format!("{name}: was {was:?}, is {is:?}")
            })
            .collect();
        out.dedup();
        out
    }
}

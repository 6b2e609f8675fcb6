//! `GET /v1/names`: the addresses of names, who asked, and which rules concern a name.

use super::CoreSnapshot;
use palisade_api::{
    NameAddressReport, NameDetail, NameList, NameReport, NameRuleReport, NamesStatus,
    UntrustedServerReport,
};
use palisade_model::{DomainName, LabelKey, LabelLookup, Policy, Rule, reserved};
use palisade_names::{StoredAddress, StoredName};
use palisade_node::clock::rfc3339;
use std::time::Duration;

/// The maximum number of names in a list; the others are counted.
const MAX_NAMES: usize = 10_000;

/// The labels of a name's addresses.
struct NameLabels<'a>(&'a DomainName);

impl LabelLookup for NameLabels<'_> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        (*key == LabelKey::reserved(reserved::DOMAIN)).then(|| self.0.as_str())
    }
}

/// `GET /v1/names`.
pub fn name_list(core: &CoreSnapshot<'_>) -> NameList {
    let names = core.names.names();
    let more = names.len().saturating_sub(MAX_NAMES);
    let names = names.into_iter().take(MAX_NAMES);
    NameList {
        api_version: palisade_api::api_version(),
        names: names.map(|name| name_report(core, name)).collect(),
        more: (more > 0).then_some(more),
    }
}

/// `GET /v1/names/NAME`.
pub fn name_detail(core: &CoreSnapshot<'_>, name: &DomainName) -> NameDetail {
    let stored = core.names.name(name).unwrap_or_else(|| StoredName {
        name: name.clone(),
        addresses: Vec::new(),
    });
    let policies = core.policy.engine.ordered_policies();
    let selects = |rule: &Rule| {
        let mut peers = rule.peers.iter();
        peers.any(|peer| {
            let selector = peer.selector.as_ref();
            // A peer without a test selects the name as it selects everything.
            selector.is_some_and(|selector| selector.matches(&NameLabels(name)))
        })
    };
    let asks = |rule: &Rule| {
        let mut names = rule.dns_names.iter().flatten();
        names.any(|pattern| pattern.matches(name.as_str()))
    };
    NameDetail {
        api_version: palisade_api::api_version(),
        name: name_report(core, stored),
        selected_by: rules(&policies, selects),
        asked_by: rules(&policies, asks),
    }
}

/// The egress rules that a test holds for.
fn rules(policies: &[Policy], test: impl Fn(&Rule) -> bool) -> Vec<NameRuleReport> {
    let of_policy = |policy: &Policy| -> Vec<NameRuleReport> {
        let rules = policy.egress.iter().flat_map(|egress| &egress.rules);
        let report = |rule: &Rule| NameRuleReport {
            policy: policy.id.to_string(),
            source: policy.rule_source(&rule.origin),
        };
        rules.filter(|rule| test(rule)).map(report).collect()
    };
    let mut found: Vec<NameRuleReport> = policies.iter().flat_map(of_policy).collect();
    // One written rule may be several.
    found.dedup();
    found
}

fn name_report(core: &CoreSnapshot<'_>, stored: StoredName) -> NameReport {
    let report = |stored: StoredAddress| {
        let owner = core.policy.engine.address_owner(stored.address);
        let workload = &stored.workload;
        let namespace = workload.namespace.as_deref().unwrap_or_default();
        NameAddressReport {
            address: stored.address.to_string(),
            workload: format!("{namespace}/{}", workload.name),
            expires: rfc3339(Duration::from_millis(stored.expires)),
            owner: owner.map(|owner| owner.to_string()),
        }
    };
    NameReport {
        name: stored.name.as_str().to_owned(),
        addresses: stored.addresses.into_iter().map(report).collect(),
    }
}

/// The part of the status; `None` where nothing is by name.
pub(crate) fn names_status(core: &CoreSnapshot<'_>) -> Option<NamesStatus> {
    let manager = core.names;
    let (names, addresses) = manager.sizes();
    let untrusted = manager.foreign_servers().iter();
    let policies = manager.dns_policy_count();
    let proxies = manager.proxies.count();
    (policies + names + proxies > 0).then(|| NamesStatus {
        policies,
        proxies,
        names,
        addresses,
        evicted: manager.address_counts().evicted,
        untrusted_servers: untrusted
            .map(|(address, answers)| UntrustedServerReport {
                address: address.to_string(),
                answers: *answers,
            })
            .collect(),
    })
}

/// Why names have no addresses, or workloads no DNS, for the reasons of the status.
pub(crate) fn names_reason(core: &CoreSnapshot<'_>) -> Option<String> {
    let policies = core.names.dns_policy_count();
    if policies == 0 {
        return None;
    }
    let of_policies = format!("{policies} policies judge or observe DNS queries by name");
    if !core.config.dns.is_proxied {
        return Some(format!(
            "{of_policies}, and dns-proxy is off: such queries are denied, and names have no addresses"
        ));
    }
    (core.names.proxies.count() == 0).then(|| {
        format!(
            "{of_policies}, and no DNS proxy is connected: start `palisade proxy` (palisade-proxy.service), or look at its log"
        )
    })
}

//! Filters by addresses, domain names and nodes.
//!
//! Promises: an address is compared as text, as Cilium does it; a prefix contains the addresses of its family alone.
//!
//! Never: resolves a name.

use super::TestBuilder;
use super::packet::layer7;
use super::patterns::{fqdn_pattern, node_pattern};
use crate::config::DEFAULT_CLUSTER;
use crate::proto::flow::layer7::Record;
use crate::proto::flow::{Flow, FlowFilter, Ip};
use palisade_model::Prefix;
use std::net::IpAddr;

pub(super) fn add_tests(builder: &mut TestBuilder, filter: &FlowFilter) -> Result<(), String> {
    add_address_tests(builder, filter)?;
    builder.add("source fqdn", &filter.source_fqdn, |builder, patterns| {
        let wanted = builder.expression(&fqdn_pattern(patterns)?)?;
        Ok(move |flow: &Flow| flow.source_names.iter().any(|name| wanted.is_match(name)))
    })?;
    builder.add(
        "destination fqdn",
        &filter.destination_fqdn,
        |builder, patterns| {
            let wanted = builder.expression(&fqdn_pattern(patterns)?)?;
            Ok(move |flow: &Flow| {
                flow.destination_names
                    .iter()
                    .any(|name| wanted.is_match(name))
            })
        },
    )?;
    builder.add("DNS query", &filter.dns_query, |builder, texts| {
        let wanted = builder.expressions(texts)?;
        Ok(move |flow: &Flow| match layer7(flow) {
            Some(Record::Dns(dns)) => wanted.iter().any(|query| query.is_match(&dns.query)),
            _ => false,
        })
    })?;
    builder.add("node name", &filter.node_name, |builder, patterns| {
        let wanted = builder.expression(&node_pattern(patterns)?)?;
        Ok(move |flow: &Flow| match flow.node_name.as_str() {
            "" => false,
            name if name.contains('/') => wanted.is_match(name),
            name => wanted.is_match(&format!("{DEFAULT_CLUSTER}/{name}")),
        })
    })
}

fn add_address_tests(builder: &mut TestBuilder, filter: &FlowFilter) -> Result<(), String> {
    builder.add("source IP", &filter.source_ip, |_, texts| {
        addresses(texts, |ip| &ip.source)
    })?;
    builder.add("destination IP", &filter.destination_ip, |_, texts| {
        addresses(texts, |ip| &ip.destination)
    })?;
    builder.add(
        "translated source IP",
        &filter.source_ip_xlated,
        |_, texts| addresses(texts, |ip| &ip.source_xlated),
    )?;
    builder.add("IP version", &filter.ip_version, |_, versions| {
        let versions = versions.to_vec();
        Ok(move |flow: &Flow| {
            let version = flow.ip.as_ref().map_or(0, |ip| ip.ip_version);
            versions.contains(&version)
        })
    })
}

/// Whether an address is one of these, or within one of these prefixes.
fn addresses(
    texts: &[String],
    address: fn(&Ip) -> &String,
) -> Result<impl Fn(&Flow) -> bool + use<>, String> {
    let mut single = Vec::new();
    let mut prefixes: Vec<Prefix> = Vec::new();
    for text in texts {
        if text.contains('/') {
            prefixes.push(
                text.parse()
                    .map_err(|_| format!("invalid IP prefix {text:?}"))?,
            );
        } else {
            let _: IpAddr = text
                .parse()
                .map_err(|_| format!("invalid IP address {text:?}"))?;
            single.push(text.clone());
        }
    }
    Ok(move |flow: &Flow| {
        let Some(text) = flow
            .ip
            .as_ref()
            .map(address)
            .filter(|text| !text.is_empty())
        else {
            return false;
        };
        single.contains(text)
            || !prefixes.is_empty()
                && text
                    .parse::<IpAddr>()
                    .is_ok_and(|address| prefixes.iter().any(|prefix| prefix.contains(address)))
    })
}

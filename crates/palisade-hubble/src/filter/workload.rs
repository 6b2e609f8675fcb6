//! Filters by what an end of a flow is: pod, Service, labels, workload, identity, cluster.
//!
//! Promises: `namespace/prefix` is read as Cilium reads it: a name alone is one in the namespace `default`.
//!
//! Never: takes an end that is no workload for one in an empty namespace.

use super::TestBuilder;
use super::selector::LabelSelector;
use crate::proto::flow::{Endpoint, Flow, FlowFilter, Service, Workload};

pub(super) fn add_tests(builder: &mut TestBuilder, filter: &FlowFilter) -> Result<(), String> {
    let source: fn(&Flow) -> Option<&Endpoint> = |flow| flow.source.as_ref();
    let destination: fn(&Flow) -> Option<&Endpoint> = |flow| flow.destination.as_ref();
    builder.add("source pod", &filter.source_pod, |_, names| {
        pods(names, source)
    })?;
    builder.add("destination pod", &filter.destination_pod, |_, names| {
        pods(names, destination)
    })?;
    builder.add("source service", &filter.source_service, |_, names| {
        services(names, |flow| flow.source_service.as_ref())
    })?;
    builder.add(
        "destination service",
        &filter.destination_service,
        |_, names| services(names, |flow| flow.destination_service.as_ref()),
    )?;
    builder.add("source label", &filter.source_label, |_, texts| {
        labels(texts, |flow| flow.source.as_ref().map(|end| &end.labels))
    })?;
    builder.add(
        "destination label",
        &filter.destination_label,
        |_, texts| {
            labels(texts, |flow| {
                flow.destination.as_ref().map(|end| &end.labels)
            })
        },
    )?;
    builder.add("node label", &filter.node_labels, |_, texts| {
        labels(texts, |flow| Some(&flow.node_labels))
    })?;
    builder.add("source workload", &filter.source_workload, |_, wanted| {
        Ok(workloads(wanted, source))
    })?;
    builder.add(
        "destination workload",
        &filter.destination_workload,
        |_, wanted| Ok(workloads(wanted, destination)),
    )?;
    builder.add("source identity", &filter.source_identity, |_, wanted| {
        Ok(identities(wanted, source))
    })?;
    builder.add(
        "destination identity",
        &filter.destination_identity,
        |_, wanted| Ok(identities(wanted, destination)),
    )?;
    builder.add(
        "source cluster name",
        &filter.source_cluster_name,
        |_, names| clusters(names, source),
    )?;
    builder.add(
        "destination cluster name",
        &filter.destination_cluster_name,
        |_, names| clusters(names, destination),
    )
}

/// What an end is read from a flow by.
type EndOf = fn(&Flow) -> Option<&Endpoint>;

/// The prefixes of names that a filter has.
struct NamePrefixes(Vec<(String, String)>);

impl NamePrefixes {
    fn new(texts: &[String]) -> Result<Self, String> {
        let split = |text: &String| {
            if text.is_empty() {
                return Err("name must not be empty".to_owned());
            }
            let mut parts = text.split('/');
            let first = parts.next().unwrap_or_default();
            let (namespace, name) = match parts.next() {
                Some(name) => (first, name),
                None => ("default", first),
            };
            Ok((namespace.to_owned(), name.to_owned()))
        };
        Ok(NamePrefixes(
            texts.iter().map(split).collect::<Result<_, _>>()?,
        ))
    }

    fn contain(&self, namespace: &str, name: &str) -> bool {
        (!namespace.is_empty() || !name.is_empty())
            && self.0.iter().any(|(wanted, prefix)| {
                name.starts_with(prefix.as_str()) && (wanted.is_empty() || wanted == namespace)
            })
    }
}

fn pods(names: &[String], end: EndOf) -> Result<impl Fn(&Flow) -> bool + use<>, String> {
    let wanted = NamePrefixes::new(names)?;
    Ok(move |flow: &Flow| {
        end(flow).is_some_and(|end| wanted.contain(&end.namespace, &end.pod_name))
    })
}

fn services(
    names: &[String],
    service: fn(&Flow) -> Option<&Service>,
) -> Result<impl Fn(&Flow) -> bool + use<>, String> {
    let wanted = NamePrefixes::new(names)?;
    Ok(move |flow: &Flow| {
        service(flow).is_some_and(|service| wanted.contain(&service.namespace, &service.name))
    })
}

fn labels(
    texts: &[String],
    labels: fn(&Flow) -> Option<&Vec<String>>,
) -> Result<impl Fn(&Flow) -> bool + use<>, String> {
    let selectors = texts.iter().map(|text| LabelSelector::parse(text));
    let selectors: Vec<LabelSelector> = selectors.collect::<Result<_, _>>()?;
    Ok(move |flow: &Flow| {
        let labels = labels(flow).map_or(&[][..], Vec::as_slice);
        selectors.iter().any(|selector| selector.matches(labels))
    })
}

fn workloads(wanted: &[Workload], end: EndOf) -> impl Fn(&Flow) -> bool + use<> {
    let wanted = wanted.to_vec();
    move |flow: &Flow| {
        let workloads = end(flow).map_or(&[][..], |end| end.workloads.as_slice());
        workloads.iter().any(|workload| {
            wanted.iter().any(|wanted| {
                (wanted.name.is_empty() || wanted.name == workload.name)
                    && (wanted.kind.is_empty() || wanted.kind == workload.kind)
            })
        })
    }
}

fn identities(wanted: &[u32], end: EndOf) -> impl Fn(&Flow) -> bool + use<> {
    let wanted = wanted.to_vec();
    move |flow: &Flow| end(flow).is_some_and(|end| wanted.contains(&end.identity))
}

fn clusters(names: &[String], end: EndOf) -> Result<impl Fn(&Flow) -> bool + use<>, String> {
    if names.iter().any(String::is_empty) {
        return Err("name must not be empty".to_owned());
    }
    let wanted = names.to_vec();
    Ok(move |flow: &Flow| {
        let cluster = end(flow).map_or("", |end| end.cluster_name.as_str());
        wanted.iter().any(|wanted| wanted == cluster)
    })
}

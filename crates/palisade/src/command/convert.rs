//! `palisade convert`: policies of manifests in another dialect.

use super::manifests::{check_paths_exist, problem_reports};
use super::status::problem_text;
use crate::cli::{ConvertArgs, ConvertTarget, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::{pluralize, print_output};
use palisade_api::{ConvertReport, InexpressibleReport, ObjectRef, ProblemSeverity};
use palisade_convert::{Inexpressible, PolicySource, TargetDialect, convert, is_policy};
use palisade_manifest::to_yaml;
use palisade_model::ObjectId;
use palisade_source::load_manifests;
use palisade_text::printable;
use std::collections::{BTreeMap, BTreeSet};

/// Writes the policies; exit code 1 if one could not be written, or if the manifests have errors.
pub(crate) fn run(args: &ConvertArgs, format: OutputFormat) -> CommandResult {
    check_paths_exist(&args.files.files)?;
    let loaded = load_manifests(&args.files.files);
    let problems = problem_reports(&loaded);
    for problem in problems
        .iter()
        .filter(|p| p.severity == ProblemSeverity::Error)
    {
        eprintln!("{}", problem_text(problem));
    }
    let mut definitions: BTreeMap<&ObjectId, Vec<&serde_json::Value>> = BTreeMap::new();
    let mut ids: Vec<&ObjectId> = Vec::new();
    for manifest in loaded
        .manifests
        .iter()
        .filter(|manifest| is_policy(&manifest.id))
    {
        let all = definitions.entry(&manifest.id).or_default();
        if all.is_empty() {
            ids.push(&manifest.id);
        }
        all.push(&manifest.manifest);
    }
    let source = |id: &&ObjectId| {
        let manifests = definitions.get(id).map_or(&[][..], |all| &all[..]);
        PolicySource::of_definitions((*id).clone(), manifests, &loaded.state)
    };
    let sources: Vec<PolicySource> = ids.iter().map(source).collect();
    if sources.iter().all(|source| !is_selected(source.id(), args)) && args.kind.is_some() {
        return Err(CommandError::usage(not_there(args)));
    }
    let target = target(args.to);
    let converted = convert(&sources, |id| is_selected(id, args), &loaded.state, target);
    let report = ConvertReport {
        api_version: palisade_api::api_version(),
        objects: converted
            .objects
            .into_iter()
            .map(|written| written.object)
            .collect(),
        inexpressible: converted
            .inexpressible
            .iter()
            .map(inexpressible_report)
            .collect(),
    };
    print_output(format, &report, |report| {
        let documents: Vec<String> = report.objects.iter().map(to_yaml).collect();
        documents.join("---\n")
    })?;
    if format != OutputFormat::Json {
        for line in &report.inexpressible {
            eprintln!("{}", printable(&inexpressible_text(line)));
        }
        if !report.inexpressible.is_empty() {
            let refused: BTreeSet<String> = report
                .inexpressible
                .iter()
                .map(|u| u.policy.path_name())
                .collect();
            let count = pluralize(report.objects.len(), "object");
            eprintln!("{count} written, {} not convertible", refused.len());
        }
    }
    Ok(ExitStatus::of(
        !report.inexpressible.is_empty() || loaded.has_errors(),
    ))
}

/// The dialect that an argument names.
pub(super) fn target(target: ConvertTarget) -> TargetDialect {
    match target {
        ConvertTarget::Kubernetes => TargetDialect::Kubernetes,
        ConvertTarget::ClusterNetworkPolicy => TargetDialect::ClusterNetworkPolicy,
        ConvertTarget::Cilium => TargetDialect::Cilium,
        ConvertTarget::Calico => TargetDialect::Calico,
    }
}

/// Whether a policy is one of those that the command line names. A kind is named without regard to case.
fn is_selected(id: &ObjectId, args: &ConvertArgs) -> bool {
    let is_of = |wanted: &Option<String>, value: Option<&str>| match wanted {
        Some(wanted) => value == Some(wanted),
        None => true,
    };
    let kind = &id.kind;
    let is_of_kind = args.kind.as_ref().is_none_or(|wanted| {
        let full = format!("{}.{}", kind.name(), kind.group());
        wanted.eq_ignore_ascii_case(kind.name()) || wanted.eq_ignore_ascii_case(&full)
    });
    is_of_kind
        && is_of(&args.name, Some(&id.name))
        && is_of(&args.namespace, id.namespace.as_deref())
}

fn not_there(args: &ConvertArgs) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let namespace = args
        .namespace
        .as_ref()
        .map(|name| format!(" in namespace {name}"));
    format!(
        "there is no {} {}{}",
        text(&args.kind),
        text(&args.name),
        namespace.unwrap_or_default()
    )
}

fn inexpressible_report(refusal: &Inexpressible) -> InexpressibleReport {
    InexpressibleReport {
        policy: ObjectRef::new(&refusal.policy, None),
        rule: refusal.rule.clone(),
        reason: refusal.reason.to_string(),
        at: refusal.line.as_ref().map(ToString::to_string),
    }
}

/// A refusal in one line: where, what and why.
fn inexpressible_text(refusal: &InexpressibleReport) -> String {
    let at = refusal.at.as_ref().map(|at| format!("{at}: "));
    let rule = refusal.rule.as_ref().map(|rule| format!(": {rule}"));
    format!(
        "{}{}{}: {}",
        at.unwrap_or_default(),
        refusal.policy,
        rule.unwrap_or_default(),
        refusal.reason
    )
}

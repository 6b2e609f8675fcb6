//! Loading of manifests for the commands that analyse them.

use crate::command::progress::ProgressMeter;
use crate::command::status::problem_text;
use crate::exit::{CommandError, ExitStatus};
use palisade_analysis::UnnamedPorts;
use palisade_api::{ProblemReport, ProblemSeverity};
use palisade_dialects::is_unenforced_policy;
use palisade_model::{ObjectId, State};
use palisade_source::{LoadedInput, UnjudgedPod, load_with_progress};
use palisade_text::printable;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A loaded state, and the exit code that it leads to.
pub(crate) struct LoadedManifests {
    /// The state that the manifests describe.
    pub(crate) state: State,
    /// The pods of the manifests that are no endpoints.
    pub(crate) unjudged_pods: Vec<UnjudgedPod>,
    /// The ports without a name that pods and workloads declare.
    pub(crate) unnamed_ports: UnnamedPorts,
    /// The number of objects of each ignored kind.
    pub(crate) ignored: BTreeMap<String, usize>,
    /// Success, or that problems were found.
    pub(crate) exit: ExitStatus,
}

impl LoadedManifests {
    /// The error for a name that no endpoint of the state has: what the pod of that name is, or `error`.
    pub(crate) fn unknown_name(&self, name: &str, error: String) -> CommandError {
        let pod = UnjudgedPod::find(&self.unjudged_pods, name);
        CommandError::usage(pod.map_or(error, |pod| printable(&pod.to_string()).into_owned()))
    }
}

/// Reads files. Problems are printed on standard error and do not prevent the analysis, which covers what can
/// be read: an invalid policy isolates its pods, as on a host. The exit code reports problems. Only a path
/// that does not exist is a usage error.
pub(crate) fn load_state(files: &[PathBuf]) -> Result<LoadedManifests, CommandError> {
    check_paths_exist(files)?;
    Ok(report_problems(load_showing_progress(files)))
}

/// Reads the present manifests with a change: the objects of `change` are added or replace others, and those that
/// `deletions` name are left out. Problems are as for [`load_state`].
pub(crate) fn load_changed(
    present: &[PathBuf],
    change: &[PathBuf],
    deletions: &[String],
) -> Result<LoadedManifests, CommandError> {
    let wanted: Vec<DeletedObject> = deletions
        .iter()
        .map(|text| DeletedObject::parse(text))
        .collect::<Result<_, _>>()?;
    let found: Rc<RefCell<BTreeSet<usize>>> = Rc::default();
    let is_deleted = {
        let found = Rc::clone(&found);
        move |id: &ObjectId| {
            let named = wanted.iter().position(|object| object.is(id));
            found.borrow_mut().extend(named);
            named.is_some()
        }
    };
    let mut meter = ProgressMeter::on_terminal();
    let loaded = palisade_source::load_changed(present, change, Box::new(is_deleted), &mut |at| {
        meter.update(at);
    });
    meter.clear();
    for (index, text) in deletions.iter().enumerate() {
        if !found.borrow().contains(&index) {
            return Err(CommandError::usage(format!(
                "--delete {text}: the present manifests have no such object"
            )));
        }
    }
    Ok(report_problems(loaded))
}

/// An object to be deleted, as the command line names it.
struct DeletedObject {
    /// With or without the API group.
    kind: String,
    namespace: Option<String>,
    name: String,
}

impl DeletedObject {
    fn parse(text: &str) -> Result<Self, CommandError> {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, namespace, name) = match parts[..] {
            [kind, name] => (kind, None, name),
            [kind, namespace, name] => (kind, Some(namespace.to_owned()), name),
            _ => {
                return Err(CommandError::usage(format!(
                    "--delete {text}: write KIND/NAMESPACE/NAME, or KIND/NAME"
                )));
            }
        };
        Ok(DeletedObject {
            kind: kind.to_owned(),
            namespace,
            name: name.to_owned(),
        })
    }

    fn is(&self, id: &ObjectId) -> bool {
        let kind = &id.kind;
        let full = format!("{}.{}", kind.name(), kind.group());
        *self.name == *id.name
            && self.namespace.as_deref() == id.namespace.as_deref()
            && (self.kind.eq_ignore_ascii_case(kind.name())
                || self.kind.eq_ignore_ascii_case(&full))
    }
}

/// Prints the errors.
fn report_problems(loaded: LoadedInput) -> LoadedManifests {
    for problem in problem_reports(&loaded)
        .iter()
        .filter(|p| p.severity == ProblemSeverity::Error)
    {
        eprintln!("{}", problem_text(problem));
    }
    let exit = if loaded.has_errors() {
        ExitStatus::ProblemsFound
    } else {
        ExitStatus::Success
    };
    LoadedManifests {
        state: loaded.state,
        unjudged_pods: loaded.unjudged_pods,
        unnamed_ports: loaded.unnamed_ports.into_iter().collect(),
        ignored: loaded.ignored,
        exit,
    }
}

/// Reads files and shows the progress on a terminal.
pub(crate) fn load_showing_progress(files: &[PathBuf]) -> LoadedInput {
    let mut meter = ProgressMeter::on_terminal();
    let loaded = load_with_progress(files, &mut |progress| meter.update(progress));
    meter.clear();
    loaded
}

/// Converts the problems of a source to API types.
pub(crate) fn problem_reports(loaded: &LoadedInput) -> Vec<ProblemReport> {
    loaded
        .diagnostics
        .iter()
        .map(palisade_views::status::problem_report)
        .collect()
}

/// A path on the command line that does not exist is a usage error, not a problem of the manifests.
pub(crate) fn check_paths_exist(files: &[PathBuf]) -> Result<(), CommandError> {
    let missing = |path: &&PathBuf| path.as_os_str() != "-" && !Path::exists(path);
    match files.iter().find(missing) {
        Some(path) => Err(CommandError::usage(format!(
            "no such file or directory: {}",
            printable(&path.display().to_string())
        ))),
        None => Ok(()),
    }
}

/// The counts of ignored kinds: those of policies of other software, and those that do not concern policy.
pub(crate) fn split_ignored(
    ignored: BTreeMap<String, usize>,
) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    ignored
        .into_iter()
        .partition(|(kind, _)| is_unenforced_policy(kind))
}

/// What a summary says about policies of other software, after what it says before; empty if there are none.
pub(crate) fn not_enforced_text(kinds: &BTreeMap<String, usize>) -> String {
    let count: usize = kinds.values().sum();
    let names: Vec<&str> = kinds.keys().map(|kind| &**kind).collect();
    let what = match count {
        0 => return String::new(),
        1 => "1 policy".to_owned(),
        count => format!("{count} policies"),
    };
    let names = printable(&names.join(", ")).into_owned();
    format!(", {what} of other software, not enforced by Palisade ({names})")
}

//! Recognizes files that are not manifests, and words their problems.
//!
//! For files of kustomize and Helm the message names the command that renders them. The content of any other
//! non-manifest is never quoted: a link may lead to a file that readers of the messages are not allowed to
//! read. It never drops objects that could be read.

use crate::file_problem::{file_problem, printable_path};
use palisade_manifest::{Problem, RawObject};
use std::path::Path;

/// How many folders above a template are searched for its chart.
const MAX_CHART_LEVELS: usize = 4;

/// Counts of the objects of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileSummary {
    objects: usize,
    kustomize: bool,
    /// Whether a name contains a template placeholder.
    has_placeholders: bool,
}

impl FileSummary {
    /// Adds an object; returns whether it is a real one.
    pub(crate) fn add(&mut self, object: &RawObject) -> bool {
        let has_placeholder = |text: &str| text.contains("{{");
        let has_placeholders = has_placeholder(&object.name)
            || object.namespace.as_deref().is_some_and(has_placeholder);
        self.has_placeholders |= has_placeholders;
        self.kustomize |= object.group() == KUSTOMIZE_GROUP;
        self.objects += usize::from(!has_placeholders);
        !has_placeholders
    }
}

const KUSTOMIZE_GROUP: &str = "kustomize.config.k8s.io";

/// Replaces the problems of a file that is not a manifest. `bytes` is its text or the beginning of it.
pub(crate) fn reword_problems(
    path: &Path,
    bytes: &[u8],
    summary: FileSummary,
    problems: &mut Vec<Problem>,
) {
    if let Some(reason) = render_reason(path, bytes, summary, problems) {
        *problems = vec![file_problem(path, reason)];
    } else if !problems.is_empty() && summary.objects == 0 && !is_manifest(bytes) {
        let missing = match (has_key(bytes, b"apiVersion"), has_key(bytes, b"kind")) {
            (true, _) => "no `kind`",
            (_, true) => "no `apiVersion`",
            _ => "no `apiVersion` and no `kind`",
        };
        // Problems of the file as a whole quote nothing of its content.
        problems.retain(|problem| {
            let whole = [
                "the file ",
                "this document, or this item of a list, has more than",
            ];
            whole.iter().any(|words| problem.reason.starts_with(words))
        });
        if problems.is_empty() {
            let reason =
                format!("not a Kubernetes manifest ({missing}); the content is not quoted");
            problems.push(file_problem(path, reason));
        }
    }
}

/// The message with the render command, if the file looks like kustomize or Helm input.
fn render_reason(
    path: &Path,
    bytes: &[u8],
    summary: FileSummary,
    problems: &[Problem],
) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let named = matches!(name, "kustomization.yaml" | "kustomization.yml");
    let has_no_objects = summary.objects == 0;
    let broken = !problems.is_empty();
    let mentions_kustomize = || broken && contains(bytes, KUSTOMIZE_GROUP.as_bytes());
    let of_kustomize = summary.kustomize
        || has_no_objects && !summary.has_placeholders && (named || mentions_kustomize());
    if of_kustomize {
        let command = format!("kubectl kustomize {}", printable_path(folder));
        return Some(render_message("a kustomize file", &command));
    }
    if !broken && !summary.has_placeholders {
        return None;
    }
    let chart = find_chart(folder);
    let helm = |what: &str, folder: &Path| {
        let command = format!("helm template {}", printable_path(folder));
        Some(render_message(what, &command))
    };
    if has_no_objects && (name == "Chart.yaml" || chart == Some(folder) && is_chart_file(name)) {
        return helm("part of a Helm chart", folder);
    }
    let of_helm: [&[u8]; 6] = [
        b"{{-",
        b".Values.",
        b".Release.",
        b".Chart.",
        b"{{ include",
        b"{{ template",
    ];
    let looks_like_helm = chart.is_some() || of_helm.iter().any(|words| contains(bytes, words));
    if summary.has_placeholders || looks_like_helm && contains(bytes, b"{{") {
        let above = || {
            folder
                .ancestors()
                .find(|at| at.ends_with("templates"))?
                .parent()
        };
        return helm("a Helm template", chart.or_else(above).unwrap_or(folder));
    }
    None
}

fn render_message(what: &str, command: &str) -> String {
    format!("this is {what}, not a manifest; use the output of `{command}`")
}

fn is_chart_file(name: &str) -> bool {
    name.starts_with("values")
        || name.ends_with("values.yaml")
        || name.ends_with("values.yml")
        || name.starts_with("requirements.")
}

/// The folder of the chart that a folder belongs to.
fn find_chart(folder: &Path) -> Option<&Path> {
    let mut above = folder.ancestors().take(MAX_CHART_LEVELS + 1);
    above.find(|folder| folder.join("Chart.yaml").is_file())
}

/// Whether a text is a manifest, or intended as one.
fn is_manifest(bytes: &[u8]) -> bool {
    has_key(bytes, b"apiVersion") && has_key(bytes, b"kind")
}

fn has_key(bytes: &[u8], key: &[u8]) -> bool {
    let mut from = 0;
    while let Some(at) = find(&bytes[from..], key) {
        let begins = from + at;
        from = begins + key.len();
        let inside = begins.checked_sub(1).and_then(|at| bytes.get(at));
        let rest = &bytes[from..];
        let rest = rest.strip_prefix(b"\"").unwrap_or(rest);
        let rest = rest.strip_prefix(b"'").unwrap_or(rest);
        let is_key = rest.trim_ascii_start().starts_with(b":");
        if is_key && !inside.is_some_and(u8::is_ascii_alphanumeric) {
            return true;
        }
    }
    false
}

fn contains(bytes: &[u8], words: &[u8]) -> bool {
    find(bytes, words).is_some()
}

fn find(bytes: &[u8], words: &[u8]) -> Option<usize> {
    bytes
        .windows(words.len())
        .position(|window| window == words)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "a test writes files")]
    use super::*;
    use palisade_manifest::{Limits, extract_objects, parse};

    /// The reasons reported for a file in a folder of files, and the number of objects left.
    fn reasons_and_objects(files: &[(&str, &str)], name: &str) -> (Vec<String>, usize) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let path = dir.path().join(name);
        let text = std::fs::read(&path).unwrap();
        let limits = Limits::default();
        let mut found = extract_objects(parse("f", &text, &limits), &limits);
        let mut seen = FileSummary::default();
        found.objects.retain(|object| seen.add(object));
        reword_problems(&path, &text, seen, &mut found.problems);
        let top = dir.path().display().to_string();
        let reasons = found.problems.iter().map(Problem::to_string);
        let reasons = reasons.map(|text| text.replace(&top, "TOP"));
        (reasons.collect(), found.objects.len())
    }

    const POLICY: &str =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\n";

    #[test]
    fn kustomize_and_helm_are_named_with_their_command() {
        let kustomize = "TOP/x/K:1:1: this is a kustomize file, not a manifest; use the output of `kubectl \
                         kustomize TOP/x`";
        for (name, text) in [
            ("kustomization.yaml", "resources: [a.yaml]\n"),
            ("kustomization.yml", "namePrefix: x-\n"),
            (
                "kustomization.yaml",
                "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a]\n",
            ),
            (
                "other.yaml",
                "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nmetadata: {name: x}\n",
            ),
        ] {
            let path = format!("x/{name}");
            let (reasons, _) = reasons_and_objects(&[(&path, text)], &path);
            assert_eq!(reasons, [kustomize.replace('K', name)], "{text}");
        }
        // Flux has a kind of the same name, and users name its file like that.
        let flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\n\
                    metadata: {name: apps}\n";
        assert_eq!(
            reasons_and_objects(&[("kustomization.yaml", flux)], "kustomization.yaml"),
            (vec![], 1)
        );

        let chart = (
            "c/Chart.yaml",
            "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
        );
        let template = POLICY.replace("name: a", "name: {{ .Release.Name }}-a");
        let quoted = POLICY.replace("name: a", "name: \"{{ include \\\"shop.name\\\" . }}\"");
        let control = format!("{{{{- if .Values.on }}}}\n{POLICY}{{{{- end }}}}\n");
        for (path, text, what, folder) in [
            (chart.0, chart.1, "part of a Helm chart", "TOP/c"),
            (
                "c/values.yaml",
                "password: hunter2\n",
                "part of a Helm chart",
                "TOP/c",
            ),
            (
                "c/values-prod.yaml",
                "a: [\n",
                "part of a Helm chart",
                "TOP/c",
            ),
            ("c/templates/np.yaml", &template, "a Helm template", "TOP/c"),
            ("c/templates/np.yaml", &quoted, "a Helm template", "TOP/c"),
            (
                "c/templates/sub/np.yaml",
                &control,
                "a Helm template",
                "TOP/c",
            ),
            ("d/templates/np.yaml", &control, "a Helm template", "TOP/d"),
            ("d/np.yaml", &template, "a Helm template", "TOP/d"),
        ] {
            let (reasons, objects) = reasons_and_objects(&[chart, (path, text)], path);
            let expected = format!(
                "TOP/{path}:1:1: this is {what}, not a manifest; use the output of `helm template {folder}`"
            );
            assert_eq!((reasons, objects), (vec![expected], 0), "{path} {text}");
        }
        // Braces in a string of a valid manifest are accepted, in a chart as elsewhere.
        let sound = POLICY.replace(
            "{name: a}",
            "{name: a, annotations: {t: \"{{ .Values.x }}\"}}",
        );
        for path in ["np.yaml", "c/templates/np.yaml"] {
            assert_eq!(
                reasons_and_objects(&[chart, (path, &sound)], path),
                (vec![], 1),
                "{path}"
            );
        }
        // Two braces alone do not make a template.
        let braces = "apiVersion: v1\nkind: [{{a: b}}\n";
        let (reasons, _) = reasons_and_objects(&[("p.yaml", braces)], "p.yaml");
        assert!(!reasons[0].contains("helm"), "{reasons:?}");
    }

    #[test]
    fn what_is_no_manifest_is_not_quoted() {
        for text in [
            "root:x:0:0:root:/root:/bin/sh\nhunter2:y:1:1::/:\n",
            "hunter2\n",
            "'hunter2'\n",
            "[hunter2, hunter2]",
            "password: hunter2\n",
            "hunter2: 1\nhunter2: 2\n",
            "a: !!int hunter2\n",
            "? [hunter2]\n: x\n",
            "a: &hunter2 [*hunter2]\n",
            "b: *hunter2\n",
            "%hunter2\n---\na\n",
            "{\"auths\": {\"hunter2\": 1, \"hunter2\": 2}}",
            "{\"hunter2\" x",
            "hunter2\u{1}\n",
            "kind: hunter2\npassword: hunter2\n",
            "apiVersion: hunter2\nmetadata: {name: hunter2}\n",
            "metadata: {name: hunter2}\nitems: hunter2\n",
        ] {
            let (reasons, objects) = reasons_and_objects(&[("x.yaml", text)], "x.yaml");
            assert_eq!((reasons.len(), objects), (1, 0), "{text}: {reasons:?}");
            assert!(
                reasons[0].contains("not a Kubernetes manifest"),
                "{text}: {reasons:?}"
            );
            assert!(!reasons[0].contains("hunter2"), "{text}: {reasons:?}");
        }
        // A broken manifest still gets the exact error.
        let broken = format!("{POLICY}spec: {{podSelector: [}}\n");
        let (reasons, _) = reasons_and_objects(&[("x.yaml", &broken)], "x.yaml");
        assert!(reasons[0].contains("not YAML"), "{reasons:?}");
        let (reasons, _) = reasons_and_objects(&[("x.yaml", "a: b\n\0\0")], "x.yaml");
        assert_eq!(reasons.len(), 1);
    }
}

//! The parameters of etcd: what they mean together, and which contradict each other. Reads no file.

use super::{ConfigBuilder, ConfigProblem, Parameter, ParameterValue};
use palisade_etcd::EtcdOptions;
use std::path::PathBuf;

/// The parameters that mean nothing without `etcd`.
const DETAILS: [&str; 6] = [
    "etcd-prefix",
    "etcd-ca-file",
    "etcd-cert-file",
    "etcd-key-file",
    "etcd-user",
    "etcd-password-file",
];
/// The parameters that mean nothing without TLS.
const TLS: [&str; 3] = ["etcd-ca-file", "etcd-cert-file", "etcd-key-file"];

impl ConfigBuilder {
    /// The etcd that objects are read from.
    pub(super) fn etcd(&self) -> Option<EtcdOptions> {
        let has_tls = TLS.iter().any(|name| self.file(name).is_some());
        let endpoints = self.etcd_endpoints().iter();
        let endpoints: Vec<String> = endpoints
            .filter_map(|text| EtcdOptions::parse_endpoint(text, has_tls).ok())
            .collect();
        let user = Some(self.text("etcd-user").to_owned()).filter(|user| !user.is_empty());
        (!endpoints.is_empty()).then(|| EtcdOptions {
            endpoints,
            prefix: self.text("etcd-prefix").to_owned(),
            ca_file: self.file("etcd-ca-file"),
            identity: self.file("etcd-cert-file").map(|certificate| {
                let key = self.file("etcd-key-file");
                (certificate.clone(), key.unwrap_or(certificate))
            }),
            user: user.map(|user| (user, self.path("etcd-password-file"))),
        })
    }

    fn etcd_endpoints(&self) -> &[String] {
        match self.values.get("etcd") {
            Some(ParameterValue::Names(endpoints)) => endpoints,
            _ => &[],
        }
    }

    /// The file that a parameter names, if it names one.
    fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.path(name)).filter(|path| !path.as_os_str().is_empty())
    }

    /// Contradictions between the values that could be parsed.
    pub(super) fn etcd_contradictions(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        let mut refuse = |one: &str, other: &str, reason: String| {
            problems.push(ConfigProblem::Contradiction {
                one: self.describe(one),
                other: self.describe(other),
                reason,
            });
        };
        let is_set = |name: &str| {
            let default = Parameter::by_name(name).map(|parameter| parameter.default);
            self.values.contains_key(name) && default != Some(self.raw(name).0)
        };
        if !self.values.contains_key("etcd") {
            return problems;
        }
        if self.etcd_endpoints().is_empty() {
            for name in DETAILS.into_iter().filter(|name| is_set(name)) {
                let reason =
                    format!("no etcd is used; set etcd to its endpoints, or remove {name}");
                refuse(name, "etcd", reason);
            }
            return problems;
        }
        let is_plain = |text: &&String| text.starts_with("http:");
        if let Some(plain) = self.etcd_endpoints().iter().find(is_plain) {
            for name in TLS.into_iter().filter(|name| is_set(name)) {
                let reason =
                    format!("{plain} has no TLS; write it with https://, or remove {name}");
                refuse(name, "etcd", reason);
            }
        }
        for (name, other) in [
            ("etcd-key-file", "etcd-cert-file"),
            ("etcd-password-file", "etcd-user"),
        ] {
            if is_set(name) && !is_set(other) {
                refuse(
                    name,
                    other,
                    format!("the file is not used; set {other}, or remove {name}"),
                );
            }
        }
        problems
    }
}

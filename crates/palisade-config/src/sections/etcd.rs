//! etcd as a source of objects: what its parameters mean together, and which contradict each other.

use crate::section::{Section, section};
use crate::source::Contradictions;
use crate::value_parser::{etcd_endpoints, key_prefix, optional_path, optional_text, path};
use crate::values::EtcdEndpoint;
use std::path::{Path, PathBuf};

section! {
    /// etcd as a source of objects.
    pub struct EtcdConfig: "etcd";

    /// The endpoints of an etcd from which objects are read, such as https://10.0.0.1:2379. The next
    /// one is used if one fails. Without a scheme, https if etcd-ca-file or etcd-cert-file is set.
    endpoints: Vec<EtcdEndpoint> = "etcd", etcd_endpoints(), "", "ENDPOINT,…", Restart, set_by_chart;

    /// The prefix of all keys in etcd: objects are at PREFIX/objects/GROUP/KIND/NAMESPACE/NAME (core for the core group,
    /// - for no namespace).
    prefix: String = "etcd-prefix", key_prefix(), "/palisade", "PREFIX", Restart, set_by_chart;

    /// The certificates (PEM) of the authorities that sign etcd's certificate; empty: those of this host.
    ca_file: Option<PathBuf> = "etcd-ca-file", optional_path(), "", "FILE", Restart, set_by_chart;

    /// The client certificate (PEM) for etcd, read again for each connection.
    cert_file: Option<PathBuf> = "etcd-cert-file", optional_path(), "", "FILE", Restart, set_by_chart;

    /// The private key (PEM) of etcd-cert-file; empty: it is in etcd-cert-file itself.
    key_file: Option<PathBuf> = "etcd-key-file", optional_path(), "", "FILE", Restart, set_by_chart;

    /// The user of etcd, with the password in etcd-password-file.
    user: Option<String> = "etcd-user", optional_text(), "", "NAME", Restart, set_by_chart;

    /// The file whose first line is the password of etcd-user, read again for each login.
    password_file: PathBuf =
        "etcd-password-file", path(), "/etc/palisade/etcd-password", "FILE", Restart, set_by_chart;
}

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

impl EtcdConfig {
    /// The endpoints as URLs; empty if no etcd is used.
    pub fn urls(&self) -> Vec<String> {
        let files = [&self.ca_file, &self.cert_file, &self.key_file];
        let has_tls = files.into_iter().any(Option::is_some);
        let endpoints = self.endpoints.iter();
        endpoints.map(|endpoint| endpoint.url(has_tls)).collect()
    }

    /// The files of the client certificate and of its key.
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        let certificate = self.cert_file.as_deref()?;
        Some((certificate, self.key_file.as_deref().unwrap_or(certificate)))
    }

    /// Adds the parameters that are not used.
    pub(crate) fn find_contradictions(&self, contradictions: &mut Contradictions<'_>) {
        let is_set = |contradictions: &Contradictions<'_>, name| {
            contradictions.is_set(Self::TABLE.parameters, name)
        };
        if self.endpoints.is_empty() {
            for name in DETAILS {
                if is_set(contradictions, name) {
                    let reason =
                        format!("no etcd is used; set etcd to its endpoints, or remove {name}");
                    contradictions.add(name, "etcd", reason);
                }
            }
            return;
        }
        let mut endpoints = self.endpoints.iter();
        if let Some(plain) = endpoints.find(|endpoint| endpoint.has_tls == Some(false)) {
            for name in TLS {
                if is_set(contradictions, name) {
                    let reason = format!(
                        "{} has no TLS; write it with https://, or remove {name}",
                        plain.url(false)
                    );
                    contradictions.add(name, "etcd", reason);
                }
            }
        }
        for (name, other) in [
            ("etcd-key-file", "etcd-cert-file"),
            ("etcd-password-file", "etcd-user"),
        ] {
            if is_set(contradictions, name) && !is_set(contradictions, other) {
                let reason = format!("the file is not used; set {other}, or remove {name}");
                contradictions.add(name, other, reason);
            }
        }
    }
}

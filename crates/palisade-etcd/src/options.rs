//! Where etcd is, under which prefix the objects are, and the credentials.

use std::path::PathBuf;

/// How etcd is reached, and where the objects are.
///
/// Below the prefix, `objects/GROUP/KIND/NAMESPACE/NAME` is an object that anything may write: one object of
/// that name, as a manifest. The group of core kinds is `core`, the namespace of cluster-wide kinds is `-`. What
/// `palisade push` writes is below `bundles`, and the key `bundle` says which of them counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOptions {
    /// The endpoints, each `http://HOST:PORT` or `https://HOST:PORT`; at least one.
    pub endpoints: Vec<String>,
    /// The prefix of all keys, without a slash at its end.
    pub prefix: String,
    /// The certificates of the authorities that etcd's certificate is checked with, as PEM; `None` for those
    /// of this host.
    pub ca_file: Option<PathBuf>,
    /// The client certificate and its key, as PEM.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user, and the file of its password.
    pub user: Option<(String, PathBuf)>,
}

impl EtcdOptions {
    /// Where the objects are, for messages.
    #[must_use]
    pub fn location(&self) -> String {
        format!("{}{}", self.endpoints.join(","), self.prefix)
    }
}

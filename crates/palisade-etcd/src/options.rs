//! Where etcd is, under which prefix the objects are, and the credentials.

use std::path::PathBuf;
use thiserror::Error;

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

/// Why options are invalid, phrased to follow the value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EtcdOptionsError {
    /// An endpoint is not one.
    #[error(
        "contains {0:?}, which is not an endpoint such as https://etcd.example:2379 or 10.0.0.1:2379"
    )]
    Endpoint(String),
    /// The prefix is not one.
    #[error("is not a prefix such as /palisade: it begins with / and has a name")]
    Prefix,
}

impl EtcdOptions {
    /// The endpoint in a text; without a scheme it is `https` if `has_tls`, else `http`.
    ///
    /// # Errors
    /// If it is not an endpoint.
    pub fn parse_endpoint(text: &str, has_tls: bool) -> Result<String, EtcdOptionsError> {
        let wrong = || EtcdOptionsError::Endpoint(text.to_owned());
        let (scheme, host) = match text.split_once("://") {
            Some((scheme, host)) => (scheme, host),
            None if has_tls => ("https", text),
            None => ("http", text),
        };
        let host = host.strip_suffix('/').unwrap_or(host);
        if !["http", "https"].contains(&scheme) {
            return Err(wrong());
        }
        let uri: http::Uri = format!("{scheme}://{host}").parse().map_err(|_| wrong())?;
        let has_user = uri
            .authority()
            .is_none_or(|authority| authority.as_str().contains('@'));
        let is_bare = uri.path() == "/" && uri.query().is_none();
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        match has_user || !is_bare || !has_host || uri.port_u16().is_none() {
            true => Err(wrong()),
            false => Ok(format!("{scheme}://{host}")),
        }
    }

    /// The prefix in a text, without a slash at its end.
    ///
    /// # Errors
    /// If it is empty or does not begin with a slash.
    pub fn parse_prefix(text: &str) -> Result<String, EtcdOptionsError> {
        let prefix = text.trim_end_matches('/');
        let is_plain = prefix.chars().all(|c| c.is_ascii_graphic());
        match prefix.len() > 1 && prefix.starts_with('/') && is_plain {
            true => Ok(prefix.to_owned()),
            false => Err(EtcdOptionsError::Prefix),
        }
    }

    /// Where the objects are, for messages.
    #[must_use]
    pub fn location(&self) -> String {
        format!("{}{}", self.endpoints.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_host_and_a_port() {
        let parse = |text: &str| EtcdOptions::parse_endpoint(text, false);
        assert_eq!(parse("10.0.0.1:2379").unwrap(), "http://10.0.0.1:2379");
        assert_eq!(parse("https://[::1]:2379/").unwrap(), "https://[::1]:2379");
        let secure = EtcdOptions::parse_endpoint("e.example:2379", true);
        assert_eq!(secure.unwrap(), "https://e.example:2379");
        for wrong in [
            "",
            "e.example",
            "ftp://e:1",
            "http://e:1/path",
            "http://u:p@e:1",
            "e:x",
            "http://:1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_is_a_path() {
        assert_eq!(EtcdOptions::parse_prefix("/a/b/").unwrap(), "/a/b");
        for wrong in ["", "/", "palisade", "/a b"] {
            assert!(EtcdOptions::parse_prefix(wrong).is_err(), "{wrong}");
        }
    }
}

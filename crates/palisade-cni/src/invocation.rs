//! The parameters of a call: the environment variables of the CNI specification, validated.
//!
//! Never reads the environment itself: the variables are passed in, so that tests need none.

use crate::error::CniError;

/// The operations of CNI 1.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CniCommand {
    /// Attach a container; succeeds if it is already attached.
    Add,
    /// Detach a container; succeeds if it is not attached.
    Del,
    /// Check that a container is attached as its ADD result says.
    Check,
    /// Detach every container that is not listed.
    Gc,
    /// Whether ADD can be served.
    Status,
    /// The supported versions.
    Version,
}

/// One call of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The operation.
    pub command: CniCommand,
    /// `CNI_CONTAINERID`; empty for operations without a container.
    pub container: String,
    /// `CNI_IFNAME`; empty for operations without a container.
    pub interface: String,
    /// `CNI_NETNS`; optional for DEL.
    pub netns: Option<String>,
    /// `CNI_ARGS`: key-value pairs, in order.
    pub arguments: Vec<(String, String)>,
}

/// Maximum length of an interface name in bytes.
const MAX_INTERFACE_NAME_LEN: usize = 15;

impl Invocation {
    /// Reads the variables through `variable`.
    ///
    /// # Errors
    /// [`CniError::Environment`] with the missing or invalid variable.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, CniError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let required = |name: &'static str| {
            variable(name).ok_or(CniError::Environment {
                name,
                reason: "must be set".to_owned(),
            })
        };
        let environment_error =
            |name: &'static str, reason: String| CniError::Environment { name, reason };
        let command = match required("CNI_COMMAND")?.as_str() {
            "ADD" => CniCommand::Add,
            "DEL" => CniCommand::Del,
            "CHECK" => CniCommand::Check,
            "GC" => CniCommand::Gc,
            "STATUS" => CniCommand::Status,
            "VERSION" => CniCommand::Version,
            other => {
                return Err(environment_error(
                    "CNI_COMMAND",
                    format!("{other:?} is not one of ADD, DEL, CHECK, GC, STATUS, VERSION"),
                ));
            }
        };
        let mut invocation = Invocation {
            command,
            container: String::new(),
            interface: String::new(),
            netns: None,
            arguments: Vec::new(),
        };
        if matches!(
            command,
            CniCommand::Gc | CniCommand::Status | CniCommand::Version
        ) {
            return Ok(invocation);
        }
        invocation.container = required("CNI_CONTAINERID")?;
        if !is_valid_identifier(&invocation.container) {
            return Err(environment_error(
                "CNI_CONTAINERID",
                format!(
                    "{:?} must begin with a letter or digit and contain only letters, digits, _, . and -",
                    invocation.container
                ),
            ));
        }
        invocation.interface = required("CNI_IFNAME")?;
        if !is_valid_interface_name(&invocation.interface) {
            return Err(environment_error(
                "CNI_IFNAME",
                format!(
                    "{:?} is not an interface name of at most {MAX_INTERFACE_NAME_LEN} bytes",
                    invocation.interface
                ),
            ));
        }
        invocation.netns = match command {
            CniCommand::Del => variable("CNI_NETNS"),
            _ => Some(required("CNI_NETNS")?),
        };
        for pair in variable("CNI_ARGS").iter().flat_map(|args| args.split(';')) {
            match pair.split_once('=') {
                Some((name, value)) => {
                    invocation
                        .arguments
                        .push((name.to_owned(), value.to_owned()));
                }
                None if pair.is_empty() => {}
                None => {
                    return Err(environment_error(
                        "CNI_ARGS",
                        format!("{pair:?} is not of the form NAME=VALUE"),
                    ));
                }
            }
        }
        Ok(invocation)
    }

    /// The last value of an argument, if it is not empty.
    pub fn argument(&self, name: &str) -> Option<&str> {
        let argument = self.arguments.iter().rev().find(|(known, _)| known == name);
        argument
            .map(|(_, value)| &**value)
            .filter(|v| !v.is_empty())
    }
}

/// Whether a text is a valid container id or network name according to the specification.
pub(crate) fn is_valid_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn is_valid_interface_name(text: &str) -> bool {
    text.len() <= MAX_INTERFACE_NAME_LEN
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Invocation, String> {
        Invocation::from_variables(|name| {
            let variable = variables.iter().find(|(known, _)| *known == name);
            variable.map(|(_, value)| (*value).to_owned())
        })
        .map_err(|error| error.to_string())
    }

    #[test]
    fn an_add_is_read_whole() {
        let add = of(&[
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "abc_1.2-3"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_NETNS", "/run/netns/a"),
            (
                "CNI_ARGS",
                "IgnoreUnknown=1;K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;",
            ),
        ])
        .unwrap();
        assert_eq!(add.command, CniCommand::Add);
        assert_eq!(add.container, "abc_1.2-3");
        assert_eq!(add.interface, "eth0");
        assert_eq!(add.netns.as_deref(), Some("/run/netns/a"));
        assert_eq!(add.argument("K8S_POD_NAME"), Some("web"));
        assert_eq!(add.argument("K8S_POD_UID"), None);
    }

    #[test]
    fn what_concerns_no_container_needs_no_more() {
        for (text, command) in [
            ("GC", CniCommand::Gc),
            ("STATUS", CniCommand::Status),
            ("VERSION", CniCommand::Version),
        ] {
            assert_eq!(of(&[("CNI_COMMAND", text)]).unwrap().command, command);
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let of_add = |name: &'static str, value: &'static str| {
            let mut all = vec![
                ("CNI_COMMAND", "ADD"),
                ("CNI_CONTAINERID", "a"),
                ("CNI_IFNAME", "eth0"),
                ("CNI_NETNS", "/n"),
            ];
            all.retain(|(known, _)| *known != name);
            all.push((name, value));
            of(&all).unwrap_err()
        };
        for (name, value, message) in [
            ("CNI_COMMAND", "", "CNI_COMMAND: must be set"),
            ("CNI_COMMAND", "add", "CNI_COMMAND: \"add\" is not one of"),
            ("CNI_CONTAINERID", "", "CNI_CONTAINERID: must be set"),
            (
                "CNI_CONTAINERID",
                "-a",
                "CNI_CONTAINERID: \"-a\" must begin",
            ),
            (
                "CNI_CONTAINERID",
                "a/b",
                "CNI_CONTAINERID: \"a/b\" must begin",
            ),
            ("CNI_IFNAME", "", "CNI_IFNAME: must be set"),
            ("CNI_IFNAME", "sixteen-bytes-xx", "CNI_IFNAME: \"sixteen"),
            ("CNI_IFNAME", "a/b", "CNI_IFNAME: \"a/b\""),
            ("CNI_IFNAME", "..", "CNI_IFNAME: \"..\""),
            ("CNI_NETNS", "", "CNI_NETNS: must be set"),
            (
                "CNI_ARGS",
                "novalue",
                "CNI_ARGS: \"novalue\" is not of the form NAME=VALUE",
            ),
        ] {
            let error = of_add(name, value);
            assert!(error.starts_with(message), "{name}={value}: {error}");
        }
    }

    #[test]
    fn a_del_may_come_without_a_namespace() {
        let del = of(&[
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", "a"),
            ("CNI_IFNAME", "eth0"),
        ]);
        assert_eq!(del.unwrap().netns, None);
    }
}

//! Where a policy or a rule was written: a line of a file, or an object of a server.
//!
//! Stored forms from before an object of a server had a field for its version are read as well. Never: reads a file.

use crate::Str;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A line of a file, or a place in an object of a server, whose text has no lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "StoredSourceLine")]
pub struct SourceLine {
    /// The path of the file as given to Palisade. Of an object of a server: its resource for a policy, the path of the
    /// field (`spec.ingress[0]`) for a rule.
    pub file: Str,
    /// The line number, from 1; 0 in an object of a server.
    pub line: u32,
    /// The resource version of an object of a server, which may be empty; `None` in a file, and for a field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Str>,
}

/// What is stored of a place.
#[derive(Deserialize)]
struct StoredSourceLine {
    file: Str,
    line: u32,
    #[serde(default)]
    version: Option<Str>,
}

/// Between the resource of an object of a server and its version.
const RESOURCE_VERSION: &str = ", resource version ";

impl SourceLine {
    /// A line of a file.
    pub fn new(file: impl Into<Str>, line: u32) -> Self {
        SourceLine {
            file: file.into(),
            line,
            version: None,
        }
    }

    /// The place of an object of a server, whose text has no lines.
    pub fn of_resource(resource: impl Into<Str>, version: impl Into<Str>) -> Self {
        SourceLine {
            file: resource.into(),
            line: 0,
            version: Some(version.into()),
        }
    }

    /// The resource of an object of a server.
    pub fn resource(&self) -> Option<&Str> {
        self.version.as_ref().map(|_| &self.file)
    }
}

impl From<StoredSourceLine> for SourceLine {
    fn from(stored: StoredSourceLine) -> Self {
        let StoredSourceLine {
            file,
            line,
            version,
        } = stored;
        match file.split_once(RESOURCE_VERSION) {
            // The version was a part of the text.
            Some((resource, version)) if line == 0 => SourceLine::of_resource(resource, version),
            _ => SourceLine {
                file,
                line,
                version,
            },
        }
    }
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.version.as_deref()) {
            (0, None | Some("")) => f.write_str(&self.file),
            (0, Some(version)) => write!(f, "{}{RESOURCE_VERSION}{version}", self.file),
            (line, _) => write!(f, "{}:{line}", self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn an_object_of_a_server_is_read_in_both_stored_forms() {
        let place = SourceLine::of_resource("networkpolicies.networking.k8s.io", "7");
        let text = "networkpolicies.networking.k8s.io, resource version 7";
        assert_eq!(place.to_string(), text);
        assert_eq!(
            place.resource().unwrap(),
            "networkpolicies.networking.k8s.io"
        );
        let stored = |file: &str, version: Option<&str>| {
            SourceLine::from(StoredSourceLine {
                file: file.into(),
                line: 0,
                version: version.map(Str::from),
            })
        };
        assert_eq!(stored(text, None), place);
        assert_eq!(
            stored("networkpolicies.networking.k8s.io", Some("7")),
            place
        );
        let rule = stored("spec.ingress[0]", None);
        assert_eq!(
            (rule.resource(), rule.to_string().as_str()),
            (None, "spec.ingress[0]")
        );
        assert_eq!(SourceLine::new("a.yaml", 3).to_string(), "a.yaml:3");
    }
}

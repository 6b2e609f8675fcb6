//! Explaining one flow as the running agent sees it.

use crate::config::HostToEndpoint;
use crate::core::Core;
use palisade_analysis::{ExplainError, Explanation, Query};
use serde::{Deserialize, Serialize};

/// The query parameters of `GET /v1/explain`: the command's flags.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExplainQuery {
    /// Who connects.
    pub from: String,
    /// To whom.
    pub to: String,
    /// Port and protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// A protocol without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// ICMP type, or type and code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<String>,
    /// The source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
}

impl From<ExplainQuery> for Query {
    fn from(query: ExplainQuery) -> Self {
        Query {
            from: query.from,
            to: query.to,
            port: query.port,
            protocol: query.protocol,
            icmp_type: query.icmp_type,
            source_port: query.source_port,
        }
    }
}

impl Core {
    /// Whether a flow passes here, and why.
    ///
    /// # Errors
    /// If the query is not understood, or names what is not there.
    pub fn explain(&self, query: ExplainQuery) -> Result<Explanation, ExplainError> {
        let host_to_endpoint = match self.config.host_to_endpoint {
            HostToEndpoint::Allow => palisade_oracle::HostToEndpoint::Allow,
            HostToEndpoint::Policy => palisade_oracle::HostToEndpoint::Policy,
        };
        let options = palisade_oracle::Options { host_to_endpoint };
        palisade_analysis::explain(&self.engine.state(), &query.into(), &options)
    }
}

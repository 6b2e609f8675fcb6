//! Explaining one flow as the running agent sees it.

use crate::config::HostToEndpoint;
use crate::core::Core;
use palisade_analysis::{ExplainError, Explanation, Query};
use palisade_api::ExplainQuery;

/// What the API takes as what the analysis takes.
pub fn question(query: ExplainQuery) -> Query {
    Query {
        from: query.from,
        to: query.to,
        port: query.port,
        protocol: query.protocol,
        icmp_type: query.icmp_type,
        source_port: query.source_port,
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
        palisade_analysis::explain(&self.engine.state(), &question(query), &options)
    }
}

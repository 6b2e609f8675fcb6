//! The lease of whoever writes what one agent of a cluster writes, at the API server.
//!
//! Promises: an agent that could not renew it in time does not count as holder. Never: decides who may take a
//! lease; that is [`LeaseElection`].

use crate::api_client::{ApiServerClient, JSON};
use crate::api_error::ApiServerError;
use crate::lease_election::{LeaseElection, LeaseSpec, LeaseStep, ReadLease};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::Instant;

/// The name of the lease, in the namespace of the agent.
pub const LEASE_NAME: &str = "palisade-policy-feedback";

/// One candidate, with the requests that it sends.
pub(crate) struct LeaseHolder {
    election: LeaseElection,
    /// The time as RFC 3339 with microseconds.
    wall: fn() -> String,
}

impl LeaseHolder {
    pub(crate) fn new(identity: String, wall: fn() -> String) -> Self {
        LeaseHolder {
            election: LeaseElection::new(identity),
            wall,
        }
    }

    /// Whether this agent may write.
    pub(crate) fn is_holder(&self) -> bool {
        self.election.is_holder(Instant::now())
    }

    /// Acquires or renews the lease; returns whether this agent holds it.
    pub(crate) async fn hold(&mut self, client: &ApiServerClient) -> Result<bool, ApiServerError> {
        let path = leases_path(client);
        let read = read_lease(client).await?;
        let sent_at = Instant::now();
        let step = self.election.decide(read.as_ref(), sent_at, &(self.wall)());
        let written = match step {
            LeaseStep::Create(spec) => {
                let lease = lease_object(client, &spec, None);
                client.write(Method::POST, &path, JSON, &lease).await
            }
            LeaseStep::Replace(spec, version) => {
                let lease = lease_object(client, &spec, Some(&version));
                let path = format!("{path}/{LEASE_NAME}");
                client.write(Method::PUT, &path, JSON, &lease).await
            }
            LeaseStep::Wait => return Ok(false),
        };
        match written {
            Ok(()) => self.election.take_success(sent_at),
            // Another was first.
            Err(error) if error.code() == Some(StatusCode::CONFLICT) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(self.is_holder())
    }

    /// Gives the lease up, so that whoever has something to write next need not wait.
    pub(crate) async fn release(&mut self, client: &ApiServerClient) -> Result<(), ApiServerError> {
        let Some(read) = read_lease(client).await? else {
            return Ok(());
        };
        if let Some((spec, version)) = self.election.release(&read) {
            let lease = lease_object(client, &spec, Some(&version));
            let path = format!("{}/{LEASE_NAME}", leases_path(client));
            client.write(Method::PUT, &path, JSON, &lease).await?;
        }
        Ok(())
    }
}

fn leases_path(client: &ApiServerClient) -> String {
    let namespace = client.namespace();
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

fn lease_object(client: &ApiServerClient, spec: &LeaseSpec, version: Option<&str>) -> Value {
    let mut lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": client.namespace(), "name": LEASE_NAME},
        "spec": spec,
    });
    if let Some(version) = version {
        lease["metadata"]["resourceVersion"] = version.into();
    }
    lease
}

async fn read_lease(client: &ApiServerClient) -> Result<Option<ReadLease>, ApiServerError> {
    let path = format!("{}/{LEASE_NAME}", leases_path(client));
    let text = match client.text(&path).await {
        Err(error) if error.is_not_found() => return Ok(None),
        text => text?,
    };
    let answer = |error: serde_json::Error| ApiServerError::Answer(error.to_string());
    let lease: Value = serde_json::from_str(&text).map_err(answer)?;
    let version = lease["metadata"]["resourceVersion"].as_str();
    Ok(Some(ReadLease {
        spec: serde_json::from_value(lease["spec"].clone()).map_err(answer)?,
        version: version.unwrap_or_default().to_owned(),
    }))
}

//! Writes the `NodePolicyStatus` of one node: the only object that an agent writes.
//!
//! Promises: at most one write in an interval, fewer if only the number of policies has changed, and none if
//! nothing has changed but other figures, for which a slow heartbeat is enough, so that thousands of agents do
//! not load the server; all times are spread at random. A server that refuses, or has no such resource, is asked
//! again every few minutes, and one that is overloaded when it says. Nobody waits for a write.
//!
//! It shares the client with the source, and nothing else: it has a thread and connections of its own, so a
//! slow write delays no policy.

use crate::api_client::{ApiServerClient, Credentials};
use crate::api_error::ApiServerError;
use crate::writer_connection::WriterConnection;
use palisade_api::NodePolicyReport;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// The API group and version of the resource.
pub const STATUS_API_VERSION: &str = "palisade.dev/v1alpha1";
/// The kind of the resource.
pub const STATUS_KIND: &str = "NodePolicyStatus";
/// The path of the resource.
pub const STATUS_PATH: &str = "/apis/palisade.dev/v1alpha1/nodepolicystatuses";

/// The delays of a [`NodeStatusWriter`]. Each is prolonged at random by up to its half.
#[derive(Clone, Copy, Debug)]
pub struct StatusIntervals {
    /// Between two writes.
    pub interval: Duration,
    /// Between two writes if, besides figures, only the number of policies in force has changed.
    pub policies: Duration,
    /// Between two writes if nothing has changed but figures.
    pub heartbeat: Duration,
    /// After the server refused.
    pub refused: Duration,
}

impl Default for StatusIntervals {
    fn default() -> Self {
        StatusIntervals {
            interval: Duration::from_secs(10),
            policies: Duration::from_secs(30),
            heartbeat: Duration::from_secs(300),
            refused: Duration::from_secs(300),
        }
    }
}

/// Writes the status of one node; see the description of the module.
pub struct NodeStatusWriter {
    connection: WriterConnection,
    node: String,
    intervals: StatusIntervals,
    /// The reference to the Node, with which the status is deleted.
    owner: Option<Value>,
    /// What the server has, as far as it is known, and since when.
    written: Option<(NodePolicyReport, Option<Instant>)>,
}

impl NodeStatusWriter {
    /// A writer for the node of this name.
    #[must_use]
    pub fn new(credentials: Credentials, node: String, intervals: StatusIntervals) -> Self {
        NodeStatusWriter {
            connection: WriterConnection::new(credentials),
            node,
            intervals,
            owner: None,
            written: None,
        }
    }

    /// Writes what `report` returns until that is `None`. `take_result` gets the result of every attempt: the
    /// error of one that failed.
    pub async fn run(
        mut self,
        mut report: impl AsyncFnMut() -> Option<NodePolicyReport>,
        mut take_result: impl FnMut(Option<String>),
    ) {
        let mut delay = self.connection.spread(self.intervals.interval);
        loop {
            tokio::time::sleep(delay).await;
            let Some(mut present) = report().await else {
                return;
            };
            delay = self.connection.spread(self.intervals.interval);
            if !self.is_due(&present) {
                continue;
            }
            match self.write(&mut present).await {
                Ok(()) => {
                    self.connection.take_success();
                    self.written = Some((present, Some(Instant::now())));
                    take_result(None);
                }
                Err(error) => {
                    delay = delay.max(self.connection.delay_after(&error, self.intervals.refused));
                    take_result(Some(describe(&error)));
                }
            }
        }
    }

    fn is_due(&mut self, present: &NodePolicyReport) -> bool {
        let Some((before, Some(at))) = &self.written else {
            return true;
        };
        if before.without_figures() != present.without_figures() {
            return true;
        }
        let (at, has_other_policies) = (*at, before.policies != present.policies);
        let wait = if has_other_policies {
            self.intervals.policies
        } else {
            self.intervals.heartbeat
        };
        at.elapsed() >= self.connection.spread(wait)
    }

    async fn write(&mut self, present: &mut NodePolicyReport) -> Result<(), ApiServerError> {
        let client = self.connection.client().await?;
        if self.written.is_none() {
            // Of an agent before this one: the times of transitions go on.
            self.written = self.read(&client).await?.map(|report| (report, None));
        }
        if let Some((before, _)) = &self.written {
            present.keep_transition_times(before);
        }
        if self.owner.is_none() {
            self.owner = self.find_owner(&client).await?;
        }
        let object = json!({
            "apiVersion": STATUS_API_VERSION,
            "kind": STATUS_KIND,
            "metadata": {
                "name": self.node,
                "ownerReferences": self.owner.iter().collect::<Vec<_>>(),
            },
            "status": present,
        });
        let path = format!("{STATUS_PATH}/{}", self.node);
        client.apply(&path, &object).await
    }

    /// The status that the server has; `None` if there is none that can be read.
    async fn read(
        &self,
        client: &ApiServerClient,
    ) -> Result<Option<NodePolicyReport>, ApiServerError> {
        let text = match client.text(&format!("{STATUS_PATH}/{}", self.node)).await {
            Err(error) if error.is_not_found() => return Ok(None),
            text => text?,
        };
        let object: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(serde_json::from_value(object["status"].clone()).ok())
    }

    /// A reference to the Node, found by the right to list; `None` if there is no such Node.
    async fn find_owner(&self, client: &ApiServerClient) -> Result<Option<Value>, ApiServerError> {
        let path = format!(
            "/api/v1/nodes?fieldSelector=metadata.name%3D{}&limit=1",
            self.node
        );
        let list: Value = serde_json::from_str(&client.text(&path).await?).unwrap_or_default();
        let metadata = &list["items"][0]["metadata"];
        let is_it = metadata["name"] == *self.node && metadata["uid"].is_string();
        Ok(is_it.then(|| {
            json!({
                "apiVersion": "v1",
                "kind": "Node",
                "name": self.node,
                "uid": metadata["uid"],
            })
        }))
    }
}

/// The error of a write, with what to do where that is known.
fn describe(error: &ApiServerError) -> String {
    if error.is_undeclared_field() {
        format!(
            "{error}; the definition nodepolicystatuses.palisade.dev is of another version than the agent: apply \
         the one of the agent's version (crds/nodepolicystatuses.yaml of the chart, which Helm does not upgrade)"
        )
    } else {
        error.to_string()
    }
}

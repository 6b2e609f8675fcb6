//! Events and conditions on policies, written by one agent of a cluster: the one that holds a lease.
//!
//! Every agent reads the same policies and finds the same. [`FEEDBACK`] says of which kinds something is
//! written: an event on every object that is refused, and the condition of its kind where the API has conditions.
//! While there is nothing to write, no agent asks for the lease, so a cluster with NetworkPolicies alone, all
//! accepted, pays nothing.
//!
//! Promises: a holder whose lease is not renewed writes nothing; at most [`MAX_EVENTS`] are written in an
//! interval, each again only when the server has forgotten it, and a bounded number of conditions, none of them
//! twice; a server that refuses is asked again every few minutes. It has connections of its own, and nobody
//! waits for it.
//!
//! [`FEEDBACK`]: crate::FEEDBACK

use crate::api_client::{Credentials, JSON};
use crate::api_error::ApiServerError;
use crate::feedback_kind::FeedbackKind;
use crate::lease_election::RENEW_INTERVAL;
use crate::lease_holder::LeaseHolder;
use crate::policy_condition::{ConditionWriter, PolicyCondition};
use crate::writer_connection::WriterConnection;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The reason of an event.
const EVENT_REASON: &str = "PolicyNotAccepted";
/// The maximum number of events that are written at once.
const MAX_EVENTS: usize = 5;
/// A server keeps an event for an hour.
const EVENT_LIFETIME: Duration = Duration::from_secs(3_600);
/// The maximum length of a message, in bytes: the server's.
const MAX_MESSAGE: usize = 1_000;

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyProblem {
    /// The name of its resource: one of [`FEEDBACK`](crate::FEEDBACK), or nothing is written.
    pub resource: String,
    /// Its namespace; `None` for a cluster-wide one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The problem, with its field.
    pub message: String,
}

/// What an agent finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFindings {
    /// What is not accepted.
    pub problems: Vec<PolicyProblem>,
    /// The conditions that policies have to have.
    pub conditions: Vec<PolicyCondition>,
}

/// The delays of a [`PolicyFeedbackWriter`]. Each is prolonged at random by up to its half.
#[derive(Clone, Copy, Debug)]
pub struct FeedbackIntervals {
    /// Between two looks at what was found.
    pub look: Duration,
    /// Until the lease of another is looked at again.
    pub follow: Duration,
    /// After the server refused.
    pub refused: Duration,
}

impl Default for FeedbackIntervals {
    fn default() -> Self {
        FeedbackIntervals {
            look: Duration::from_secs(10),
            follow: Duration::from_secs(120),
            refused: Duration::from_secs(300),
        }
    }
}

/// Writes events and conditions; see the description of the module.
pub struct PolicyFeedbackWriter {
    connection: WriterConnection,
    identity: String,
    intervals: FeedbackIntervals,
    wall: fn() -> String,
    lease: LeaseHolder,
    conditions: ConditionWriter,
    /// When the event of each was written.
    written: BTreeMap<PolicyProblem, Instant>,
}

impl PolicyFeedbackWriter {
    /// A writer of this identity, different for every agent. `wall` gives the time as RFC 3339 with microseconds.
    #[must_use]
    pub fn new(
        credentials: Credentials,
        identity: String,
        intervals: FeedbackIntervals,
        wall: fn() -> String,
    ) -> Self {
        PolicyFeedbackWriter {
            connection: WriterConnection::new(credentials),
            lease: LeaseHolder::new(identity.clone(), wall),
            conditions: ConditionWriter::default(),
            identity,
            intervals,
            wall,
            written: BTreeMap::new(),
        }
    }

    /// Writes what `findings` returns until that is `None`.
    pub async fn run(mut self, mut findings: impl AsyncFnMut() -> Option<PolicyFindings>) {
        let mut delay = self.connection.spread(self.intervals.look);
        loop {
            tokio::time::sleep(delay).await;
            let Some(present) = findings().await else {
                return;
            };
            delay = match self.take_turn(present).await {
                Ok(delay) => {
                    self.connection.take_success();
                    delay
                }
                Err(error) => {
                    tracing::debug!(%error, "events and conditions of policies cannot be written");
                    self.connection.delay_after(&error, self.intervals.refused)
                }
            };
        }
    }

    /// Writes what is new, if this agent holds the lease; returns the delay until the next turn.
    async fn take_turn(&mut self, present: PolicyFindings) -> Result<Duration, ApiServerError> {
        let PolicyFindings {
            problems,
            conditions,
        } = present;
        self.written
            .retain(|problem, at| problems.contains(problem) && at.elapsed() < EVENT_LIFETIME);
        if problems.is_empty() && conditions.is_empty() {
            if self.lease.is_holder() {
                let client = self.connection.client().await?;
                self.lease.release(&client).await?;
                self.conditions.forget();
            }
            return Ok(self.connection.spread(self.intervals.look));
        }
        let client = self.connection.client().await?;
        if !self.lease.hold(&client).await? {
            self.conditions.forget();
            return Ok(self.connection.spread(self.intervals.follow));
        }
        let new = problems
            .into_iter()
            .filter(|problem| !self.written.contains_key(problem));
        let new: Vec<PolicyProblem> = new.take(MAX_EVENTS).collect();
        for problem in new {
            if !self.lease.is_holder() {
                break;
            }
            self.write_event(&problem).await?;
            self.written.insert(problem, Instant::now());
        }
        let (lease, now) = (&self.lease, (self.wall)());
        self.conditions
            .write(&client, &conditions, &now, || lease.is_holder())
            .await?;
        Ok(RENEW_INTERVAL.min(self.intervals.follow))
    }

    /// Writes an event, unless the object does not exist any more, or the event exists.
    async fn write_event(&mut self, problem: &PolicyProblem) -> Result<(), ApiServerError> {
        let Some(kind) = FeedbackKind::of(&problem.resource) else {
            return Ok(());
        };
        let client = self.connection.client().await?;
        let PolicyProblem {
            namespace, name, ..
        } = problem;
        let path = format!(
            "{}?fieldSelector=metadata.name%3D{name}&limit=1",
            kind.resource.path_in(namespace.as_deref())
        );
        let text = match client.text(&path).await {
            // The API is not there any more.
            Err(error) if error.is_not_found() => return Ok(()),
            text => text?,
        };
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let metadata = &list["items"][0]["metadata"];
        let Some(uid) = metadata["uid"].as_str() else {
            return Ok(());
        };
        let now = (self.wall)();
        let mut message = problem.message.clone();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let mut object = json!({
            "apiVersion": kind.resource.api_version(),
            "kind": kind.resource.kind,
            "name": name,
            "uid": uid,
            "resourceVersion": metadata["resourceVersion"],
        });
        if let Some(namespace) = namespace {
            object["namespace"] = namespace.as_str().into();
        }
        // The server wants the events of cluster-wide objects there.
        let namespace = namespace.as_deref().unwrap_or("default");
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": event_name(problem, uid)},
            "involvedObject": object,
            "type": "Warning",
            "reason": EVENT_REASON,
            "message": message,
            "source": {"component": "palisade"},
            "reportingComponent": "palisade",
            "reportingInstance": self.identity,
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
        });
        let path = format!("/api/v1/namespaces/{namespace}/events");
        match client.write(Method::POST, &path, JSON, &event).await {
            Err(error) if error.code() == Some(StatusCode::CONFLICT) => Ok(()),
            written => written,
        }
    }
}

/// The name of an event: the same for the same problem, whoever writes it.
fn event_name(problem: &PolicyProblem, uid: &str) -> String {
    // Source: FNV-1a of 64 bits.
    let bytes = uid.bytes().chain(problem.message.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut name = problem.name.clone();
    name.truncate(name.floor_char_boundary(200));
    format!("{name}.{hash:016x}")
}

//! Events on policies that are not accepted, written by one agent of a cluster: the one that holds a lease.
//!
//! Every agent reads the same policies and finds the same problems. While there are none, no agent asks for the
//! lease, so a cluster without problems pays nothing. [`FEEDBACK`] says for each kind how its objects are told:
//! a dialect whose objects have conditions adds its own form there, for the same holder to write.
//!
//! Promises: a holder whose lease is not renewed writes nothing; at most [`MAX_EVENTS`] are written in an
//! interval, and each again only when the server has forgotten it; a server that refuses is asked again every
//! few minutes. It has connections of its own, and nobody waits for it.

use crate::api_client::{ApiServerClient, Credentials};
use crate::api_error::ApiServerError;
use crate::lease_election::{LeaseElection, LeaseStep, RENEW_INTERVAL, ReadLease};
use http::{Method, Request, StatusCode};
use kube::client::Body;
use palisade_source::Backoff;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The name of the lease, in the namespace of the agent.
pub const LEASE_NAME: &str = "palisade-policy-events";
/// The reason of an event.
const EVENT_REASON: &str = "PolicyNotAccepted";
/// The maximum number of events that are written at once.
const MAX_EVENTS: usize = 5;
/// A server keeps an event for an hour.
const EVENT_LIFETIME: Duration = Duration::from_secs(3_600);
/// The maximum length of a message, in bytes: the server's.
const MAX_MESSAGE: usize = 1_000;

/// How a cluster is told about an object that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyFeedback {
    /// By an event.
    Event,
}

/// The kinds of which problems are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedbackKind {
    /// Its kind.
    pub kind: &'static str,
    /// `apiVersion` of its objects.
    pub api_version: &'static str,
    /// The name of the resource.
    pub plural: &'static str,
    /// In which form.
    pub feedback: PolicyFeedback,
}

impl FeedbackKind {
    /// The name of the resource, as messages have it.
    #[must_use]
    pub fn resource(&self) -> String {
        match self.api_version.split_once('/') {
            Some((group, _)) => format!("{}.{group}", self.plural),
            None => self.plural.to_owned(),
        }
    }
}

/// Every kind of which problems are written back.
pub const FEEDBACK: &[FeedbackKind] = &[FeedbackKind {
    kind: "NetworkPolicy",
    api_version: "networking.k8s.io/v1",
    plural: "networkpolicies",
    feedback: PolicyFeedback::Event,
}];

/// What is wrong with a policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyProblem {
    /// Its kind: one of [`FEEDBACK`], or nothing is written.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The problem, with its field.
    pub message: String,
}

/// The delays of a [`PolicyEventWriter`]. Each is prolonged at random by up to its half.
#[derive(Clone, Copy, Debug)]
pub struct EventIntervals {
    /// Between two looks at the problems.
    pub look: Duration,
    /// Until the lease of another is looked at again.
    pub follow: Duration,
    /// After the server refused.
    pub refused: Duration,
}

impl Default for EventIntervals {
    fn default() -> Self {
        EventIntervals {
            look: Duration::from_secs(10),
            follow: Duration::from_secs(120),
            refused: Duration::from_secs(300),
        }
    }
}

/// Writes events; see the description of the module.
pub struct PolicyEventWriter {
    credentials: Credentials,
    identity: String,
    intervals: EventIntervals,
    wall: fn() -> String,
    election: LeaseElection,
    random: SmallRng,
    backoff: Backoff,
    client: Option<ApiServerClient>,
    /// When each was written.
    written: BTreeMap<PolicyProblem, Instant>,
}

impl PolicyEventWriter {
    /// A writer of this identity, different for every agent. `wall` gives the time as RFC 3339 with microseconds.
    #[must_use]
    pub fn new(
        credentials: Credentials,
        identity: String,
        intervals: EventIntervals,
        wall: fn() -> String,
    ) -> Self {
        PolicyEventWriter {
            credentials,
            election: LeaseElection::new(identity.clone()),
            identity,
            intervals,
            wall,
            random: SmallRng::from_rng(&mut rand::rng()),
            backoff: Backoff::default(),
            client: None,
            written: BTreeMap::new(),
        }
    }

    /// Writes what `problems` returns until that is `None`.
    pub async fn run(mut self, mut problems: impl AsyncFnMut() -> Option<Vec<PolicyProblem>>) {
        let mut delay = self.spread(self.intervals.look);
        loop {
            tokio::time::sleep(delay).await;
            let Some(present) = problems().await else {
                return;
            };
            delay = match self.take_turn(present).await {
                Ok(delay) => {
                    self.backoff.reset();
                    delay
                }
                Err(error) => {
                    tracing::debug!(%error, "events on policies cannot be written");
                    self.delay_after(&error)
                }
            };
        }
    }

    fn spread(&mut self, delay: Duration) -> Duration {
        delay.mul_f64(self.random.random_range(1.0..=1.5))
    }

    fn delay_after(&mut self, error: &ApiServerError) -> Duration {
        let refused = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
        match error.code().is_some_and(|code| refused.contains(&code)) {
            true => self.spread(self.intervals.refused),
            false => {
                let requested = error.retry_after();
                self.backoff.next_delay_after(requested, &mut self.random)
            }
        }
    }

    /// Writes what is new, if this agent holds the lease; returns the delay until the next turn.
    async fn take_turn(&mut self, present: Vec<PolicyProblem>) -> Result<Duration, ApiServerError> {
        self.written
            .retain(|problem, at| present.contains(problem) && at.elapsed() < EVENT_LIFETIME);
        if present.is_empty() {
            if self.election.is_holder(Instant::now()) {
                self.release().await?;
            }
            return Ok(self.spread(self.intervals.look));
        }
        if !self.hold_lease().await? {
            return Ok(self.spread(self.intervals.follow));
        }
        let new = present
            .into_iter()
            .filter(|problem| !self.written.contains_key(problem));
        let new: Vec<PolicyProblem> = new.take(MAX_EVENTS).collect();
        for problem in new {
            if !self.election.is_holder(Instant::now()) {
                break;
            }
            self.write_event(&problem).await?;
            self.written.insert(problem, Instant::now());
        }
        Ok(RENEW_INTERVAL.min(self.intervals.follow))
    }

    async fn client(&mut self) -> Result<ApiServerClient, ApiServerError> {
        match &self.client {
            Some(client) => Ok(client.clone()),
            None => {
                let client = ApiServerClient::new(&self.credentials).await?;
                Ok(self.client.insert(client).clone())
            }
        }
    }

    /// Acquires or renews the lease; returns whether this agent holds it.
    async fn hold_lease(&mut self) -> Result<bool, ApiServerError> {
        let client = self.client().await?;
        let path = leases_path(&client);
        let read = read_lease(&client).await?;
        let sent_at = Instant::now();
        let step = self.election.decide(read.as_ref(), sent_at, &(self.wall)());
        let written = match step {
            LeaseStep::Create(spec) => {
                let lease = lease_object(&client, json!(spec), None);
                send(&client, Method::POST, &path, &lease).await
            }
            LeaseStep::Replace(spec, version) => {
                let lease = lease_object(&client, json!(spec), Some(&version));
                let path = format!("{path}/{LEASE_NAME}");
                send(&client, Method::PUT, &path, &lease).await
            }
            LeaseStep::Wait => return Ok(false),
        };
        match written {
            Ok(_) => self.election.take_success(sent_at),
            // Another was first.
            Err(error) if error.code() == Some(StatusCode::CONFLICT) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(self.election.is_holder(Instant::now()))
    }

    /// Gives the lease up, so that the next problem is written without delay by whoever finds it first.
    async fn release(&mut self) -> Result<(), ApiServerError> {
        let client = self.client().await?;
        let Some(read) = read_lease(&client).await? else {
            return Ok(());
        };
        if let Some((spec, version)) = self.election.release(&read) {
            let lease = lease_object(&client, json!(spec), Some(&version));
            let path = format!("{}/{LEASE_NAME}", leases_path(&client));
            send(&client, Method::PUT, &path, &lease).await?;
        }
        Ok(())
    }

    /// Writes an event, unless the object does not exist any more, or the event exists.
    async fn write_event(&mut self, problem: &PolicyProblem) -> Result<(), ApiServerError> {
        let Some(kind) = FEEDBACK.iter().find(|kind| kind.kind == problem.kind) else {
            return Ok(());
        };
        let client = self.client().await?;
        let PolicyProblem {
            namespace, name, ..
        } = problem;
        let path = format!(
            "/apis/{}/namespaces/{namespace}/{}?fieldSelector=metadata.name%3D{name}&limit=1",
            kind.api_version, kind.plural
        );
        let list: Value = serde_json::from_str(&client.text(&path).await?).unwrap_or_default();
        let metadata = &list["items"][0]["metadata"];
        let Some(uid) = metadata["uid"].as_str() else {
            return Ok(());
        };
        let now = (self.wall)();
        let mut message = problem.message.clone();
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": event_name(problem, uid)},
            "involvedObject": {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": metadata["resourceVersion"],
            },
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
        match send(&client, Method::POST, &path, &event).await {
            Err(error) if error.code() == Some(StatusCode::CONFLICT) => Ok(()),
            written => written.map(drop),
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

fn leases_path(client: &ApiServerClient) -> String {
    let namespace = client.namespace();
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

fn lease_object(client: &ApiServerClient, spec: Value, version: Option<&str>) -> Value {
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
        Err(error) if error.code() == Some(StatusCode::NOT_FOUND) => return Ok(None),
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

async fn send(
    client: &ApiServerClient,
    method: Method,
    path: &str,
    object: &Value,
) -> Result<String, ApiServerError> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", "application/json")
        .body(Body::from(object.to_string().into_bytes()))
        .map_err(|error| ApiServerError::Answer(error.to_string()))?;
    client.text_of(request).await
}

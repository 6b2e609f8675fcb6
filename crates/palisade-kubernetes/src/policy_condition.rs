//! The condition of policies whose API has conditions: `Accepted`, or `Valid` for Cilium's kinds.
//!
//! [`ConditionWriter`] knows which policies have the condition that they should have, by a list of all of them
//! from time to time, and writes the others. Promises: of each policy it owns this one condition, by server-side
//! apply, and leaves those of others; a policy that has it is not written; a time of transition changes only
//! with the status; a policy whose status the server refuses delays no other. Never: decides what is accepted.

use crate::api_client::ApiServerClient;
use crate::api_error::ApiServerError;
use crate::feedback_kind::{ConditionType, FEEDBACK, FeedbackKind};
use crate::list::ListPage;
use crate::resource_watch::PAGE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The maximum number of conditions that are written at once.
const MAX_CONDITIONS: usize = 20;
/// What others changed, and what was created anew under the same name, is found after this time.
const LIST_INTERVAL: Duration = Duration::from_secs(600);

/// What a policy's condition has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCondition {
    /// The name of its resource: one of [`FEEDBACK`] with conditions, or nothing is written.
    pub resource: String,
    /// Its namespace; `None` for a cluster-wide one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Whether it is accepted.
    pub is_accepted: bool,
    /// The reason, in one word.
    pub reason: String,
    /// The reason in a sentence.
    pub message: String,
}

/// A condition at the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
    last_transition_time: String,
}

impl StoredCondition {
    fn new(
        wanted: &PolicyCondition,
        condition: ConditionType,
        before: Option<&Self>,
        now: &str,
    ) -> Self {
        let status = if wanted.is_accepted { "True" } else { "False" };
        let before = before.filter(|before| before.status == status);
        let since = before.map(|before| &before.last_transition_time);
        StoredCondition {
            kind: condition.name.to_owned(),
            status: status.to_owned(),
            reason: wanted.reason.clone(),
            message: wanted.message.clone(),
            last_transition_time: since.map_or_else(|| now.to_owned(), Clone::clone),
        }
    }
}

/// An object with conditions, as far as they matter.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionedObject {
    metadata: ConditionedName,
    status: Option<ConditionedStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionedName {
    namespace: Option<String>,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConditionedStatus {
    conditions: Option<Vec<StoredCondition>>,
}

/// Kind, namespace and name.
type PolicyKey = (&'static str, Option<String>, String);

/// Writes conditions; see the description of the module.
#[derive(Default)]
pub(crate) struct ConditionWriter {
    /// When everything was listed last.
    listed: Option<Instant>,
    /// What the server has, as far as it is known.
    stored: BTreeMap<PolicyKey, StoredCondition>,
}

impl ConditionWriter {
    /// Forgets what the server has: another agent may write from now on.
    pub(crate) fn forget(&mut self) {
        *self = ConditionWriter::default();
    }

    /// Writes conditions that the server does not have, a bounded number of them, as long as `may_write`.
    pub(crate) async fn write(
        &mut self,
        client: &ApiServerClient,
        wanted: &[PolicyCondition],
        now: &str,
        may_write: impl Fn() -> bool,
    ) -> Result<(), ApiServerError> {
        let is_old = |at: Instant| at.elapsed() >= LIST_INTERVAL;
        if self.listed.is_none_or(is_old) && !wanted.is_empty() {
            self.list(client, wanted).await?;
        }
        let mut written = 0;
        for condition in wanted {
            let Some((kind, condition_type)) = kind_of(condition) else {
                continue;
            };
            let key = (
                kind.resource.kind,
                condition.namespace.clone(),
                condition.name.clone(),
            );
            let before = self.stored.get(&key);
            let stored = StoredCondition::new(condition, condition_type, before, now);
            if before == Some(&stored) {
                continue;
            }
            if written == MAX_CONDITIONS || !may_write() {
                break;
            }
            written += 1;
            match apply(client, kind, condition, &stored).await {
                Err(error) if error.is_not_found() || error.is_invalid() => {
                    tracing::debug!(%error, policy = %condition.name, "its condition is not stored");
                }
                applied => applied?,
            }
            self.stored.insert(key, stored);
        }
        Ok(())
    }

    async fn list(
        &mut self,
        client: &ApiServerClient,
        wanted: &[PolicyCondition],
    ) -> Result<(), ApiServerError> {
        let mut stored = BTreeMap::new();
        for kind in &FEEDBACK {
            let is_wanted = |wanted: &PolicyCondition| kind.resource.is_named(&wanted.resource);
            let Some(condition) = kind.condition.filter(|_| wanted.iter().any(is_wanted)) else {
                continue;
            };
            match list_kind(client, kind, condition, &mut stored).await {
                // The API is not there any more.
                Err(error) if error.is_not_found() => {}
                listed => listed?,
            }
        }
        self.stored = stored;
        self.listed = Some(Instant::now());
        Ok(())
    }
}

fn kind_of(condition: &PolicyCondition) -> Option<(&'static FeedbackKind, ConditionType)> {
    let kind = FeedbackKind::of(&condition.resource)?;
    Some((kind, kind.condition?))
}

async fn list_kind(
    client: &ApiServerClient,
    kind: &'static FeedbackKind,
    condition: ConditionType,
    stored: &mut BTreeMap<PolicyKey, StoredCondition>,
) -> Result<(), ApiServerError> {
    let answer = |error: serde_json::Error| ApiServerError::Answer(error.to_string());
    let mut token = String::new();
    loop {
        let next = (!token.is_empty()).then_some(("continue", &*token));
        let path = kind
            .resource
            .path_with([("limit", PAGE)].into_iter().chain(next));
        let text = client.text(&path).await?;
        let page: ListPage<'_> = serde_json::from_str(&text).map_err(answer)?;
        for item in page.items.unwrap_or_default() {
            // One that cannot be read is written.
            let object: ConditionedObject = serde_json::from_str(item.get()).unwrap_or_default();
            let conditions = object.status.and_then(|status| status.conditions);
            let conditions = conditions.unwrap_or_default().into_iter();
            if let Some(found) = conditions.into_iter().find(|c| c.kind == condition.name) {
                let ConditionedName { namespace, name } = object.metadata;
                stored.insert((kind.resource.kind, namespace, name), found);
            }
        }
        token = page.metadata.continue_token;
        if token.is_empty() {
            return Ok(());
        }
    }
}

async fn apply(
    client: &ApiServerClient,
    kind: &FeedbackKind,
    condition: &PolicyCondition,
    stored: &StoredCondition,
) -> Result<(), ApiServerError> {
    let namespace = condition.namespace.as_deref();
    let mut metadata = json!({"name": condition.name});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let object = json!({
        "apiVersion": kind.resource.api_version(),
        "kind": kind.resource.kind,
        "metadata": metadata,
        "status": {"conditions": [stored]},
    });
    let path = format!(
        "{}/{}/status",
        kind.resource.path_in(namespace),
        condition.name
    );
    client.apply(&path, &object).await
}

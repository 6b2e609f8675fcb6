//! What resources a server has, of the APIs that may not be installed.
//!
//! Promises: a server is asked once in a while for each API group and version, however many of its resources are
//! waited for: an agent on each of thousands of nodes waits for all of them. Never: follows a resource.

use crate::api_client::ApiServerClient;
use crate::api_error::ApiServerError;
use crate::resource::ResourceType;
use http::StatusCode;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// The answer of a server about an API group and version. Source: Kubernetes, `APIResourceList`.
#[derive(Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<ListedResource>,
}

#[derive(Deserialize)]
struct ListedResource {
    name: String,
}

/// The resources of an API group and version; `None` if the server does not say.
type Served = Option<BTreeSet<String>>;

/// The resources of optional APIs that a server has.
pub(crate) struct ApiDiscovery {
    client: ApiServerClient,
    /// How long an answer counts.
    validity: Duration,
    answers: Mutex<BTreeMap<String, (Instant, Served)>>,
}

impl ApiDiscovery {
    /// Nothing is known yet.
    pub(crate) fn new(client: ApiServerClient, validity: Duration) -> Self {
        ApiDiscovery {
            client,
            validity,
            answers: Mutex::default(),
        }
    }

    /// Whether the server has a resource, or may have it.
    ///
    /// # Errors
    /// If the server cannot be asked.
    pub(crate) async fn has(&self, resource: &ResourceType) -> Result<bool, ApiServerError> {
        let api = format!("/apis/{}/{}", resource.group, resource.version);
        // Held while the server is asked: others that wait want the same answer.
        let mut answers = self.answers.lock().await;
        let known = answers
            .get(&api)
            .filter(|(since, _)| since.elapsed() < self.validity);
        let served = match known {
            Some((_, served)) => served.clone(),
            None => {
                let served = self.ask(&api).await?;
                answers.insert(api, (Instant::now(), served.clone()));
                served
            }
        };
        Ok(served.is_none_or(|served| served.contains(resource.plural)))
    }

    async fn ask(&self, api: &str) -> Result<Served, ApiServerError> {
        let text = match self.client.text(api).await {
            Ok(text) => text,
            Err(error) if error.is_not_found() => return Ok(Some(BTreeSet::new())),
            // Not everybody may ask.
            Err(error) if error.code() == Some(StatusCode::FORBIDDEN) => return Ok(None),
            Err(error) => return Err(error),
        };
        let list = serde_json::from_str::<ResourceList>(&text).ok();
        Ok(list.map(|list| {
            list.resources
                .into_iter()
                .map(|resource| resource.name)
                .collect()
        }))
    }
}

//! What every writer has for itself: a client, and the delays between its requests.
//!
//! Promises: delays are spread at random, so that the agents of a cluster do not write together; a server that
//! refuses is asked again after a time of the writer's own, another after a backoff or when it says.

use crate::api_client::{ApiServerClient, Credentials};
use crate::api_error::ApiServerError;
use http::StatusCode;
use palisade_source::Backoff;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// The connection of one writer; opened by its first request.
pub(crate) struct WriterConnection {
    credentials: Credentials,
    client: Option<ApiServerClient>,
    random: SmallRng,
    backoff: Backoff,
}

impl WriterConnection {
    pub(crate) fn new(credentials: Credentials) -> Self {
        WriterConnection {
            credentials,
            client: None,
            random: SmallRng::from_rng(&mut rand::rng()),
            backoff: Backoff::default(),
        }
    }

    pub(crate) async fn client(&mut self) -> Result<ApiServerClient, ApiServerError> {
        match &self.client {
            Some(client) => Ok(client.clone()),
            None => {
                let client = ApiServerClient::new(&self.credentials).await?;
                Ok(self.client.insert(client).clone())
            }
        }
    }

    /// The delay, prolonged at random by up to its half.
    pub(crate) fn spread(&mut self, delay: Duration) -> Duration {
        delay.mul_f64(self.random.random_range(1.0..=1.5))
    }

    /// A request succeeded.
    pub(crate) fn take_success(&mut self) {
        self.backoff.reset();
    }

    /// The delay after an error; `refused` is that after a refusal.
    pub(crate) fn delay_after(&mut self, error: &ApiServerError, refused: Duration) -> Duration {
        let is_refusal = [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];
        if error.code().is_some_and(|code| is_refusal.contains(&code)) {
            self.spread(refused)
        } else {
            let requested = error.retry_after();
            self.backoff.next_delay_after(requested, &mut self.random)
        }
    }
}

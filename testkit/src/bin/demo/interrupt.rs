//! Handling of Ctrl-C and similar signals: every wait of the demo ends early, so that its objects are
//! removed.

use crate::error::DemoError;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether the demo was interrupted.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    requested: Arc<(Mutex<bool>, Condvar)>,
}

impl Interrupt {
    /// Starts listening for SIGINT, SIGTERM and SIGHUP.
    pub(crate) fn listen() -> Result<Self, DemoError> {
        let failed =
            |error: io::Error| DemoError::problem(format!("listening for signals: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let entered = runtime.enter();
        let on = |kind| signal(kind).map_err(failed);
        let mut interrupt = on(SignalKind::interrupt())?;
        let mut terminate = on(SignalKind::terminate())?;
        let mut hang_up = on(SignalKind::hangup())?;
        drop(entered);
        let asked = Arc::new((Mutex::new(false), Condvar::new()));
        let request_flag = Arc::clone(&asked);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(wait_for_any_signal(
                    &mut interrupt,
                    &mut terminate,
                    &mut hang_up,
                ));
                *request_flag
                    .0
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = true;
                request_flag.1.notify_all();
            })
            .map_err(failed)?;
        Ok(Interrupt { requested: asked })
    }

    /// Waits; returns an error as soon as the demo is interrupted.
    pub(crate) fn wait(&self, time: Duration) -> Result<(), DemoError> {
        let (asked, changed) = &*self.requested;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, _) = changed
            .wait_timeout_while(asked, time, |asked| !*asked)
            .unwrap_or_else(PoisonError::into_inner);
        if *asked {
            return Err(DemoError::problem(
                "interrupted: all objects of the demo are removed",
            ));
        }
        Ok(())
    }

    /// An error if the demo was interrupted.
    pub(crate) fn check(&self) -> Result<(), DemoError> {
        self.wait(Duration::ZERO)
    }
}

async fn wait_for_any_signal(a: &mut Signal, b: &mut Signal, c: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
        _ = c.recv() => {}
    }
}

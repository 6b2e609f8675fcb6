//! Ctrl-C and its kin: every wait of the demo ends early, so that what it made is removed.

use crate::exit::Failure;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether somebody asked the demo to stop.
#[derive(Clone, Debug)]
pub(super) struct Interrupt {
    asked: Arc<(Mutex<bool>, Condvar)>,
}

impl Interrupt {
    /// Listens for SIGINT, SIGTERM and SIGHUP from now on.
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::found(format!("listening for signals: {error}"));
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
        let tell = Arc::clone(&asked);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(first(&mut interrupt, &mut terminate, &mut hang_up));
                *tell.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                tell.1.notify_all();
            })
            .map_err(failed)?;
        Ok(Interrupt { asked })
    }

    /// Waits; an error as soon as somebody asked to stop.
    pub(super) fn wait(&self, time: Duration) -> Result<(), Failure> {
        let (asked, changed) = &*self.asked;
        let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, _) = changed
            .wait_timeout_while(asked, time, |asked| !*asked)
            .unwrap_or_else(PoisonError::into_inner);
        if *asked {
            return Err(Failure::found("interrupted: what the demo made is removed"));
        }
        Ok(())
    }

    /// An error if somebody asked to stop.
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.wait(Duration::ZERO)
    }
}

async fn first(a: &mut Signal, b: &mut Signal, c: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
        _ = c.recv() => {}
    }
}

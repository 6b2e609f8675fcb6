//! Ctrl-C and similar signals for programs that make what has to be removed: every wait ends early, so that the
//! program's objects are dropped.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether the program was asked to end.
#[derive(Clone, Debug)]
pub struct Interrupt {
    requested: Arc<(Mutex<bool>, Condvar)>,
}

impl Interrupt {
    /// Starts listening for SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// If the signals cannot be listened for.
    pub fn listen() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let entered = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        drop(entered);
        let requested = Arc::new((Mutex::new(false), Condvar::new()));
        let request = Arc::clone(&requested);
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                runtime.block_on(wait_for_any_signal(
                    &mut interrupt,
                    &mut terminate,
                    &mut hang_up,
                ));
                *request.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                request.1.notify_all();
            })?;
        Ok(Interrupt { requested })
    }

    /// Waits, but not longer than until the program is asked to end; returns whether it was.
    #[must_use]
    pub fn wait(&self, time: Duration) -> bool {
        let (requested, changed) = &*self.requested;
        let requested = requested.lock().unwrap_or_else(PoisonError::into_inner);
        let (requested, _) = changed
            .wait_timeout_while(requested, time, |requested| !*requested)
            .unwrap_or_else(PoisonError::into_inner);
        *requested
    }
}

async fn wait_for_any_signal(a: &mut Signal, b: &mut Signal, c: &mut Signal) {
    tokio::select! {
        _ = a.recv() => {}
        _ = b.recv() => {}
        _ = c.recv() => {}
    }
}

//! Dry mode: what an agent that started here would find and do, with nothing touched.
//!
//! It takes the agent's own way: the source is read whole, remembered workloads are taken over, the
//! tables are compiled, the kernel is read back, and the plan from there is printed instead of
//! executed. It promises to write nothing: no table, no link, no setting, no file, no lock, no
//! socket; so it may run beside an agent that enforces.

use crate::addresses::Survey;
use crate::attach::{AddressUse, Attach, AttachError, Found, Inside, KernelAttach, Tenancy};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::core::{Core, Event, Parts};
use crate::record::Record;
use crate::run::{RunError, nft_config, source_options};
use crate::settings::SettingsFile;
use palisade_api::{EndpointList, Status};
use palisade_dataplane::{
    Counters, Dataplane, Entry, Error, Held, Ledger, Masquerade, NftDataplane, Outcome,
    PacketWatch, Preview, TamperWatch,
};
use palisade_model::Prefix;
use palisade_source::{Directory, Source};
use palisade_sys::netns::{NetNs, Opener};
use palisade_tables::{Credit, Delta, Tables, Undo};
use serde::Serialize;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// What an agent would find and do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// [`palisade_api::API_VERSION`].
    pub api_version: String,
    /// How it would be, once it had done it.
    pub status: Status,
    /// Its endpoints.
    pub endpoints: EndpointList,
    /// What it would write to the kernel's packet filter.
    pub plan: Plan,
}

/// A plan that is not carried out.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Kernel objects and elements that it would write or delete.
    pub writes: usize,
    /// Its steps, each one transaction, in the words of `nft`.
    pub text: String,
}

/// Looks, and tells.
///
/// # Errors
/// What could not be read.
pub fn run(config: Config) -> Result<DryRun, RunError> {
    let mut source = Directory::peek(source_options(&config))?;
    let preview = Arc::new(Mutex::new(Preview::default()));
    let dataplane = Paper {
        nft: NftDataplane::new(nft_config(&config))?,
        preview: Arc::clone(&preview),
    };
    let mut core = Core::new(Parts {
        config,
        dataplane: Box::new(dataplane),
        attach: Box::new(Untouched(KernelAttach::current()?)),
        clock: Box::new(SystemClock),
        source: source.describe(),
    });
    core.restore()?;
    source.run(&mut |batch| {
        let whole = batch.in_sync;
        core.take(Event::Source(batch));
        match whole {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    let preview = preview.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(DryRun {
        api_version: palisade_api::api_version(),
        status: core.status(),
        endpoints: core.endpoint_list(),
        plan: Plan {
            writes: preview.writes,
            text: preview.text.clone(),
        },
    })
}

/// A dataplane that plans from what the kernel holds, and writes to nothing but paper.
struct Paper {
    nft: NftDataplane,
    preview: Arc<Mutex<Preview>>,
}

impl Dataplane for Paper {
    fn start(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        let preview = self.nft.preview(tables)?;
        let writes = preview.writes;
        *self.preview.lock().unwrap_or_else(PoisonError::into_inner) = preview;
        Ok(Outcome {
            writes,
            ..Outcome::default()
        })
    }

    fn apply(&mut self, _: &Delta, tables: &Tables) -> Result<Outcome, Error> {
        self.start(tables)
    }

    fn verify(&mut self, tables: &Tables) -> Result<Outcome, Error> {
        self.start(tables)
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        Ok(Counters::default())
    }

    fn masquerade(&mut self, _: &Masquerade) -> Result<usize, Error> {
        Ok(0)
    }

    fn held(&mut self) -> Result<Held, Error> {
        self.nft.held()
    }

    fn remove(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn tamper_watch(&self) -> Result<TamperWatch, Error> {
        self.nft.tamper_watch()
    }

    fn packet_watch(&self) -> Result<Option<PacketWatch>, Error> {
        Ok(None)
    }

    fn undo(&self, _: &Delta) -> Option<Undo> {
        None
    }

    fn keep_counts(&mut self, _: Box<dyn Ledger>, _: Vec<Entry>) {}

    fn retain_counts(&mut self, _: &dyn Fn(&Credit) -> bool) {}

    fn ledger_failure(&mut self) -> Option<std::io::Error> {
        None
    }
}

/// A host that is looked at, and left as it is.
struct Untouched(KernelAttach);

impl Attach for Untouched {
    fn join(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn furnish(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn open(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn part(&mut self, _: &Record) -> Result<(), AttachError> {
        Ok(())
    }

    fn is_joined(&mut self, record: &Record) -> Result<bool, AttachError> {
        self.0.is_joined(record)
    }

    fn opener(&self) -> Option<Opener> {
        self.0.opener()
    }

    fn hold(&mut self, netns: Option<NetNs>) {
        self.0.hold(netns);
    }

    fn tenancy(&mut self, record: &Record) -> Result<Tenancy, AttachError> {
        self.0.tenancy(record)
    }

    fn address_use(
        &mut self,
        address: IpAddr,
        pool: Option<Prefix>,
        whole: bool,
    ) -> Result<Option<AddressUse>, AttachError> {
        self.0.address_use(address, pool, whole)
    }

    fn index_of(&mut self, name: &str) -> Result<Option<u32>, AttachError> {
        self.0.index_of(name)
    }

    fn name_of(&mut self, index: u32) -> Result<Option<String>, AttachError> {
        self.0.name_of(index)
    }

    fn inside(&mut self, record: &Record) -> Result<Inside, AttachError> {
        self.0.inside(record)
    }

    fn look(&mut self, records: &[Record]) -> Result<Vec<Found>, AttachError> {
        self.0.look(records)
    }

    fn rename_back(&mut self, _: &Record, _: &str) -> Result<(), AttachError> {
        Ok(())
    }

    fn keep_forwarding(&mut self, _: &str, _: &SettingsFile) -> Result<Vec<String>, AttachError> {
        Ok(Vec::new())
    }

    fn survey(&mut self, prefix: &str) -> Result<Survey, AttachError> {
        self.0.survey(prefix)
    }

    fn outside_mtu(&mut self) -> Result<Option<u32>, AttachError> {
        self.0.outside_mtu()
    }

    fn netns_exists(&self, record: &Record) -> bool {
        self.0.netns_exists(record)
    }
}

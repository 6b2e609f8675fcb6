//! Connection tracking over ctnetlink.

use super::codec;
use super::{
    ConnectionsCreated, Conntrack, ConntrackEntry, ConntrackError, ConntrackFilter,
    ConntrackRecord, ConntrackTuple, NewConnection,
};
use crate::Errno;
use crate::fault;
use crate::netlink::{KernelError, OpenError, WireError};
use crate::netns::NetNs;
use crate::nfnetlink::{
    KernelNfnetlink, NFNL_SUBSYS_CTNETLINK, NfRequest, NfRequestError, Nfnetlink,
};
use crate::sysctl::{KernelSysctl, Sysctl, SysctlError};

const IPCTNL_MSG_CT_NEW: u8 = 0;
const IPCTNL_MSG_CT_GET: u8 = 1;
const IPCTNL_MSG_CT_GET_STATS: u8 = 5;
/// New entries that are sent to the kernel at once: about 100 KiB.
const CREATED_AT_ONCE: usize = 512;

const CTA_STATS_GLOBAL_ENTRIES: u16 = 1;

const CTA_MARK: u16 = 8;
const CTA_MARK_MASK: u16 = 21;

/// The kernel's conntrack table of one namespace.
#[derive(Debug)]
pub struct KernelConntrack {
    nfnetlink: KernelNfnetlink,
}

impl KernelConntrack {
    /// Opens a socket in `netns`.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket cannot be created.
    pub fn open(netns: &NetNs) -> Result<Self, OpenError> {
        Ok(Self {
            nfnetlink: KernelNfnetlink::open(netns)?,
        })
    }

    /// What `each` makes of every connection that matches the filter, with what the kernel counted and timed. Nothing
    /// else of a connection is kept: there may be some hundred thousand. If the kernel repeats the list, `each` is
    /// called for a connection again.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn map_records<T>(
        &mut self,
        filter: &ConntrackFilter,
        mut each: impl FnMut(ConntrackRecord) -> Option<T>,
    ) -> Result<Vec<T>, ConntrackError> {
        let found = self.nfnetlink.dump_each(&list_request(filter)?, |object| {
            let record = codec::read_record(&object)?;
            Ok(if filter.matches(&record.entry) {
                each(record)
            } else {
                None
            })
        })?;
        Ok(found)
    }
}

impl KernelConntrack {
    /// Enters connections. One that exists is left as it is, and one that the kernel refuses keeps no other from being
    /// entered.
    ///
    /// # Errors
    /// If the kernel cannot be asked: some of them are entered.
    pub fn create(
        &mut self,
        connections: &[NewConnection],
    ) -> Result<ConnectionsCreated, ConntrackError> {
        let mut outcome = ConnectionsCreated::default();
        for chunk in connections.chunks(CREATED_AT_ONCE) {
            let requests: Vec<NfRequest> =
                chunk.iter().map(new_request).collect::<Result<_, _>>()?;
            let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
            let failures = self.nfnetlink.change_each(&requests, flags)?;
            fault::reach("conntrack-entries-created");
            outcome.created += chunk.len() - failures.len();
            for error in failures {
                if error.errno == Errno::EEXIST {
                    outcome.existing += 1;
                } else {
                    outcome.refused += 1;
                    outcome.first_refusal.get_or_insert(error);
                }
            }
        }
        Ok(outcome)
    }
}

/// The request to enter a connection.
fn new_request(connection: &NewConnection) -> Result<NfRequest, WireError> {
    NfRequest::new(
        "entering connections",
        NFNL_SUBSYS_CTNETLINK,
        IPCTNL_MSG_CT_NEW,
        family_of(&connection.original),
        |w| codec::write_new(w, connection),
    )
}

fn family_of(tuple: &ConntrackTuple) -> u8 {
    let family = if tuple.source.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    family as u8
}

/// The request for all connections that match.
fn list_request(filter: &ConntrackFilter) -> Result<NfRequest, WireError> {
    NfRequest::new(
        "listing tracked flows",
        NFNL_SUBSYS_CTNETLINK,
        IPCTNL_MSG_CT_GET,
        libc::AF_UNSPEC as u8,
        |w| {
            if let Some((value, mask)) = filter.mark {
                w.be32(CTA_MARK, value).be32(CTA_MARK_MASK, mask);
            }
        },
    )
}

impl ConntrackFilter {
    /// Whether an entry matches: old kernels ignore parts of a filter.
    fn matches(&self, entry: &ConntrackEntry) -> bool {
        let is_marked = |(value, mask)| entry.mark & mask == value;
        self.mark.is_none_or(is_marked)
    }
}

impl Conntrack for KernelConntrack {
    fn count(&mut self) -> Result<u32, ConntrackError> {
        let query = NfRequest::new(
            "counting tracked flows",
            NFNL_SUBSYS_CTNETLINK,
            IPCTNL_MSG_CT_GET_STATS,
            libc::AF_UNSPEC as u8,
            |_| {},
        )?;
        match self.nfnetlink.get(&query)? {
            Some(object) => Ok(object
                .attrs()
                .require(CTA_STATS_GLOBAL_ENTRIES, "conntrack statistics")?
                .be32()?),
            None => Ok(0),
        }
    }

    fn entries(&mut self, filter: &ConntrackFilter) -> Result<Vec<ConntrackEntry>, ConntrackError> {
        let query = list_request(filter)?;
        let mut flows = Vec::new();
        for object in self.nfnetlink.dump(&query)? {
            let flow = codec::read_entry(&object).map_err(|error| NfRequestError {
                what: query.description.clone(),
                netns: self.nfnetlink.netns().to_owned(),
                error: KernelError::from(error),
            })?;
            if filter.matches(&flow) {
                flows.push(flow);
            }
        }
        Ok(flows)
    }

    fn set_mark(
        &mut self,
        flow: &ConntrackEntry,
        value: u32,
        mask: u32,
    ) -> Result<bool, ConntrackError> {
        let query = NfRequest::new(
            format!("setting the mark of flow {}", flow.original),
            NFNL_SUBSYS_CTNETLINK,
            IPCTNL_MSG_CT_NEW,
            family_of(&flow.original),
            |w| {
                codec::write_entry_key(w, flow);
                // The kernel computes (mark & ~mask) ^ value.
                codec::write_mark(w, value & mask, mask);
            },
        )?;
        match self.nfnetlink.change(&query, 0) {
            Ok(()) => Ok(true),
            // The entry no longer exists.
            Err(error) if error.error.errno == Errno::ENOENT => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// True if the kernel tracks SCTP in `netns`.
///
/// # Errors
/// If the parameter cannot be read.
pub fn tracks_sctp(netns: &NetNs) -> Result<bool, SysctlError> {
    KernelSysctl::new(netns).exists("net/netfilter/nf_conntrack_sctp_timeout_established")
}

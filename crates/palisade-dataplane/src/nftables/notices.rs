//! Notices of changes of our tables by other programs.

use palisade_model::Str;
use palisade_sys::netns::NetNs;
use palisade_sys::nfnetlink::{
    KernelNfEvents, NFNLGRP_NFTABLES, NfEvent, NfEvents, NfMessage, nf_tables as nft,
};

use crate::driver::TamperEvent;
use crate::error::DriverError;
use crate::subscription::Subscription;

/// Changes of these tables through other sockets than that of `port`.
pub(super) fn watch(
    netns: &NetNs,
    port: u32,
    tables: [Str; 2],
) -> Result<Subscription<TamperEvent>, DriverError> {
    let mut events = KernelNfEvents::open(netns, &[NFNLGRP_NFTABLES], Some(port))?;
    Ok(Subscription::new(move |timeout| {
        loop {
            match events.next_event(Some(timeout))? {
                None => return Ok(None),
                Some(NfEvent::Overrun) => return Ok(Some(TamperEvent::EventsLost)),
                Some(NfEvent::Changed { object, .. }) => {
                    let mut tables = tables.iter();
                    let change = tables.find_map(|table| describe_tampering(&object, table));
                    if let Some(description) = change {
                        return Ok(Some(TamperEvent::Changed { description }));
                    }
                }
            }
        }
    }))
}

/// Describes a notification as text, if it is about `table`.
fn describe_tampering(object: &NfMessage, table: &Str) -> Option<String> {
    const INET: u8 = 1;
    // `NFTA_*_TABLE` has the same number in every kind of object.
    let name = object.attrs().find(nft::NFTA_TABLE_NAME).ok()??;
    if object.kind == nft::NFT_MSG_NEWGEN || object.family != INET || name.text().ok()? != &**table
    {
        return None;
    }
    let what = match object.kind {
        nft::NFT_MSG_NEWTABLE => "the table was created or changed",
        nft::NFT_MSG_DELTABLE => "the table was deleted",
        nft::NFT_MSG_NEWCHAIN => "a chain was created or changed",
        nft::NFT_MSG_DELCHAIN => "a chain was deleted",
        nft::NFT_MSG_NEWRULE => "a rule was added",
        nft::NFT_MSG_DELRULE => "a rule was deleted",
        nft::NFT_MSG_NEWSET => "a set was added",
        nft::NFT_MSG_DELSET => "a set was deleted",
        nft::NFT_MSG_NEWSETELEM => "an element was added",
        nft::NFT_MSG_DELSETELEM => "an element was deleted",
        _ => "an object was changed",
    };
    Some(what.to_owned())
}

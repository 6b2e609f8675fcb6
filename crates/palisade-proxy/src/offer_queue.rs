//! The offers that wait for the agent, those that it has read, and what it confirmed.
//!
//! Promises: an answer that was passed on without the agent is offered when it is there, unless a bound is reached;
//! each client, server and name has one offer that waits, with all addresses; offers go in the order in which they came.
//!
//! Never: waits, or reads a clock.

use crate::config::TeachingLimits;
use crate::offer::{AnswerOffer, OfferedAddress};
use palisade_model::DomainName;
use palisade_names::AnsweredAddress;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use tokio::sync::oneshot;

/// The most addresses of one offer; the longest answer has fewer.
const MOST_ADDRESSES: usize = 4_096;
/// For how many milliseconds after an offer an answer that says nothing new is not offered: the agent learns of a later
/// end of the TTL that much later, which its grace covers.
const REFRESH_PERIOD: u64 = 1_000;
/// The most addresses of a name whose confirmation is remembered.
const MOST_CONFIRMED: usize = 256;

/// Addresses, and the time in milliseconds at which their TTL is over.
type AddressDeadlines = BTreeMap<IpAddr, u64>;

/// Who asked whom for what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AnswerOrigin {
    /// Who asked.
    pub(crate) client: IpAddr,
    /// Who answered.
    pub(crate) server: SocketAddr,
    /// The name in the question.
    pub(crate) name: DomainName,
}

#[derive(Debug)]
struct QueuedOffer {
    origin: AnswerOrigin,
    addresses: AddressDeadlines,
    /// The answers that are held until this offer is confirmed.
    waiters: Vec<oneshot::Sender<()>>,
}

/// All offers that are not confirmed, by number.
#[derive(Debug)]
pub(crate) struct OfferQueue {
    limits: TeachingLimits,
    is_connected: bool,
    next_number: u64,
    waiting: BTreeMap<u64, QueuedOffer>,
    /// The numbers of those that wait.
    numbers: BTreeMap<AnswerOrigin, u64>,
    waiting_addresses: usize,
    /// Those that the agent has read.
    unconfirmed: BTreeMap<u64, QueuedOffer>,
    confirmed: ConfirmedNames,
    dropped: u64,
}

impl OfferQueue {
    /// No offers, and no agent.
    pub(crate) fn new(limits: TeachingLimits) -> Self {
        OfferQueue {
            confirmed: ConfirmedNames::new(limits.confirmed_names),
            limits,
            is_connected: false,
            next_number: 0,
            waiting: BTreeMap::new(),
            numbers: BTreeMap::new(),
            waiting_addresses: 0,
            unconfirmed: BTreeMap::new(),
            dropped: 0,
        }
    }

    /// Adds the addresses of an answer, unless the agent confirmed them and was offered this name just before. Returns
    /// what ends when they are confirmed or cannot be, or `None` if the answer has nothing to wait for: the agent is not
    /// there, or confirmed these addresses before.
    pub(crate) fn offer(
        &mut self,
        origin: AnswerOrigin,
        answered: &[AnsweredAddress],
        now: u64,
    ) -> Option<oneshot::Receiver<()>> {
        let is_confirmed = self.confirmed.has(&origin, answered, now);
        if is_confirmed && !self.confirmed.is_refresh_due(&origin, now) {
            return None;
        }
        let mut addresses = AddressDeadlines::new();
        for AnsweredAddress { address, ttl } in answered {
            let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
            addresses.insert(*address, now.saturating_add(ttl));
        }
        let mut offer = QueuedOffer {
            origin,
            addresses,
            waiters: Vec::new(),
        };
        let receiver = (self.is_connected && !is_confirmed).then(|| {
            let (sender, receiver) = oneshot::channel();
            offer.waiters.push(sender);
            receiver
        });
        let number = self.next_number;
        self.next_number += 1;
        self.insert(number, offer);
        receiver
    }

    /// The next offer to send, if the agent is there and has not too many.
    pub(crate) fn next_offer(&mut self, now: u64) -> Option<AnswerOffer> {
        if !self.is_connected || self.unconfirmed.len() >= self.limits.unconfirmed_offers {
            return None;
        }
        let (id, offer) = self.take_oldest()?;
        let addresses = offer.addresses.iter();
        let sent = AnswerOffer {
            id,
            client: offer.origin.client,
            server: offer.origin.server,
            name: offer.origin.name.clone(),
            addresses: addresses
                .map(|(address, deadline)| OfferedAddress {
                    address: *address,
                    ttl_seconds: deadline.saturating_sub(now).div_ceil(1_000),
                })
                .collect(),
        };
        self.unconfirmed.insert(id, offer);
        Some(sent)
    }

    /// The agent confirmed an offer; whether there is one of this number.
    pub(crate) fn confirm(&mut self, id: u64) -> bool {
        let Some(offer) = self.unconfirmed.remove(&id) else {
            return false;
        };
        self.confirmed.insert(offer.origin, offer.addresses);
        for waiter in offer.waiters {
            // The hold may be over, and nobody waits.
            let _ = waiter.send(());
        }
        true
    }

    /// What the agent confirmed for a client may be in force no longer.
    pub(crate) fn withdraw(&mut self, client: IpAddr) {
        self.confirmed.remove_client(client);
    }

    /// The agent is there. What another one confirmed may not be in force any more.
    pub(crate) fn connect(&mut self) {
        self.is_connected = true;
        self.confirmed = ConfirmedNames::new(self.limits.confirmed_names);
    }

    /// Whether the agent is there.
    pub(crate) fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The agent is gone: nobody waits, and what it did not confirm is offered again.
    pub(crate) fn disconnect(&mut self) {
        self.is_connected = false;
        for offer in self.waiting.values_mut() {
            offer.waiters.clear();
        }
        for (number, mut offer) in std::mem::take(&mut self.unconfirmed) {
            offer.waiters.clear();
            self.insert(number, offer);
        }
    }

    /// How many offers a bound removed.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds an offer, or its addresses to the one that waits for the same name.
    fn insert(&mut self, number: u64, offer: QueuedOffer) {
        let number = *self.numbers.entry(offer.origin.clone()).or_insert(number);
        match self.waiting.get_mut(&number) {
            None => {
                self.waiting_addresses += offer.addresses.len();
                self.waiting.insert(number, offer);
            }
            Some(earlier) => {
                self.waiting_addresses -= earlier.addresses.len();
                merge_addresses(&mut earlier.addresses, offer.addresses, MOST_ADDRESSES);
                self.waiting_addresses += earlier.addresses.len();
                earlier.waiters.extend(offer.waiters);
            }
        }
        while self.waiting.len() > self.limits.waiting_offers
            || self.waiting_addresses > self.limits.waiting_addresses
        {
            if self.take_oldest().is_none() {
                break;
            }
            self.dropped += 1;
        }
    }

    fn take_oldest(&mut self) -> Option<(u64, QueuedOffer)> {
        let (number, offer) = self.waiting.pop_first()?;
        self.numbers.remove(&offer.origin);
        self.waiting_addresses -= offer.addresses.len();
        Some((number, offer))
    }
}

/// Adds addresses; each stays until the later of its deadlines. Of too many those that end first go.
fn merge_addresses(addresses: &mut AddressDeadlines, more: AddressDeadlines, most: usize) {
    for (address, deadline) in more {
        let latest = addresses.entry(address).or_default();
        *latest = deadline.max(*latest);
    }
    if addresses.len() > most {
        let mut deadlines: Vec<(u64, IpAddr)> = addresses.iter().map(|(a, d)| (*d, *a)).collect();
        deadlines.sort_unstable();
        for (_, address) in &deadlines[..deadlines.len() - most] {
            addresses.remove(address);
        }
    }
}

/// A name that the agent confirmed.
#[derive(Debug, Default)]
struct ConfirmedName {
    /// The number of its last confirmation.
    number: u64,
    addresses: AddressDeadlines,
    /// Until when the next offer can wait.
    refresh: u64,
}

/// The addresses that the agent confirmed.
#[derive(Debug)]
struct ConfirmedNames {
    most: usize,
    /// Never 0, which is that of a name without confirmation.
    next_number: u64,
    names: BTreeMap<AnswerOrigin, ConfirmedName>,
    /// Those confirmed longest ago first.
    ages: BTreeMap<u64, AnswerOrigin>,
}

impl ConfirmedNames {
    fn new(most: usize) -> Self {
        ConfirmedNames {
            most,
            next_number: 1,
            names: BTreeMap::new(),
            ages: BTreeMap::new(),
        }
    }

    fn insert(&mut self, origin: AnswerOrigin, addresses: AddressDeadlines) {
        let number = self.next_number;
        self.next_number += 1;
        let entry = self.names.entry(origin.clone()).or_default();
        self.ages.remove(&entry.number);
        entry.number = number;
        merge_addresses(&mut entry.addresses, addresses, MOST_CONFIRMED);
        self.ages.insert(number, origin);
        while self.ages.len() > self.most
            && let Some((_, origin)) = self.ages.pop_first()
        {
            self.names.remove(&origin);
        }
    }

    fn remove_client(&mut self, client: IpAddr) {
        let ages = &mut self.ages;
        self.names.retain(|origin, name| {
            let stays = origin.client != client;
            if !stays {
                ages.remove(&name.number);
            }
            stays
        });
    }

    /// Whether a name is to be offered again; if so, it is now.
    fn is_refresh_due(&mut self, origin: &AnswerOrigin, now: u64) -> bool {
        let Some(name) = self.names.get_mut(origin) else {
            return true;
        };
        let is_due = now >= name.refresh;
        if is_due {
            name.refresh = now.saturating_add(REFRESH_PERIOD);
        }
        is_due
    }

    /// Whether all of these addresses are confirmed, and their time is not over.
    fn has(&self, origin: &AnswerOrigin, answered: &[AnsweredAddress], now: u64) -> bool {
        self.names.get(origin).is_some_and(|name| {
            let mut deadlines = answered.iter().map(|a| name.addresses.get(&a.address));
            deadlines.all(|deadline| deadline.is_some_and(|deadline| *deadline > now))
        })
    }
}

#[cfg(test)]
mod tests;

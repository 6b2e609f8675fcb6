//! nfnetlink in memory: records what it is told, answers what it was taught.

use std::collections::{BTreeMap, VecDeque};

use super::{Batch, BatchError, Nfnetlink, Object, Query, QueryError};

/// A recording stand-in for a socket.
#[derive(Clone, Debug, Default)]
pub struct FakeNfnetlink {
    /// Batches committed with success, in order.
    pub committed: Vec<Batch>,
    /// Batches refused, in order.
    pub refused: Vec<Batch>,
    /// Answers to the next commits; success once it is empty.
    pub answers: VecDeque<Result<(), BatchError>>,
    /// Queries asked, in order.
    pub queries: Vec<Query>,
    /// Changes made outside batches, with their flags, in order.
    pub changes: Vec<(Query, u16)>,
    /// What the next queries of a (subsystem, message type) find, before [`Self::objects`].
    pub next: BTreeMap<(u8, u8), VecDeque<Vec<Object>>>,
    /// What queries of a (subsystem, message type) find.
    pub objects: BTreeMap<(u8, u8), Vec<Object>>,
    /// The generation in force; a commit raises it.
    pub generation: u32,
    /// The port it pretends to have.
    pub portid: u32,
}

impl Nfnetlink for FakeNfnetlink {
    fn commit(&mut self, batch: &Batch) -> Result<(), BatchError> {
        let stale = batch
            .generation()
            .filter(|generation| *generation != self.generation)
            .map(|generation| BatchError::Stale {
                netns: "fake".to_owned(),
                generation,
            });
        let answer = match stale {
            Some(stale) => Err(stale),
            None => self.answers.pop_front().unwrap_or(Ok(())),
        };
        match answer {
            Ok(()) => {
                self.committed.push(batch.clone());
                self.generation += 1;
            }
            Err(_) => self.refused.push(batch.clone()),
        }
        answer
    }

    fn dump(&mut self, query: &Query) -> Result<Vec<Object>, QueryError> {
        self.queries.push(query.clone());
        let asked = (query.subsystem, query.kind);
        let next = self.next.get_mut(&asked).and_then(VecDeque::pop_front);
        Ok(next
            .or_else(|| self.objects.get(&asked).cloned())
            .unwrap_or_default())
    }

    fn get(&mut self, query: &Query) -> Result<Option<Object>, QueryError> {
        Ok(self.dump(query)?.into_iter().next())
    }

    fn change(&mut self, query: &Query, flags: u16) -> Result<(), QueryError> {
        self.changes.push((query.clone(), flags));
        Ok(())
    }

    fn generation(&mut self) -> Result<u32, QueryError> {
        Ok(self.generation)
    }

    fn portid(&self) -> u32 {
        self.portid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_recorded_and_answers_given_in_order() {
        let mut fake = FakeNfnetlink::default();
        let lost = BatchError::Unconfirmed {
            netns: "fake".to_owned(),
        };
        fake.answers.push_back(Err(lost.clone()));
        let mut batch = Batch::nf_tables_at(0);
        batch.push(0, 0, 1, |_| {}).unwrap();
        assert_eq!(fake.commit(&batch), Err(lost));
        assert_eq!(fake.commit(&batch), Ok(()));
        assert!(matches!(fake.commit(&batch), Err(BatchError::Stale { .. })));
        assert_eq!((fake.committed.len(), fake.refused.len()), (1, 2));
    }
}

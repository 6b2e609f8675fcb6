//! nfnetlink in memory: records requests and returns prepared results.

use std::collections::{BTreeMap, VecDeque};

use super::{BatchError, NfBatch, NfMessage, NfRequest, NfRequestError, Nfnetlink};

/// A recording fake of a socket.
#[derive(Clone, Debug, Default)]
pub struct FakeNfnetlink {
    /// Committed batches, in order.
    pub committed: Vec<NfBatch>,
    /// Rejected batches, in order.
    pub rejected: Vec<NfBatch>,
    /// Results of the next commits; success once it is empty.
    pub commit_results: VecDeque<Result<(), BatchError>>,
    /// Queries, in order.
    pub queries: Vec<NfRequest>,
    /// Changes made outside batches, with their flags, in order.
    pub changes: Vec<(NfRequest, u16)>,
    /// Results of the next queries of a (subsystem, message type), used before [`Self::objects`].
    pub next_objects: BTreeMap<(u8, u8), VecDeque<Vec<NfMessage>>>,
    /// Results of queries of a (subsystem, message type).
    pub objects: BTreeMap<(u8, u8), Vec<NfMessage>>,
    /// The current generation; a commit increments it.
    pub generation: u32,
    /// The port id it reports.
    pub portid: u32,
}

impl Nfnetlink for FakeNfnetlink {
    fn commit(&mut self, batch: &NfBatch) -> Result<(), BatchError> {
        let answer = self.commit_results.pop_front().unwrap_or(Ok(()));
        match answer {
            Ok(()) => {
                self.committed.push(batch.clone());
                self.generation += 1;
            }
            Err(_) => self.rejected.push(batch.clone()),
        }
        answer
    }

    fn dump(&mut self, query: &NfRequest) -> Result<Vec<NfMessage>, NfRequestError> {
        self.queries.push(query.clone());
        let asked = (query.subsystem, query.kind);
        let next = self
            .next_objects
            .get_mut(&asked)
            .and_then(VecDeque::pop_front);
        Ok(next
            .or_else(|| self.objects.get(&asked).cloned())
            .unwrap_or_default())
    }

    fn get(&mut self, query: &NfRequest) -> Result<Option<NfMessage>, NfRequestError> {
        Ok(self.dump(query)?.into_iter().next())
    }

    fn change(&mut self, query: &NfRequest, flags: u16) -> Result<(), NfRequestError> {
        self.changes.push((query.clone(), flags));
        Ok(())
    }

    fn generation(&mut self) -> Result<u32, NfRequestError> {
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
        fake.commit_results.push_back(Err(lost.clone()));
        let mut batch = NfBatch::nf_tables();
        batch.push(0, 0, 1, |_| {}).unwrap();
        assert_eq!(fake.commit(&batch), Err(lost));
        assert_eq!(fake.commit(&batch), Ok(()));
        assert_eq!((fake.committed.len(), fake.rejected.len()), (1, 1));
    }
}

//! Proposals: what producers want written.

use std::collections::BTreeMap;

use super::{Replica, Stance};
use crate::content::{MAX_KEY_BYTES, MAX_KEYED_BYTES, keyed};
use crate::log::LogError;
use crate::message::{Action, Draft, Refusal};
use crate::producers::Known;
use crate::record::{Record, Term};

impl Replica {
    /// Appends what is new of the drafts; acknowledged once all of them are committed.
    pub(super) fn propose(
        &mut self,
        id: u64,
        timestamp_ms: i64,
        drafts: Vec<Draft>,
    ) -> Result<(), LogError> {
        match self.take(id, timestamp_ms, drafts) {
            Ok(()) => Ok(()),
            Err(Rejected::Refused(refusal)) => {
                self.actions.push(Action::Refused { id, refusal });
                Ok(())
            }
            Err(Rejected::Broken(e)) => {
                let refusal = Refusal::Halted(e.to_string());
                self.actions.push(Action::Refused { id, refusal });
                Err(e)
            }
        }
    }

    fn take(&mut self, id: u64, timestamp_ms: i64, drafts: Vec<Draft>) -> Result<(), Rejected> {
        let term = self.proposal_term(drafts.len())?;
        let (mut offsets, mut records) = (Vec::with_capacity(drafts.len()), Vec::new());
        let mut seen = BTreeMap::new();
        let mut next = self.log.end();
        for draft in drafts {
            check_size(&draft)?;
            let Draft { producer, sequence, key, payload } = draft;
            let name = (producer, sequence);
            let earlier = seen.get(&name).copied().filter(|_| producer != 0);
            match (earlier, self.log.producers().look_up(producer, sequence)) {
                (Some(offset), _) | (None, Known::At(offset)) => offsets.push(offset),
                (None, Known::TooOld) => {
                    let detail = format!(
                        "sequence {sequence} of producer {producer} is too far behind its newest \
                         record to tell whether it was written"
                    );
                    return Err(Refusal::Invalid(detail).into());
                }
                (None, Known::New) => {
                    offsets.push(next);
                    seen.insert(name, next);
                    let (kind, payload) = keyed(key.as_ref(), payload);
                    let offset = next;
                    records.push(Record {
                        term,
                        offset,
                        timestamp_ms,
                        producer,
                        sequence,
                        kind,
                        payload,
                    });
                    next += 1;
                }
            }
        }
        match self.log.append(&records) {
            Err(e @ LogError::DiskFull { .. }) => {
                return Err(Refusal::DiskFull(e.to_string()).into());
            }
            other => other?,
        }
        let needed = offsets.iter().max().map_or(0, |last| last + 1);
        if let Stance::Leading(leading) = &mut self.stance {
            leading.proposals.insert((needed, id), offsets);
        }
        Ok(())
    }

    /// The term to write in, if this replica takes `records` more.
    pub(super) fn proposal_term(&self, records: usize) -> Result<Term, Refusal> {
        if let Some(detail) = &self.halted {
            return Err(Refusal::Halted(detail.clone()));
        }
        let leading = match &self.stance {
            Stance::Following => return Err(Refusal::NotLeading),
            Stance::Opening(_) => return Err(Refusal::Opening),
            Stance::Leading(leading) => leading,
        };
        if self.is_fenced() || leading.drained {
            return Err(Refusal::Fenced);
        }
        if !leading.accepts {
            return Err(Refusal::Opening);
        }
        let waiting = self.log.end().saturating_sub(self.committed) as usize;
        if waiting + records > self.config.pending_records {
            return Err(Refusal::Overloaded);
        }
        Ok(leading.term)
    }
}

fn check_size(draft: &Draft) -> Result<(), Refusal> {
    let key = draft.key.as_ref().map_or(0, |key| key.len());
    if key > MAX_KEY_BYTES {
        let detail = format!("key of {key} bytes: expected at most {MAX_KEY_BYTES}");
        return Err(Refusal::Invalid(detail));
    }
    let given = key + draft.payload.len();
    if given > MAX_KEYED_BYTES {
        let detail = format!("record of {given} bytes: expected at most {MAX_KEYED_BYTES}");
        return Err(Refusal::Invalid(detail));
    }
    Ok(())
}

enum Rejected {
    Refused(Refusal),
    Broken(LogError),
}

impl From<Refusal> for Rejected {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<LogError> for Rejected {
    fn from(e: LogError) -> Self {
        Self::Broken(e)
    }
}

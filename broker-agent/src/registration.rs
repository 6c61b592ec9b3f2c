//! Keeps this broker registered: on every new lease, on every change, and at once when the key goes
//! although the lease is alive.

use std::time::Duration;

use evenkeel_coordination::{LeaseId, Revision, Session, Store};
use evenkeel_model::keys::Keys;
use evenkeel_model::{Registration, encode};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::metrics;
use crate::watching::OwnKey;

/// Before a failed write is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Another process registered as this broker, later.
#[derive(Debug, thiserror::Error)]
#[error(
    "another process at {address} runs as broker '{broker}' (incarnation {theirs}, here {ours}): \
     give each broker-agent its own --broker-id and --data-dir"
)]
pub(crate) struct Usurped {
    broker: String,
    address: String,
    theirs: u64,
    ours: u64,
}

/// The writer of the registration.
pub(crate) struct Registrar {
    pub(crate) store: Store,
    pub(crate) session: Session,
    pub(crate) keys: Keys,
    /// What to register.
    pub(crate) wanted: watch::Receiver<Registration>,
    /// What the store shows.
    pub(crate) own: watch::Receiver<OwnKey>,
    /// The lease under which it is registered now.
    pub(crate) registered: watch::Sender<Option<LeaseId>>,
}

struct Written {
    lease: LeaseId,
    registration: Registration,
    revision: Revision,
}

impl Registrar {
    /// Runs until another process takes the broker's id, or the session ends.
    pub(crate) async fn run(mut self) -> Result<(), Usurped> {
        let mut lease = self.session.watch();
        let mut written: Option<Written> = None;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            let shown = self.own.borrow_and_update().clone();
            let held = *lease.borrow_and_update();
            usurped(&wanted, &shown)?;
            if let Some(held) = held
                && !stands(written.as_ref(), held.id, &wanted, &shown)
            {
                match self.write(held.id, &wanted).await {
                    Some(revision) => {
                        written = Some(Written { lease: held.id, registration: wanted, revision });
                    }
                    None => sleep(RETRY).await,
                }
                continue;
            }
            if held.is_none() {
                written = None;
                self.registered.send_replace(None);
            }
            tokio::select! {
                biased;
                changed = lease.changed() => if changed.is_err() { return Ok(()) },
                changed = self.wanted.changed() => if changed.is_err() { return Ok(()) },
                changed = self.own.changed() => if changed.is_err() { return Ok(()) },
            }
        }
    }

    async fn write(&self, lease: LeaseId, wanted: &Registration) -> Option<Revision> {
        let key = self.keys.registration(&wanted.broker);
        match self.store.put(&key, encode(wanted), Some(lease)).await {
            Ok(revision) => {
                metrics::registered();
                self.registered.send_replace(Some(lease));
                let Registration { address, incarnation, stopping, .. } = wanted;
                tracing::info!(address, incarnation, stopping, lease, "registered");
                Some(revision)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot register");
                None
            }
        }
    }
}

/// What was written last is what is wanted, and the store does not show that it is gone since.
fn stands(
    written: Option<&Written>,
    lease: LeaseId,
    wanted: &Registration,
    shown: &OwnKey,
) -> bool {
    let Some(written) = written else { return false };
    let lost = match shown {
        OwnKey::Gone(revision) => *revision > written.revision,
        OwnKey::Present { registration, revision } => {
            *revision > written.revision && **registration != written.registration
        }
    };
    !lost && written.lease == lease && written.registration == *wanted
}

fn usurped(wanted: &Registration, shown: &OwnKey) -> Result<(), Usurped> {
    let OwnKey::Present { registration: other, .. } = shown else { return Ok(()) };
    let same_start = other.incarnation == wanted.incarnation;
    if other.incarnation > wanted.incarnation || (same_start && other.address != wanted.address) {
        return Err(Usurped {
            broker: wanted.broker.to_string(),
            address: other.address.clone(),
            theirs: other.incarnation,
            ours: wanted.incarnation,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(incarnation: u64, address: &str) -> Registration {
        let text =
            format!(r#"{{"broker":"b1","address":"{address}","incarnation":{incarnation}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn present(registration: Registration, revision: Revision) -> OwnKey {
        OwnKey::Present { registration: Box::new(registration), revision }
    }

    #[test]
    fn it_is_written_anew_for_a_new_lease_a_change_or_a_lost_key() {
        let mine = registration(3, "h:1");
        let written = Written { lease: 7, registration: mine.clone(), revision: 100 };
        let stands = |lease, wanted: &Registration, shown: &OwnKey| {
            super::stands(Some(&written), lease, wanted, shown)
        };
        let seen = present(mine.clone(), 100);
        assert!(stands(7, &mine, &seen));
        assert!(stands(7, &mine, &OwnKey::Gone(99)), "the view has not seen the write yet");
        assert!(!stands(7, &mine, &OwnKey::Gone(101)));
        assert!(!stands(8, &mine, &seen));
        let mut stopping = mine.clone();
        stopping.stopping = true;
        assert!(!stands(7, &stopping, &seen));
        assert!(!stands(7, &mine, &present(registration(2, "h:0"), 101)), "an old life's write");
        assert!(!super::stands(None, 7, &mine, &seen));
    }

    #[test]
    fn a_later_start_elsewhere_ends_this_one() {
        let mine = registration(3, "h:1");
        assert!(usurped(&mine, &OwnKey::Gone(5)).is_ok());
        assert!(usurped(&mine, &present(registration(2, "h:9"), 5)).is_ok());
        assert!(usurped(&mine, &present(registration(3, "h:1"), 5)).is_ok());
        for other in [registration(4, "h:1"), registration(3, "h:2")] {
            let error = usurped(&mine, &present(other, 5)).unwrap_err().to_string();
            assert!(error.contains("runs as broker 'b1'"), "{error}");
        }
    }
}

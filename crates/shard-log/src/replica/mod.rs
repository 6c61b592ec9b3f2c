//! The replication state machine of one shard on one broker: `(now, event) → (actions, wake_at)`.
//!
//! Replication follows Raft's rules for logs. Terms, leaders and voting sets come from outside, in
//! assignments; a leader never names itself. The log and the memo are written inside a call; syncs
//! and messages are actions.
//!
//! **Invariants:** a committed record is on every open quorum of every later voting set; a leader
//! acknowledges only committed records; a fenced leader takes no record in that generation; early,
//! late and repeated events are harmless.

mod assigned;
mod compacting;
mod following;
mod leading;
mod opening;
mod peers;
mod proposals;
mod reporting;
mod retaining;

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::{Assignment, BrokerId, Role, ShardKey, ShardReport};

use crate::keys::KeyTable;
use crate::log::{
    ClosedSegment, IndexJob, Log, LogConfig, LogError, ReadLimit, RemovedSegment, SyncJob,
    TornTail, Verified,
};
use crate::memo::Memo;
use crate::message::{Action, Answer, Event, Output, Refusal};
use crate::record::{Position, Term};
use crate::storage::Storage;

pub use compacting::{Compactable, CompactionStep};
pub use following::CopyRefusal;
use following::PendingAck;
use leading::Leading;
use opening::Opening;

/// Wait before what found no room on the disk is tried again, milliseconds.
const NO_ROOM_RETRY_MS: u64 = 500;

/// What is read again after a read that found damage: no less than such a read takes at once.
const REREAD_BYTES: usize = 1 << 20;

/// Timings and limits of a replica. Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// The log's settings.
    pub log: LogConfig,
    /// Records that a learner may lack and still be fed by the leader.
    pub lag_bound_records: u64,
    /// Most bytes of records in one append or fetch.
    pub append_bytes: usize,
    /// Most records that wait to be committed; 0 refuses every proposal.
    pub pending_records: usize,
    /// What is committed is told to an idle follower after this long.
    pub heartbeat_ms: u64,
    /// A learner that is far behind is looked at this often.
    pub learner_probe_ms: u64,
    /// A follower that lacks nothing is looked at this often.
    pub idle_probe_ms: u64,
    /// An answer that takes longer is given up.
    pub answer_timeout_ms: u64,
    /// First and longest wait before an unreachable replica is tried again.
    pub backoff_ms: (u64, u64),
    /// A learner's position is reported at most this often.
    pub progress_ms: u64,
    /// Whether commits need a majority of the set with the joiner too. Turned off only to show
    /// that the tests notice.
    #[doc(hidden)]
    pub joint_counting: bool,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            log: LogConfig::default(),
            lag_bound_records: 1000,
            append_bytes: 256 << 10,
            pending_records: 16 << 10,
            heartbeat_ms: 200,
            learner_probe_ms: 500,
            idle_probe_ms: 10_000,
            answer_timeout_ms: 3000,
            backoff_ms: (20, 2000),
            progress_ms: 5000,
            joint_counting: true,
        }
    }
}

/// What the replica is doing for the promised term.
enum Stance {
    /// Nothing of its own: it follows whoever leads a term that it may accept.
    Following,
    /// Named leader, collecting promises.
    Opening(Opening),
    /// Leads: its start record is appended.
    Leading(Leading),
}

/// One replica.
pub struct Replica {
    me: BrokerId,
    shard: ShardKey,
    config: ReplicaConfig,
    storage: Arc<dyn Storage>,
    log: Log,
    memo: Memo,
    stance: Stance,
    /// Everything before this offset is committed, as far as known.
    committed: u64,
    /// As follower: records behind the leader when it last said so.
    lag: Option<u64>,
    halted: Option<String>,
    acks: Vec<PendingAck>,
    /// As leader: what counts in the log, as far as it was noted for a compaction.
    keys: Option<KeyTable>,
    /// As leader: behind what a compaction wrote again.
    rewritten_to: u64,
    /// An assignment that could not be stored, and when to try again what found no room.
    unsaved: Option<Assignment>,
    retry_at: Option<u64>,
    /// When the log's start is moved again, after there was no room for it.
    start_retry_at: Option<u64>,
    syncing: bool,
    next_id: u64,
    reported: Option<(ShardReport, u64)>,
    actions: Vec<Action>,
    now: u64,
}

impl Replica {
    /// Opens what `storage` holds of the shard. A torn tail that was cut off is told.
    pub fn open(
        me: BrokerId,
        shard: ShardKey,
        storage: Arc<dyn Storage>,
        config: ReplicaConfig,
    ) -> Result<(Self, Option<TornTail>), LogError> {
        let memo = Memo::load(&storage)?;
        let (log, torn) = Log::open(storage.clone(), config.log)?;
        // Nothing is given up before it is committed.
        let committed = log.start();
        let replica = Self {
            me,
            shard,
            config,
            storage,
            log,
            memo,
            stance: Stance::Following,
            committed,
            lag: None,
            halted: None,
            acks: Vec::new(),
            keys: None,
            rewritten_to: 0,
            unsaved: None,
            retry_at: None,
            start_retry_at: None,
            syncing: false,
            next_id: 1,
            reported: None,
            actions: Vec::new(),
            now: 0,
        };
        Ok((replica, torn))
    }

    /// The one entry. `now` is milliseconds on a clock that never goes back.
    pub fn handle(&mut self, now: u64, event: Event) -> Output {
        self.now = self.now.max(now);
        let known = self.retry_at.take().is_some();
        let reacted = self.react(event);
        self.take_failure(reacted, known);
        let settled = self.settle();
        self.take_failure(settled, known);
        Output { actions: std::mem::take(&mut self.actions), wake_at: self.wake_at() }
    }

    /// What finds no room is tried again, and said once if it is not `known`; any other failure ends
    /// the replica.
    fn take_failure(&mut self, result: Result<(), LogError>, known: bool) {
        match result {
            Err(e) if e.is_passing() => {
                if !known {
                    self.actions.push(Action::Note(e.to_string()));
                }
                self.retry_at = Some(self.now + NO_ROOM_RETRY_MS);
            }
            Err(e) => self.halt_for(&e),
            Ok(()) => {}
        }
    }

    fn react(&mut self, event: Event) -> Result<(), LogError> {
        match event {
            Event::Assigned(assignment) => self.assigned(assignment),
            Event::Propose { id, timestamp_ms, drafts } => self.propose(id, timestamp_ms, drafts),
            Event::GiveUpBefore { offset, timestamp_ms } => {
                self.give_up_before(offset, timestamp_ms)
            }
            Event::Asked { reply, request } => self.asked(reply, request),
            Event::Answered { from, id, answer } => self.answered(&from, id, answer),
            Event::Synced(ticket) => {
                self.log.finish_sync(ticket);
                self.syncing = false;
                Ok(())
            }
            Event::SyncFailed(detail) => {
                self.halt(detail);
                Ok(())
            }
            Event::Tick => self.unsaved.take().map_or(Ok(()), |a| self.assigned(a)),
        }
    }

    fn answered(
        &mut self,
        from: &BrokerId,
        id: u64,
        answer: Option<Answer>,
    ) -> Result<(), LogError> {
        match &self.stance {
            Stance::Following => Ok(()),
            Stance::Opening(_) => self.opening_answered(from, id, answer),
            Stance::Leading(_) => self.leading_answered(from, id, answer),
        }
    }

    /// What follows from the state as it is now, whatever brought it about.
    fn settle(&mut self) -> Result<(), LogError> {
        if self.halted.is_some() {
            return Ok(());
        }
        self.advance_opening()?;
        self.advance_commit()?;
        self.follow_start()?;
        self.send_appends()?;
        self.answer_synced()?;
        if !self.syncing
            && let Some(job) = self.log.begin_sync()
        {
            self.syncing = true;
            self.actions.push(Action::Sync(job));
        }
        self.report();
        Ok(())
    }

    fn wake_at(&self) -> Option<u64> {
        if self.halted.is_some() {
            return None;
        }
        let work = match &self.stance {
            Stance::Following => None,
            Stance::Opening(opening) => opening.wake_at(self.config.answer_timeout_ms),
            Stance::Leading(_) => self.leading_wake_at(),
        };
        let waits = [work, self.progress_due_at(), self.retry_at, self.start_retry_at];
        let wake = waits.into_iter().flatten().min();
        // Never in the past, so that a driver cannot spin.
        wake.map(|at| at.max(self.now + 1))
    }

    /// Gives up for good: what is on disk is left as it is for people to look at.
    fn halt(&mut self, detail: String) {
        if self.halted.is_some() {
            return;
        }
        self.actions.push(Action::Note(format!("halted: {detail}")));
        self.step_down();
        self.refuse_acks("the replica halted");
        self.halted = Some(detail);
        self.report();
    }

    fn halt_for(&mut self, error: &LogError) {
        let detail = error.to_string();
        if matches!(error, LogError::Corrupt { .. })
            && self.halted.is_none()
            && let Err(e) = self.log.mark_suspect(&detail)
        {
            self.actions.push(Action::Note(format!("a restart may not notice the damage: {e}")));
        }
        self.halt(detail);
    }

    /// Ends leadership; proposals that are in the log stay uncertain.
    fn step_down(&mut self) {
        (self.keys, self.rewritten_to) = (None, 0);
        if let Stance::Leading(leading) = std::mem::replace(&mut self.stance, Stance::Following) {
            for (_, id) in leading.proposals.into_keys() {
                self.actions.push(Action::Refused { id, refusal: Refusal::Uncertain });
            }
        }
    }

    /// Looks again at what seemed damaged when it was read away from the log, about `max_bytes`
    /// from there. If it is still part of the log and still damaged, the replica halts with the
    /// next event. Whether that is so.
    pub fn recheck(&mut self, segment: &ClosedSegment, from: Verified, max_bytes: u64) -> bool {
        if self.halted.is_some() || !self.log.has_closed(segment) {
            return false;
        }
        match segment.verify(from, max_bytes) {
            Ok(_) => false,
            Err(error) => {
                self.halt_for(&error);
                true
            }
        }
    }

    /// Reads the records from `from` on again from their files, of which one seemed damaged. If it
    /// still does, the replica halts with the next event.
    pub fn reread(&mut self, from: u64) {
        let limit = ReadLimit::bytes(u64::MAX, REREAD_BYTES);
        if self.halted.is_none()
            && let Err(error @ LogError::Corrupt { .. }) = self.log.read_stored(from, limit)
        {
            self.halt_for(&error);
        }
    }

    /// Removes the file of a segment before the start; harmless if that was done.
    pub fn erase_removed(&mut self, segment: &RemovedSegment) -> Result<(), LogError> {
        self.log.erase_removed(segment)
    }

    /// Puts a finished index in its place, unless the log was truncated meanwhile; whether it did.
    pub fn install_index(&mut self, job: &IndexJob) -> Result<bool, LogError> {
        self.log.install_index(job)
    }

    /// Takes note that the index before the job's is not there, or not whole.
    pub fn forget_index_before(&mut self, job: &IndexJob) {
        self.log.forget_index_before(job);
    }

    fn save_memo(&mut self, change: impl FnOnce(&mut Memo)) -> Result<(), LogError> {
        let mut next = self.memo.clone();
        change(&mut next);
        if next != self.memo {
            next.save(&self.storage)?;
            self.memo = next;
        }
        Ok(())
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The assignment held.
    pub fn assignment(&self) -> Option<&Assignment> {
        self.memo.held.as_ref()
    }

    /// What this broker is to the shard, by the assignment held.
    pub fn role(&self) -> Option<Role> {
        self.memo.held.as_ref().and_then(|a| a.role_of(&self.me))
    }

    /// Generation of the assignment held, 0 if none.
    fn generation(&self) -> u64 {
        self.memo.held.as_ref().map_or(0, |a| a.generation)
    }

    /// Everything before this offset is committed, as far as this replica knows.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// A sync of what was written and not yet begun to be synced, for closing.
    pub fn begin_sync(&mut self) -> Option<SyncJob> {
        self.log.begin_sync()
    }

    /// How far the log goes.
    pub fn position(&self) -> Position {
        self.log.position()
    }

    /// The highest term promised.
    pub fn promised(&self) -> Term {
        self.memo.promised
    }

    /// Why the replica cannot go on, if so.
    pub fn halted(&self) -> Option<&str> {
        self.halted.as_deref()
    }

    /// The term that this replica leads and serves in: it acknowledges what is committed.
    pub fn serving_term(&self) -> Option<Term> {
        match &self.stance {
            Stance::Leading(leading) if leading.accepts && !self.is_fenced() => Some(leading.term),
            _ => None,
        }
    }

    /// Records that each member lacks, if this replica leads.
    pub fn follower_lag(&self) -> BTreeMap<BrokerId, u64> {
        let Stance::Leading(leading) = &self.stance else { return BTreeMap::new() };
        let end = self.log.end();
        leading.peers.iter().map(|(id, p)| (id.clone(), end.saturating_sub(p.matched))).collect()
    }
}

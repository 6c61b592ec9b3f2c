//! Elections, told by whole outputs.

use std::time::Duration;

use tokio::time::Instant;

use super::Leadership;
use super::machine::{Action, Event, Machine, Output};
use crate::{Entry, Token};

const MINE: i64 = 7;
const THEIRS: i64 = 9;

/// A machine on a clock of milliseconds from its beginning; it reads the key every 2000.
struct Story {
    start: Instant,
    machine: Machine,
}

impl Story {
    fn begin(progress_timeout_ms: Option<u64>) -> Self {
        let start = Instant::now();
        let poll = Duration::from_secs(2);
        let timeout = progress_timeout_ms.map(Duration::from_millis);
        Self { start, machine: Machine::new(start, "leader".into(), poll, timeout) }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    #[track_caller]
    fn event(&mut self, ms: u64, event: Event, actions: &[Action], wake_ms: Option<u64>) {
        let output = self.machine.on_event(self.at(ms), event);
        let wake_at = wake_ms.map(|ms| self.at(ms));
        assert_eq!(output, Output { actions: actions.to_vec(), wake_at });
    }

    /// Nothing but time; the work loop last went on at `progress_ms`.
    #[track_caller]
    fn time(&mut self, ms: u64, progress_ms: u64, actions: &[Action], wake_ms: Option<u64>) {
        let event = Event::Progress { at: self.at(progress_ms) };
        self.event(ms, event, actions, wake_ms);
    }

    /// Elected at 10 by the write of revision 5.
    fn leading(progress_timeout_ms: Option<u64>) -> Self {
        let mut story = Self::begin(progress_timeout_ms);
        story.event(0, Event::Session(Some(MINE)), &[attempt()], None);
        let won = Event::Won { lease: MINE, revision: 5 };
        let limit = progress_timeout_ms.map_or(2010, |limit| 2010.min(10 + limit));
        story.event(10, won, &[publish_leading(5)], Some(limit));
        story
    }

    /// Follows the leader that revision 3 elected.
    fn following() -> Self {
        let mut story = Self::begin(None);
        story.event(0, Event::Session(Some(MINE)), &[attempt()], None);
        let taken = Event::Taken { by: Some(key(3, THEIRS)) };
        story.event(10, taken, &[publish_following(3, THEIRS)], Some(2010));
        story
    }
}

fn key(create_revision: i64, lease: i64) -> Entry {
    Entry {
        key: "leader".into(),
        value: b"somebody".to_vec(),
        create_revision,
        mod_revision: create_revision,
        lease: Some(lease),
    }
}

fn token(create_revision: i64) -> Token {
    Token { key: "leader".into(), create_revision }
}

fn attempt() -> Action {
    Action::Attempt { lease: MINE }
}

fn publish_leading(create_revision: i64) -> Action {
    Action::Publish(Leadership::Leading(token(create_revision)))
}

fn publish_following(create_revision: i64, lease: i64) -> Action {
    Action::Publish(Leadership::Following { leader: Some(key(create_revision, lease)) })
}

const NOBODY: Action = Action::Publish(Leadership::Following { leader: None });
const UNKNOWN: Action = Action::Publish(Leadership::Unknown);

#[test]
fn nobody_is_elected_without_a_lease() {
    let mut story = Story::begin(None);
    story.time(0, 0, &[], Some(2000));
    story.time(2000, 0, &[Action::Read], None);
    let read = Event::Read { entry: None, revision: 4 };
    story.event(2010, read, &[NOBODY], Some(4010));
    story.event(2020, Event::Session(Some(MINE)), &[attempt()], None);
}

#[test]
fn the_first_to_put_the_key_leads_by_its_create_revision() {
    let mut story = Story::leading(None);
    // What the watch shows is older than the election itself.
    let stale = Event::Watched { entry: None, revision: 4 };
    story.event(20, stale, &[], Some(2010));
    let seen = Event::Watched { entry: Some(key(5, MINE)), revision: 5 };
    story.event(30, seen, &[], Some(2030));
    story.time(2030, 0, &[Action::Read], None);
    let read = Event::Read { entry: Some(key(5, MINE)), revision: 50 };
    story.event(2040, read, &[], Some(4040));
}

#[test]
fn an_election_whose_answer_was_lost_is_recognised() {
    let mut story = Story::begin(None);
    story.event(0, Event::Session(Some(MINE)), &[attempt()], None);
    let failed = Event::AttemptFailed { retry_after: Duration::from_millis(100) };
    story.event(10, failed, &[], Some(110));
    story.time(110, 0, &[attempt()], None);
    let mine = Event::Taken { by: Some(key(5, MINE)) };
    story.event(120, mine, &[publish_leading(5)], Some(2120));
}

#[test]
fn an_election_that_only_the_watch_tells_of_is_confirmed() {
    let mut story = Story::begin(None);
    story.event(0, Event::Session(Some(MINE)), &[attempt()], None);
    let failed = Event::AttemptFailed { retry_after: Duration::from_millis(100) };
    story.event(10, failed, &[], Some(110));
    let seen = Event::Watched { entry: Some(key(5, MINE)), revision: 5 };
    story.event(20, seen, &[publish_following(5, MINE)], Some(2020));
    story.time(110, 0, &[attempt()], None);
    let mine = Event::Taken { by: Some(key(5, MINE)) };
    story.event(120, mine, &[publish_leading(5)], Some(2120));
}

#[test]
fn a_follower_reacts_to_the_deletion_at_once() {
    let mut story = Story::following();
    let deleted = Event::Watched { entry: None, revision: 8 };
    story.event(500, deleted, &[NOBODY, attempt()], None);
    let won = Event::Won { lease: MINE, revision: 9 };
    story.event(510, won, &[publish_leading(9)], Some(2510));
}

#[test]
fn a_follower_whose_watch_is_silent_reads_the_key() {
    let mut story = Story::following();
    story.time(2010, 0, &[Action::Read], None);
    story.event(2020, Event::ReadFailed, &[], Some(4010));
    story.time(4010, 0, &[Action::Read], None);
    let read = Event::Read { entry: None, revision: 8 };
    story.event(4020, read, &[NOBODY, attempt()], None);
}

#[test]
fn a_leader_whose_key_is_gone_or_anothers_is_deposed() {
    let mut story = Story::leading(None);
    let gone = Event::Watched { entry: None, revision: 8 };
    story.event(100, gone, &[NOBODY, attempt()], None);

    let mut story = Story::leading(None);
    let other = Event::Watched { entry: Some(key(8, THEIRS)), revision: 8 };
    story.event(100, other, &[publish_following(8, THEIRS)], Some(2100));
}

#[test]
fn a_replaced_store_is_believed_when_it_is_read() {
    let mut story = Story::leading(None);
    // Revisions begin again; the watch alone cannot tell that from being late.
    let wiped = Event::Watched { entry: None, revision: 2 };
    story.event(100, wiped, &[], Some(2010));
    story.time(2010, 0, &[Action::Read], None);
    let read = Event::Read { entry: None, revision: 2 };
    story.event(2020, read, &[NOBODY, attempt()], None);
}

#[test]
fn a_leader_without_its_lease_is_none() {
    let mut story = Story::leading(None);
    story.event(100, Event::Session(None), &[UNKNOWN], Some(2010));
    story.event(200, Event::Session(Some(8)), &[Action::Attempt { lease: 8 }], None);
    // Its key is still there, on the lease that was lost.
    let taken = Event::Taken { by: Some(key(5, MINE)) };
    story.event(210, taken, &[publish_following(5, MINE)], Some(2210));
    let expired = Event::Watched { entry: None, revision: 8 };
    story.event(300, expired, &[NOBODY, Action::Attempt { lease: 8 }], None);
}

#[test]
fn an_answer_for_a_lease_that_was_lost_meanwhile_elects_nobody() {
    let mut story = Story::begin(None);
    story.event(0, Event::Session(Some(MINE)), &[attempt()], None);
    story.event(10, Event::Session(None), &[], None);
    let won = Event::Won { lease: MINE, revision: 5 };
    story.event(20, won, &[], Some(2000));
}

#[test]
fn a_leader_that_makes_no_progress_gives_up_and_waits() {
    let mut story = Story::leading(Some(1000));
    story.time(900, 500, &[], Some(1500));
    story.time(1500, 500, &[UNKNOWN, Action::Release(token(5))], Some(5500));
    story.event(1510, Event::Released, &[], Some(2010));
    // Stuck as it is, it is no candidate although the key is free.
    let free = Event::Watched { entry: None, revision: 8 };
    story.event(1520, free, &[NOBODY], Some(3520));
    // The work goes on.
    story.time(1600, 1590, &[attempt()], None);
}

#[test]
fn a_leader_that_never_recovers_is_a_candidate_again_in_the_end() {
    let mut story = Story::leading(Some(1000));
    story.time(1010, 0, &[UNKNOWN, Action::Release(token(5))], Some(5010));
    story.event(1020, Event::Released, &[], Some(2010));
    let free = Event::Watched { entry: None, revision: 8 };
    story.event(4000, free, &[NOBODY], Some(5010));
    story.time(5010, 0, &[attempt()], None);
}

#[test]
fn resigning_publishes_first_and_deletes_only_what_is_ours() {
    let mut story = Story::leading(None);
    story.event(100, Event::Resign, &[UNKNOWN, Action::Release(token(5))], None);
    assert!(!story.machine.is_closed());
    story.event(110, Event::Released, &[], None);
    assert!(story.machine.is_closed());
    let free = Event::Watched { entry: None, revision: 8 };
    story.event(120, free, &[NOBODY], None);
    story.time(90_000, 0, &[], None);

    let mut story = Story::following();
    story.event(100, Event::Resign, &[], None);
    assert!(story.machine.is_closed());
}

#[test]
fn resigning_during_an_attempt_takes_its_success_back() {
    let mut story = Story::begin(None);
    story.event(0, Event::Session(Some(MINE)), &[attempt()], None);
    story.event(10, Event::Resign, &[], None);
    assert!(!story.machine.is_closed());
    let won = Event::Won { lease: MINE, revision: 5 };
    story.event(20, won, &[Action::Release(token(5))], None);
    story.event(30, Event::Released, &[], None);
    assert!(story.machine.is_closed());
}

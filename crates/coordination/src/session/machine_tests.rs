//! The session's life, told by whole outputs.

use std::time::Duration;

use tokio::time::Instant;

use super::Lease;
use super::machine::{Action, Event, Machine, Output, window};

const TTL: Duration = Duration::from_secs(5);

/// A machine on a clock of milliseconds from its beginning.
struct Story {
    start: Instant,
    machine: Machine,
}

impl Story {
    fn begin() -> Self {
        let start = Instant::now();
        Self { start, machine: Machine::new(start, Duration::from_secs(1)) }
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    #[track_caller]
    fn time(&mut self, ms: u64, actions: &[Action], wake_ms: Option<u64>) {
        let output = self.machine.on_time(self.at(ms));
        self.expect(output, actions, wake_ms);
    }

    #[track_caller]
    fn event(&mut self, ms: u64, event: Event, actions: &[Action], wake_ms: Option<u64>) {
        let output = self.machine.on_event(self.at(ms), event);
        self.expect(output, actions, wake_ms);
    }

    #[track_caller]
    fn expect(&self, output: Output, actions: &[Action], wake_ms: Option<u64>) {
        let wake_at = wake_ms.map(|ms| self.at(ms));
        assert_eq!(output, Output { actions: actions.to_vec(), wake_at });
    }

    fn granted(&self, sent_ms: u64, id: i64) -> Event {
        Event::Granted { sent: self.at(sent_ms), id, ttl: TTL }
    }

    fn hold(&self, id: i64, epoch: u64, until_ms: u64) -> Action {
        Action::Hold { lease: Lease { id, epoch }, until: self.at(until_ms) }
    }

    /// Granted at 0, held until 4500, renewed at 1500.
    fn holding() -> Self {
        let mut story = Self::begin();
        story.time(0, &[Action::Grant], None);
        story.event(20, story.granted(0, 7), &[story.hold(7, 1, 4500)], Some(1500));
        story
    }
}

fn renew(limit_ms: u64) -> Action {
    Action::Renew { id: 7, limit: Duration::from_millis(limit_ms) }
}

const RETRY: Duration = Duration::from_millis(100);

#[test]
fn a_lease_counts_from_when_its_keep_alive_was_sent() {
    let mut story = Story::holding();
    story.time(1499, &[], Some(1500));
    story.time(1500, &[renew(1000)], Some(4500));
    // Sent at 1500, answered at 2300: the time on the way is not ours to use.
    let renewed = Event::Renewed { sent: story.at(1500) };
    story.event(2300, renewed, &[story.hold(7, 1, 6000)], Some(3000));
    // Told again, nothing is different.
    story.event(2300, renewed, &[story.hold(7, 1, 6000)], Some(3000));
    story.time(3000, &[renew(1000)], Some(6000));
}

#[test]
fn the_loss_is_published_at_the_deadline_and_only_then_is_another_asked_for() {
    let mut story = Story::holding();
    story.time(1500, &[renew(1000)], Some(4500));
    let failed = Event::RenewFailed { retry_after: RETRY };
    story.event(2500, failed, &[], Some(2600));
    story.time(2600, &[renew(1000)], Some(4500));
    story.event(3600, failed, &[], Some(3700));
    // What is left is less than the usual limit.
    story.time(3700, &[renew(800)], Some(4500));
    story.time(4500, &[Action::Lose, Action::Grant], None);
    story.time(9000, &[], None);
    // A late answer for the old lease does not bring it back.
    story.event(9000, Event::Renewed { sent: story.at(3700) }, &[], None);
    let next = story.granted(9000, 8);
    // The old one goes when there is another for its keys.
    story.event(9010, next, &[story.hold(8, 2, 13_500), Action::Retire(7)], Some(10_500));
}

#[test]
fn a_process_that_was_stopped_past_the_deadline_loses_before_anything_else() {
    let mut story = Story::holding();
    story.time(60_000, &[Action::Lose, Action::Grant], None);
    let mut story = Story::holding();
    story.time(1500, &[renew(1000)], Some(4500));
    // The answer had come in meanwhile, but what it proves has passed.
    let renewed = Event::Renewed { sent: story.at(1500) };
    let hold = story.hold(7, 1, 6000);
    story.event(60_000, renewed, &[hold, Action::Lose, Action::Grant], None);
}

#[test]
fn a_lease_that_etcd_does_not_know_is_lost_at_once() {
    let mut story = Story::holding();
    story.time(1500, &[renew(1000)], Some(4500));
    // Nothing is left to be revoked.
    story.event(1510, Event::Gone, &[Action::Lose, Action::Grant], None);
    story.event(1510, Event::Gone, &[], None);
    story.event(1520, story.granted(1510, 8), &[story.hold(8, 2, 6010)], Some(3010));
}

#[test]
fn a_refused_grant_is_asked_for_again_for_ever() {
    let mut story = Story::begin();
    story.time(0, &[Action::Grant], None);
    for round in 1..100 {
        let now = round * 100;
        story.event(now - 50, Event::GrantFailed { retry_after: RETRY / 2 }, &[], Some(now));
        story.time(now, &[Action::Grant], None);
    }
}

#[test]
fn a_grant_answered_too_late_is_given_back() {
    let mut story = Story::begin();
    story.time(0, &[Action::Grant], None);
    story.event(4500, story.granted(0, 7), &[Action::Retire(7)], Some(5500));
    story.time(5500, &[Action::Grant], None);
}

#[test]
fn closing_loses_revokes_and_ends() {
    let mut story = Story::holding();
    story.event(100, Event::Close, &[Action::Lose, Action::Retire(7)], None);
    assert!(story.machine.is_closed());
    story.event(200, Event::Close, &[], None);
    story.time(90_000, &[], None);

    let mut story = Story::begin();
    story.time(0, &[Action::Grant], None);
    story.event(10, Event::Close, &[], None);
    // The grant under way is not kept.
    story.event(20, story.granted(0, 7), &[Action::Retire(7)], None);
}

#[test]
fn a_pause_after_a_failed_renewal_does_not_use_up_a_short_lease() {
    let mut story = Story::begin();
    story.time(0, &[Action::Grant], None);
    let granted = Event::Granted { sent: story.at(0), id: 7, ttl: Duration::from_secs(2) };
    story.event(0, granted, &[story.hold(7, 1, 1500)], Some(500));
    story.time(500, &[renew(1000)], Some(1500));
    let failed = Event::RenewFailed { retry_after: Duration::from_secs(2) };
    story.event(600, failed, &[], Some(850));
}

#[test]
fn the_margin_is_half_a_second_or_a_tenth() {
    let window_ms = |ttl_ms| window(Duration::from_millis(ttl_ms)).as_millis();
    assert_eq!(window_ms(1000), 500);
    assert_eq!(window_ms(5000), 4500);
    assert_eq!(window_ms(15_000), 13_500);
    assert_eq!(window_ms(200), 0);
}

//! The admission under virtual time.

use std::time::Duration;

use evenkeel_model::CopyClass;
use evenkeel_throttle::TRICKLE;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Job;
use super::admission::{Admission, Presence};

const ALLOWED: u64 = 10_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// Does steps of a job for ever.
fn busy(admission: &Admission, job: Job, step: u64) -> JoinHandle<()> {
    let mut work = admission.work(job, u64::MAX / 8);
    tokio::spawn(async move {
        loop {
            work.acquire(step).await;
        }
    })
}

/// Bytes of scrub and deletion.
fn done(admission: &Admission) -> [u64; 2] {
    [Job::Scrub, Job::Deletion].map(|job| admission.figures(job).1)
}

#[tokio::test(start_paused = true)]
async fn jobs_share_equally_whatever_the_size_of_their_steps() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 1_000_000);
    busy(&admission, Job::Deletion, 100_000);
    sleep(10 * SECOND).await;
    busy(&admission, Job::Scrub, 10_000);
    let before = done(&admission);
    sleep(20 * SECOND).await;
    let [scrubbed, deleted] = done(&admission);
    let (scrubbed, deleted) = (scrubbed - before[0], deleted - before[1]);
    assert!(scrubbed.abs_diff(deleted) <= 200_000, "{scrubbed} and {deleted}");
    let all = scrubbed + deleted;
    assert!((19_500_000..20_500_000).contains(&all), "{all}");
}

#[tokio::test(start_paused = true)]
async fn the_backlog_is_what_was_announced_and_neither_done_nor_given_up() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 1_000_000);
    let mut scrub = admission.work(Job::Scrub, 50_000);
    let deletion = admission.work(Job::Deletion, 30_000);
    assert_eq!(admission.backlog(), 80_000);
    scrub.acquire(20_000).await;
    assert_eq!((admission.figures(Job::Scrub), scrub.left()), ((30_000, 20_000), 30_000));
    drop(deletion);
    assert_eq!(admission.backlog(), 30_000);
    // More than was announced, as when a record is longer than thought.
    scrub.acquire(40_000).await;
    assert_eq!((admission.backlog(), admission.figures(Job::Scrub).1), (0, 60_000));
    assert_eq!(admission.period().bytes, 60_000);
    scrub.set_left(7_000);
    assert_eq!((admission.backlog(), scrub.left()), (7_000, 7_000));
    scrub.set_left(2_000);
    drop(scrub);
    assert_eq!(admission.backlog(), 0);
    assert_eq!(admission.period().bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_waiting_takes_nothing_and_stands_in_nobodys_way() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 100_000);
    admission.acquire(Job::Scrub, 100_000).await;
    let mut work = admission.work(Job::Scrub, 500_000);
    let given_up = timeout(SECOND / 10, work.acquire(500_000)).await;
    assert!(given_up.is_err());
    assert_eq!(admission.figures(Job::Scrub), (500_000, 100_000));
    let start = Instant::now();
    admission.acquire(Job::Deletion, 1000).await;
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_split_changes_at_once_when_a_copy_begins() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 8_000_000);
    assert_eq!(admission.rate(), 8_000_000);
    let routine = admission.copying(CopyClass::Balance);
    assert_eq!(admission.rate(), ALLOWED / 2, "half beside a routine copy");
    let repair = admission.copying(CopyClass::Drain);
    assert_eq!(admission.rate(), ALLOWED / 100);
    drop(repair);
    assert_eq!(admission.rate(), ALLOWED / 100, "until the controller has looked");
    let period = admission.period();
    assert!(period.repairing && period.copying);
    let period = admission.period();
    assert!(!period.repairing && period.copying, "a routine copy runs still");
    drop(routine);
    admission.period();
    assert!(!admission.period().copying);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_lets_deletion_take_everything_and_nothing_else() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 500_000);
    let _repair = admission.copying(CopyClass::LastCopy);
    busy(&admission, Job::Scrub, 10_000);
    let mut deletion = admission.work(Job::Deletion, 5_000_000);
    admission.set_disk_high(true);
    assert_eq!(admission.rate(), ALLOWED / 2, "half beside copies");
    let before = done(&admission);
    let start = Instant::now();
    while deletion.left() > 0 {
        deletion.acquire(100_000).await;
    }
    assert!(start.elapsed() < SECOND + SECOND / 5, "{:?}", start.elapsed());
    assert!(done(&admission)[0] - before[0] <= 10_000, "the scrub waits");
    // Nothing left to erase: the trickle again.
    assert_eq!(admission.rate(), ALLOWED / 100);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_lets_compaction_go_on_once_nothing_is_left_to_erase() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 500_000);
    let _repair = admission.copying(CopyClass::LastCopy);
    busy(&admission, Job::Scrub, 10_000);
    busy(&admission, Job::Compaction, 10_000);
    let compacted = || admission.figures(Job::Compaction).1;
    sleep(SECOND).await;
    assert!((40_000..120_000).contains(&compacted()), "half of the trickle: {}", compacted());
    admission.set_disk_high(true);
    let mut deletion = admission.work(Job::Deletion, 2_000_000);
    let before = compacted();
    while deletion.left() > 0 {
        deletion.acquire(100_000).await;
    }
    assert!(compacted() - before <= 20_000, "erasing goes first");
    let (before, scrubbed) = (compacted(), done(&admission)[0]);
    sleep(SECOND).await;
    assert!(compacted() - before > 4_000_000, "half of what both may take");
    assert!(done(&admission)[0] - scrubbed <= 10_000, "the scrub waits");
}

#[tokio::test(start_paused = true)]
async fn copies_have_it_all_where_there_is_no_maintenance() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 5_000_000);
    let egress = admission.copies().egress.clone();
    let start = Instant::now();
    for _ in 0..100 {
        egress.take(100_000).await;
    }
    let took = start.elapsed();
    assert!((SECOND - SECOND / 10..SECOND + SECOND / 10).contains(&took), "{took:?}");
    let _work = admission.work(Job::Scrub, 1);
    let start = Instant::now();
    for _ in 0..100 {
        egress.take(100_000).await;
    }
    let took = start.elapsed();
    assert!((2 * SECOND - SECOND / 10..2 * SECOND + SECOND / 10).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_moves_no_byte_for_long_holds_nothing_back_until_it_does_again() {
    let admission = Admission::new(ALLOWED);
    admission.set_rates(ALLOWED, 500_000);
    let trickle = (ALLOWED as f64 * TRICKLE) as u64;
    let mut presence = Presence::new(&admission, CopyClass::LastCopy);
    assert_eq!(admission.rate(), trickle);
    let began = Instant::now();
    presence.stands_still().await;
    assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
    admission.set_rates(ALLOWED, 500_000);
    assert_eq!(admission.rate(), 500_000);
    presence.moves();
    assert_eq!(admission.rate(), trickle);
    presence.set_class(CopyClass::Balance);
    admission.set_rates(ALLOWED, 500_000);
    assert_eq!(admission.rate(), 500_000, "a routine copy holds back no more than half");
    drop(presence);
    admission.period();
    assert!(!admission.period().copying);
}

#[tokio::test(start_paused = true)]
async fn reading_to_compare_takes_its_share_of_the_time() {
    let admission = Admission::new(ALLOWED);
    admission.set_share(0.05);
    let began = Instant::now();
    admission.rest_after(Duration::from_millis(10)).await;
    let rested = began.elapsed();
    assert!(
        rested >= Duration::from_millis(189) && rested <= Duration::from_millis(192),
        "{rested:?}"
    );
}

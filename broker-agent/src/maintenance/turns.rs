//! Whose turn it is among the jobs that wait, and what each has done and still has to do.

use std::collections::{BTreeMap, VecDeque};

use super::Job;

/// One job's queue and sums.
#[derive(Debug, Default)]
struct Queue {
    /// First come, first served.
    waiting: VecDeque<u64>,
    /// Bytes still to do, as announced.
    backlog: u64,
    /// Bytes admitted.
    done: u64,
    /// The same on a scale that a job which was idle joins where the others are.
    served: u64,
}

/// Equal turns, counted in bytes, for the jobs that wait.
#[derive(Debug, Default)]
pub(super) struct Turns {
    jobs: BTreeMap<Job, Queue>,
    /// Where on the scale the last admitted job was.
    reached: u64,
    next_ticket: u64,
}

impl Turns {
    /// Queues up; returns the ticket.
    pub(super) fn join(&mut self, job: Job) -> u64 {
        self.next_ticket += 1;
        let queue = self.jobs.entry(job).or_default();
        queue.served = queue.served.max(self.reached);
        queue.waiting.push_back(self.next_ticket);
        self.next_ticket
    }

    /// Gives up waiting.
    pub(super) fn leave(&mut self, job: Job, ticket: u64) {
        if let Some(queue) = self.jobs.get_mut(&job) {
            queue.waiting.retain(|waiting| *waiting != ticket);
        }
    }

    /// Whose turn it is: of the waiting jobs, or of `only` if that is given, the one that was
    /// served least.
    pub(super) fn next(&self, only: Option<Job>) -> Option<u64> {
        let eligible = self.jobs.iter().filter(|(job, _)| only.is_none_or(|only| only == **job));
        let waiting = eligible.filter(|(_, queue)| !queue.waiting.is_empty());
        let (_, queue) = waiting.min_by_key(|(job, queue)| (queue.served, **job))?;
        queue.waiting.front().copied()
    }

    /// Counts an admitted step.
    pub(super) fn admit(&mut self, job: Job, ticket: u64, bytes: u64) {
        self.leave(job, ticket);
        let queue = self.jobs.entry(job).or_default();
        self.reached = self.reached.max(queue.served);
        queue.served += bytes;
        queue.done += bytes;
    }

    /// Whether any job waits.
    pub(super) fn anyone_waits(&self) -> bool {
        self.jobs.values().any(|queue| !queue.waiting.is_empty())
    }

    /// More work was announced.
    pub(super) fn announce(&mut self, job: Job, bytes: u64) {
        self.jobs.entry(job).or_default().backlog += bytes;
    }

    /// Announced work was done or given up.
    pub(super) fn settle(&mut self, job: Job, bytes: u64) {
        let queue = self.jobs.entry(job).or_default();
        queue.backlog = queue.backlog.saturating_sub(bytes);
    }

    /// Announced bytes that are not done.
    pub(super) fn backlog(&self, job: Job) -> u64 {
        self.jobs.get(&job).map_or(0, |queue| queue.backlog)
    }

    /// Admitted bytes so far.
    pub(super) fn done(&self, job: Job) -> u64 {
        self.jobs.get(&job).map_or(0, |queue| queue.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_equal_in_bytes_and_an_idle_job_saves_none_up() {
        let mut turns = Turns::default();
        for _ in 0..10 {
            let ticket = turns.join(Job::Deletion);
            turns.admit(Job::Deletion, ticket, 1000);
        }
        let mut waiting = BTreeMap::from([
            (Job::Scrub, turns.join(Job::Scrub)),
            (Job::Deletion, turns.join(Job::Deletion)),
        ]);
        let mut bytes = BTreeMap::from([(Job::Scrub, 0), (Job::Deletion, 0)]);
        for _ in 0..100 {
            let next = turns.next(None).unwrap();
            let job = *waiting.iter().find(|(_, ticket)| **ticket == next).unwrap().0;
            let step = if job == Job::Scrub { 100 } else { 300 };
            turns.admit(job, next, step);
            *bytes.get_mut(&job).unwrap() += step;
            waiting.insert(job, turns.join(job));
        }
        let (scrubbed, deleted) = (bytes[&Job::Scrub], bytes[&Job::Deletion]);
        assert!(scrubbed.abs_diff(deleted) <= 1300, "{scrubbed} and {deleted}");
    }
}

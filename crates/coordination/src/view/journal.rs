//! The keys that changed lately, so that a reader who looks often looks at those only.

use std::collections::VecDeque;

/// A moment of a view, to ask later what changed since.
pub type Mark = u64;

#[derive(Debug, Default)]
pub(super) struct Journal {
    /// Changes that are remembered. Who falls further behind reads the whole map.
    length: usize,
    keys: VecDeque<String>,
    /// The number of the first remembered change.
    first: u64,
}

impl Journal {
    pub(super) fn new(length: usize) -> Self {
        Self { length, ..Self::default() }
    }

    pub(super) fn note(&mut self, key: &str) {
        if self.keys.len() == self.length {
            self.first += 1;
            if self.keys.pop_front().is_none() {
                return;
            }
        }
        self.keys.push_back(key.to_owned());
    }

    /// Nobody can tell any more what changed before now.
    pub(super) fn forget(&mut self) {
        self.first += self.keys.len() as u64 + 1;
        self.keys.clear();
    }

    pub(super) fn mark(&self) -> Mark {
        self.first + self.keys.len() as u64
    }

    pub(super) fn since(&self, mark: Mark) -> Option<impl Iterator<Item = &str>> {
        let behind = mark.checked_sub(self.first)?;
        let from = usize::try_from(behind).ok().filter(|from| *from <= self.keys.len())?;
        Some(self.keys.range(from..).map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(journal: &Journal, mark: Mark) -> Option<Vec<&str>> {
        journal.since(mark).map(Iterator::collect)
    }

    #[test]
    fn it_tells_what_changed_since_a_mark_and_when_it_cannot() {
        let mut journal = Journal::new(4);
        let start = journal.mark();
        assert_eq!(since(&journal, start), Some(vec![]));
        journal.note("a");
        let later = journal.mark();
        journal.note("b");
        assert_eq!(since(&journal, start), Some(vec!["a", "b"]));
        assert_eq!(since(&journal, later), Some(vec!["b"]));
        journal.forget();
        assert_eq!(since(&journal, later), None);
        assert_eq!(since(&journal, journal.mark()), Some(vec![]));
        let full = journal.mark();
        (0..4).for_each(|_| journal.note("c"));
        assert_eq!(since(&journal, full), Some(vec!["c"; 4]));
        journal.note("c");
        assert_eq!(since(&journal, full), None);
    }

    #[test]
    fn one_without_a_length_remembers_nothing_and_says_so() {
        let mut journal = Journal::new(0);
        let start = journal.mark();
        assert_eq!(since(&journal, start), Some(vec![]));
        journal.note("a");
        assert_eq!(since(&journal, start), None);
        assert_eq!(since(&journal, journal.mark()), Some(vec![]));
    }
}

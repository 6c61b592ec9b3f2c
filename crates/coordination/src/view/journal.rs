//! The keys that changed lately, so that a reader who looks often looks at those only.

use std::collections::VecDeque;

/// Changes that are remembered. Who falls further behind reads the whole map.
const LENGTH: usize = 1 << 16;

/// A moment of a view, to ask later what changed since.
pub type Mark = u64;

#[derive(Debug, Default)]
pub(super) struct Journal {
    keys: VecDeque<String>,
    /// The number of the first remembered change.
    first: u64,
}

impl Journal {
    pub(super) fn note(&mut self, key: &str) {
        if self.keys.len() == LENGTH {
            self.keys.pop_front();
            self.first += 1;
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
        let mut journal = Journal::default();
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
        (0..=LENGTH).for_each(|_| journal.note("c"));
        assert_eq!(since(&journal, full), None);
    }
}

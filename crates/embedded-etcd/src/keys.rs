//! Key ranges as etcd's requests give them: a key and a range end.

use std::ops::Bound;

/// Where a range of a map of keys starts and ends.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A single key (`end` empty), everything from `key` on (`end` is one zero byte), or `[key, end)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) key: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl KeyRange {
    pub(crate) fn new(key: &[u8], end: &[u8]) -> Self {
        Self { key: key.to_vec(), end: end.to_vec() }
    }

    fn is_single(&self) -> bool {
        self.end.is_empty()
    }

    fn is_open(&self) -> bool {
        self.end == [0]
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        if self.is_single() {
            return self.key == key;
        }
        key >= self.key.as_slice() && (self.is_open() || key < self.end.as_slice())
    }

    /// Bounds for a map of keys; none if the range is empty.
    pub(crate) fn bounds(&self) -> Option<Bounds> {
        let low = Bound::Included(self.key.clone());
        if self.is_single() {
            return Some((low, Bound::Included(self.key.clone())));
        }
        if self.is_open() {
            return Some((low, Bound::Unbounded));
        }
        (self.key < self.end).then(|| (low, Bound::Excluded(self.end.clone())))
    }

    /// The prefix, if the range is exactly every key that starts with it.
    pub(crate) fn as_prefix(&self) -> Option<&[u8]> {
        (!self.key.is_empty() && prefix_end(&self.key) == self.end).then_some(self.key.as_slice())
    }
}

/// The end of the range of all keys that start with `prefix`.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_what_etcd_says() {
        assert!(KeyRange::new(b"a", b"").contains(b"a"));
        assert!(!KeyRange::new(b"a", b"").contains(b"ab"));
        assert!(KeyRange::new(b"a", b"b").contains(b"ab"));
        assert!(!KeyRange::new(b"a", b"b").contains(b"b"));
        assert!(KeyRange::new(b"a", b"\0").contains(b"zz"));
        assert_eq!(KeyRange::new(b"/a/", b"/a0").as_prefix(), Some(b"/a/".as_slice()));
        assert_eq!(KeyRange::new(b"/a/", b"/b").as_prefix(), None);
        assert_eq!(prefix_end(b"a\xff"), b"b");
        assert_eq!(prefix_end(b"\xff"), b"\0");
        assert_eq!(KeyRange::new(b"b", b"a").bounds(), None);
    }
}

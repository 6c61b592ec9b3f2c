//! Names become dense numbers, so that no rule compares strings.

/// An open-addressing table from a 64-bit hash to a small number. The caller compares names.
/// Nothing iterates over it, so it cannot leak an order.
pub(crate) struct Interner {
    slots: Vec<(u64, u32)>,
    mask: usize,
    used: usize,
}

const EMPTY: u32 = u32::MAX;

impl Interner {
    pub(crate) fn with_capacity(names: usize) -> Self {
        let size = (names.max(4) * 2).next_power_of_two();
        Self { slots: vec![(0, EMPTY); size], mask: size - 1, used: 0 }
    }

    /// The number kept for `hash` whose name `same` accepts.
    pub(crate) fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = hash as usize & self.mask;
        loop {
            match self.slots[at] {
                (_, EMPTY) => return None,
                (kept, number) if kept == hash && same(number) => return Some(number),
                _ => at = (at + 1) & self.mask,
            }
        }
    }

    /// Keeps `number` under `hash`. The caller made sure that the name is new.
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        if (self.used + 1) * 2 > self.slots.len() {
            self.grow();
        }
        self.used += 1;
        self.put(hash, number);
    }

    fn put(&mut self, hash: u64, number: u32) {
        let mut at = hash as usize & self.mask;
        while self.slots[at].1 != EMPTY {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = (hash, number);
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![(0, EMPTY); size]);
        self.mask = size - 1;
        for (hash, number) in old {
            if number != EMPTY {
                self.put(hash, number);
            }
        }
    }
}

/// Remembers which number the name at an address had, so that mentions which share a text are found
/// without reading it. Good only while those texts live.
pub(crate) struct Addresses {
    slots: Vec<(usize, u32)>,
}

impl Addresses {
    const SLOTS: usize = 1 << 13;

    pub(crate) fn new() -> Self {
        Self { slots: vec![(0, EMPTY); Self::SLOTS] }
    }

    /// The number of `name`, reckoned by `find` if its address is new.
    pub(crate) fn number(&mut self, name: &str, find: impl FnOnce() -> u32) -> u32 {
        let address = name.as_ptr() as usize;
        // Allocations are aligned, so the lowest bits tell nothing.
        let slot = (address >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - 13);
        let kept = &mut self.slots[slot];
        if kept.0 != address {
            *kept = (address, find());
        }
        kept.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again_across_growth_and_collisions() {
        let names: Vec<String> = (0..500).map(|n| format!("b{n}")).collect();
        let mut table = Interner::with_capacity(1);
        // Every fourth name shares a hash.
        let hash = |n: u32| u64::from(n / 4) * 7;
        for n in 0..500 {
            table.insert(hash(n), n);
        }
        for n in 0..500 {
            let found = table.find(hash(n), |m| names[m as usize] == names[n as usize]);
            assert_eq!(found, Some(n));
        }
        assert_eq!(table.find(9_999, |_| true), None);
    }
}

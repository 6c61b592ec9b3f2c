//! Where a schedule's choices come from: a seed, or bytes that proptest can shrink.

pub(crate) enum Choices {
    Seeded(u64),
    Given { bytes: Vec<u16>, next: usize },
}

impl Choices {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    /// Less than `bound`, or 0 if that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let raw = match self {
            Self::Seeded(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut x = *state;
                x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (x ^ (x >> 31)) as usize
            }
            Self::Given { bytes, next } => {
                *next += 1;
                bytes.get(*next - 1).copied().unwrap_or(0) as usize
            }
        };
        if bound == 0 { 0 } else { raw % bound }
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.below(from.len())].clone()) }
    }

    pub(crate) fn is_spent(&self) -> bool {
        matches!(self, Self::Given { bytes, next } if *next >= bytes.len())
    }
}

//! How long requests take: a wait that all of them have, and a part that differs.

/// ln 100: the p99 of an exponential time over its mean.
pub(crate) const P99_OVER_MEAN: f64 = 4.605_170_185_988_092;

/// Requests that met the same queue: each waits `shift_ms` and then an exponential time of
/// `mean_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Piece {
    pub(crate) requests: f64,
    pub(crate) shift_ms: f64,
    pub(crate) mean_ms: f64,
}

impl Piece {
    /// The part of them that takes longer.
    pub(crate) fn longer_than(&self, ms: f64) -> f64 {
        if ms <= self.shift_ms { 1.0 } else { ((self.shift_ms - ms) / self.mean_ms).exp() }
    }
}

/// The p99 of all of them together; none without requests.
pub(crate) fn p99(pieces: &[Piece]) -> Option<f64> {
    let total: f64 = pieces.iter().map(|p| p.requests).sum();
    if total <= 0.0 {
        return None;
    }
    let asked = pieces.iter().filter(|p| p.requests > 0.0);
    let own = |p: &Piece| p.shift_ms + P99_OVER_MEAN * p.mean_ms;
    let (mut low, mut high) =
        asked.clone().fold((f64::MAX, 0.0_f64), |(l, h), p| (l.min(own(p)), h.max(own(p))));
    // A mixture's p99 lies between those of its parts.
    while high - low > 1e-3 * high {
        let middle = f64::midpoint(low, high);
        let slower: f64 = asked.clone().map(|p| p.requests * p.longer_than(middle)).sum();
        if slower > total * 0.01 { low = middle } else { high = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mixture_has_the_p99_of_its_slow_part_or_of_the_whole() {
        let piece = |requests, shift_ms, mean_ms| Piece { requests, shift_ms, mean_ms };
        assert_eq!(p99(&[]), None);
        assert_eq!(p99(&[piece(0.0, 1.0, 1.0)]), None);
        let one = p99(&[piece(10.0, 5.0, 10.0)]).unwrap();
        assert!((one - 51.05).abs() < 0.1, "{one}");
        // Half of them are slow: the p99 of all is the p98 of those.
        let two = p99(&[piece(10.0, 0.0, 1.0), piece(10.0, 0.0, 100.0)]).unwrap();
        assert!((two - 391.2).abs() < 1.0, "{two}");
    }
}

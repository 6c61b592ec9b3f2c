//! Weighted rendezvous hashing: every process computes the same owner from the same member list.
//!
//! XXH64 of the key and of the member are mixed by the 64-bit finaliser of SplitMix64.

use std::cmp::Ordering;

use xxhash_rust::xxh64::xxh64;

#[inline]
fn mix64(mut x: u64) -> u64 {
    x ^= x >> 30;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 27;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// XXH64 with seed 0, the half of [`score64`] that can be kept per key or per member.
pub fn hash64(text: &str) -> u64 {
    xxh64(text.as_bytes(), 0)
}

/// The rendezvous score from two kept [`hash64`] values.
#[inline]
pub fn combine(key_hash: u64, member_hash: u64) -> u64 {
    mix64(key_hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ member_hash.rotate_left(32))
}

/// The rendezvous score of a member for a key; the highest ranks first.
pub fn score64(key: &str, member: &str) -> u64 {
    combine(hash64(key), hash64(member))
}

/// The score as a number strictly between 0 and 1 (1.0 only by rounding).
pub fn unit(score: u64) -> f64 {
    ((score >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
}

/// `-weight / ln u`: with this, a member's share of keys is its share of the weight.
pub fn weighted(score: u64, weight: f64) -> f64 {
    let u = unit(score);
    if u >= 1.0 { f64::INFINITY } else { -weight / u.ln() }
}

/// The order of members for `key`, best first: weighted score, then raw score, then smaller id.
pub fn rank<'a>(key: &str, members: impl IntoIterator<Item = (&'a str, f64)>) -> Vec<&'a str> {
    let key_hash = hash64(key);
    let mut scored: Vec<(f64, u64, &str)> = members
        .into_iter()
        .map(|(id, weight)| {
            let score = combine(key_hash, hash64(id));
            (weighted(score, weight), score, id)
        })
        .collect();
    scored.sort_by(|a, b| {
        b.0.partial_cmp(&a.0)
            .unwrap_or(Ordering::Equal)
            .then_with(|| b.1.cmp(&a.1))
            .then_with(|| a.2.cmp(b.2))
    });
    scored.into_iter().map(|(_, _, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_the_published_ones() {
        assert_eq!(score64("stream/default/orders/0", "b1"), 0xabbd_e244_2825_f56c);
        assert_eq!(score64("stream/default/orders/0", "b2"), 0x6d94_683c_4f54_2c9a);
        assert_eq!(score64("cache/default/orders/0", "b1"), 0xa1b5_be90_57ce_2cbb);
        let score = score64("seg-000001", "m1");
        assert_eq!(score, 0x3557_e9ec_f277_e60b);
        assert!((unit(score) - 0.208_372_707_699_226).abs() < 1e-15);
    }

    #[test]
    fn a_dead_owner_is_followed_by_the_next_in_its_ranking() {
        let all = [("a", 16.0), ("b", 16.0), ("c", 8.0)];
        for n in 0..1000 {
            let key = format!("seg-{n:06}");
            let before = rank(&key, all);
            if before[0] == "c" {
                assert_eq!(rank(&key, all[..2].iter().copied())[0], before[1]);
            }
        }
    }
}

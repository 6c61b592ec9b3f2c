//! What holds for any sequence of samples, and how both laws hold a simulated node to its target.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use evenkeel_throttle::{
    Beside, CUT, Law, LawName, MAX_SHARE, MIN_SHARE, RAISE, Ramp, Sample, State, TRICKLE,
};
use proptest::prelude::*;

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let p99 = prop_oneof![
        Just(None),
        Just(Some(f64::NAN)),
        Just(Some(f64::INFINITY)),
        Just(Some(-5.0)),
        (0.0..2000.0).prop_map(Some),
    ];
    let queue = prop_oneof![Just(None), (0.0..5.0).prop_map(Some)];
    let one = (p99, 0u64..200, queue, 0.0..=1.0, 1u64..3000);
    prop::collection::vec(one, 0..200).prop_map(|all| {
        let mut at_ms = 0;
        all.into_iter()
            .map(|(p99_ms, requests, queue, used, after)| {
                at_ms += after;
                Sample { at_ms, p99_ms, requests, queue, used }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn a_share_stays_in_its_limits_and_moves_by_bounded_steps(
        samples in samples(),
        name in prop_oneof![Just(LawName::Plain), Just(LawName::Steady)],
    ) {
        let mut law = Law::new(name, 100.0).unwrap();
        for sample in samples {
            let before = law.share();
            let state = law.observe(sample);
            let after = law.share();
            prop_assert!((MIN_SHARE..=MAX_SHARE).contains(&after));
            prop_assert!(after >= before * CUT - 1e-12 && after <= before * RAISE + 1e-12);
            match state {
                State::Raising => prop_assert!(after > before),
                State::Cutting => prop_assert!(after < before),
                _ => prop_assert_eq!(after, before),
            }
            let known = sample.p99_ms.is_some_and(|p| p.is_finite() && p >= 0.0);
            if !known && sample.queue.is_none() {
                prop_assert_eq!(after, before, "moved without data");
            }
        }
    }
}

fn periods() -> impl Strategy<Value = Vec<(Sample, Beside)>> {
    let copies = prop_oneof![Just(None), (0.0..=1.0).prop_map(Some)];
    let beside = (prop::bool::weighted(0.2), copies, prop_oneof![Just(1.0), 0.0..=1.0]);
    (samples(), prop::collection::vec(beside, 200)).prop_map(|(samples, besides)| {
        let mut law = Law::new(LawName::Steady, 100.0).unwrap();
        samples
            .into_iter()
            .zip(besides)
            .map(|(sample, (repairing, copies, used))| {
                law.observe(sample);
                (sample, Beside { share: law.share(), repairing, copies, used })
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn maintenance_comes_back_by_bounded_steps_and_stays_within_the_controllers_share(
        periods in periods(),
    ) {
        let mut ramp = Ramp::new(100.0).unwrap();
        let mut repaired = true;
        for (sample, beside) in periods {
            let before = ramp.share();
            ramp.observe(&sample, &beside);
            let after = ramp.share();
            let trickle = TRICKLE * beside.share;
            prop_assert!(after >= trickle, "nothing starves");
            prop_assert!(after <= beside.ceiling() && after <= beside.share);
            if beside.repairing {
                prop_assert_eq!(after, trickle);
            } else if repaired {
                prop_assert!(after <= MIN_SHARE, "the first second is at the floor");
            } else {
                prop_assert!(after <= before * RAISE + 1e-12);
                let known = sample.p99_ms.is_some_and(|p| p.is_finite() && p >= 0.0);
                if !known && sample.queue.is_none() {
                    prop_assert!(after <= before.max(trickle), "rose without data");
                }
            }
            repaired = beside.repairing;
        }
    }
}

/// Shares of a node whose p99 is flat up to a load and steep beyond it. The p99 that the law sees is
/// the mean over so many seconds.
fn settle(name: LawName, window: usize, seconds: u64) -> Vec<f64> {
    let mut law = Law::new(name, 40.0).unwrap();
    let (mut seen, mut shares, mut noise) = (Vec::new(), Vec::new(), 12_345_u64);
    for second in 0..seconds {
        noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let jitter = ((noise >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 0.3;
        let load = (0.5 + 0.9 * law.share()).min(0.99);
        // Flat until the link is nearly full, then steep.
        let p99 = if load < 0.8 { 10.0 } else { 10.0 + 600.0 * (load - 0.8) };
        seen.push(p99 * jitter.exp());
        let recent = &seen[seen.len().saturating_sub(window)..];
        let p99_ms = Some(recent.iter().sum::<f64>() / recent.len() as f64);
        let sample =
            Sample { at_ms: second * 1000, p99_ms, requests: 1000, queue: None, used: 1.0 };
        law.observe(sample);
        if second >= seconds / 3 {
            shares.push(law.share());
        }
    }
    shares
}

fn variation(shares: &[f64]) -> f64 {
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let variance = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / shares.len() as f64;
    variance.sqrt() / mean
}

#[test]
fn on_a_steep_node_the_steady_law_settles_where_the_plain_one_swings() {
    let (plain, steady) = (settle(LawName::Plain, 10, 1800), settle(LawName::Steady, 1, 1800));
    // The steady law keeps its own window and wants each second as it was.
    assert!(variation(&plain) > 0.2, "plain varies by {:.3}", variation(&plain));
    assert!(variation(&steady) < 0.08, "steady varies by {:.3}", variation(&steady));
    let mean = steady.iter().sum::<f64>() / steady.len() as f64;
    // The share at which the p99 is at its target is (0.85 - 0.5) / 0.9.
    assert!((0.35..0.43).contains(&mean), "steady settles at {mean:.3}");
}

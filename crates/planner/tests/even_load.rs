//! Evening out load at once.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod random;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{
    Assignment, BrokerId, Kind, Lifecycle, LoadReport, Role, ShardKey, ShardLoad, ShardState,
    Snapshot, StreamKey,
};
use evenkeel_planner::{LoadAim, LoadPlan, apply_load_plan, even_load};
use random::Rng;
use serde_json::json;

const AIMS: [LoadAim; 2] = [LoadAim::BothSides, LoadAim::FewestMoves];

fn stream() -> StreamKey {
    StreamKey::new(Kind::Stream, "default", "s").unwrap()
}

/// Places a shard, and lets its leader report its load.
fn place(s: &mut Snapshot, shard: ShardKey, voters: &[BrokerId], load: f64) {
    let mut a = Assignment::new(shard.clone(), voters[0].clone(), voters[1..].to_vec());
    a.state = ShardState::Active;
    s.assignments.insert(shard.clone(), a);
    let row = json!({"shard": shard, "bytes_per_second": load});
    let row: ShardLoad = serde_json::from_value(row).unwrap();
    let blank = json!({"reported_at_ms": s.as_of_ms});
    let blank = || serde_json::from_value::<LoadReport>(blank).unwrap();
    let broker = s.brokers.get_mut(&voters[0]).unwrap();
    broker.load.get_or_insert_with(blank).shards.push(row);
}

/// `brokers` brokers, of which the last `empty` hold nothing; shards of the sizes that `size` makes.
fn loaded(
    rng: &mut Rng,
    (brokers, empty): (usize, usize),
    (shards, factor): (u32, usize),
    size: impl Fn(&mut Rng) -> f64,
) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, brokers);
    random::add_stream(&mut s, &stream(), shards, factor as u32);
    for number in 0..shards {
        let mut ids: Vec<BrokerId> = (0..brokers - empty).map(random::broker).collect();
        rng.shuffle(&mut ids);
        let load = size(rng);
        place(&mut s, stream().shard(number), &ids[..factor], load);
    }
    s
}

fn within(from: u32, to: u32) -> impl Fn(&mut Rng) -> f64 {
    move |rng| f64::from(rng.range(from, to))
}

/// A few large ones among many small ones: the exponential of a sum of twelve.
fn skewed(rng: &mut Rng) -> f64 {
    let sum: u32 = (0..12).map(|_| rng.range(0, 1000)).sum();
    ((f64::from(sum) / 1000.0 - 6.0).exp() * 1000.0).round()
}

fn done(s: &Snapshot, plan: &LoadPlan) -> Snapshot {
    let mut next = s.clone();
    apply_load_plan(&mut next, plan);
    next
}

fn sizes(s: &Snapshot) -> BTreeMap<ShardKey, f64> {
    let mut sizes = BTreeMap::new();
    for (id, broker) in &s.brokers {
        for row in broker.load.iter().flat_map(|l| &l.shards) {
            let leader = s.assignments[&row.shard].leader.as_ref();
            assert_eq!(leader, Some(id), "the row goes with the leader");
            sizes.insert(row.shard.clone(), row.bytes_per_second);
        }
    }
    sizes
}

fn loads(s: &Snapshot) -> BTreeMap<BrokerId, f64> {
    let sizes = sizes(s);
    let mut loads: BTreeMap<BrokerId, f64> = s.brokers.keys().map(|b| (b.clone(), 0.0)).collect();
    for (shard, a) in &s.assignments {
        for broker in a.voters() {
            *loads.entry(broker.clone()).or_default() += sizes.get(shard).unwrap_or(&0.0);
        }
    }
    loads
}

fn mean(s: &Snapshot) -> f64 {
    let loads = loads(s);
    let active: Vec<f64> =
        s.brokers.iter().filter(|(_, b)| b.is_target()).map(|(id, _)| loads[id]).collect();
    active.iter().sum::<f64>() / active.len().max(1) as f64
}

#[test]
fn every_broker_ends_within_the_tolerance_and_little_load_moves() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let brokers = 5 + rng.below(20);
        let empty = 1 + rng.below(2);
        let s = loaded(&mut rng, (brokers, empty), (400, 2), within(50, 150));
        let (before, mean) = (loads(&s), mean(&s));
        let plan = even_load(&s, 5.0, LoadAim::BothSides);
        for (id, load) in loads(&done(&s, &plan)) {
            let off = (load / mean - 1.0).abs();
            assert!(off <= 0.05 + 1e-9, "seed {seed}: {id} is {off} off");
        }
        let over: f64 = before.values().map(|l| (l - mean * 1.05).max(0.0)).sum();
        let under: f64 = before.values().map(|l| (mean * 0.95 - l).max(0.0)).sum();
        let least = over.max(under);
        let most = least * 1.1 + 150.0 * brokers as f64;
        assert!(plan.load_moved <= most, "seed {seed}: {} for {least}", plan.load_moved);
    }
}

/// Every broker that is too high gives its largest replicas first; no plan does with fewer moves.
fn fewest_moves(s: &Snapshot, tolerance: f64) -> usize {
    let (sizes, loads, mean) = (sizes(s), loads(s), mean(s));
    let gives = |(id, load): (&BrokerId, &f64)| {
        let mut held: Vec<f64> = s
            .assignments
            .iter()
            .filter(|(_, a)| a.role_of(id).is_some())
            .map(|(shard, _)| sizes[shard])
            .collect();
        held.sort_by(|a, b| b.total_cmp(a));
        let mut left = *load;
        held.iter().take_while(|size| (left > mean * (1.0 + tolerance), left -= **size).0).count()
    };
    loads.iter().map(gives).sum()
}

#[test]
fn hardly_more_moves_are_made_than_must_be() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let s = loaded(&mut rng, (40, 1), (3000, 1), skewed);
        let least = fewest_moves(&s, 0.05);
        for aim in AIMS {
            let plan = even_load(&s, 5.0, aim);
            assert!(plan.max_over_mean <= 1.05 + 1e-9, "seed {seed} {aim:?}");
            assert!(plan.min_over_mean >= 0.95 - 1e-9, "seed {seed} {aim:?}");
            let most = least + 2 + least / 10;
            assert!(plan.moves.len() <= most, "seed {seed}: {} for {least}", plan.moves.len());
        }
    }
}

#[test]
fn fewest_moves_fill_what_was_empty_with_large_shards() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let s = loaded(&mut rng, (10, 2), (300, 2), within(10, 200));
        let (before, mean) = (loads(&s), mean(&s));
        let few = even_load(&s, 10.0, LoadAim::FewestMoves);
        let both = even_load(&s, 10.0, LoadAim::BothSides);
        for (id, load) in loads(&done(&s, &few)) {
            assert!(load <= mean * 1.1 + 1e-6, "seed {seed}: {id}");
            assert!(before[&id] > 0.0 || load >= mean * 0.9 - 1e-6, "seed {seed}: {id}");
        }
        assert!(few.moves.len() <= both.moves.len(), "seed {seed}");
    }
}

#[test]
fn a_level_cluster_and_an_idle_one_are_left_alone() {
    let mut s = loaded(&mut Rng::new(1), (4, 0), (0, 1), within(1, 1));
    for aim in AIMS {
        let plan = even_load(&s, 10.0, aim);
        assert!(plan.moves.is_empty());
        assert_eq!((plan.max_over_mean, plan.min_over_mean), (1.0, 1.0));
        assert_eq!(plan.load_moved.to_string(), "0");
    }
    s.brokers.clear();
    assert!(even_load(&s, 10.0, LoadAim::BothSides).moves.is_empty());
}

#[test]
fn large_shards_are_exchanged_for_smaller_ones() {
    let mut s = Snapshot::empty(1_700_000_000_000);
    random::add_brokers(&mut s, 2);
    random::add_stream(&mut s, &stream(), 4, 1);
    // 60 + 50 against 40 + 30: one of each changes places.
    for (n, (broker, size)) in [(0, 60), (0, 50), (1, 40), (1, 30)].into_iter().enumerate() {
        place(&mut s, stream().shard(n as u32), &[random::broker(broker)], f64::from(size));
    }
    let plan = even_load(&s, 1.0, LoadAim::BothSides);
    assert_eq!((plan.moves.len(), plan.max_over_mean), (2, 1.0));
}

/// Zones, regions, caps, brokers of every kind, copies in flight.
fn messy(rng: &mut Rng) -> Snapshot {
    let mut s = Snapshot::empty(1_700_000_000_000);
    let brokers = 4 + rng.below(9);
    let empty = rng.below(3);
    random::add_brokers(&mut s, brokers);
    let zones = rng.below(5);
    for view in s.brokers.values_mut() {
        view.zone = (zones > 0 && rng.chance(90)).then(|| format!("z{}", rng.below(zones)));
        view.region = rng.chance(60).then(|| "eu".to_owned());
        view.max_shards = rng.chance(20).then(|| rng.range(10, 60));
        view.lifecycle = match rng.below(12) {
            0 => Lifecycle::Draining,
            1 => Lifecycle::Down,
            _ => Lifecycle::Live,
        };
        view.registered = view.is_serving() && !rng.chance(5);
    }
    for n in 0..1 + rng.below(4) {
        let key = StreamKey::new(Kind::Stream, "default", &format!("s{n}")).unwrap();
        let (shards, factor) = (rng.range(1, 60), 1 + rng.below(3));
        random::add_stream(&mut s, &key, shards, factor as u32);
        s.streams.get_mut(&key).unwrap().region = rng.chance(25).then(|| "eu".to_owned());
        for number in 0..shards {
            let mut ids: Vec<BrokerId> = (0..brokers - empty).map(random::broker).collect();
            rng.shuffle(&mut ids);
            let load = if rng.chance(90) { skewed(rng) } else { 0.0 };
            let factor = factor.min(ids.len());
            place(&mut s, key.shard(number), &ids[..factor], load);
            if rng.chance(10) && factor < ids.len() {
                let a = s.assignments.get_mut(&key.shard(number)).unwrap();
                a.successor = Some(ids[factor].clone());
            }
        }
    }
    let now = s.as_of_ms;
    for view in s.brokers.values_mut() {
        let used = json!({"reported_at_ms": now, "disk_used_percent": 94 + rng.below(3)});
        if rng.chance(20) {
            let load =
                view.load.get_or_insert_with(|| serde_json::from_value(used.clone()).unwrap());
            load.disk_used_percent = used["disk_used_percent"].as_f64();
        }
    }
    s
}

/// Zones of all its copies, and of those on brokers that stay.
fn zones(s: &Snapshot, a: &Assignment) -> (usize, usize) {
    let views = || a.voters().filter_map(|b| s.brokers.get(b));
    let live = views().filter(|v| v.lifecycle == Lifecycle::Live);
    let count = |zones: BTreeSet<&String>| zones.len();
    (
        count(views().filter_map(|v| v.zone.as_ref()).collect()),
        count(live.filter_map(|v| v.zone.as_ref()).collect()),
    )
}

fn held(s: &Snapshot, broker: &BrokerId) -> usize {
    s.assignments.values().filter(|a| a.role_of(broker).is_some()).count()
}

/// What must hold of every plan, however close it came.
fn check(s: &Snapshot, plan: &LoadPlan, tolerance: f64) {
    let after = done(s, plan);
    let all = sizes(s);
    assert_eq!(sizes(&after), all, "no row is lost");
    for (shard, a) in &after.assignments {
        let was = &s.assignments[shard];
        let ((all_zones, staying), (had, had_staying)) = (zones(s, a), zones(s, was));
        assert!(all_zones >= had && staying >= had_staying, "{shard} lost a zone");
        assert_eq!(a.voters().collect::<BTreeSet<_>>().len(), was.voters().count(), "{shard}");
        assert!(!was.is_moving() || a == was, "{shard} was moving");
    }
    for m in &plan.moves {
        let to = &s.brokers[&m.to];
        assert!(to.is_target() && s.brokers[&m.from].is_target(), "{} to {}", m.from, m.to);
        let used = to.load.as_ref().and_then(|l| l.disk_used_percent);
        assert!(used.is_none_or(|used| used < 95.0), "the disk of {} is full", m.to);
        let region = &s.streams[&m.shard.stream].region;
        assert!(region.is_none() || *region == to.region, "{} left its region", m.shard);
        assert!(held(&after, &m.to) <= to.max_shards.map_or(usize::MAX, |n| n as usize));
        assert_eq!(Some(&m.load), all.get(&m.shard));
        let holds = after.assignments[&m.shard].role_of(&m.to);
        assert_eq!(holds, Some(m.role), "{} on {}", m.shard, m.to);
        assert!(matches!(m.role, Role::Leader | Role::Follower));
    }
    let (before, now, mean) = (loads(s), loads(&after), mean(s));
    let active = |loads: &BTreeMap<BrokerId, f64>| {
        let targets = loads.iter().filter(|(id, _)| s.brokers[*id].is_target());
        let targets: Vec<f64> = targets.map(|(_, load)| *load).collect();
        let least = targets.iter().copied().fold(f64::MAX, f64::min);
        (least, targets.into_iter().fold(0.0, f64::max))
    };
    let ((was_low, was_high), (low, high)) = (active(&before), active(&now));
    assert!(high <= was_high.max(mean * (1.0 + tolerance)) * (1.0 + 1e-9), "rose to {high}");
    assert!(low >= was_low.min(mean * (1.0 - tolerance)) * (1.0 - 1e-9), "fell to {low}");
    if mean > 0.0 {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-6;
        assert!(near(plan.max_over_mean, high / mean));
        assert!(near(plan.min_over_mean, low / mean));
        assert!(near(plan.load_moved, plan.moves.iter().map(|m| m.load).sum()));
    }
}

#[test]
fn no_plan_breaks_a_rule_whatever_the_cluster() {
    let mut moves = 0;
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let s = messy(&mut rng);
        let tolerance = [0.0, 2.0, 5.0, 10.0, 25.0][rng.below(5)];
        for aim in AIMS {
            let plan = even_load(&s, tolerance, aim);
            check(&s, &plan, tolerance / 100.0);
            moves += plan.moves.len();
        }
    }
    assert!(moves > 1500, "{moves} moves are too few to show anything");
}

#[test]
fn a_plan_does_not_depend_on_the_order_of_its_input() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let s = messy(&mut rng);
        let mut document = s.to_json();
        for list in ["brokers", "streams", "assignments"] {
            rng.shuffle(document[list].as_array_mut().unwrap());
        }
        for broker in document["brokers"].as_array_mut().unwrap() {
            if let Some(rows) = broker.pointer_mut("/load/shards") {
                rng.shuffle(rows.as_array_mut().unwrap());
            }
        }
        let again = Snapshot::parse(document.to_string().as_bytes()).unwrap();
        for aim in AIMS {
            assert_eq!(even_load(&again, 5.0, aim), even_load(&s, 5.0, aim), "seed {seed}");
        }
    }
}

#[test]
fn zones_and_caps_do_not_keep_an_even_spread_out_of_reach() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let mut s = Snapshot::empty(1_700_000_000_000);
        random::add_brokers(&mut s, 12);
        for (n, view) in s.brokers.values_mut().enumerate() {
            view.zone = Some(format!("z{}", n % 3));
            view.max_shards = Some(140);
        }
        random::add_stream(&mut s, &stream(), 400, 3);
        for number in 0..400 {
            // The last broker of each zone is empty.
            let ids: Vec<BrokerId> =
                (0..3).map(|zone| random::broker(zone + 3 * rng.below(3))).collect();
            let load = within(20, 200)(&mut rng);
            place(&mut s, stream().shard(number), &ids, load);
        }
        for aim in AIMS {
            let plan = even_load(&s, 5.0, aim);
            check(&s, &plan, 0.05);
            let (before, mean) = (loads(&s), mean(&s));
            for (id, load) in loads(&done(&s, &plan)) {
                let over_mean = load / mean;
                let must_fill = aim == LoadAim::BothSides || before[&id] <= 0.0;
                assert!(over_mean <= 1.05 + 1e-9, "seed {seed} {aim:?}: {id} at {over_mean}");
                assert!(!must_fill || over_mean >= 0.95 - 1e-9, "seed {seed}: {id} {over_mean}");
            }
            assert!(even_load(&done(&s, &plan), 5.0, aim).moves.is_empty());
        }
    }
}

/// Whether any placement at all keeps three brokers at or below `high` and at or above `low`.
fn possible(sizes: &[f64], (low, high): (f64, f64)) -> bool {
    let placements = 3_usize.pow(sizes.len() as u32);
    (0..placements).any(|mut code| {
        let mut loads = [0.0; 3];
        for size in sizes {
            loads[code % 3] += size;
            code /= 3;
        }
        loads.iter().all(|l| *l <= high && *l >= low)
    })
}

#[test]
fn what_a_search_of_all_placements_finds_is_mostly_found() {
    let (mut can, mut found) = (0, 0);
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let s = loaded(&mut rng, (3, 1), (8, 1), within(10, 60));
        let mean = mean(&s);
        let slack = mean * 1e-9;
        let all: Vec<f64> = sizes(&s).into_values().collect();
        if !possible(&all, (mean * 0.85 - slack, mean * 1.15 + slack)) {
            continue;
        }
        let plan = even_load(&s, 15.0, LoadAim::BothSides);
        can += 1;
        found += u32::from(plan.max_over_mean <= 1.15 + 1e-9 && plan.min_over_mean >= 0.85 - 1e-9);
    }
    assert!(can > 60 && found * 100 >= can * 90, "{found} of {can}");
}

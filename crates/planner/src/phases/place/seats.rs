//! Brokers as candidates to follow, by zone and by how many roles they hold.

use std::collections::BTreeMap;

use crate::pass::Pass;
use crate::world::{Foremost, Ord32, World};

/// The candidates of one group, those with room.
pub(super) struct Seats {
    /// By zone, the brokers without one last: by roles held.
    zones: Vec<BTreeMap<u32, Vec<Ord32>>>,
}

impl Seats {
    pub(super) fn new(pass: &Pass<'_>, targets: &[Ord32]) -> Self {
        let mut seats = Self { zones: vec![BTreeMap::new(); pass.world.zones + 1] };
        for &broker in targets.iter().filter(|b| pass.has_room(**b)) {
            seats.add(&pass.world, broker, pass.tally.held[broker as usize]);
        }
        seats
    }

    fn zone(world: &World<'_>, broker: Ord32) -> usize {
        (world.zone(broker) as usize).min(world.zones)
    }

    fn add(&mut self, world: &World<'_>, broker: Ord32, roles: u32) {
        self.zones[Self::zone(world, broker)].entry(roles).or_default().push(broker);
    }

    /// Takes in that a broker was given one more role.
    pub(super) fn given(&mut self, pass: &Pass<'_>, broker: Ord32) {
        let roles = pass.tally.held[broker as usize];
        let zone = &mut self.zones[Self::zone(&pass.world, broker)];
        let Some(equals) = zone.get_mut(&(roles - 1)) else { return };
        let Some(at) = equals.iter().position(|b| *b == broker) else { return };
        equals.swap_remove(at);
        if equals.is_empty() {
            zone.remove(&(roles - 1));
        }
        if pass.has_room(broker) {
            self.add(&pass.world, broker, roles);
        }
    }

    /// Who joins `set`: a zone that it lacks first, then fewest roles, then the rendezvous score.
    pub(super) fn best(&self, world: &World<'_>, key_hash: u64, set: &[Ord32]) -> Option<Ord32> {
        let covered = |zone: usize| set.iter().any(|b| Self::zone(world, *b) == zone);
        let lacks = |zone: &usize| *zone < world.zones && !covered(*zone);
        let lacking: Vec<usize> = (0..self.zones.len()).filter(lacks).collect();
        // Nobody of the set is in a zone that it lacks.
        let wider = self.fewest(world, key_hash, &lacking, &[]);
        wider.or_else(|| {
            let all: Vec<usize> = (0..self.zones.len()).collect();
            self.fewest(world, key_hash, &all, set)
        })
    }

    /// Of the brokers outside `set` that hold fewest roles, the first by rendezvous score.
    fn fewest(
        &self,
        world: &World<'_>,
        key_hash: u64,
        zones: &[usize],
        set: &[Ord32],
    ) -> Option<Ord32> {
        let free = |b: &Ord32| !set.contains(b);
        let open = |zone: &usize| {
            let mut roles = self.zones[*zone].iter();
            roles.find(|(_, equals)| equals.iter().any(free)).map(|(roles, _)| *roles)
        };
        let roles = zones.iter().filter_map(open).min()?;
        let mut foremost = Foremost::new(world.facts.hashes(), key_hash);
        for equals in zones.iter().filter_map(|zone| self.zones[*zone].get(&roles)) {
            if set.is_empty() {
                equals.iter().for_each(|b| foremost.consider(*b));
            } else {
                equals.iter().filter(|b| free(b)).for_each(|b| foremost.consider(*b));
            }
        }
        foremost.broker()
    }
}

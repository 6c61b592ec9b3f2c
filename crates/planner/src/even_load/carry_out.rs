//! A load plan carried out on the snapshot it was made of.

use std::collections::BTreeMap;

use evenkeel_model::{BrokerId, LoadReport, Role, ShardKey, ShardLoad, Snapshot};

use super::{LoadMove, LoadPlan};

/// Does all moves of a plan at once: the assignments name the new brokers, a generation on for each
/// replica that moved, and a shard's row of the load report goes with its leader. Moves of shards
/// that the snapshot does not place are passed over.
pub fn apply_load_plan(snapshot: &mut Snapshot, plan: &LoadPlan) {
    for m in &plan.moves {
        let Some(assignment) = snapshot.assignments.get_mut(&m.shard) else { continue };
        assignment.generation += 1;
        if m.role == Role::Leader {
            assignment.leader = Some(m.to.clone());
        } else {
            for follower in assignment.followers.iter_mut().filter(|f| **f == m.from) {
                *follower = m.to.clone();
            }
        }
    }
    let mut leaving: BTreeMap<&BrokerId, BTreeMap<&ShardKey, &BrokerId>> = BTreeMap::new();
    for LoadMove { shard, from, to, .. } in plan.moves.iter().filter(|m| m.role == Role::Leader) {
        leaving.entry(from).or_default().insert(shard, to);
    }
    // A broker that reported nothing is given a report to carry the row.
    let mut arriving: BTreeMap<&BrokerId, Vec<(LoadReport, ShardLoad)>> = BTreeMap::new();
    for (from, shards) in leaving {
        let report = snapshot.brokers.get_mut(from).and_then(|b| b.load.as_mut());
        let Some(report) = report else { continue };
        let blank = LoadReport {
            cpu_percent: None,
            memory_percent: None,
            disk_io_bytes_per_second: None,
            network_io_bytes_per_second: None,
            shards: Vec::new(),
            ..*report
        };
        for row in report.shards.extract_if(.., |row| shards.contains_key(&row.shard)) {
            let to = shards[&row.shard];
            arriving.entry(to).or_default().push((blank.clone(), row));
        }
    }
    for (to, rows) in arriving {
        let Some(broker) = snapshot.brokers.get_mut(to) else { continue };
        for (blank, row) in rows {
            broker.load.get_or_insert(blank).shards.push(row);
        }
    }
}

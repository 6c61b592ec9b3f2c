//! The document read: its parts in whatever order they come, then put together and checked.

use std::io::Read;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::elements::Elements;
use super::names::Names;
use super::resolve::{BrokerDocument, MarkerDocument};
use super::{SNAPSHOT_VERSION, Snapshot, SnapshotError};
use crate::{
    Assignment, CopyPauseRecord, HistoryEntry, Millis, Policy, ShardKey, ShardReport, Stream,
};

/// A document as it stands, nothing filled in.
#[derive(Default)]
pub(super) struct Document {
    pub(super) as_of_ms: Option<Millis>,
    pub(super) first_registered_ms: Option<Millis>,
    pub(super) elected_at_ms: Option<Millis>,
    pub(super) paused: bool,
    pub(super) policy: Policy,
    pub(super) brokers: Vec<BrokerDocument>,
    pub(super) streams: Vec<Stream>,
    pub(super) unassigned: Vec<MarkerDocument>,
    /// Keyed as the snapshot's map is, which takes them over as they lie.
    pub(super) assignments: Vec<(ShardKey, Assignment)>,
    pub(super) reports: Vec<ShardReport>,
    pub(super) history: Vec<HistoryEntry>,
    pub(super) copy_pauses: Vec<CopyPauseRecord>,
    pub(super) extra: Map<String, Value>,
}

pub(super) fn read(input: impl Read) -> Result<Snapshot, SnapshotError> {
    let mut document = Document::default();
    let mut names = Names::default();
    let mut seen: Vec<String> = Vec::new();
    Elements::new(input).fields(|elements, name| {
        if seen.contains(&name) {
            return Err(SnapshotError::at(name, "the field is there twice"));
        }
        document.field(elements, &name, &mut names)?;
        seen.push(name);
        Ok(())
    })?;
    for required in ["v", "as_of_ms", "brokers", "streams"] {
        if !seen.iter().any(|name| name == required) {
            return Err(SnapshotError::at(".", format!("missing field `{required}`")));
        }
    }
    document.resolve()
}

impl Document {
    fn field<R: Read>(
        &mut self,
        elements: &mut Elements<R>,
        name: &str,
        names: &mut Names,
    ) -> Result<(), SnapshotError> {
        match name {
            "v" => check_version(field(elements, name)?)?,
            "as_of_ms" => self.as_of_ms = Some(field(elements, name)?),
            "first_registered_ms" => self.first_registered_ms = field(elements, name)?,
            "elected_at_ms" => self.elected_at_ms = field(elements, name)?,
            "paused" => self.paused = field(elements, name)?,
            "policy" => self.policy = field(elements, name)?,
            "brokers" => self.brokers = list(elements, name, |b| names.broker_document(b))?,
            "streams" => {
                self.streams = list(elements, name, |s: &mut Stream| names.stream(&mut s.stream))?;
            }
            "unassigned" => self.unassigned = list(elements, name, |m| names.marker(m))?,
            "assignments" => {
                elements.array(name, |elements, i| {
                    let mut a: Assignment = elements.value(|| format!("{name}[{i}]"))?;
                    names.assignment(&mut a);
                    self.assignments.push((a.shard.clone(), a));
                    Ok(())
                })?;
            }
            "reports" => {
                self.reports = list(elements, name, |r: &mut ShardReport| {
                    names.shard(&mut r.shard);
                    names.broker(&mut r.broker);
                })?;
            }
            "history" => {
                self.history = list(elements, name, |h: &mut HistoryEntry| {
                    names.shard(&mut h.shard);
                    names.brokers(h.from.iter_mut().chain(&mut h.to));
                })?;
            }
            "copy_pauses" => self.copy_pauses = list(elements, name, |_| {})?,
            _ => drop(self.extra.insert(name.to_owned(), field(elements, name)?)),
        }
        Ok(())
    }
}

fn field<R: Read, T: DeserializeOwned>(
    elements: &mut Elements<R>,
    name: &str,
) -> Result<T, SnapshotError> {
    elements.value(|| name.to_owned())
}

fn list<R: Read, T: DeserializeOwned>(
    elements: &mut Elements<R>,
    name: &str,
    mut keep_names: impl FnMut(&mut T),
) -> Result<Vec<T>, SnapshotError> {
    let mut all = Vec::new();
    elements.array(name, |elements, i| {
        let mut one: T = elements.value(|| format!("{name}[{i}]"))?;
        keep_names(&mut one);
        all.push(one);
        Ok(())
    })?;
    Ok(all)
}

fn check_version(v: u32) -> Result<(), SnapshotError> {
    if v == SNAPSHOT_VERSION {
        return Ok(());
    }
    let detail = format!("version {v} is not known: expected {SNAPSHOT_VERSION}");
    Err(SnapshotError::at("v", detail))
}

//! Watchers, and which of them an event concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use etcd_client::proto::{PbEvent, PbResponseHeader, PbWatchResponse};
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use super::Store;
use crate::keys::KeyRange;

/// A stream whose reader is this many messages behind is ended; the client opens it again from
/// where it was. It bounds what a stuck reader costs.
const MAX_BEHIND: usize = 100_000;

/// Fragments are kept below this, bytes, as etcd does: its request limit and 512 KiB for gRPC.
const FRAGMENT_BYTES: usize = 2_097_152;

/// Where a stream's messages go, and how many its reader has not taken yet.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    sender: mpsc::UnboundedSender<Result<PbWatchResponse, Status>>,
    behind: Arc<AtomicUsize>,
}

/// The reader's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    receiver: mpsc::UnboundedReceiver<Result<PbWatchResponse, Status>>,
    behind: Arc<AtomicUsize>,
}

impl Notices {
    pub(crate) fn channel() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let behind = Arc::<AtomicUsize>::default();
        (Self { sender, behind: behind.clone() }, Inbox { receiver, behind })
    }

    /// A reader that is gone is noticed by its own end of the stream.
    fn send(&self, message: PbWatchResponse) {
        self.behind.fetch_add(1, Ordering::Relaxed);
        let _ = self.sender.send(Ok(message));
    }

    fn is_stuck(&self) -> bool {
        self.behind.load(Ordering::Relaxed) > MAX_BEHIND
    }
}

impl Inbox {
    pub(crate) async fn next(&mut self) -> Option<Result<PbWatchResponse, Status>> {
        let message = self.receiver.recv().await;
        self.behind.fetch_sub(usize::from(message.is_some()), Ordering::Relaxed);
        message
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Watcher {
    pub(crate) id: i64,
    pub(crate) range: KeyRange,
    pub(crate) start_revision: i64,
    pub(crate) prev_kv: bool,
    pub(crate) no_put: bool,
    pub(crate) no_delete: bool,
    pub(crate) fragment: bool,
    pub(crate) progress_notify: bool,
}

/// Why a watch could not be created.
pub(crate) enum WatchError {
    DuplicateId,
}

#[derive(Debug)]
struct Stream {
    notices: Notices,
    watchers: BTreeMap<i64, Watcher>,
    next_id: i64,
}

/// One watcher of one stream.
type Slot = (u64, i64);

#[derive(Debug, Default)]
pub(crate) struct Hub {
    streams: BTreeMap<u64, Stream>,
    next_stream: u64,
    /// Watchers of a single key or of a whole prefix, found by walking the event's key.
    by_key: BTreeMap<Vec<u8>, BTreeSet<Slot>>,
    by_prefix: BTreeMap<Vec<u8>, BTreeSet<Slot>>,
    /// The rest, looked at one by one.
    others: BTreeSet<Slot>,
}

impl Watcher {
    fn wants(&self, event: &PbEvent) -> bool {
        let filtered = if event.r#type == 0 { self.no_put } else { self.no_delete };
        !filtered && event.kv.as_ref().is_some_and(|kv| self.range.contains(&kv.key))
    }

    fn select(&self, events: &[PbEvent]) -> Vec<PbEvent> {
        let cut = |event: &PbEvent| PbEvent {
            r#type: event.r#type,
            kv: event.kv.clone(),
            prev_kv: if self.prev_kv { event.prev_kv.clone() } else { None },
        };
        events.iter().filter(|e| self.wants(e)).map(cut).collect()
    }

    fn send(&self, notices: &Notices, header: &PbResponseHeader, events: Vec<PbEvent>) {
        if events.is_empty() {
            return;
        }
        let whole = PbWatchResponse {
            header: Some(*header),
            watch_id: self.id,
            events,
            ..Default::default()
        };
        if !self.fragment || whole.encoded_len() < FRAGMENT_BYTES {
            notices.send(whole);
            return;
        }
        let mut parts = split(whole.events);
        let last = parts.pop().unwrap_or_default();
        let message = |events, fragment| PbWatchResponse {
            header: Some(*header),
            watch_id: self.id,
            events,
            fragment,
            ..Default::default()
        };
        for part in parts {
            notices.send(message(part, true));
        }
        notices.send(message(last, false));
    }
}

fn split(events: Vec<PbEvent>) -> Vec<Vec<PbEvent>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for event in events {
        let size = event.encoded_len() + 8;
        if bytes + size >= FRAGMENT_BYTES && bytes > 0 {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(part) = parts.last_mut() {
            part.push(event);
        }
    }
    parts
}

impl Hub {
    pub(crate) fn open(&mut self, notices: Notices) -> u64 {
        self.next_stream += 1;
        let stream = Stream { notices, watchers: BTreeMap::new(), next_id: 0 };
        self.streams.insert(self.next_stream, stream);
        self.next_stream
    }

    pub(crate) fn close(&mut self, stream: u64) {
        if let Some(gone) = self.streams.remove(&stream) {
            for watcher in gone.watchers.values() {
                self.unindex((stream, watcher.id), &watcher.range);
            }
        }
    }

    pub(crate) fn close_all(&mut self) {
        let next_stream = self.next_stream;
        *self = Self { next_stream, ..Self::default() };
    }

    pub(crate) fn is_open(&self, stream: u64) -> bool {
        self.streams.contains_key(&stream)
    }

    /// Whether the watcher was there.
    pub(crate) fn cancel(&mut self, stream: u64, id: i64) -> bool {
        let removed = self.streams.get_mut(&stream).and_then(|s| s.watchers.remove(&id));
        let Some(watcher) = removed else { return false };
        self.unindex((stream, id), &watcher.range);
        true
    }

    /// Sends one message on a stream.
    pub(crate) fn answer(&self, stream: u64, message: PbWatchResponse) {
        if let Some(stream) = self.streams.get(&stream) {
            stream.notices.send(message);
        }
    }

    /// Sends an empty message to every watcher that asked to hear of progress.
    pub(crate) fn notify_progress(&self, header: &PbResponseHeader) {
        for stream in self.streams.values() {
            for watcher in stream.watchers.values().filter(|w| w.progress_notify) {
                stream.notices.send(PbWatchResponse {
                    header: Some(*header),
                    watch_id: watcher.id,
                    ..Default::default()
                });
            }
        }
    }

    pub(super) fn publish(&mut self, header: &PbResponseHeader, revision: i64, events: &[PbEvent]) {
        let mut concerned: BTreeSet<Slot> = self.others.clone();
        for key in events.iter().filter_map(|e| e.kv.as_ref()).map(|kv| &kv.key) {
            if let Some(slots) = self.by_key.get(key) {
                concerned.extend(slots);
            }
            if !self.by_prefix.is_empty() {
                for length in 1..=key.len() {
                    if let Some(slots) = self.by_prefix.get(&key[..length]) {
                        concerned.extend(slots);
                    }
                }
            }
        }
        let mut stuck = BTreeSet::new();
        for (stream_id, watcher_id) in concerned {
            let Some(stream) = self.streams.get(&stream_id) else { continue };
            let Some(watcher) = stream.watchers.get(&watcher_id) else { continue };
            if watcher.start_revision <= revision {
                watcher.send(&stream.notices, header, watcher.select(events));
            }
            if stream.notices.is_stuck() {
                stuck.insert(stream_id);
            }
        }
        for stream in stuck {
            self.close(stream);
        }
    }

    fn index(&mut self, slot: Slot, range: &KeyRange) {
        if range.end.is_empty() {
            self.by_key.entry(range.key.clone()).or_default().insert(slot);
        } else if let Some(prefix) = range.as_prefix() {
            self.by_prefix.entry(prefix.to_vec()).or_default().insert(slot);
        } else {
            self.others.insert(slot);
        }
    }

    fn unindex(&mut self, slot: Slot, range: &KeyRange) {
        for map in [&mut self.by_key, &mut self.by_prefix] {
            if let Some(slots) = map.get_mut(&range.key) {
                slots.remove(&slot);
                if slots.is_empty() {
                    map.remove(&range.key);
                }
            }
        }
        self.others.remove(&slot);
    }
}

impl Store {
    /// Creates a watcher on a stream and answers on the stream: created, then what it missed, or
    /// cancelled if what it missed is compacted.
    pub(crate) fn watch(
        &mut self,
        stream_id: u64,
        wanted_id: i64,
        mut watcher: Watcher,
    ) -> Result<(), WatchError> {
        let header = self.header();
        let (compacted, revision) = (self.compacted, self.revision);
        let Some(stream) = self.hub.streams.get_mut(&stream_id) else { return Ok(()) };
        if wanted_id != 0 && stream.watchers.contains_key(&wanted_id) {
            return Err(WatchError::DuplicateId);
        }
        watcher.id = if wanted_id == 0 {
            while stream.watchers.contains_key(&stream.next_id) {
                stream.next_id += 1;
            }
            stream.next_id += 1;
            stream.next_id - 1
        } else {
            wanted_id
        };
        let notices = stream.notices.clone();
        let message = PbWatchResponse { watch_id: watcher.id, ..Default::default() };
        let created = PbWatchResponse { header: Some(header), created: true, ..message.clone() };
        notices.send(created);
        if watcher.start_revision > 0 && watcher.start_revision < compacted {
            // etcd leaves the revision out of this one.
            notices.send(PbWatchResponse {
                header: Some(PbResponseHeader { revision: 0, ..header }),
                canceled: true,
                compact_revision: compacted,
                ..message
            });
            return Ok(());
        }
        if watcher.start_revision > 0 {
            let missed: Vec<PbEvent> = self
                .log
                .iter()
                .skip_while(|(r, _)| *r < watcher.start_revision)
                .flat_map(|(_, events)| watcher.select(events))
                .collect();
            watcher.send(&notices, &header, missed);
        }
        watcher.start_revision = watcher.start_revision.max(revision + 1);
        self.hub.index((stream_id, watcher.id), &watcher.range);
        if let Some(stream) = self.hub.streams.get_mut(&stream_id) {
            stream.watchers.insert(watcher.id, watcher);
        }
        Ok(())
    }
}

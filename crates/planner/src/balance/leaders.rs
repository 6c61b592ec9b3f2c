//! One stream's leaders per active broker. Most streams have far fewer shards than there are brokers,
//! so that only the brokers that lead any are kept; the zeros are made up when they are asked for.

use std::sync::Arc;

use evenkeel_model::BrokerId;
use serde::{Serialize, Serializer};

/// How many shards of a stream each active broker leads.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamLeaders {
    active: Arc<[BrokerId]>,
    /// Places in `active`, in order, with the counts there.
    led: Vec<(u32, u32)>,
}

impl StreamLeaders {
    pub(super) fn new(active: Arc<[BrokerId]>, led: Vec<(u32, u32)>) -> Self {
        Self { active, led }
    }

    /// Every active broker with its count, zeros included, in order of id.
    pub fn iter(&self) -> impl Iterator<Item = (&BrokerId, u32)> {
        let mut led = self.led.iter().peekable();
        self.active.iter().enumerate().map(move |(place, broker)| {
            let here = led.next_if(|(at, _)| *at as usize == place);
            (broker, here.map_or(0, |(_, count)| *count))
        })
    }
}

impl Serialize for StreamLeaders {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.iter())
    }
}

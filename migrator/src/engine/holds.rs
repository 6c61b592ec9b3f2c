//! What operators' pauses hold.

use std::time::Duration;

use evenkeel_model::{CopyClass, Millis, PauseScope};
use evenkeel_proto::migrations::{MaintenanceHold, migrator_message::Message};

use super::{Action, Engine, Now};
use crate::copies::State;

/// Agents are told again this often that maintenance is held, and let it go this long after.
const TELL_EVERY: Duration = Duration::from_secs(1);
const HOLD: Duration = Duration::from_secs(3);

impl Engine {
    /// Copies under an operator's pause stand still where they are; nothing is thrown away.
    pub(super) fn hold(&mut self, wall_ms: Millis) {
        for (shard, copy) in &mut self.copies {
            let pause = self.world.holding(copy.job.class, shard, wall_ms).next();
            match (pause, copy.state) {
                (None, State::Held) => {
                    copy.state = if copy.started.is_some() { State::Paused } else { State::Queued };
                }
                (None, _) | (_, State::Level) => {}
                (Some(pause), _) => {
                    copy.state = State::Held;
                    copy.waits = true;
                    copy.place = 0;
                    copy.excuse();
                    copy.limited_by = format!("{} paused it: {}", pause.by, pause.reason);
                }
            }
        }
    }

    /// Maintenance is admitted by the agents; they hold it back for as long as they are told to.
    pub(super) fn hold_maintenance(&mut self, now: Now, actions: &mut Vec<Action>) {
        let scope = PauseScope::Class(CopyClass::Maintenance);
        let is_on = self.world.pauses.get(&scope).is_some_and(|pause| pause.is_on(now.wall_ms));
        let told_lately = self.held_at.is_some_and(|at| now.at < at + TELL_EVERY);
        if !is_on || told_lately {
            return;
        }
        self.held_at = Some(now.at);
        let for_ms = u32::try_from(HOLD.as_millis()).unwrap_or(u32::MAX);
        for session in self.nodes.values().filter_map(|node| node.session) {
            let message = Message::MaintenanceHold(MaintenanceHold { for_ms });
            actions.push(Action::Send { session, message });
        }
    }
}

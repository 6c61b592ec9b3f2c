//! Plans that the load manager refused to write, overheard in its log: a planner that breaks its own
//! rules is a fault, though nothing came of it.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// The field of the log line that tells of a broken rule.
const FIELD: &str = "violation";

/// What was refused so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<Vec<String>>>);

impl Refusals {
    /// Runs something and listens meanwhile. Only this thread is heard.
    pub(crate) fn listen<T>(&self, run: impl FnOnce() -> T) -> T {
        let subscriber = tracing_subscriber::registry().with(self.clone());
        tracing::subscriber::with_default(subscriber, run)
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<S: Subscriber> Layer<S> for Refusals {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::ERROR)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        event.record(&mut self.clone());
    }
}

impl Visit for Refusals {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == FIELD {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_heard_and_nothing_else() {
        let refusals = Refusals::default();
        let violation = "stream/d/s/0: stage: b1 is no target";
        refusals.listen(|| {
            tracing::error!(%violation, "the plan breaks a rule");
            tracing::error!(error = "x", "something else");
        });
        assert_eq!(refusals.take(), [violation]);
    }
}

//! Whether a view shows a revision although no event has told it so.
//!
//! A watch says nothing of revisions that touch none of its keys, and the progress that it can be
//! asked for is not to be trusted in older etcds. So the store is asked what it has beyond the
//! view; if that is nothing, the view is level.

use super::shared::Shared;
use crate::{Revision, Store, StoreError};

/// Whether every watch has come to `revision`, or shows what the store holds at a later one.
pub(super) async fn shows(
    store: &Store,
    shared: &Shared,
    groups: &[Vec<String>],
    revision: Revision,
) -> Result<bool, StoreError> {
    for (feed, prefixes) in groups.iter().enumerate() {
        for prefix in prefixes {
            let (reached, count) =
                shared.read(|state| (state.reached(feed), state.range(prefix).count()));
            if reached >= revision {
                break;
            }
            // Nothing newer and as many keys: nothing was put since, and so nothing deleted.
            let beyond = store.beyond(prefix, reached).await?;
            if beyond.newer || beyond.count != count || beyond.revision < revision {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

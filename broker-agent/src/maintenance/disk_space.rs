//! How full the disk is, so that erasing need not wait when room runs out.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::admission::Admission;
use crate::metrics;

/// How often the file system is asked.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Tells the admission whether the disk is above its high-water mark. Runs for ever.
///
/// `high_water_percent` 0: erasing is never urgent.
pub(crate) async fn watch_disk(directory: PathBuf, high_water_percent: u32, to: Admission) {
    let mut was_high = false;
    loop {
        let asked = directory.clone();
        match tokio::task::spawn_blocking(move || used_ratio(&asked)).await {
            Ok(Ok(used)) => {
                metrics::disk_used(used);
                let is_high = is_above(used, high_water_percent);
                if is_high != was_high {
                    let percent = (used * 100.0).round();
                    tracing::warn!(percent, is_high, "disk crossed its high-water mark");
                }
                was_high = is_high;
                to.set_disk_high(is_high);
            }
            Ok(Err(error)) => tracing::debug!(%error, "room on the disk is not known"),
            // The runtime is being torn down.
            Err(_) => return,
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_above(used: f64, high_water_percent: u32) -> bool {
    high_water_percent > 0 && used * 100.0 >= f64::from(high_water_percent)
}

/// Used room over usable room of the directory's file system, 0 to 1.
pub(crate) fn used_ratio(directory: &Path) -> io::Result<f64> {
    let room = rustix::fs::statvfs(directory)?;
    let used = room.f_blocks.saturating_sub(room.f_bfree);
    let usable = used + room.f_bavail;
    Ok(if usable == 0 { 0.0 } else { used as f64 / usable as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_reached_from_below_and_zero_is_no_mark() {
        assert!(is_above(0.9, 90) && !is_above(0.8999, 90) && !is_above(1.0, 0));
        let used = used_ratio(tempfile::tempdir().unwrap().path()).unwrap();
        assert!((0.0..=1.0).contains(&used), "{used}");
        assert!(used_ratio(Path::new("/no/such/directory")).is_err());
    }
}

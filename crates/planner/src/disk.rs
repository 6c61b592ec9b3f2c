//! How full brokers' disks are, as far as it decides who is chosen.

use evenkeel_model::{BrokerView, Policy};

/// A broker that is fuller than so many points below the mark takes no leader over for balance:
/// what left it because its disk was full comes back only when there is room again.
const BAND: f64 = 5.0;

/// What a broker's disk is good for; the first is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Disk {
    /// It has room, or does not say.
    Roomy,
    /// It is near its mark: copies go elsewhere if they can.
    Short,
    /// It is at its mark or above: no copy goes there, and leaders leave.
    Full,
}

/// Used part of a broker's disk, percent, by a report that is not too old.
pub(crate) fn used(view: &BrokerView, now: i64, policy: &Policy) -> Option<f64> {
    let report = view.load.as_ref()?;
    let fresh = now.saturating_sub(report.reported_at_ms) <= policy.load_stale_after_ms;
    report.disk_used_percent.filter(|used| fresh && used.is_finite())
}

/// Used part of a broker's disk, percent, if that makes it full: it is given no copies.
pub fn full_disk(view: &BrokerView, now: i64, policy: &Policy) -> Option<f64> {
    used(view, now, policy).filter(|_| disk(view, now, policy) == Disk::Full)
}

pub(crate) fn disk(view: &BrokerView, now: i64, policy: &Policy) -> Disk {
    let mark = policy.disk_full_percent;
    match used(view, now, policy).filter(|_| mark > 0.0) {
        Some(used) if used >= mark => Disk::Full,
        Some(used) if used >= mark - BAND => Disk::Short,
        _ => Disk::Roomy,
    }
}

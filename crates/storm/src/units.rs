//! Quantities as people write them: `10Gbit/s`, `33GB`, `20ms`, `85%`, `x1.3`.

/// Splits a number from the unit behind it.
fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some((number, unit))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = split(text)?;
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| number * factor)
}

const BYTES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

const BITS: [(&str, f64); 3] = [("kbit/s", 125.0), ("Mbit/s", 125e3), ("Gbit/s", 125e6)];

const TIMES: [(&str, f64); 5] =
    [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3_600e3)];

/// Bytes.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let found = scaled(text, &BYTES).filter(|b| *b >= 1.0 && *b <= 1e18);
    found.map(|b| b as u64).ok_or_else(|| "bytes with a unit, such as 500MB, 33GB or 1TiB".into())
}

/// Bytes per second.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let by_bytes = || scaled(text.strip_suffix("/s")?, &BYTES);
    let found = scaled(text, &BITS).or_else(by_bytes).filter(|b| *b >= 1.0 && *b <= 1e15);
    found.map(|b| b as u64).ok_or_else(|| "a rate with a unit, such as 10Gbit/s or 40MB/s".into())
}

/// Milliseconds.
pub(crate) fn millis(text: &str) -> Result<f64, String> {
    let found = scaled(text, &TIMES).filter(|ms| *ms <= 86_400e3);
    found.ok_or_else(|| "a time of at most 24h with a unit, such as 20ms, 60s or 5m".into())
}

/// A part of one, from percent.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let found = split(text).filter(|(n, unit)| *unit == "%" && *n <= 500.0);
    found.map(|(n, _)| n / 100.0).ok_or_else(|| "percent up to 500%, such as 85%".into())
}

/// A factor, such as `x1.3`.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    let found = text.strip_prefix('x').and_then(split);
    let found = found.filter(|(n, unit)| unit.is_empty() && *n <= 100.0);
    found.map(|(n, _)| n).ok_or_else(|| "a factor from x0 to x100, such as x1.3".into())
}

/// A time for people: `4m05s`, `12.3s`.
pub(crate) fn span(seconds: f64) -> String {
    if seconds < 60.0 {
        return format!("{seconds:.1}s");
    }
    let whole = seconds.round() as u64;
    if whole >= 3600 {
        return format!("{}h{:02}m", whole / 3600, whole / 60 % 60);
    }
    format!("{}m{:02}s", whole / 60, whole % 60)
}

/// Bytes for people, in powers of ten like the links.
pub(crate) fn size(bytes: f64) -> String {
    let steps = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match steps.iter().find(|(least, _)| bytes >= *least) {
        Some((unit, name)) => format!("{:.3}{name}", bytes / unit),
        None => format!("{bytes:.0}B"),
    }
}

/// Milliseconds for people.
pub(crate) fn latency(ms: f64) -> String {
    if ms >= 10_000.0 {
        format!("{:.1}s", ms / 1000.0)
    } else if ms >= 10.0 {
        format!("{ms:.0}ms")
    } else {
        format!("{ms:.1}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_with_their_units_and_nothing_else() {
        assert_eq!(rate("10Gbit/s"), Ok(1_250_000_000));
        assert_eq!(rate("40MB/s"), Ok(40_000_000));
        assert_eq!(bytes("33GB"), Ok(33_000_000_000));
        assert_eq!(millis("1.5s"), Ok(1500.0));
        assert_eq!(percent("85%"), Ok(0.85));
        assert_eq!(factor("x0.2"), Ok(0.2));
        for wrong in
            ["", "10", "GB", "-1GB", "1e5GB", "NaN", "1 GB", "1gb", "inf", "x", "%", "1.2.3s"]
        {
            assert!(bytes(wrong).is_err() && rate(wrong).is_err(), "{wrong}");
            assert!(millis(wrong).is_err() && percent(wrong).is_err(), "{wrong}");
            assert!(factor(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!((span(12.34), span(245.0)), ("12.3s".to_owned(), "4m05s".to_owned()));
        assert_eq!((size(3e12), size(12.0)), ("3.000TB".to_owned(), "12B".to_owned()));
        assert_eq!((latency(467.3), latency(12_345.0)), ("467ms".to_owned(), "12.3s".to_owned()));
    }
}

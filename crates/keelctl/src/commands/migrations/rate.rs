//! Rates as people write them.

const EXPECTED: &str = "expected whole bytes per second, such as 4000000, or a number with one of \
                        kB/s, MB/s, GB/s, KiB/s, MiB/s and GiB/s behind it, such as 4MB/s; at least \
                        1 B/s, or 0, which lifts the cap";

const UNITS: [(&str, f64); 7] = [
    ("KiB/s", 1024.0),
    ("MiB/s", 1048576.0),
    ("GiB/s", 1073741824.0),
    ("kB/s", 1e3),
    ("MB/s", 1e6),
    ("GB/s", 1e9),
    ("B/s", 1.0),
];

/// Bytes per second of `4000000` or `4MB/s`.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let unit = UNITS.into_iter().find(|(unit, _)| text.ends_with(unit));
    let Some((unit, bytes)) = unit else {
        return text.parse().map_err(|_| EXPECTED.to_owned());
    };
    let number = text[..text.len() - unit.len()].trim_end();
    let plain = number.starts_with(|c: char| c.is_ascii_digit());
    let found = number.parse::<f64>().ok().map(|number| number * bytes);
    // What is less than a byte would be cut to 0, which lifts the cap.
    let found = found.filter(|rate| *rate >= 1.0 || *rate == 0.0);
    let found = found.filter(|rate| plain && *rate < u64::MAX as f64);
    found.map(|rate| rate as u64).ok_or_else(|| EXPECTED.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_whole_bytes_or_has_a_unit() {
        for (text, rate) in [
            ("0", 0),
            ("4000000", 4_000_000),
            ("4MB/s", 4_000_000),
            ("1.5 MB/s", 1_500_000),
            ("512KiB/s", 524_288),
            ("1GB/s", 1_000_000_000),
            ("70000B/s", 70_000),
            ("0MB/s", 0),
            ("1.5B/s", 1),
        ] {
            assert_eq!(parse(text), Ok(rate), "{text}");
        }
        for bad in [
            "",
            "fast",
            "4MB",
            "4mb/s",
            "-1",
            "-1MB/s",
            "1e3MB/s/s",
            "MB/s",
            "1.5",
            "infMB/s",
            "0.5B/s",
            "0.0009kB/s",
        ] {
            assert_eq!(parse(bad), Err(EXPECTED.to_owned()), "{bad}");
        }
        assert!(parse("1e30GB/s").is_err());
    }
}

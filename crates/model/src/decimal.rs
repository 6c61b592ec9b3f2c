//! Bytes as people are told them.

/// Bytes in the decimal units that links, caps and rates are told in: `950 B`, `4.0 MB`.
pub fn decimal(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["B", "kB", "MB", "GB"] {
        if value.abs() < 1000.0 {
            return if unit == "B" {
                format!("{value:.0} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_a_thousand() {
        let told = [0.0, 999.0, 1_000.0, 4_250_000.0, 1.25e9, 3e15].map(decimal);
        assert_eq!(told, ["0 B", "999 B", "1.0 kB", "4.2 MB", "1.2 GB", "3000.0 TB"]);
    }
}

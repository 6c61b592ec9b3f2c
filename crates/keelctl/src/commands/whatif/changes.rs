//! Brokers and their settings, as flags give them.

use std::str::FromStr;

use evenkeel_model::BrokerId;
use evenkeel_planner::Traits;

/// A broker with its settings.
pub(super) type Sized = (BrokerId, Traits);

/// Most brokers that one flag adds.
const MOST_BROKERS: u32 = 10_000;

/// A broker's id.
pub(super) fn broker(text: &str) -> Result<BrokerId, String> {
    text.parse().map_err(|e: evenkeel_model::IdError| e.to_string())
}

/// `b4`, `b4=zone=z1,weight=8` or `b4:zone=z1,weight=8`.
pub(super) fn broker_and_traits(text: &str) -> Result<Sized, String> {
    let (id, settings) = halves(text);
    Ok((broker(id)?, traits(settings, true)?))
}

/// `3`, `3=zone=z1` or `3:zone=z1`.
pub(super) fn count_and_traits(text: &str) -> Result<(u32, Traits), String> {
    let (count, settings) = halves(text);
    let count = count.parse().ok().filter(|n| (1..=MOST_BROKERS).contains(n));
    let count =
        count.ok_or_else(|| format!("expected a number of brokers, 1 to {MOST_BROKERS}"))?;
    Ok((count, traits(settings, true)?))
}

/// `b1:weight=16,max_shards=none`.
pub(super) fn resize(text: &str) -> Result<Sized, String> {
    let (id, settings) = halves(text);
    let (id, traits) = (broker(id)?, traits(settings, false)?);
    if traits == Traits::default() {
        return Err("expected settings, such as b1:weight=16".to_owned());
    }
    Ok((id, traits))
}

fn halves(text: &str) -> (&str, &str) {
    text.split_once([':', '=']).unwrap_or((text, ""))
}

fn traits(text: &str, placed: bool) -> Result<Traits, String> {
    let mut traits = Traits::default();
    for setting in text.split(',').filter(|s| !s.is_empty()) {
        let (name, value) = setting
            .split_once('=')
            .filter(|(_, value)| !value.is_empty())
            .ok_or_else(|| format!("setting '{setting}' is not valid: expected name=value"))?;
        let given_before = match name {
            "zone" if placed => traits.zone.replace(value.to_owned()).is_some(),
            "region" if placed => traits.region.replace(value.to_owned()).is_some(),
            "weight" => traits.weight.replace(weight(value)?).is_some(),
            "max_shards" if value == "none" => traits.max_shards.replace(None).is_some(),
            "max_shards" => traits.max_shards.replace(Some(number(name, value)?)).is_some(),
            "network_bytes_per_second" => {
                traits.network_bytes_per_second.replace(rate(name, value)?).is_some()
            }
            "disk_bytes_per_second" => {
                traits.disk_bytes_per_second.replace(rate(name, value)?).is_some()
            }
            _ => {
                let known = if placed { "zone, region, weight" } else { "weight" };
                return Err(format!(
                    "there is no setting '{name}': expected {known}, max_shards, \
                     network_bytes_per_second or disk_bytes_per_second"
                ));
            }
        };
        if given_before {
            return Err(format!("setting '{name}' is given twice"));
        }
    }
    Ok(traits)
}

fn weight(value: &str) -> Result<f64, String> {
    let weight: Option<f64> = value.parse().ok().filter(|w: &f64| w.is_finite() && *w >= 0.0);
    weight.ok_or_else(|| format!("weight '{value}' is not valid: expected a number of at least 0"))
}

fn number<N: FromStr>(name: &str, value: &str) -> Result<N, String> {
    value.parse().map_err(|_| format!("{name} '{value}' is not valid: expected a whole number"))
}

fn rate(name: &str, value: &str) -> Result<u64, String> {
    match number(name, value)? {
        0 => Err(format!("{name} is 0: expected at least 1")),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_come_with_settings_and_faults_are_named() {
        let (id, traits) = broker_and_traits("b4=zone=z1,weight=8,max_shards=none").unwrap();
        assert_eq!((id.as_str(), traits.zone.as_deref()), ("b4", Some("z1")));
        assert_eq!((traits.weight, traits.max_shards), (Some(8.0), Some(None)));
        assert_eq!(broker_and_traits("b4:zone=z1").unwrap().1.zone.as_deref(), Some("z1"));
        assert_eq!(broker_and_traits("b4").unwrap().1, Traits::default());
        assert_eq!(count_and_traits("3=zone=z1").unwrap().0, 3);
        for (bad, error) in [
            ("B4", "broker id 'B4' is not valid"),
            ("b4=zone", "setting 'zone' is not valid: expected name=value"),
            ("b4=zone=", "setting 'zone=' is not valid: expected name=value"),
            ("b4=size=1", "there is no setting 'size': expected zone, region, weight, max_shards"),
            ("b4=weight=NaN", "weight 'NaN' is not valid"),
            ("b4=max_shards=-1", "max_shards '-1' is not valid: expected a whole number"),
            ("b4=network_bytes_per_second=0", "network_bytes_per_second is 0"),
            ("b4=zone=a,zone=b", "setting 'zone' is given twice"),
        ] {
            let found = broker_and_traits(bad).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
        assert!(count_and_traits("0").is_err() && count_and_traits("x").is_err());
        assert!(resize("b1").is_err() && resize("b1:zone=z").is_err());
    }
}

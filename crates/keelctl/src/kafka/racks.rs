//! Which rack each broker is in: a line `BROKER RACK` for each, rack left out if it has none.
//! Brokers that hold nothing are known from here alone.

use std::collections::BTreeMap;

use super::{Broker, Fault, broker};

/// Reads the whole text; `#` begins a comment.
pub fn parse(text: &str) -> Result<BTreeMap<Broker, Option<String>>, Vec<Fault>> {
    let mut racks = BTreeMap::new();
    let mut faults = Vec::new();
    for (at, text) in text.lines().enumerate() {
        let words: Vec<&str> =
            text.split('#').next().unwrap_or_default().split_whitespace().collect();
        let read = match words[..] {
            [] => continue,
            [id] => broker(id).map(|id| (id, None)),
            [id, rack] => broker(id).map(|id| (id, Some(rack.to_owned()))),
            _ => None,
        };
        let detail = match read {
            None => format!("'{}' is not valid: expected BROKER RACK", words.join(" ")),
            Some((id, _)) if racks.contains_key(&id) => format!("broker {id} is there twice"),
            Some((id, rack)) => {
                racks.insert(id, rack);
                continue;
            }
        };
        faults.push(Fault { line: at + 1, detail });
    }
    if faults.is_empty() { Ok(racks) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_brokers_with_their_racks() {
        let racks = parse("1 r1\n# spare\n2\tr2\n4\n\n").unwrap();
        assert_eq!(racks[&2], Some("r2".to_owned()));
        assert_eq!((racks.len(), &racks[&4]), (3, &None));
        let faults = parse("1 r1\nb2 r2\n1 r3\n5 a b").unwrap_err();
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 3);
        assert_eq!(text[0], "2: 'b2 r2' is not valid: expected BROKER RACK");
        assert_eq!(text[1], "3: broker 1 is there twice");
    }
}

//! Damage done to a JSON document: fields deleted, doubled, swapped, replaced by what nobody expects.

use proptest::prelude::*;
use serde_json::{Value, json};

/// One act of damage. Numbers choose a place among those there are.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    /// Takes a value out of its object or array.
    Delete(usize),
    /// Puts another in its place.
    Replace(usize, usize),
    /// Puts an odd number in a number's place.
    Number(usize, usize),
    /// Doubles an element of an array.
    Double(usize),
    /// Puts a copy of one value in the place of another.
    Copy(usize, usize),
}

/// Some acts of damage.
pub(crate) fn damages() -> impl Strategy<Value = Vec<Damage>> {
    let one = prop_oneof![
        any::<usize>().prop_map(Damage::Delete),
        (any::<usize>(), any::<usize>()).prop_map(|(at, with)| Damage::Replace(at, with)),
        (any::<usize>(), any::<usize>()).prop_map(|(at, with)| Damage::Number(at, with)),
        any::<usize>().prop_map(Damage::Double),
        (any::<usize>(), any::<usize>()).prop_map(|(from, to)| Damage::Copy(from, to)),
    ];
    prop::collection::vec(one, 1..6)
}

/// What nobody expects.
fn oddities() -> Vec<Value> {
    let mut deep = json!([]);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(u32::MAX),
        json!(1e308),
        json!(-1e308),
        json!(1e-308),
        json!(""),
        json!("NaN"),
        json!("b01"),
        json!("b99"),
        json!("stream/default/s0/0"),
        json!("stream/default/s0"),
        json!("cache/default/s0/3"),
        json!("draining"),
        json!("down"),
        json!("left"),
        json!("\u{0}\u{7f}\u{fffd}"),
        json!([]),
        json!({}),
        json!(["b00", "b01", "b02"]),
        deep,
    ]
}

/// The document with one value replaced, for every value and every oddity.
pub(crate) fn each_oddity(document: &Value) -> impl Iterator<Item = Value> + '_ {
    let oddities = oddities();
    places(document).into_iter().flat_map(move |place| {
        let replaced = |with: &Value| {
            let mut damaged = document.clone();
            if let Some(value) = damaged.pointer_mut(&place) {
                *value = with.clone();
            }
            damaged
        };
        oddities.iter().map(replaced).collect::<Vec<_>>()
    })
}

/// The places of all values, as JSON pointers.
fn places(value: &Value) -> Vec<String> {
    fn walk(value: &Value, path: &str, into: &mut Vec<String>) {
        into.push(path.to_owned());
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    walk(inner, &format!("{path}/{key}"), into);
                }
            }
            Value::Array(items) => {
                for (at, inner) in items.iter().enumerate() {
                    walk(inner, &format!("{path}/{at}"), into);
                }
            }
            _ => {}
        }
    }
    let mut into = Vec::new();
    walk(value, "", &mut into);
    into
}

/// Does the damage.
pub(crate) fn damage(document: &mut Value, damages: &[Damage]) {
    for one in damages {
        let places = places(document);
        let place = |n: usize| places[n % places.len()].clone();
        match one {
            Damage::Delete(at) => delete(document, &place(*at)),
            Damage::Replace(at, with) => {
                let oddities = oddities();
                let with = oddities[with % oddities.len()].clone();
                if let Some(value) = document.pointer_mut(&place(*at)) {
                    *value = with;
                }
            }
            Damage::Number(at, with) => {
                let is_number = |p: &&String| document.pointer(p).is_some_and(Value::is_number);
                let numbers: Vec<String> = places.iter().filter(is_number).cloned().collect();
                let odd: Vec<Value> = oddities().into_iter().filter(Value::is_number).collect();
                if !numbers.is_empty()
                    && let Some(value) = document.pointer_mut(&numbers[at % numbers.len()])
                {
                    *value = odd[with % odd.len()].clone();
                }
            }
            Damage::Double(at) => {
                if let Some(Value::Array(items)) = document.pointer_mut(&place(*at))
                    && let Some(last) = items.last().cloned()
                {
                    items.push(last);
                }
            }
            Damage::Copy(from, to) => {
                let copy = document.pointer(&place(*from)).cloned();
                if let (Some(copy), Some(value)) = (copy, document.pointer_mut(&place(*to))) {
                    *value = copy;
                }
            }
        }
    }
}

fn delete(document: &mut Value, place: &str) {
    let Some((parent, name)) = place.rsplit_once('/') else { return };
    match document.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
        Some(Value::Array(items)) => {
            if let Some(at) = name.parse().ok().filter(|at| *at < items.len()) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

//! The policy that holds: the stored one laid over the configured one.

use evenkeel_model::Policy;
use evenkeel_model::policy::PolicyError;
use serde_json::{Map, Value};

use crate::records::Records;

/// The stored policy over `configured`. Settings of a later version are ignored; a stored policy
/// that cannot be used is ignored as a whole, and [`fault`] says why.
pub(crate) fn effective(records: &Records, configured: &Policy) -> Policy {
    let Some(stored) = records.policy.get(&()) else { return configured.clone() };
    overlay(configured, &stored.value.0).unwrap_or_else(|_| configured.clone())
}

/// Why the stored policy is not used, if it is not.
pub(crate) fn fault(records: &Records, configured: &Policy) -> Option<PolicyError> {
    overlay(configured, &records.policy.get(&())?.value.0).err()
}

/// The stored form of `policy`.
pub(crate) fn encode(policy: &Policy) -> Vec<u8> {
    let mut record =
        Map::from_iter([("v".to_owned(), Value::from(evenkeel_model::RECORD_VERSION))]);
    if let Ok(Value::Object(fields)) = serde_json::to_value(policy) {
        record.extend(fields);
    }
    evenkeel_model::encode(&record)
}

fn overlay(configured: &Policy, stored: &Map<String, Value>) -> Result<Policy, PolicyError> {
    let known = serde_json::to_value(configured).unwrap_or_default();
    configured.merged(&Value::Object(keep_known(stored, &known)))
}

/// `stored` without the keys that this version does not know.
fn keep_known(stored: &Map<String, Value>, known: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, value) in stored {
        match (known.get(key), value) {
            (Some(inner @ Value::Object(_)), Value::Object(fields)) => {
                kept.insert(key.clone(), Value::Object(keep_known(fields, inner)));
            }
            (Some(_), _) => {
                kept.insert(key.clone(), value.clone());
            }
            (None, _) => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_survives_its_stored_form_and_later_settings_are_ignored() {
        let mut policy = Policy { moves_max_concurrent: 7, ..Policy::default() };
        policy.rebalancing.enabled = true;
        let Ok(Value::Object(mut stored)) = serde_json::from_slice(&encode(&policy)) else {
            panic!("a stored policy is an object")
        };
        stored.insert("later".to_owned(), Value::from(1));
        assert_eq!(overlay(&Policy::default(), &stored), Ok(policy));
        stored.insert("settle_ms".to_owned(), Value::from("x"));
        let error = overlay(&Policy::default(), &stored).unwrap_err().to_string();
        assert!(error.starts_with("policy field 'settle_ms'"), "{error}");
    }
}

//! Computed ownership of segments: nothing is stored, every process derives the same owner.

use std::collections::BTreeSet;

use evenkeel_model::hash;
use serde::{Deserialize, Serialize};

/// A member that can own segments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// Effective vCPUs; missing or below 1 is 1.
    #[serde(default)]
    pub weight: Option<f64>,
    /// Whether it answers.
    #[serde(default = "yes")]
    pub live: bool,
}

fn yes() -> bool {
    true
}

impl Member {
    fn weight(&self) -> f64 {
        self.weight.filter(|w| w.is_finite() && *w >= 1.0).unwrap_or(1.0)
    }
}

/// Who owns one key, and who stands by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owners {
    /// The segment.
    pub key: String,
    /// The first live member of the ranking.
    pub owner: Option<String>,
    /// All members, the owner's standbys behind it, or the first few.
    pub ranking: Vec<String>,
}

/// A member list that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("members[{at}].id: {detail}")]
pub struct MembersError {
    /// Position in the list.
    pub at: usize,
    /// What was found and what was expected.
    pub detail: String,
}

/// Checks that every member has an id of its own.
pub fn check_members(members: &[Member]) -> Result<(), MembersError> {
    let mut seen = BTreeSet::new();
    for (at, member) in members.iter().enumerate() {
        if member.id.is_empty() {
            let detail = "'' is not valid: expected at least one character".to_owned();
            return Err(MembersError { at, detail });
        }
        if !seen.insert(&member.id) {
            let detail = format!("'{}' is there twice", member.id);
            return Err(MembersError { at, detail });
        }
    }
    Ok(())
}

/// The owner and the ranking of `key`. With `top`, only the first members are listed; the owner is
/// looked for among all.
pub fn owners(members: &[Member], key: &str, top: Option<usize>) -> Owners {
    let ranking = hash::rank(key, members.iter().map(|m| (m.id.as_str(), m.weight())));
    let live: BTreeSet<&str> = members.iter().filter(|m| m.live).map(|m| m.id.as_str()).collect();
    let owner = ranking.iter().find(|id| live.contains(**id)).map(|id| (*id).to_owned());
    let listed = top.unwrap_or(ranking.len());
    Owners {
        key: key.to_owned(),
        owner,
        ranking: ranking.into_iter().take(listed).map(str::to_owned).collect(),
    }
}

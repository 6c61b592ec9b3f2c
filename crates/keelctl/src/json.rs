//! JSON documents that are held whole.

use evenkeel_model::printable;
use serde::de::DeserializeOwned;

/// Reads a document and nothing after it. An error names the field by its path, on one line.
pub(crate) fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let document = serde_path_to_error::deserialize(&mut reader)
        .map_err(|e| printable(&format!("{}: {}", e.path(), e.inner())))?;
    reader.end().map_err(|e| e.to_string())?;
    Ok(document)
}

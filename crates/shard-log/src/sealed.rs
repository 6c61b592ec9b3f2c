//! Small files with a checksum, so that damage is noticed, replaced in one step.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::log::LogError;
use crate::storage::Storage;

/// What is in such a file.
#[derive(Serialize, Deserialize)]
struct Sealed {
    crc32c: u32,
    #[serde(rename = "memo")]
    content: String,
}

/// Reads the file; the default if there is none.
pub(crate) fn load<T: DeserializeOwned + Default>(
    storage: &Arc<dyn Storage>,
    name: &str,
) -> Result<T, LogError> {
    let file = || storage.describe(name);
    let Some(bytes) = storage.read(name).map_err(LogError::io("read", file()))? else {
        return Ok(T::default());
    };
    let damaged = |detail: String| LogError::Corrupt { file: file(), byte: 0, detail };
    let sealed: Sealed =
        serde_json::from_slice(&bytes).map_err(|e| damaged(format!("it is no record: {e}")))?;
    if crc32c::crc32c(sealed.content.as_bytes()) != sealed.crc32c {
        return Err(damaged("its checksum does not match".to_owned()));
    }
    serde_json::from_str(&sealed.content).map_err(|e| damaged(format!("it is no record: {e}")))
}

/// Replaces the file; durable when this returns.
pub(crate) fn save<T: Serialize>(
    storage: &Arc<dyn Storage>,
    name: &str,
    content: &T,
) -> Result<(), LogError> {
    let file = || storage.describe(name);
    let encode =
        |e: serde_json::Error| LogError::Io { action: "encode", file: file(), source: e.into() };
    let content = serde_json::to_string(content).map_err(encode)?;
    let sealed = Sealed { crc32c: crc32c::crc32c(content.as_bytes()), content };
    let bytes = serde_json::to_vec(&sealed).map_err(encode)?;
    storage.replace(name, &bytes).map_err(|e| {
        if crate::log::is_full(&e) {
            return LogError::DiskFull { file: file(), bytes: bytes.len() };
        }
        LogError::io("replace", file())(e)
    })
}

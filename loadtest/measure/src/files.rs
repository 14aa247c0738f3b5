//! Report files.

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};

/// Writes anything as readable JSON.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Setup(format!("the report cannot be written: {error}")))?;
    write_text(path, &text)
}

/// Writes a text and a line break, into a folder that is made if need be.
pub fn write_text(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(path, format!("{text}\n")))
        .map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))
}

/// Says now, before the work, if a report could not be written after it.
pub fn check_writable(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let existed = path.exists();
    folder
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::OpenOptions::new().append(true).create(true).open(path).map(drop))
        .and_then(|()| if existed { Ok(()) } else { std::fs::remove_file(path) })
        .map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))
}

//! Manifest files and the places in them.

use crate::error::{Error, Place, Result};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path as FieldPath, Segment};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// A manifest file's text, kept so that later mistakes can still be given a line.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    text: String,
}

impl Source {
    pub fn read(path: &Path) -> Result<Source> {
        let text = std::fs::read_to_string(path).map_err(|source| unreadable(path, source))?;
        Ok(Source { path: path.to_owned(), text })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that the manifest names, relative to the manifest itself.
    pub fn relative(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path).components().collect()
    }

    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        let document = toml::Deserializer::parse(&self.text).map_err(|error| self.toml_error("", &error))?;
        serde_path_to_error::deserialize(document)
            .map_err(|error| self.toml_error(&field_name(error.path()), error.inner()))
    }

    /// The file and line of a span; `None` stands for the whole file.
    pub fn place(&self, span: Option<Range<usize>>) -> Place {
        let line =
            |span: Range<usize>| 1 + self.text.bytes().take(span.start).filter(|&byte| byte == b'\n').count();
        Place { file: self.path.clone(), line: span.map(line) }
    }

    pub fn error(&self, span: Option<Range<usize>>, problem: impl Into<String>) -> Error {
        Error::Manifest { place: self.place(span), problem: problem.into() }
    }

    fn toml_error(&self, field: &str, error: &toml::de::Error) -> Error {
        let message = error.message().trim_end();
        let problem = if field.is_empty() { message.to_owned() } else { format!("`{field}`: {message}") };
        self.error(error.span(), problem)
    }
}

fn unreadable(path: &Path, source: std::io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::InvalidData => Error::Manifest {
            place: Place { file: path, line: None },
            problem: "not text in UTF-8, expected a manifest in TOML, or an image that `nom build` wrote"
                .into(),
        },
        _ => Error::Read { path, reason: source },
    }
}

/// The path of a field without the segments that only carry its span.
fn field_name(path: &FieldPath) -> String {
    let mut name = String::new();
    for segment in path.iter() {
        match segment {
            Segment::Map { key } if key.starts_with("$__") => {}
            Segment::Map { key } if name.is_empty() => name.push_str(key),
            Segment::Map { key } => name.extend([".", key]),
            Segment::Seq { index } => name.push_str(&format!("[{index}]")),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    name
}

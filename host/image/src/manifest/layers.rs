//! Reading manifest files: inheritance, and the entries of a bundle.

use super::fields::RawApplication;
use super::source::Source;
use crate::error::{Error, Place, Result};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor, value::MapAccessDeserializer};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use toml::Spanned;

/// One application as its files give it, the most specific layer first.
pub(super) struct Layers(Vec<Layer>);

struct Layer {
    fields: RawApplication,
    source: Rc<Source>,
    /// The entry's place in a bundle; `None` if the layer is a whole file.
    span: Option<Range<usize>>,
}

/// A field's value and the file that gives it.
pub(super) struct Given<'l, T> {
    pub spanned: &'l Spanned<T>,
    pub source: &'l Source,
}

impl<'l, T> Given<'l, T> {
    pub fn value(&self) -> &'l T {
        self.spanned.get_ref()
    }

    pub fn place(&self) -> Place {
        self.source.place(Some(self.spanned.span()))
    }

    pub fn error(&self, problem: impl Into<String>) -> Error {
        self.source.error(Some(self.spanned.span()), problem)
    }
}

type Pick<T> = fn(&RawApplication) -> &Option<Spanned<T>>;

impl Layers {
    /// The value of a field in the most specific layer that has it.
    pub fn find<T>(&self, pick: Pick<T>) -> Option<Given<'_, T>> {
        self.each(pick).next()
    }

    /// Every value of a field, the most specific first.
    pub fn each<'l, T: 'l>(&'l self, pick: Pick<T>) -> impl DoubleEndedIterator<Item = Given<'l, T>> {
        self.0.iter().filter_map(move |layer| {
            let spanned = pick(&layer.fields).as_ref()?;
            Some(Given { spanned, source: &layer.source })
        })
    }

    /// The value of a field that must be there; the error names the application's own file or entry.
    pub fn require<T>(&self, name: &str, pick: Pick<T>) -> Result<Given<'_, T>> {
        self.find(pick).ok_or_else(|| Error::Manifest {
            place: self.own_place(),
            problem: format!("`{name}`: missing, every application needs one"),
        })
    }

    /// Where a field is given, or else the application's own file or entry.
    pub fn place<T>(&self, pick: Pick<T>) -> Place {
        self.find(pick).map_or_else(|| self.own_place(), |given| given.place())
    }

    fn own_place(&self) -> Place {
        let own = &self.0[0];
        own.source.place(own.span.clone())
    }
}

/// The applications of the manifest at `path`: a bundle, or a single application.
pub(super) fn read(path: &Path) -> Result<Vec<Layers>> {
    let source = Rc::new(Source::read(&manifest_file(path, ["bundle.toml", "app.toml"]))?);
    if source.parse::<Probe>()?.applications.is_none() {
        return Ok(vec![read_application(source)?]);
    }
    let bundle: RawBundle = source.parse()?;
    if bundle.applications.get_ref().is_empty() {
        let span = bundle.applications.span();
        return Err(source.error(Some(span), "`applications`: empty, expected at least one application"));
    }
    bundle.applications.into_inner().into_iter().map(|entry| read_entry(entry, &source)).collect()
}

/// The same, with the fields of the manifest `above` in place of those that the first application has.
pub(super) fn read_under(path: &Path, above: &Path) -> Result<Vec<Layers>> {
    let mut applications = read(path)?;
    let Layers(mut layers) = read_application(Rc::new(Source::read(above)?))?;
    let first = &mut applications[0].0;
    layers.append(first);
    *first = layers;
    Ok(applications)
}

/// The manifest that `path` means: itself, or the first of these files in it if it is a directory.
fn manifest_file(path: &Path, names: [&str; 2]) -> PathBuf {
    let [first, second] = names.map(|name| path.join(name));
    match path.is_dir() {
        true if first.exists() => first,
        true => second,
        false => path.to_owned(),
    }
}

fn read_application(source: Rc<Source>) -> Result<Layers> {
    let mut layers = Vec::new();
    let chain = [identity(source.path())];
    add_file(source, &chain, &mut layers)?;
    Ok(Layers(layers))
}

fn read_entry(entry: Spanned<Entry>, source: &Rc<Source>) -> Result<Layers> {
    let span = entry.span();
    let fields = match entry.into_inner() {
        Entry::File(file) => {
            RawApplication { file: Some(Spanned::new(span.clone(), file)), ..RawApplication::default() }
        }
        Entry::Table(fields) => *fields,
    };
    let bases = bases(&fields);
    let mut layers = vec![Layer { fields, source: source.clone(), span: Some(span) }];
    for base in bases {
        add_base(&base, source, &[identity(source.path())], &mut layers)?;
    }
    Ok(Layers(layers))
}

/// What a layer builds on, the most specific first.
fn bases(fields: &RawApplication) -> Vec<Spanned<PathBuf>> {
    let inherited = fields.inherit.iter().flat_map(|list| list.get_ref().iter().rev());
    inherited.chain(&fields.file).cloned().collect()
}

fn add_file(source: Rc<Source>, chain: &[PathBuf], layers: &mut Vec<Layer>) -> Result<()> {
    let fields: RawApplication = source.parse()?;
    if let Some(file) = &fields.file {
        let problem = "`file`: only an entry of a bundle has it, expected `inherit = [..]` here";
        return Err(source.error(Some(file.span()), problem));
    }
    let bases = bases(&fields);
    layers.push(Layer { fields, source: source.clone(), span: None });
    bases.iter().try_for_each(|base| add_base(base, &source, chain, layers))
}

/// Adds the layers of an inherited file; `chain` is how it was reached, to notice cycles.
fn add_base(
    base: &Spanned<PathBuf>,
    heir: &Source,
    chain: &[PathBuf],
    layers: &mut Vec<Layer>,
) -> Result<()> {
    let path = manifest_file(&heir.relative(base.get_ref()), ["app.toml"; 2]);
    let unreadable = |error: Error| match error {
        Error::Read { path, reason } => {
            heir.error(Some(base.span()), format!("{} cannot be read: {reason}", path.display()))
        }
        other => other,
    };
    let source = Source::read(&path).map_err(unreadable)?;
    let identity = identity(&path);
    if chain.contains(&identity) {
        let problem = format!("{} inherits from itself", path.display());
        return Err(heir.error(Some(base.span()), problem));
    }
    add_file(Rc::new(source), &[chain, &[identity]].concat(), layers)
}

/// The same for every way to write a file's path.
fn identity(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Tells a bundle from an application.
#[derive(Deserialize)]
struct Probe {
    applications: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBundle {
    applications: Spanned<Vec<Spanned<Entry>>>,
}

/// An application of a bundle: its manifest, or a table of its own.
enum Entry {
    File(PathBuf),
    Table(Box<RawApplication>),
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = Entry;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the path of an app.toml, or a table such as { file = \"app.toml\", name = \"other\" }")
    }

    fn visit_str<E>(self, path: &str) -> std::result::Result<Entry, E> {
        Ok(Entry::File(path.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Entry, A::Error> {
        RawApplication::deserialize(MapAccessDeserializer::new(map))
            .map(|fields| Entry::Table(Box::new(fields)))
    }
}

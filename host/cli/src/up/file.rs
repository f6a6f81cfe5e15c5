//! `nom.toml`: several machines that belong together.

use crate::mounts::Volume;
use crate::restart::Policy;
use anyhow::{Context, Result, bail};
use nom_image::manifest::Port;
use nom_vmm::Memory;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use toml::Spanned;

/// The file where none is named.
pub const DEFAULT: &str = "nom.toml";

/// What a file says.
#[derive(Clone, Debug)]
pub struct Project {
    /// First part of the names of its machines.
    pub name: String,
    /// Its machines, each behind those that it depends on.
    pub machines: Vec<(String, Definition)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: Option<Spanned<String>>,
    #[serde(default)]
    machines: BTreeMap<String, Spanned<Definition>>,
}

/// One machine. The fields are options of `nom run`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Application in `apps/`, or the path of a manifest, an image or a program of Linux, from the file's
    /// directory, or what a registry calls a container image. With `oci` it may be left out.
    app: Option<String>,
    /// A container image's layout, from the file's directory, with its tag if it has several images.
    oci: Option<String>,
    /// A tree of directories, from the file's directory, that has the program.
    root: Option<PathBuf>,
    /// What a program takes along, too, from the file's directory.
    #[serde(default)]
    include: Vec<PathBuf>,
    /// The program of a container image, in place of its own.
    entrypoint: Option<String>,
    /// As whom a program runs: `USER[:GROUP]`.
    user: Option<String>,
    /// Where it begins.
    workdir: Option<String>,
    /// By what signal it is asked to end.
    stop_signal: Option<String>,
    /// Directories that it finds, from the file's directory.
    #[serde(default, deserialize_with = "all_parsed")]
    volumes: Vec<Volume>,
    /// The file with its contract, from the file's directory.
    utility: Option<PathBuf>,
    /// Its control port.
    control: Option<NonZeroU16>,
    /// Arguments of the (first) application, in place of those in its manifest.
    pub arguments: Option<Vec<String>>,
    /// Further variables of its environment.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Files of further variables, from the file's directory.
    #[serde(default)]
    env_file: Vec<PathBuf>,
    /// Processors.
    pub cpus: Option<u32>,
    /// Memory.
    #[serde(default, deserialize_with = "parsed")]
    pub memory: Option<Memory>,
    /// Whether all memory is taken at the start.
    #[serde(default)]
    pub preallocate: bool,
    /// `user`, `tap` or `bridge`.
    pub network: Option<NetworkName>,
    /// Its address on the bridge.
    pub address: Option<Ipv4Addr>,
    /// Published ports.
    #[serde(default, deserialize_with = "all_parsed")]
    pub ports: Vec<Port>,
    /// When it is started again.
    #[serde(default)]
    pub restart: Policy,
    /// Where it has its prices from.
    pub provider: Option<String>,
    /// Machines that are started before it and end after it.
    #[serde(default)]
    depends_on: Vec<Spanned<String>>,
}

/// Values of `network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkName {
    /// QEMU's own.
    User,
    /// A network namespace of its own.
    Tap,
    /// The bridge.
    Bridge,
}

/// Reads a value as people type it on the command line.
fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(|error| serde::de::Error::custom(format!("`{text}`: {error}")))
}

fn all_parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Vec<T>, D::Error> {
    let parse =
        |text: String| text.parse().map_err(|error| serde::de::Error::custom(format!("`{text}`: {error}")));
    Vec::<String>::deserialize(from)?.into_iter().map(parse).collect()
}

/// The file's text, for the lines of mistakes.
struct Text<'t> {
    path: &'t Path,
    text: &'t str,
}

impl Text<'_> {
    fn place(&self, span: Option<Range<usize>>) -> String {
        let line =
            |span: Range<usize>| self.text[..span.start].bytes().filter(|byte| *byte == b'\n').count() + 1;
        span.map_or_else(
            || self.path.display().to_string(),
            |span| format!("{}:{}", self.path.display(), line(span)),
        )
    }

    fn parse(&self) -> Result<Document> {
        let problem = |field: &str, error: &toml::de::Error| {
            let field = if field.is_empty() { String::new() } else { format!("`{field}`: ") };
            anyhow::anyhow!("{}: {field}{}", self.place(error.span()), error.message().trim_end())
        };
        let document = toml::Deserializer::parse(self.text).map_err(|error| problem("", &error))?;
        serde_path_to_error::deserialize(document).map_err(|error| {
            let segments =
                error.path().iter().map(ToString::to_string).filter(|name| !name.starts_with("$__"));
            problem(&segments.collect::<Vec<_>>().join("."), error.inner())
        })
    }
}

impl Project {
    /// Reads a file.
    ///
    /// # Errors
    /// Whatever is wrong in it, with its line and what was expected.
    pub fn read(path: &Path) -> Result<Project> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Project::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Project> {
        let text = Text { path, text };
        let Document { name, machines } = text.parse()?;
        let directory = || path.parent()?.file_name()?.to_str().map(str::to_owned);
        let (name, span) = match name {
            Some(name) => (name.get_ref().clone(), Some(name.span())),
            None => (directory().unwrap_or_else(|| "nom".to_owned()), None),
        };
        if machines.is_empty() {
            bail!("{}: no machines, expected a table `[machines.NAME]` for each", path.display());
        }
        check_name(&name).with_context(|| text.place(span))?;
        for (member, definition) in &machines {
            check_name(member).with_context(|| text.place(Some(definition.span())))?;
            let Definition { app, oci, .. } = definition.get_ref();
            if app.is_none() && oci.is_none() {
                let place = text.place(Some(definition.span()));
                bail!("{place}: `machines.{member}`: missing field `app`, or `oci` in its place");
            }
        }
        let mut rest: BTreeMap<String, Definition> =
            machines.into_iter().map(|(member, definition)| (member, definition.into_inner())).collect();
        check_dependencies(&text, &rest)?;
        let mut ordered: Vec<(String, Definition)> = Vec::new();
        while !rest.is_empty() {
            let known: BTreeSet<&String> = ordered.iter().map(|(member, _)| member).collect();
            let is_ready =
                |one: &Definition| one.depends_on.iter().all(|other| known.contains(other.get_ref()));
            let next = rest.iter().find(|(_, one)| is_ready(one)).map(|(member, _)| member.clone());
            let Some(entry) = next.and_then(|member| rest.remove_entry(&member)) else {
                let circle: Vec<&str> = rest.keys().map(String::as_str).collect();
                bail!("{}: `depends_on` goes in a circle among {}", path.display(), circle.join(", "));
            };
            ordered.push(entry);
        }
        Ok(Project { name, machines: ordered })
    }
}

fn check_dependencies(text: &Text<'_>, machines: &BTreeMap<String, Definition>) -> Result<()> {
    for (member, definition) in machines {
        for other in &definition.depends_on {
            if !machines.contains_key(other.get_ref()) {
                let names: Vec<&str> = machines.keys().map(String::as_str).collect();
                bail!(
                    "{}: `machines.{member}.depends_on`: no machine `{}`, expected some of {}",
                    text.place(Some(other.span())),
                    other.get_ref(),
                    names.join(", ")
                );
            }
        }
    }
    Ok(())
}

/// Checks that a name can be part of a machine's.
fn check_name(name: &str) -> Result<()> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let starts_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    if !starts_well || name.len() > 30 || !name.bytes().all(legal) {
        bail!("`{name}`: expected a name of up to 30 letters, digits, `-` or `_`");
    }
    Ok(())
}

impl Definition {
    /// What runs, if the file that says so is in `directory`. With a root, or an image, it is a path there.
    fn application(&self, directory: &Path) -> Option<PathBuf> {
        let app = self.app.as_ref()?;
        let path = directory.join(app);
        let is_file = path.is_file();
        // As `nom run` has it: a path begins with a slash or a dot, and an image has its tag or digest.
        let is_reference = !is_file && !app.starts_with(['/', '.']) && app.contains([':', '@']);
        let is_elsewhere = is_reference || self.root.is_some() || self.oci.is_some();
        let is_path = !is_elsewhere && (app.contains('/') || is_file);
        Some(if is_path { path } else { PathBuf::from(app) })
    }

    /// The words behind `nom run` that start it, but for its name.
    pub fn words(&self, directory: &Path) -> Vec<String> {
        let mut words = vec!["--detach".to_owned(), format!("--restart={}", self.restart)];
        let mut option = |name: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("--{name}={value}")));
        };
        option("cpus", self.cpus.map(|cpus| cpus.to_string()));
        option("memory", self.memory.map(|memory| memory.to_string()));
        option("network", self.network.map(|network| format!("{network:?}").to_lowercase()));
        option("address", self.address.map(|address| address.to_string()));
        option("provider", self.provider.clone());
        let path = |path: &Path| directory.join(path).display().to_string();
        option("oci", self.oci.as_deref().map(|layout| path(Path::new(layout))));
        option("root", self.root.as_deref().map(path));
        option("utility", self.utility.as_deref().map(path));
        option("control", self.control.map(|port| port.to_string()));
        for more in &self.include {
            option("include", Some(path(more)));
        }
        option("entrypoint", self.entrypoint.clone());
        option("user", self.user.clone());
        option("workdir", self.workdir.clone());
        option("stop-signal", self.stop_signal.clone());
        for file in &self.env_file {
            option("env-file", Some(path(file)));
        }
        for volume in &self.volumes {
            option("volume", Some(volume.within(directory)));
        }
        for port in &self.ports {
            option("publish", Some(port.to_string()));
        }
        for (name, value) in &self.environment {
            option("env", Some(format!("{name}={value}")));
        }
        words.extend(self.preallocate.then(|| "--preallocate".to_owned()));
        words.extend(self.application(directory).map(|app| app.display().to_string()));
        if let Some(arguments) = &self.arguments {
            words.push("--".to_owned());
            words.extend(arguments.iter().cloned());
        }
        words
    }
}

#[cfg(test)]
mod tests;

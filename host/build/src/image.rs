//! From the name of an application to a bootable image.

use crate::own::OwnProgram;
use crate::programs::Catalogue;
use crate::release::{PROGRAMS, Release};
use crate::{Project, World};
use anyhow::{Context, Result, bail};
use nom_image::manifest::{Application, BundleManifest, Program};
use nom_image::{Image, Packing};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// An image with what it was made from.
#[derive(Clone, Debug)]
pub struct Built {
    /// The image.
    pub image: Image,
    /// Its applications.
    pub manifest: BundleManifest,
    /// The kernel's ELF file, with symbols.
    pub kernel: PathBuf,
    /// ELF file of each application, with symbols, in the manifest's order.
    pub programs: Vec<(String, PathBuf)>,
}

/// Where the programs come from that manifests name.
enum Sources<'p> {
    /// From packages beside their manifests, and those of the checkout.
    Built { own: BTreeMap<Program, Option<OwnProgram>>, catalogue: Catalogue },
    /// From a release.
    Ready(&'p Release),
}

/// Why a program could not be found or built, as `nom_image` passes it on.
type Reason = Box<dyn std::error::Error + Send + Sync>;

impl Project {
    /// The manifest that people mean by `name`: an application in `apps/`, or the path of a manifest or of a
    /// directory with one.
    ///
    /// # Errors
    /// If there is none; the error lists the applications that there are.
    pub fn manifest_path(&self, name: &str) -> Result<PathBuf> {
        let application = self.root().join("apps").join(name);
        if !name.contains('/') && has_manifest(&application) {
            return Ok(application);
        }
        let path = Path::new(name);
        if has_manifest(path) {
            return Ok(path.to_owned());
        }
        if path.is_file() {
            if path.extension().is_none_or(|extension| extension != "toml") {
                bail!("{name}: expected a manifest (*.toml), or a program: an ELF file, or a script (#!)");
            }
            return Ok(path.to_owned());
        }
        if name.contains('/') {
            let problem =
                if path.exists() { "no app.toml or bundle.toml in it" } else { "no such file or directory" };
            bail!("{name}: {problem}");
        }
        bail!(
            "no application `{name}`: expected one of {}, the path of an app.toml or bundle.toml, or an \
             image of a registry with its tag, such as {name}:latest",
            self.applications().join(", ")
        )
    }

    /// Names of the applications in `apps/`.
    pub fn applications(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root().join("apps")).into_iter().flatten().flatten();
        let with_manifest = entries.filter(|entry| has_manifest(&entry.path()));
        let mut names: Vec<String> =
            with_manifest.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Builds the kernel and the applications of a manifest, and packs them into one image. `arguments`, if
    /// given, go to the first application in place of the manifest's.
    ///
    /// # Errors
    /// If the manifest is wrong, or something does not build.
    pub fn image(
        &self,
        manifest: &Path,
        arguments: Option<&[String]>,
        packing: impl Into<Packing>,
    ) -> Result<Built> {
        self.pack(self.bundle(manifest, arguments)?, packing)
    }

    /// The applications of a manifest. `arguments`, if given, go to the first in place of the manifest's.
    ///
    /// # Errors
    /// If the manifest is wrong.
    pub fn bundle(&self, manifest: &Path, arguments: Option<&[String]>) -> Result<BundleManifest> {
        let bundle = nom_image::manifest::load(manifest)?;
        Ok(match arguments {
            Some(arguments) => bundle.with_arguments(arguments),
            None => bundle,
        })
    }

    /// Builds the kernel and the applications of a bundle, and packs them into one image.
    ///
    /// # Errors
    /// If something does not build.
    pub fn pack(&self, manifest: BundleManifest, packing: impl Into<Packing>) -> Result<Built> {
        self.pack_behind(self.kernel()?, manifest, packing)
    }

    /// As [`Project::pack`], behind a kernel of the caller's: the ELF file of one that tests itself, say.
    ///
    /// # Errors
    /// As [`Project::pack`].
    pub fn pack_behind(
        &self,
        kernel: PathBuf,
        manifest: BundleManifest,
        packing: impl Into<Packing>,
    ) -> Result<Built> {
        let loader = self.loader()?;
        let built = self.programs(&manifest)?;
        let resolve = |program: &Program| match built.get(program) {
            Some(file) => Ok(file.clone()),
            None => Err(Reason::from(format!("nobody built {program}"))),
        };
        let lowered = nom_image::lower(&manifest, resolve)?;
        let image = nom_image::pack(&loader, &kernel, &lowered, packing)?;
        let applications = manifest.applications.iter();
        let programs = applications
            .map(|application| (application.name.clone(), built[&application.program].clone()))
            .collect();
        Ok(Built { image, manifest, kernel, programs })
    }

    /// Builds what [`Project::pack`] would have to build: for those to whom it matters when that is.
    ///
    /// # Errors
    /// If something does not build.
    pub fn prepare(&self, manifest: &BundleManifest) -> Result<()> {
        self.loader()?;
        self.kernel()?;
        self.programs(manifest).map(drop)
    }

    /// The ELF files of all programs of a bundle, built if need be.
    fn programs(&self, manifest: &BundleManifest) -> Result<BTreeMap<Program, PathBuf>> {
        let sources = match self.release() {
            Some(release) => Sources::Ready(release),
            None => Sources::Built { own: self.own_programs(manifest)?, catalogue: self.catalogue()? },
        };
        let mut files = BTreeMap::new();
        for Application { program, places, .. } in &manifest.applications {
            if !files.contains_key(program) {
                let file = self.program(&sources, program);
                let file = file.with_context(|| format!("{}: program `{program}`", places.program))?;
                files.insert(program.clone(), file);
            }
        }
        Ok(files)
    }

    /// Which packages of a bundle are beside their manifests, outside of the checkout.
    fn own_programs(&self, manifest: &BundleManifest) -> Result<BTreeMap<Program, Option<OwnProgram>>> {
        let mut own: BTreeMap<Program, Option<OwnProgram>> = BTreeMap::new();
        for Application { program, places, .. } in &manifest.applications {
            let Program::Package(name) = program else { continue };
            let found = self.own_program(&places.program.file, name)?;
            match own.insert(program.clone(), found.clone()) {
                Some(other) if other != found => {
                    bail!("two packages are called `{name}`: expected different names in one bundle")
                }
                _ => {}
            }
        }
        Ok(own)
    }

    /// The ELF file of a program, built if need be.
    fn program(&self, sources: &Sources<'_>, program: &Program) -> Result<PathBuf> {
        match (program, sources) {
            (Program::File(path), _) => {
                path.canonicalize().with_context(|| format!("no program {}", path.display()))
            }
            (Program::Package(name), Sources::Ready(release)) => release.program(PROGRAMS, name),
            (Program::Package(name), Sources::Built { own, catalogue }) => match own.get(program) {
                Some(Some(own)) => self.build_own(own),
                _ => {
                    let program = catalogue.find(name)?;
                    Ok(self.build(World::Application, &program.package)?.join(program.binary))
                }
            },
        }
    }
}

fn has_manifest(directory: &Path) -> bool {
    ["app.toml", "bundle.toml"].iter().any(|name| directory.join(name).is_file())
}

//! Which libraries of the system a program needs, and in which of Debian's packages they are.

use anyhow::{Context, Result, bail};
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, U32};
use std::collections::BTreeSet;
use std::path::Path;

/// Libraries and the packages that have them.
const PACKAGES: &[(&str, &str)] = &[
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("ld-linux-x86-64.so.2", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];
/// How the C library calls its versions.
const C_LIBRARY: &str = "GLIBC_";

/// The packages that `program` needs, with the oldest C library that will do.
///
/// # Errors
/// If it is no dynamically linked ELF file, or needs a library that is not expected.
pub fn debian_packages(program: &Path) -> Result<Vec<String>> {
    let data = std::fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let versions = versions(&data).with_context(|| format!("{} is no program", program.display()))?;
    let mut packages = BTreeSet::new();
    for (library, _) in &versions {
        let Some((_, package)) = PACKAGES.iter().find(|(known, _)| known == library) else {
            bail!("{} needs {library}: expected only C libraries", program.display());
        };
        packages.insert(*package);
    }
    let newest = versions.iter().filter_map(|(_, version)| number(version.strip_prefix(C_LIBRARY)?)).max();
    let (major, minor) = newest.context("it needs no C library")?;
    let package = |package: &str| match package {
        "libc6" => format!("libc6 (>= {major}.{minor})"),
        other => other.to_owned(),
    };
    Ok(packages.into_iter().map(package).collect())
}

fn number(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

/// Each version of a library that an ELF file needs (section `.gnu.version_r`).
fn versions(data: &[u8]) -> Result<Vec<(String, String)>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut found = Vec::new();
    for section in sections.iter() {
        let Some((mut libraries, link)) = section.gnu_verneed(endian, data)? else { continue };
        let strings = sections.strings(endian, data, link)?;
        let text = |name: U32<Endianness>| -> Result<String> {
            let bytes = strings.get(name.get(endian)).ok().context("a name that is not there")?;
            Ok(String::from_utf8_lossy(bytes).into_owned())
        };
        while let Some((library, mut needed)) = libraries.next()? {
            while let Some(version) = needed.next()? {
                found.push((text(library.vn_file)?, text(version.vna_name)?));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_tells_which_libraries_it_needs() {
        let own = std::env::current_exe().expect("this program");
        let packages = debian_packages(&own).expect("a program");
        assert!(packages.iter().any(|package| package.starts_with("libc6 (>= 2.")), "{packages:?}");
        let error = debian_packages(Path::new("/etc/hostname")).expect_err("no program").to_string();
        assert_eq!(error, "/etc/hostname is no program");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(number("2.34") > number("2.4") && number("2.3.4") == Some((2, 3)));
        assert_eq!(number("PRIVATE"), None);
    }
}

//! Every manifest that stands in a document is loaded, built and booted, and its applications begin.

use nom_image::manifest::{self, Program};
use nom_system_tests::Guest;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Documents with manifests, and the directory from which the paths in them count.
const DOCUMENTS: [(&str, &str); 5] = [
    ("README.md", "apps/hello"),
    ("docs/manifest.md", "apps/hello"),
    ("docs/earn.md", "apps/memcached"),
    ("docs/grid.md", "apps/memcached"),
    ("docs/priced.md", "."),
];
/// What a program says once it has begun.
const BEGINNINGS: [(&str, &str); 4] = [
    ("nom-hello", "Hello from nom!"),
    ("nom-memcached", "serves at"),
    ("nom-nhttpd", "serves at"),
    ("nom-priced", "priced: "),
];
/// The directory that a manifest's `files` names.
const SITE: &str = "site";

/// A part of a document between fences.
struct Block {
    place: String,
    text: String,
}

/// What a block is, by its fields.
#[derive(Debug, PartialEq)]
enum Kind {
    Manifest,
    /// What a manifest's `responses` names.
    Responses,
}

impl Kind {
    fn of(block: &Block) -> Kind {
        let has = |field: &str| block.text.lines().any(|line| line.starts_with(field));
        match () {
            () if has("[[load]]") => Kind::Responses,
            () if has("name =") || has("inherit =") || has("applications =") || has("[[applications]]") => {
                Kind::Manifest
            }
            () => panic!("{}: neither a manifest nor a table of responses", block.place),
        }
    }
}

fn blocks(document: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(document)).expect("it can be read");
    let mut found: Vec<Block> = Vec::new();
    let mut is_inside = false;
    for (number, line) in (1..).zip(text.lines()) {
        match (is_inside, line) {
            (false, "```toml") => {
                found.push(Block { place: format!("{document}:{number}"), text: String::new() });
                is_inside = true;
            }
            (true, "```") => is_inside = false,
            (true, line) => found.last_mut().expect("inside of one").text.extend([line, "\n"]),
            (false, _) => {}
        }
    }
    found
}

/// Manifests of the checkout, where a document's may stand beside them.
fn checkout() -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    let apps = std::fs::read_dir(Path::new(ROOT).join("apps")).expect("applications");
    for app in apps.map(|entry| entry.expect("an entry").path()) {
        let to = copy.path().join("apps").join(app.file_name().expect("a name"));
        std::fs::create_dir_all(&to).expect("a directory");
        for file in std::fs::read_dir(&app).expect("a directory").map(|entry| entry.expect("an entry").path())
        {
            let name = file.file_name().expect("a name");
            if file.extension().is_some_and(|extension| extension == "toml") && name != "Cargo.toml" {
                std::fs::copy(&file, to.join(name)).expect("copied");
            }
        }
    }
    copy
}

/// Boots a manifest; each of its applications begins.
fn begins(block: &Block, path: &Path) {
    let loaded = manifest::load(path).unwrap_or_else(|error| panic!("{}: {error}", block.place));
    let mut guest = Guest::bundle(path.to_str().expect("UTF-8")).memory("256M");
    for application in &loaded.applications {
        if !application.devices.is_empty() {
            guest = guest.network();
        }
    }
    let mut vm = guest.boot();
    for application in &loaded.applications {
        let beginning =
            BEGINNINGS.into_iter().find(|(name, _)| application.program == Program::Package((*name).into()));
        let (_, beginning) =
            beginning.unwrap_or_else(|| panic!("{}: {:?}", block.place, application.program));
        println!("{}: {} says `{beginning}`", block.place, application.name);
        vm.wait_for(beginning);
    }
}

#[test]
fn every_manifest_of_the_documents_boots() {
    let mut booted = 0;
    for (document, directory) in DOCUMENTS {
        let copy = checkout();
        let (manifests, tables): (Vec<Block>, Vec<Block>) =
            blocks(document).into_iter().partition(|block| Kind::of(block) == Kind::Manifest);
        let place = |name: &str| -> PathBuf { copy.path().join(directory).join(name) };
        std::fs::create_dir_all(place(SITE)).expect("a directory");
        std::fs::write(place(SITE).join("index.html"), "<p>hello</p>").expect("written");
        for table in tables {
            std::fs::write(place("responses.toml"), table.text).expect("written");
        }
        for (number, block) in manifests.iter().enumerate() {
            let path = place(&format!("example-{number}.toml"));
            std::fs::write(&path, &block.text).expect("written");
            begins(block, &path);
            booted += 1;
        }
    }
    assert!(booted >= 8, "{booted} manifests are few");
}

#[test]
fn a_manifest_without_a_network_device_is_told_the_missing_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (number, program) in ["nom-memcached", "nom-echo"].into_iter().enumerate() {
        let path = directory.path().join(format!("app-{number}.toml"));
        let text = format!("name = \"server\"\nprogram = \"{program}\"\nmemory = \"32MiB\"\n");
        std::fs::write(&path, text).expect("written");
        let mut vm = Guest::bundle(path.to_str().expect("UTF-8")).memory("128M").network().boot();
        vm.wait_for("the manifest grants no network device: add `devices = [{ class = \"network\" }]`");
    }
}

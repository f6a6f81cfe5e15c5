//! How large images are: exact counts, the same on every computer with this toolchain. And why they are the
//! same: what is in them says nothing of where they were built.

use nom_build::Project;
use nom_image::{Command, Packing, Root};

/// Bytes that an image may have beside a program of Linux and its libraries.
const BEYOND_PROGRAM_MAX: usize = 2_000_000;
/// Bytes of memcached's image, compressed. 500,000 are promised (SPEC.md); it is not to grow meanwhile.
const MEMCACHED_MAX: usize = 590_000;

/// The application that runs programs of Linux, and memcached.
const LINUX: &str = "linux";
const MEMCACHED: &str = "memcached";

fn project() -> Project {
    Project::find().expect("tests run in a checkout of nom")
}

/// An image for a program of Linux, without one, and not compressed.
fn of_no_program(project: &Project) -> Vec<u8> {
    let manifest = project.manifest_path(LINUX).expect("the application is there");
    let bundle = project.bundle(&manifest, None).expect("its manifest is right");
    let bundle = bundle.with_root(Root::new(), &Command::plain("/nothing", &[]));
    project.pack(bundle, Packing::default()).expect("it builds").image.elf
}

#[test]
fn what_runs_programs_of_linux_takes_little_of_an_image() {
    let bytes = of_no_program(&project()).len();
    assert!(bytes <= BEYOND_PROGRAM_MAX, "{bytes} bytes, expected at most {BEYOND_PROGRAM_MAX}");
}

#[test]
fn an_image_does_not_tell_where_it_was_built() {
    let project = project();
    let image = of_no_program(&project);
    let home = std::env::home_dir().expect("a home");
    for directory in [project.root().join("libos"), project.target().to_owned(), home.join(".cargo")] {
        let name = directory.as_os_str().as_encoded_bytes();
        assert!(!image.windows(name.len()).any(|window| window == name), "{} is in it", directory.display());
    }
}

#[test]
fn the_image_of_memcached_does_not_grow() {
    let project = project();
    let manifest = project.manifest_path(MEMCACHED).expect("the application is there");
    let bytes = project.image(&manifest, None, Packing::SMALL).expect("it builds").image.elf.len();
    assert!(bytes <= MEMCACHED_MAX, "{bytes} bytes, expected at most {MEMCACHED_MAX}");
}

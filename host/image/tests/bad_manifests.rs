//! Every mistake in a manifest is told with file, line, field and what was expected.

mod common;

use expect_test::expect_file;
use nom_image::manifest;

/// What is wrong with the manifest that the files in `text` are.
fn problem(text: &str) -> String {
    let directory = common::directory(text);
    let error = manifest::load(directory.path()).expect_err(text);
    common::without(directory.path(), error)
}

/// Each case of the file is a title behind `===`, the manifest's files, and behind `-->` the problem.
/// `UPDATE_EXPECT=1` writes the problems anew.
#[test]
fn every_mistake_is_told() {
    let cases = include_str!("bad_manifests.txt");
    let told = cases.split("=== ").skip(1).map(|case| {
        let (title, case) = case.split_once('\n').expect("a title and a line's end");
        let (files, _) = case.split_once("-->").expect("an arrow behind the files");
        format!("=== {title}\n{files}--> {}\n", problem(files))
    });
    expect_file!["bad_manifests.txt"].assert_eq(&told.collect::<Vec<_>>().join("\n"));
}

#[test]
fn too_many_applications() {
    let application = |n: usize| format!("[[applications]]\nname = \"a{n}\"\nprogram = \"p\"\n");
    let all: String = (0..65).map(application).collect();
    let problem = problem(&format!("--- bundle.toml\n{all}"));
    assert_eq!(problem, "bundle.toml:194: more than 64 applications in one bundle");
}

#[test]
fn too_many_channels() {
    let application = |n: usize| {
        let peers: String = (n + 1..12).map(|peer| format!("{{ name = \"a{peer}\" }},")).collect();
        format!("[[applications]]\nname = \"a{n}\"\nprogram = \"p\"\npeers = [{peers}]\n")
    };
    let all: String = (0..12).map(application).collect();
    let problem = problem(&format!("--- bundle.toml\n{all}"));
    assert_eq!(problem, "bundle.toml:40: `peers`: more than 64 channels in one bundle");
}

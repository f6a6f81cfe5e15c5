//! The commands of `docs/machines.md`, run as they stand there.

mod common;

use common::{Site, said};

const PAGE: &str = include_str!("../../../docs/machines.md");

/// The blocks of the page with their kinds: what stands behind the fence.
fn blocks() -> Vec<(&'static str, String)> {
    let mut blocks: Vec<(&str, String)> = Vec::new();
    let mut inside = false;
    for line in PAGE.lines() {
        match line.strip_prefix("```") {
            Some(kind) if !inside => {
                blocks.push((kind, String::new()));
                inside = true;
            }
            Some(_) => inside = false,
            None if inside => blocks.last_mut().expect("a block has begun").1 += &format!("{line}\n"),
            None => {}
        }
    }
    blocks
}

#[test]
fn every_command_of_the_page_works() {
    let namespace = common::namespace("test-cli-page");
    let (site, may) = (Site::at(namespace.as_ref()), namespace.is_some());
    let shop = site.path().join("shop");
    std::fs::create_dir(&shop).expect("made");
    let path = common::search_path();
    let mut commands = 0;
    for (kind, text) in blocks() {
        match kind {
            "toml" => std::fs::write(shop.join("nom.toml"), text).expect("written"),
            "sh as root" if !may => eprintln!("skipped: `{text}` needs root and /dev/net/tun"),
            "sh" | "sh as root" => {
                let script = format!("set -eux\n{text}");
                let mut shell = site.command("sh");
                let output = shell.args(["-c", &script]).current_dir(&shop).env("PATH", &path).output();
                let output = output.expect("a shell");
                assert!(output.status.success(), "{text}{}", said(&output));
                commands += text.lines().count();
            }
            other => panic!("a block of kind `{other}`, which nobody runs"),
        }
    }
    assert!(commands > 20, "the page has {commands} commands");
}

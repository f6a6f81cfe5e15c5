//! What holds of every manifest, and of files that were damaged.

mod common;

use common::elf as file;
use common::image::{any_loader, bundle, packed};
use nom_abi::image::DeviceSelector;
use nom_image::manifest::{self, Application, BundleManifest, Peer, Port, Program, Protocol};
use nom_image::{Symbols, lower, pack};
use nom_kernel_pure::bundle::BundleView;
use nom_kernel_pure::symbols::lookup;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use std::fmt::Write;

/// A TOML string.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '.' | ' ' => c.to_string(),
        c => format!("\\U{:08X}", c as u32),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// The manifest that says what the typed structure says.
fn written(bundle: &BundleManifest) -> String {
    let name = |number: usize| quoted(&bundle.applications[number].name);
    let mut text = String::from("--- bundle.toml\n");
    for app in &bundle.applications {
        let variables: Vec<_> = app
            .environment
            .iter()
            .map(|(name, value)| format!("{} = {}", quoted(name), quoted(value)))
            .collect();
        let devices = app.devices.iter().map(|selector| {
            let DeviceSelector { vendor, device, class } = selector;
            format!("{{ vendor = {vendor}, device = {device}, class = 0x{class:06x} }}")
        });
        let peers = app
            .peers
            .iter()
            .map(|peer| format!("{{ name = {}, bytes = {} }}", name(peer.application), peer.bytes));
        let Application {
            cores,
            memory,
            stack,
            weight,
            autostart,
            essential,
            publishes_prices,
            makes_code,
            monitors,
            ..
        } = app;
        let fields = [
            ("name", quoted(&app.name)),
            ("program", quoted(&app.program.to_string())),
            ("cores", cores.to_string()),
            ("memory", memory.to_string()),
            ("stack", quoted(&format!("{}KiB", stack / 1024))),
            ("weight", weight.to_string()),
            ("autostart", autostart.to_string()),
            ("essential", essential.to_string()),
            ("publishes_prices", publishes_prices.to_string()),
            ("makes_code", makes_code.to_string()),
            ("monitors", monitors.to_string()),
            ("arguments", list(app.arguments.iter().map(|argument| quoted(argument)))),
            ("environment", format!("{{ {} }}", variables.join(", "))),
            ("devices", list(devices)),
            ("peers", list(peers)),
            ("manages", list(app.manages.iter().map(|number| name(*number)))),
            ("ports", list(app.ports.iter().map(|port| quoted(&port.to_string())))),
        ];
        text.push_str("[[applications]]\n");
        fields.iter().for_each(|(field, value)| writeln!(text, "{field} = {value}").expect("a String"));
    }
    text
}

fn text() -> impl Strategy<Value = String> {
    "[^\0]{0,12}"
}

fn port() -> impl Strategy<Value = Port> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    (any::<Option<std::net::IpAddr>>(), 1..=u16::MAX, 1..=u16::MAX, protocol)
        .prop_map(|(address, host, guest, protocol)| Port { address, host, guest, protocol })
}

fn selector() -> impl Strategy<Value = DeviceSelector> {
    (0..0xffff_u16, 0..0xffff_u16, 0..0xff_ffff_u32).prop_map(|(vendor, device, class)| DeviceSelector {
        vendor,
        device,
        class,
    })
}

prop_compose! {
    fn application(number: usize, count: usize)(
        (cores, weight) in (1..=64_u32, 1..=10_000_u32),
        (memory, stack) in (1..=1_u64 << 34, 1..=1_u64 << 18),
        (essential, publishes_prices, makes_code, monitors) in any::<(bool, bool, bool, bool)>(),
        arguments in vec(text(), 0..4),
        environment in btree_map("[^\0=]{1,8}", text(), 0..4),
        devices in vec(selector(), 0..3),
        peers in btree_set(number + 1..=count, 0..3),
        bytes in 1..=1_u64 << 18,
        manages in btree_set(0..count, 0..3),
        ports in vec(port(), 0..3),
    ) -> Application {
        let place = nom_image::Place { file: Default::default(), line: None };
        let channel = |application| Peer { application, bytes: bytes * 4096 };
        Application {
            name: format!("app-{number}"),
            program: Program::Package(format!("package-{number}")),
            cores, memory: memory * 4096, stack: stack * 4096, weight, autostart: true, essential,
            publishes_prices: publishes_prices && number == 0, makes_code, monitors, calls: None,
            arguments, environment, files: None,
            utility: None, devices, ports,
            peers: peers.into_iter().filter(|peer| *peer < count).map(channel).collect(),
            manages: manages.into_iter().filter(|other| *other != number).collect(),
            places: manifest::Places { program: place.clone(), memory: place.clone(), arguments: place },
        }
    }
}

fn any_bundle() -> impl Strategy<Value = BundleManifest> {
    (1..5_usize)
        .prop_flat_map(|count| (0..count).map(|number| application(number, count)).collect::<Vec<_>>())
        .prop_map(|applications| BundleManifest { applications })
}

/// Bytes of a file that are overwritten, and how much of it stays.
#[derive(Clone, Debug)]
struct Damage {
    bytes: Vec<(prop::sample::Index, u8)>,
    kept: prop::sample::Index,
}

impl Damage {
    /// Damage anywhere in the first `reach` bytes.
    fn apply(&self, file: &[u8], reach: usize) -> Vec<u8> {
        let mut file = file.to_vec();
        let reach = reach.min(file.len());
        self.bytes.iter().for_each(|(index, byte)| file[index.index(reach)] = *byte);
        if self.bytes.is_empty() {
            file.truncate(self.kept.index(file.len()));
        }
        file
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![Just(0), Just(1), Just(0x7f), Just(0xff), any::<u8>()];
    (vec((any::<prop::sample::Index>(), byte), 0..6), any::<prop::sample::Index>())
        .prop_map(|(bytes, kept)| Damage { bytes, kept })
}

/// Reads all that the kernel ever reads of a bundle.
fn walk(view: BundleView<'_>) {
    for app in view.applications() {
        let contents: usize = view.segments(&app).map(|segment| view.contents(&segment).len()).sum();
        assert!(contents <= view.bytes().len() * view.segments(&app).len());
        assert!(view.devices(&app).len() <= view.bytes().len());
        assert!(view.run(app.arguments).len() + view.run(app.environment).len() <= 64 << 10);
        for address in (0..0x3000).step_by(16) {
            let found = lookup(view.run(app.symbols), address);
            assert!(found.is_none_or(|found| found.offset <= address));
        }
    }
    assert!(view.channels().len() <= 64);
    assert!(lookup(view.kernel_symbols(), 0x11_0010).is_none_or(|found| found.offset <= 0x11_0010));
}

fn failed(error: impl ToString) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_manifest_says_what_was_written(bundle in any_bundle()) {
        let directory = common::directory(&written(&bundle));
        let mut loaded = manifest::load(directory.path()).map_err(failed)?;
        for (app, original) in loaded.applications.iter_mut().zip(&bundle.applications) {
            app.places = original.places.clone();
        }
        prop_assert_eq!(loaded, bundle);
    }

    #[test]
    fn a_damaged_manifest_is_no_panic(bundle in any_bundle(), damage in damage()) {
        let text = written(&bundle);
        let damaged = damage.apply(text.as_bytes(), text.len());
        let directory = common::directory("--- other.toml\n");
        std::fs::write(directory.path().join("app.toml"), &damaged[..])?;
        if let Err(error) = manifest::load(directory.path()) {
            prop_assert!(error.to_string().contains("app.toml"), "{}", error);
        }
    }

    #[test]
    fn a_damaged_program_is_no_panic(damage in damage()) {
        let directory = common::directory("name = \"a\"\nprogram = \"p\"\n");
        let [program, kernel] = ["program.elf", "kernel.elf"].map(|name| directory.path().join(name));
        let file = file::program().build();
        // The headers are where it hurts.
        std::fs::write(&program, damage.apply(&file, 0x180))?;
        std::fs::write(&kernel, file::kernel(vec![0x90; 64]).build())?;
        let bundle = manifest::load(directory.path()).expect("it is good");
        if let Ok(lowered) = lower(&bundle, |_| Ok(program.clone())) {
            let loader = any_loader(directory.path());
            let image = pack(&loader, &kernel, &lowered, Symbols::Keep).map_err(failed)?;
            let bytes = common::image::bundle(&image.elf);
            walk(BundleView::parse(&bytes).map_err(failed)?);
        }
    }

    #[test]
    fn a_damaged_kernel_is_no_panic(damage in damage()) {
        let directory = common::directory("name = \"a\"\nprogram = \"p\"\n");
        let [program, kernel] = ["program.elf", "kernel.elf"].map(|name| directory.path().join(name));
        std::fs::write(&program, file::program().build())?;
        let file = file::kernel(vec![0x90; 64]).build();
        std::fs::write(&kernel, damage.apply(&file, file.len()))?;
        let bundle = manifest::load(directory.path()).expect("it is good");
        let lowered = lower(&bundle, |_| Ok(program.clone())).expect("it is good");
        let loader = any_loader(directory.path());
        if let Err(error) = pack(&loader, &kernel, &lowered, Symbols::Keep) {
            let message = error.to_string();
            prop_assert!(message.contains("kernel.elf") || message.contains("too large"), "{}", message);
        }
    }

    #[test]
    fn a_damaged_bundle_is_no_panic_in_the_kernel(damages in vec(damage(), 1..32)) {
        let manifest = "--- bundle.toml\n[[applications]]\nname = \"a\"\nprogram = \"p\"\n\
                        arguments = [\"x\"]\ndevices = [{ class = \"entropy\" }]\n\
                        peers = [{ name = \"b\" }]\n\
                        [[applications]]\nname = \"b\"\nprogram = \"p\"\nmanages = [\"a\"]\n";
        let bytes = bundle(&packed(manifest, vec![0x90; 64], Symbols::Keep).elf);
        walk(BundleView::parse(&bytes).expect("it is good"));
        for damage in damages {
            if let Ok(view) = BundleView::parse(&damage.apply(&bytes, 0x400)) {
                walk(view);
            }
        }
    }
}

//! The image, as loaders and the kernel's own checker read it.

mod common;

use common::elf::{self as file, DATA, KERNEL};
use common::image::{bundle, load, loader, packed, parts, payload};
use nom_abi::image::{DeviceSelector, flag};
use nom_abi::layout::LOADER_LOAD;
use nom_abi::{Protection, memory::FRAME_BYTES};
use nom_image::{Packing, Symbols, lower, manifest, pack};
use nom_kernel_pure::bundle::{BundleView, name};
use nom_kernel_pure::symbols::lookup;

const PAGE: usize = FRAME_BYTES as usize;
const ONE: &str = "name = \"one\"\nprogram = \"p\"\n";
const THREE: &str = r#"--- bundle.toml
[[applications]]
name = "manager"
program = "p"
cores = 3
memory = "1MiB"
stack = "16KiB"
weight = 250
essential = true
arguments = ["a", "", "bc"]
environment = { X = "1", EMPTY = "" }
devices = [{ class = "network" }, { vendor = 0x1af4, device = 0x1044 }]
peers = [{ name = "worker", bytes = "8KiB" }]
manages = ["worker"]

[[applications]]
name = "worker"
program = "p"
autostart = false

[[applications]]
name = "third"
program = "p"
publishes_prices = true
peers = [{ name = "manager" }]
devices = [{ class = 0x010802 }]
"#;

fn kernel_code() -> Vec<u8> {
    vec![0x90; 64]
}

/// Parses a bundle as the kernel does.
fn view(bytes: &[u8]) -> BundleView<'_> {
    BundleView::parse(bytes).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_loader_puts_kernel_and_bundle_where_they_belong() {
    let image = packed(ONE, kernel_code(), Packing::SMALL);
    let [loader, streams] = &load(&image.elf)[..] else { panic!("two segments") };
    assert_eq!((loader.physical, loader.flags), (LOADER_LOAD, file::RX));
    // Everything up to the streams is reserved and zeroed, so no monitor puts anything else there.
    let loader_end = loader.physical + loader.memory.len() as u64;
    assert_eq!((loader_end, streams.flags), (streams.physical, file::R));

    let [(kernel_at, kernel), (bundle_at, bundle)] = parts(&image.elf);
    assert_eq!(u64::from(kernel_at.start), KERNEL);
    let mut expected = kernel_code();
    expected.resize(0x1000, 0);
    expected.extend([7; 16]);
    assert_eq!(kernel, expected);
    assert_eq!(u64::from(bundle_at.start), KERNEL + 0x3000);
    assert_eq!(streams.physical, (KERNEL + 0x3000 + bundle.len() as u64).next_multiple_of(FRAME_BYTES));
    assert_eq!(u64::from(payload(&image.elf).entry), KERNEL);
}

#[test]
fn a_monitor_puts_a_bundle_that_is_not_compressed_where_it_belongs() {
    let image = packed(ONE, kernel_code(), Packing::default());
    let [loader, plain, streams] = &load(&image.elf)[..] else { panic!("three segments") };
    let end = |part: &common::image::Loaded| part.physical + part.memory.len() as u64;
    assert_eq!((loader.physical, end(loader)), (LOADER_LOAD, plain.physical));
    assert_eq!((plain.flags, end(plain)), (file::R, streams.physical));

    let [(_, kernel), (bundle_at, unpacked)] = parts(&image.elf);
    assert_eq!(kernel[..64], kernel_code());
    assert_eq!((u64::from(bundle_at.start), unpacked.len()), (KERNEL + 0x3000, 0));
    assert_eq!(plain.physical, KERNEL + 0x3000);
    // What the kernel maps for an application to its last page shows nothing of the streams.
    assert_eq!(streams.physical % FRAME_BYTES, 0);
    let small = packed(ONE, kernel_code(), Packing::SMALL);
    assert_eq!(bundle(&small.elf), bundle(&image.elf));
}

#[test]
fn a_loader_that_is_none_is_refused() {
    let directory = common::directory(ONE);
    let [program, kernel] = ["program.elf", "kernel.elf"].map(|name| directory.path().join(name));
    std::fs::write(&program, file::program().build()).expect("a file");
    std::fs::write(&kernel, file::kernel(kernel_code()).build()).expect("a file");
    let bundle = manifest::load(directory.path()).expect("it is good");
    let lowered = lower(&bundle, |_| Ok(program.clone())).expect("it is good");
    for bytes in [0, 7, 65_536] {
        let loader = loader(directory.path(), &vec![0x90; bytes]);
        let error = pack(&loader, &kernel, &lowered, Symbols::Keep).expect_err("no loader").to_string();
        assert!(error.contains(&format!("loader: {bytes} bytes, expected the loader")), "{error}");
    }
}

#[test]
fn the_kernel_finds_every_field() {
    let image = packed(THREE, kernel_code(), Symbols::Keep);
    let bytes = bundle(&image.elf);
    let view = view(&bytes);
    assert_eq!(view.bytes().len(), bytes.len());
    let applications: Vec<_> = view.applications().collect();
    let names: Vec<_> = applications.iter().map(name).collect();
    assert_eq!(names, ["manager", "worker", "third"]);

    let manager = &applications[0];
    assert_eq!((manager.cores_max, manager.weight, manager.manages), (3, 250, 0b10));
    assert_eq!((manager.frames_max, manager.stack_bytes), (256, 16 << 10));
    assert_eq!((manager.entry, manager.image_bytes), (0x1010, 0x6000));
    assert_eq!(view.run(manager.arguments), b"a\0\0bc\0");
    assert_eq!(view.run(manager.environment), b"EMPTY=\0X=1\0");
    let flags: Vec<_> = applications.iter().map(|app| app.flags).collect();
    assert_eq!(flags, [flag::AUTOSTART | flag::ESSENTIAL, 0, flag::AUTOSTART | flag::PUBLISHES_PRICES]);

    let devices: Vec<Vec<_>> = applications.iter().map(|app| view.devices(app).collect()).collect();
    let selector = |vendor, device, class| DeviceSelector { vendor, device, class };
    let expected = [selector(0xffff, 0xffff, 0x02_0000), selector(0x1af4, 0x1044, 0xff_ffff)];
    assert_eq!(devices, [expected.to_vec(), vec![], vec![selector(0xffff, 0xffff, 0x01_0802)]]);
    let channels: Vec<_> = view.channels().map(|channel| (channel.ends, channel.bytes)).collect();
    assert_eq!(channels, [([0, 1], 8 << 10), ([2, 0], 64 << 10)]);
}

#[test]
fn the_kernel_finds_the_memory_of_a_program() {
    let image = packed(ONE, kernel_code(), Symbols::Keep);
    let bytes = bundle(&image.elf);
    let view = view(&bytes);
    let application = view.application(0).expect("there is one");
    let mut memory = vec![0; application.image_bytes as usize];
    let mut rows = Vec::new();
    for segment in view.segments(&application) {
        let contents = view.contents(&segment);
        memory[segment.address as usize..][..contents.len()].copy_from_slice(contents);
        rows.push((segment.address, segment.memory_bytes, segment.protection));
    }
    let [read, execute, write] =
        [Protection::Read, Protection::ReadExecute, Protection::ReadWrite].map(|p| p as u32);
    assert_eq!(rows, [(0, 0x1000, read), (0x1000, 0x2000, execute), (0x3000, 0x3000, write)]);

    let mut expected = vec![0; memory.len()];
    for segment in &file::program().segments[..3] {
        expected[segment.address as usize..][..segment.contents.len()].copy_from_slice(&segment.contents);
    }
    assert!(memory == expected);
    assert_eq!(memory[DATA as usize], 1);
}

#[test]
fn addresses_have_names() {
    let image = packed(ONE, kernel_code(), Symbols::Keep);
    let bytes = bundle(&image.elf);
    let view = view(&bytes);
    let symbols = view.run(view.application(0).expect("there is one").symbols);
    let found = |table, address| lookup(table, address).map(|found| (found.name.to_owned(), found.offset));
    assert_eq!(found(symbols, 0x100f), None);
    assert_eq!(found(symbols, 0x1010), Some(("_start".to_owned(), 0)));
    assert_eq!(found(symbols, 0x1051), Some(("core::fmt::write".to_owned(), 0x11)));
    assert_eq!(found(view.kernel_symbols(), KERNEL + 4), Some(("kernel_entry".to_owned(), 4)));
}

#[test]
fn symbols_can_be_left_out() {
    let [keep, omit] = [Symbols::Keep, Symbols::Omit].map(|symbols| packed(THREE, kernel_code(), symbols));
    let bytes = bundle(&omit.elf);
    let view = view(&bytes);
    assert!(view.kernel_symbols().is_empty());
    assert!(view.applications().all(|app| view.run(app.symbols).is_empty()));
    assert_eq!((omit.report.symbols_bytes, omit.report.kernel.symbols), (0, 0));
    assert!(keep.report.symbols_bytes > 0 && keep.report.applications[0].symbols == 2);
}

#[test]
fn a_program_that_runs_three_times_is_there_once() {
    let [one, three] = [ONE, THREE].map(|manifest| packed(manifest, kernel_code(), Symbols::Keep));
    assert!(three.elf.len() < one.elf.len() + PAGE, "{} {}", three.elf.len(), one.elf.len());
}

#[test]
fn the_report_adds_up() {
    let image = packed(THREE, kernel_code(), Symbols::Keep);
    let report = &image.report;
    assert_eq!(report.file_bytes, image.elf.len() as u64);
    assert_eq!(report.bundle_bytes, bundle(&image.elf).len() as u64);
    let kernel = &report.kernel;
    assert_eq!((kernel.text_bytes, kernel.data_bytes, kernel.zero_bytes), (64, 16, 0x1800 - 16));
    let names: Vec<_> = report.applications.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["manager", "worker", "third"]);
    let worker = &report.applications[1];
    // Two pages of code and one of constants are mapped in place; data start 16 bytes into their page.
    assert_eq!((worker.text_bytes, worker.rodata_bytes, worker.data_bytes), (0x2000, 0x1000, 24));
    assert_eq!(worker.zero_bytes, 0x3000 - 24);
    let json = serde_json::to_value(report).expect("it is data");
    assert_eq!(json["kernel"]["text_bytes"], 64);
}

#[test]
fn images_are_reproducible() {
    let [first, second] = [(); 2].map(|()| packed(THREE, kernel_code(), Symbols::Keep).elf);
    assert!(first == second);
}

#[test]
fn an_image_that_is_kept_is_smaller_and_the_same_in_memory() {
    let [quick, small] =
        [Packing::default(), Packing::SMALL].map(|packing| packed(THREE, varied(1 << 12), packing));
    assert!(small.elf.len() < quick.elf.len(), "{} of {}", small.elf.len(), quick.elf.len());
    assert_eq!(bundle(&small.elf), bundle(&quick.elf));
}

/// Bytes that repeat themselves, though not soon.
fn varied(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect()
}

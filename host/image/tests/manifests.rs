//! Manifests that are right: what they mean, and that the documentation says so.

mod common;

use expect_test::{expect, expect_file};
use nom_economy::prices::Prices;
use nom_economy::response::Response;
use nom_economy::units::{GbitPerSecond, OperationsPerSecond, Seconds};
use nom_economy::utility::{Latency, Utility};
use nom_image::manifest::{self, BundleManifest, Port, Program, Protocol, parse_size};
use std::path::Path;

fn load(text: &str) -> BundleManifest {
    let directory = common::directory(text);
    manifest::load(directory.path()).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_least_manifest_has_every_default() {
    let directory = common::directory("name = \"hello\"\nprogram = \"nom-hello\"\n");
    let bundle = manifest::load(directory.path()).expect("it is good");
    let text = common::without(directory.path(), format!("{bundle:#?}"));
    expect![[r#"
        BundleManifest {
            applications: [
                Application {
                    name: "hello",
                    program: Package(
                        "nom-hello",
                    ),
                    cores: 64,
                    memory: 67108864,
                    stack: 262144,
                    weight: 100,
                    autostart: true,
                    essential: false,
                    publishes_prices: false,
                    makes_code: false,
                    monitors: false,
                    calls: None,
                    arguments: [],
                    environment: {},
                    utility: None,
                    files: None,
                    devices: [],
                    peers: [],
                    manages: [],
                    ports: [],
                    places: Places {
                        program: Place {
                            file: "app.toml",
                            line: Some(
                                2,
                            ),
                        },
                        memory: Place {
                            file: "app.toml",
                            line: None,
                        },
                        arguments: Place {
                            file: "app.toml",
                            line: None,
                        },
                    },
                },
            ],
        }"#]]
    .assert_eq(&text);
}

#[test]
fn every_field_arrives() {
    let directory = common::directory(include_str!("golden/every_field.toml"));
    let bundle = manifest::load(directory.path()).expect("it is good");
    let text = common::without(directory.path(), format!("{:#?}", bundle.applications[0]));
    expect_file!["golden/every_field.txt"].assert_eq(&text);
    expect_file!["golden/every_field.dot"].assert_eq(&manifest::graph(&bundle));
    let programs: Vec<String> =
        bundle.programs().iter().map(|program| common::without(directory.path(), program)).collect();
    assert_eq!(programs, ["worker", "bin/server.elf", "log"]);
}

#[test]
fn what_is_given_wins_over_what_is_inherited() {
    let bundle = load(
        r#"
name = "own"
inherit = ["a.toml", "b/b.toml"]
environment = { OWN = "own", B = "own" }
--- a.toml
program = "a"
name = "a"
weight = 1
cores = 1
environment = { A = "a", B = "a", OWN = "a" }
--- b/b.toml
inherit = ["c.toml"]
program = "bin/b"
weight = 2
environment = { B = "b" }
--- b/c.toml
stack = "4KiB"
weight = 3
"#,
    );
    let [own] = &bundle.applications[..] else { panic!("one application") };
    assert_eq!((own.name.as_str(), own.weight, own.cores, own.stack), ("own", 2, 1, 4096));
    let Program::File(file) = &own.program else { panic!("a path") };
    assert!(file.ends_with("b/bin/b"), "{}", file.display());
    let environment: Vec<_> =
        own.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(environment, [("A", "a"), ("B", "own"), ("OWN", "own")]);
}

const PENALTY: &str = r#"
[utility]
unit = "Gbit"

[[utility.term]]
function = "penalty"
alpha = 20
factor = 100.0
objective = 750e-6
"#;

#[test]
fn the_contract_reaches_the_environment() {
    let bundle = load(&format!("name = \"a\"\nprogram = \"p\"\nenvironment = {{ B = \"b\" }}\n{PENALTY}"));
    let application = &bundle.applications[0];
    let utility = application.utility.as_ref().expect("there is one");
    assert_eq!(utility.to_string().parse().as_ref(), Ok(utility));
    let environment: Vec<_> =
        application.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(environment, [("B", "b"), ("utility", "Gbit; penalty 20 100 0.00075")]);
}

#[test]
fn a_table_of_responses_reaches_the_environment() {
    let row = "throughput = 44200.0, sent = 0.25, received = 0, latency = 1.5e-3, jitter = 3e-4, p99 = 2e-3";
    let bundle = load(&format!(
        "inherit = [\"sub/base.toml\"]\n\
         --- sub/base.toml\nname = \"a\"\nprogram = \"p\"\nresponses = \"table.toml\"\n\
         --- sub/table.toml\n[[load]]\nresponse = [{{ batching_delay = 0, {row} }}]\n"
    ));
    assert_eq!(bundle.applications[0].environment["responses"], "0 44200 0.25 0 0.0015 0.0003 0.002");
}

#[test]
fn the_papers_contracts_are_there() {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
    for (file, line) in [
        ("penalty.toml", "Gbit; penalty 20 100 0.00075"),
        ("refund.toml", "Gbit; refund 20 10"),
        ("bonus.toml", "Gbit; bonus 20 0.01"),
    ] {
        for name in ["memcached", "nhttpd", "netpipe"] {
            let path = apps.join(name).join(file);
            let bundle = manifest::load(&path).unwrap_or_else(|error| panic!("{error}"));
            let application = &bundle.applications[0];
            assert_eq!(application.name.as_str(), name);
            assert_eq!(application.environment["utility"], line);
        }
    }
}

/// 0.09 $/GB in $/Gbit, over the paper's 1 $/Gbit.
const CLOUD: f64 = 0.01125;

#[test]
fn a_clouds_contracts_are_the_papers_at_a_clouds_price() {
    let apps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps");
    for (name, contract) in ["memcached", "nhttpd", "netpipe"]
        .into_iter()
        .flat_map(|name| ["penalty", "refund", "bonus"].map(|contract| (name, contract)))
    {
        let [paper, cloud] = ["", "-cloud"].map(|place| {
            let path = apps.join(name).join(format!("{contract}{place}.toml"));
            let mut bundle = manifest::load(&path).unwrap_or_else(|error| panic!("{error}"));
            bundle.applications.remove(0).utility.expect("a contract")
        });
        for (mean, jitter) in [(100e-6, 20e-6), (700e-6, 30e-6), (2e-3, 1e-3)] {
            let [paper, cloud] = [&paper, &cloud].map(|utility| revenue(utility, mean, jitter));
            assert!((cloud - CLOUD * paper).abs() <= 1e-12 * paper, "{name} {contract}: {paper} {cloud}");
        }
        let on_time = revenue(&cloud, 100e-6, 20e-6);
        assert!(on_time > 10.0 * CLOUD, "{name} {contract}: on time, a Gbit pays for its way: {on_time}");
    }
}

/// What a Gbit in a second brings at this latency.
fn revenue(utility: &Utility, mean: f64, jitter: f64) -> f64 {
    let [mean, jitter] = [mean, jitter].map(|value| Seconds::new(value).expect("a time"));
    let response = Response {
        throughput: OperationsPerSecond::new(1e5).expect("a rate"),
        answered: GbitPerSecond::new(1.0).expect("a rate"),
        sent: GbitPerSecond::new(1.0).expect("a rate"),
        received: GbitPerSecond::new(0.1).expect("a rate"),
        latency: Latency::new(mean, jitter, mean).expect("a latency"),
    };
    utility.revenue(&response, &Prices::default()).get()
}

#[test]
fn a_contract_is_inherited_as_a_whole() {
    let base = format!("name = \"a\"\nprogram = \"p\"\n{PENALTY}");
    let heir = "inherit = [\"base.toml\"]\n";
    let own = "[utility]\nunit = \"operation\"\nterm = [{ function = \"value\", alpha = 0.5 }]\n";
    let line = |text: &str| load(text).applications[0].utility.as_ref().map(ToString::to_string);
    let [inherited, replaced] =
        [heir.to_owned(), format!("{heir}{own}")].map(|text| line(&format!("{text}--- base.toml\n{base}")));
    assert_eq!(inherited.as_deref(), Some("Gbit; penalty 20 100 0.00075"));
    assert_eq!(replaced.as_deref(), Some("operation; value 0.5"));
}

#[test]
fn one_application_can_be_in_a_bundle_many_times() {
    let bundle = load(
        r#"
name = "a"
program = "p"
arguments = ["one"]
--- bundle.toml
applications = [
    "app.toml",
    { file = "app.toml", name = "b", weight = 7, arguments = ["two", "three"] },
    { file = "app.toml", name = "c", inherit = ["heavy.toml"] },
]
--- heavy.toml
weight = 10_000
name = "unused"
"#,
    );
    let rows: Vec<_> = bundle
        .applications
        .iter()
        .map(|app| (app.name.as_str(), app.weight, app.arguments.len(), app.program.to_string()))
        .collect();
    let p = || "p".to_owned();
    assert_eq!(rows, [("a", 100, 1, p()), ("b", 7, 2, p()), ("c", 10_000, 1, p())]);
    assert_eq!(bundle.programs().len(), 1);
}

#[test]
fn the_same_file_may_be_inherited_on_two_ways() {
    let bundle = load(
        "name = \"a\"\nprogram = \"p\"\ninherit = [\"b.toml\", \"c.toml\"]\n\
         --- b.toml\ninherit = [\"d.toml\"]\n--- c.toml\ninherit = [\"d.toml\"]\n--- d.toml\nweight = 5\n",
    );
    assert_eq!(bundle.applications[0].weight, 5);
}

#[test]
fn arguments_of_the_command_line_replace_those_of_the_first_application() {
    let text = "--- bundle.toml\napplications = [\n{ name = \"a\", program = \"p\", arguments = [\"x\"] },\n\
                { name = \"b\", program = \"p\", arguments = [\"y\"] }]\n";
    let bundle = load(text).with_arguments(&["1".to_owned(), "2".to_owned()]);
    let arguments: Vec<_> = bundle.applications.into_iter().map(|app| app.arguments).collect();
    assert_eq!(arguments, [vec!["1", "2"], vec!["y"]]);
}

#[test]
fn ports_are_read_and_written_alike() {
    for text in ["80:8080", "1:65535/udp", "127.0.0.1:80:80", "[::1]:80:80/udp"] {
        let port: Port = text.parse().expect(text);
        assert_eq!(port.to_string(), text);
    }
    let port: Port = "10.0.0.1:1:2/udp".parse().expect("a port");
    assert_eq!((port.host, port.guest, port.protocol), (1, 2, Protocol::Udp));
    for text in ["", "80", "80:", ":80", "0:80", "80:65536", "+80:80", "80:80/", "a:80:80", "80:80/udp/udp"] {
        text.parse::<Port>().expect_err(text);
    }
}

#[test]
fn sizes_have_binary_units() {
    let good = [("1", 1), ("4KiB", 4096), ("64MiB", 64 << 20), ("2GiB", 2 << 30), ("96M", 96 << 20)];
    assert!(good.iter().all(|(text, bytes)| parse_size(text) == Some(*bytes)));
    for text in ["", "MiB", "1kb", "1 MiB", "-1", "+1", "1.5MiB", "18446744073709551616", "17179869184GiB"] {
        assert_eq!(parse_size(text), None, "{text}");
    }
}

#[test]
fn the_documentation_is_fresh() {
    expect_file!["../../../docs/manifest.md"].assert_eq(&manifest::page());
}

#[test]
fn examples_in_the_documentation_are_right() {
    let page = manifest::page();
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|part| part.split("```").next()).collect();
    let [least, utility, activity, grid, files, variant, bundle] = examples[..] else {
        panic!("seven examples")
    };
    let directory = common::directory(&format!(
        "{least}--- utility.toml\n{utility}--- activity.toml\n{activity}--- grid.toml\n{grid}\
         --- files.toml\n{files}--- variant.toml\n{variant}\
         --- hello/app.toml\n{least}--- bundles/bundle.toml\n{bundle}\
         --- memcached/app.toml\nname = \"memcached\"\nprogram = \"p\"\n"
    ));
    for (file, applications) in [
        ("app.toml", 1),
        ("utility.toml", 1),
        ("activity.toml", 1),
        ("grid.toml", 1),
        ("files.toml", 1),
        ("variant.toml", 1),
        ("bundles", 2),
    ] {
        let bundle = manifest::load(&directory.path().join(file)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(bundle.applications.len(), applications);
    }
}

#[test]
fn whoever_has_a_contract_earns_by_it_where_profit_is_what_counts() {
    let grid = |rest: &str| {
        let text = format!("name = \"a\"\nprogram = \"p\"\n{rest}");
        let directory = common::directory(&text);
        let bundle = manifest::load(directory.path()).unwrap_or_else(|error| panic!("{error}"));
        bundle.applications[0].environment["grid"].clone()
    };
    let contract = "utility = { unit = \"operation\", term = [{ function = \"value\", alpha = 0.1 }] }\n";
    let tenants = |own: &str| {
        format!(
            "[grid.input]\nscheduler = \"profit\"\n\
             [[activity]]\nname = \"gold\"\nport = 80\nweight = 7\n{own}\
             [[activity]]\nname = \"silver\"\nport = 81\nearns = 5\n"
        )
    };
    let at = "at input profit metric=time batching=4 queue=128";
    for (rest, terms) in [
        (tenants(""), "for gold weight=7; for silver earns=5"),
        (tenants(contract), "for gold weight=7 earns=contract; for silver earns=5"),
        // All others pay as the application's users do.
        (
            format!("{contract}{}", tenants("")),
            "for gold weight=7 earns=contract; for silver earns=5; for others earns=contract",
        ),
    ] {
        assert_eq!(grid(&rest), format!("{at}; {terms}"));
    }
    // In a group, its scheduler is what counts.
    let group = "[[grid.group]]\nname = \"team\"\nscheduler = \"profit\"\nmetric = \"bytes\"\nweight = 9\n";
    let grouped = tenants(&format!("{contract}group = \"team\"\n"))
        .replace("\"profit\"\n", &format!("\"fair\"\n{group}"))
        .replace("weight = 7\n", "")
        .replace("earns = 5", "weight = 3");
    assert_eq!(
        grid(&grouped),
        "at input fair metric=time batching=4 queue=128; group team profit metric=bytes weight=9; \
         for gold group=team earns=contract; for silver weight=3"
    );
    assert!(
        !grid(&tenants(contract).replace("profit", "fair").replace("earns = 5\n", "")).contains("contract")
    );
}

#[test]
fn a_directory_of_files_counts_from_the_manifest_that_names_it() {
    let text =
        "name = \"a\"\nprogram = \"p\"\nfiles = \"site\"\n--- heir/app.toml\ninherit = [\"../app.toml\"]\n";
    let directory = common::directory(text);
    for path in ["app.toml", "heir/app.toml"] {
        let bundle = manifest::load(&directory.path().join(path)).unwrap_or_else(|error| panic!("{error}"));
        let files = bundle.applications[0].files.as_ref().expect("it has files");
        let found: Vec<_> = files.mounts.iter().map(|mount| mount.directory.clone()).collect();
        let [found] = found.as_slice() else { panic!("{found:?}") };
        // Only when an image is made does it have to be there.
        assert!(found.ends_with("site") && !found.exists(), "{}", found.display());
        let problem = files.archive().expect_err("absent").to_string();
        assert!(problem.contains("site: no such file or directory"), "{problem}");
    }
    let plain = common::directory("name = \"a\"\nprogram = \"p\"\n");
    let bundle = manifest::load(plain.path()).unwrap_or_else(|error| panic!("{error}"));
    let mount = manifest::Mount { directory: "x".into(), at: "/".into() };
    assert_eq!(bundle.with_files(std::slice::from_ref(&mount)).expect_err("nobody reads files"), mount);
}

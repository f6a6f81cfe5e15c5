//! nom's stack against Linux's over a cable with faults: every byte is right, both ways. How much passes is
//! said beside what passes between two of Linux's, and judged by `nom bench wire`.

use nom_bench::wire::conditions::Conditions;
use nom_bench::wire::load::Load;
use nom_bench::wire::peers::Pair;
use nom_build::Project;
use nom_system_tests::tap_is_possible;
use std::time::Duration;

#[test]
fn every_byte_passes_a_bad_path() {
    if !tap_is_possible("wire") {
        return;
    }
    let project = Project::find().expect("a checkout");
    let mut pairs = [Pair::nom(&project).expect("nom serves"), Pair::linux().expect("a server of Linux's")];
    for point in Conditions::few() {
        for load in Load::ALL {
            let passed = pairs.each_mut().map(|pair| {
                pair.cable.set(point, 7);
                let passed = load.run(&pair.client, Duration::from_secs(1));
                pair.check().expect("it serves on");
                passed.unwrap_or_else(|error| panic!("at {point}: {error:#}"))
            });
            let [nom, linux] = passed;
            println!("{point}, {}: nom {nom:.0}, Linux {linux:.0}, {:.2}", load.name(), nom / linux);
            assert!(nom > 0.0, "nothing came at {point}, {}", load.name());
        }
    }
}

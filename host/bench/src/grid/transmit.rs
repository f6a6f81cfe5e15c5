//! What leaves a web server of three sites: bytes at transmit by weight, though one's pages are four times as
//! long as another's.

use super::measure::Bench;
use super::tenants::{CONTROL_PORT, TENANTS, Told, WARM_UP};
use super::{CONTROL, Variant};
use crate::linux::save;
use crate::record::Unit;
use crate::serve::guests::Provider;
use crate::serve::running::Running;
use crate::serve::{runs, service, tools};
use anyhow::{Result, anyhow};
use std::path::Path;
use std::time::Duration;

/// The experiment, and the scenario of its records.
pub const TRANSMIT: &str = "transmit";
/// The application of its records.
pub const SITES: &str = "nhttpd";

/// Bytes of each site's page: who has the least weight has the longest.
const PAGES: [usize; 3] = [1 << 10, 2 << 10, 4 << 10];
/// Connections of each site's client, each with several requests on its way. Whose pages are short has most:
/// whose queue runs empty while a busy computer's client has yet to ask again gets less than its weight.
const CONNECTIONS: [usize; 3] = [96, 64, 48];

/// Sites are told apart by their paths, and served as requests come.
pub const ALIKE: Variant = Variant {
    system: "nom-told-apart",
    manifest: concat!(
        "[[activity]]\nname = \"gold\"\npath = \"/gold/\"\n",
        "[[activity]]\nname = \"silver\"\npath = \"/silver/\"\n",
        "[[activity]]\nname = \"bronze\"\npath = \"/bronze/\"\n"
    ),
};
/// The same, served by weight in what is sent.
pub const BY_BYTES: Variant = Variant {
    system: "nom",
    manifest: concat!(
        "[grid.input]\nscheduler = \"fair\"\nmetric = \"sent\"\n",
        "[[activity]]\nname = \"gold\"\npath = \"/gold/\"\nweight = 50\n",
        "[[activity]]\nname = \"silver\"\npath = \"/silver/\"\nweight = 33\n",
        "[[activity]]\nname = \"bronze\"\npath = \"/bronze/\"\nweight = 17\n"
    ),
};

/// Writes the sites below a new directory, and what a manifest says of it.
fn sites(directory: &Path) -> Result<String> {
    let root = directory.join("sites");
    std::fs::create_dir_all(&root)?;
    save(&root.join("index.html"), b"<!doctype html><title>Three sites</title>")?;
    for ((tenant, _), bytes) in TENANTS.iter().zip(PAGES) {
        std::fs::create_dir_all(root.join(tenant))?;
        save(&root.join(tenant).join("page.html"), &vec![b'x'; bytes])?;
    }
    // A string of JSON is one of TOML too.
    Ok(format!("files = {}\n", serde_json::to_string(&root)?))
}

impl Bench<'_> {
    /// Whose the bytes were that left, with all asking for more than there is. The machine's image is written
    /// to `images`.
    pub fn transmit(&mut self, variant: Variant, images: &Path) -> Result<()> {
        let Variant { system, manifest } = variant;
        let manifest = [&sites(images)?, CONTROL, manifest].concat();
        let provider = Provider::nom_that(&self.options.project, &service::HTTP, images, system, &manifest)?;
        eprintln!("{system}: bytes at transmit");
        let setting = runs::serving(self.accelerator);
        let running = Running::start(&provider.guest, &service::HTTP, &setting, &[])?;
        for _ in 0..self.options.turns {
            let (before, now) = self.load_sites(&running)?;
            self.push_transmitted(system, &before, &now);
        }
        Ok(())
    }

    /// What the machine tells once all ask, and after the time of a turn.
    fn load_sites(&self, running: &Running) -> Result<(Told, Told)> {
        let (target, namespace, duration) = (running.target(), running.namespace(), self.options.duration);
        // Everybody asks longer than is looked at: wrk counts in whole seconds.
        let longer = duration + WARM_UP + Duration::from_secs(1);
        let ask = move |tenant: &str, connections: usize| {
            let scratch = tempfile::tempdir()?;
            let page = format!("/{tenant}/page.html");
            tools::wrk_page(namespace, scratch.path(), (target, &page), connections, longer)
        };
        std::thread::scope(|scope| {
            let clients: Vec<_> = TENANTS
                .iter()
                .zip(CONNECTIONS)
                .map(|((tenant, _), connections)| scope.spawn(move || ask(tenant, connections)))
                .collect();
            let told = running.inside(|| Told::look(target, CONTROL_PORT, duration));
            for client in clients {
                client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            told
        })
    }

    fn push_transmitted(&mut self, system: &str, before: &Told, now: &Told) {
        let sent = TENANTS.map(|(tenant, _)| now.of(before, "sent_bytes_total", tenant));
        self.push_shares_of((SITES, system, TRANSMIT), sent, before, now);
        for ((tenant, _), sent) in TENANTS.iter().zip(sent) {
            let rate = sent * 8.0 / (now.elapsed_ns(before) * 1e-9);
            self.push_of(SITES, system, TRANSMIT, &format!("sent_{tenant}"), Unit::BitsPerSecond, rate);
        }
    }
}

//! What memcached holds follows its limit, up and down, while it serves.

use nom_proto::prices::Resource;
use nom_provider::{Config, Provider};
use nom_system_tests::{Guest, Iommu, MemcachedClient, Server};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Values of a KiB: 24 MiB of them.
const COUNT: usize = 24 << 10;
const LENGTH: usize = 1024;
const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

struct Client(MemcachedClient);

impl Client {
    fn say(&mut self, command: &str, answer: &str) {
        self.0.send(format!("{command}\r\n").as_bytes());
        assert_eq!(self.0.line(), format!("{answer}\r\n"));
    }

    /// Stores values, each in a frame of its own, as a server of many clients sees them.
    fn store(&mut self, numbers: impl Iterator<Item = usize>) {
        for number in numbers {
            let set = [format!("set {number} 0 0 {LENGTH}\r\n").as_bytes(), &value(number), b"\r\n"].concat();
            self.0.send(&set);
            assert_eq!(self.0.line(), "STORED\r\n");
        }
    }

    /// Whether a value is there; it is the right one.
    fn holds(&mut self, number: usize) -> bool {
        let found = self.0.get(&number.to_string(), LENGTH);
        found.inspect(|bytes| assert!(*bytes == value(number), "the value of {number}")).is_some()
    }

    /// Waits until the machine has so many bytes free, or fewer; whoever waits asks for something.
    fn await_free(&mut self, is_enough: impl Fn(u64) -> bool, what: &str) -> u64 {
        let start = Instant::now();
        loop {
            let free = self.0.stat("nom_free_bytes");
            if is_enough(free) {
                return free;
            }
            assert!(start.elapsed() < PATIENCE, "{what}: {} MiB are free", free / MIB);
            (0..200).for_each(|number| {
                self.holds(number);
            });
        }
    }
}

/// The bytes of a value, others for each.
fn value(number: usize) -> Vec<u8> {
    (0..LENGTH).map(|at| b'a' + ((number * 7 + at * (1 + number % 5)) % 26) as u8).collect()
}

#[test]
fn what_memcached_holds_follows_its_limit() {
    // With an IOMMU, which would stop a device that writes where memory was given back.
    let guest = Guest::app("memcached").memory("128M").iommu(Iommu::Virtio);
    let server = Server::boot(guest.qemu("-global virtio-net-pci.iommu_platform=on"), 11211);
    let mut client = Client(MemcachedClient::new(server.connect()));
    client.say("cache_memlimit 60", "OK");
    let before = client.await_free(|free| free > 60 * MIB, "at first");
    client.store(0..COUNT);
    let full = client.await_free(|free| free + 24 * MIB < before, "after it was filled");
    assert!(before - full > 24 * MIB, "{} MiB for 24 of values", (before - full) / MIB);
    // Of what is used last, every other one: so those that stay lie among others that go.
    (0..COUNT).step_by(5).for_each(|number| assert!(client.holds(number)));

    client.say("cache_memlimit 8", "OK");
    assert_eq!(client.0.stat("limit_maxbytes"), 8 * MIB);
    // Beside 8 MiB of items, what was known of the others is kept, and a MiB of buffers.
    let shrunk = client.await_free(|free| free + 18 * MIB > before, "after the limit fell");
    let held = (0..COUNT).filter(|number| client.holds(*number)).count();
    let last = client.0.stat("nom_free_bytes");
    println!("free: {} KiB, full {}, shrunk {}, {held} values", before >> 10, full >> 10, last >> 10);
    assert!((1000..8000).contains(&held), "{held} values in 8 MiB");

    client.say("cache_memlimit 60", "OK");
    client.store(0..COUNT);
    assert!((0..COUNT).all(|number| client.holds(number)));
    client.await_free(|free| free < shrunk, "it takes memory again");
}

/// memcached with a contract by which a Gbit brings $20, and with memory as a knob, beside `priced`.
fn bundle(directory: &Path, provider: &Provider) -> PathBuf {
    let text = format!(
        "[[applications]]\nfile = \"{ROOT}/apps/memcached/app.toml\"\npeers = [{{ name = \"priced\" }}]\n\
         utility = {{ unit = \"Gbit\", term = [{{ function = \"value\", alpha = 20.0 }}] }}\n\
         environment = {{ knobs = \"memory\", batching_delay = \"0\" }}\n\n\
         [[applications]]\nfile = \"{ROOT}/apps/priced/app.toml\"\n\
         environment = {{ provider = \"10.0.2.2:{}\", network = \"1\", key = \"{}\" }}\n",
        provider.address().port(),
        provider.register("nom", None).expect("a fresh provider").machine_key,
    );
    let path = directory.join("bundle.toml");
    std::fs::write(&path, text).expect("the bundle is written");
    path
}

/// Asks for the first `count` values, and stores those that are not there, until the provider hears that so
/// many bytes of memory are held; returns how many.
fn serve_until(
    client: &mut Client,
    provider: &Provider,
    count: usize,
    is_enough: impl Fn(u64) -> bool,
) -> u64 {
    let start = Instant::now();
    loop {
        for number in 0..count {
            if !client.holds(number) {
                client.store(number..number + 1);
            }
        }
        let statuses = provider.statuses();
        let held = statuses.iter().find(|status| status.application == "memcached");
        let held = held.map(|status| status.memory_bytes);
        if let Some(held) = held.filter(|held| is_enough(*held)) {
            println!("{} KiB are held", held >> 10);
            return held;
        }
        assert!(start.elapsed() < PATIENCE, "{held:?} bytes are held");
    }
}

#[test]
fn what_memcached_holds_follows_the_price_of_memory() {
    let provider = Provider::start(Config::default()).expect("the provider starts");
    let price = |memory| provider.set_prices(&[(Resource::Memory, memory)]).expect("a good price");
    price(1e-3);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = bundle(directory.path(), &provider);
    let second = "virtio-net-pci,disable-legacy=on,netdev=net1,addr=0x10";
    let guest = Guest::bundle(path.to_str().expect("UTF-8")).memory("160M");
    let mut server = Server::boot(guest.qemu("-netdev user,id=net1").device(second), 11211);
    server.vm.wait_for("its prices come by events");
    let mut client = Client(MemcachedClient::new(server.connect()));
    client.store(0..COUNT);
    let full = serve_until(&mut client, &provider, 1000, |held| held > 28 * MIB);
    // A thousand values are all that is asked for now, and what the others take costs more than all brings.
    price(100.0);
    let shrunk = serve_until(&mut client, &provider, 1000, |held| held + 12 * MIB < full);
    let limit = client.0.stat("limit_maxbytes");
    price(1e-3);
    serve_until(&mut client, &provider, COUNT / 3, |held| held > shrunk + 4 * MIB);
    assert!(client.0.stat("limit_maxbytes") > limit);
}

//! Addresses that a machine finds out, tests and defends, against peers that others wrote: QEMU's user-mode
//! network, dnsmasq, radvd, ndisc6 and Linux.

use nom_system_tests::{Guest, Server, Site, Vm};
use std::net::IpAddr;

const ASKED: &str = "tests/system/manifests/address-asked.toml";
const AUTO: &str = "tests/system/manifests/address-auto.toml";
const GIVEN: &str = "tests/system/manifests/address-given.toml";

/// The address that stands behind the last `serves at` on the console.
fn place(vm: &mut Vm) -> IpAddr {
    let console = vm.console();
    let rest = console.rsplit_once("serves at ").expect("it serves").1;
    rest.split_once(',').expect("ports follow").0.parse().expect("an address")
}

#[test]
fn qemus_own_network_lends_an_address() {
    use std::io::{Read, Write};
    let mut server = Server::boot(Guest::bundle(ASKED), 11211);
    server.vm.wait_for("serves at 10.0.2.15,");
    let mut stream = server.connect();
    stream.write_all(b"version\r\n").expect("it is sent");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"VERSION ");
}

/// dnsmasq on the network, with these addresses to lend. Leases are to be renewed after eight seconds.
fn lend(site: &mut Site, from: &str, to: &str) {
    let leases = site.file("leases");
    let options = format!(
        "/usr/sbin/dnsmasq --no-daemon --conf-file=/dev/null --port=0 --interface=tap0 --user=root \
         --no-ping --log-dhcp --dhcp-range={from},{to},2m --dhcp-option=option:T1,8 \
         --dhcp-option=option:router,10.0.2.2 --dhcp-leasefile={} --pid-file=",
        leases.display()
    );
    site.serve(&options, "dnsmasq");
}

#[test]
fn dnsmasq_lends_an_address_to_all_cores_and_renews_it() {
    let Some(mut site) = Site::new("dhcp", 2) else { return };
    lend(&mut site, "10.0.2.50", "10.0.2.60");
    let mut vm = site.boot(Guest::bundle(ASKED).arguments(&["-t", "2"]));
    vm.wait_for("serves at 10.0.2.5");
    vm.wait_for(", on 2 cores");
    let address = place(&mut vm);
    // Which core a connection comes to is the device's choice.
    for _ in 0..16 {
        assert!(site.ask(address).starts_with("VERSION"), "{address}");
    }
    let log = site.wait_for("dnsmasq", "DHCPACK", 2);
    assert_eq!(log.matches("DHCPDISCOVER").count(), 1, "renewed, not asked for anew: {log}");
    assert!(site.ask(address).starts_with("VERSION"));
}

#[test]
fn an_address_that_linux_has_is_declined_and_another_taken() {
    let Some(mut site) = Site::new("declined", 1) else { return };
    site.run("ip address add 10.0.2.50/32 dev tap0");
    lend(&mut site, "10.0.2.50", "10.0.2.51");
    let mut vm = site.boot(Guest::bundle(ASKED));
    vm.wait_for("serves at 10.0.2.51");
    let log = site.wait_for("dnsmasq", "DHCPACK", 1);
    if log.contains("DHCPACK(tap0) 10.0.2.50") {
        assert!(log.contains("DHCPDECLINE(tap0) 10.0.2.50"), "{log}");
        assert!(vm.console().contains("has the address 10.0.2.50, too"), "{}", vm.console());
    }
    assert!(site.ask(place(&mut vm)).starts_with("VERSION"));
}

#[test]
fn radvd_is_heard_and_the_address_is_as_stable_as_its_key() {
    let Some(mut site) = Site::new("radvd", 2) else { return };
    site.run("ip address add fd00:77::1/64 dev tap0 nodad");
    let settings = "interface tap0 { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; \
                    AdvLinkMTU 1400; AdvCurHopLimit 32; prefix fd00:77::/64 { }; RDNSS fd00:77::53 { }; };";
    std::fs::write(site.file("radvd.conf"), settings).expect("it is written");
    let (file, pid) = (site.file("radvd.conf"), site.file("radvd.pid"));
    site.serve(&format!("/usr/sbin/radvd -n -u root -C {} -p {}", file.display(), pid.display()), "radvd");
    let mut places = Vec::new();
    for _ in 0..2 {
        let mut vm = site.boot(Guest::bundle(AUTO).arguments(&["-t", "2"]));
        vm.wait_for("serves at fd00:77:");
        let address = place(&mut vm);
        for _ in 0..8 {
            assert!(site.ask(address).starts_with("VERSION"), "{address}");
        }
        let said = site.run(&format!("ndisc6 {address} tap0"));
        assert!(said.contains("Target link-layer address"), "{said}");
        let said = site.run(&format!("ping -6 -c 1 -W 20 {address}"));
        assert!(said.contains("ttl=255") || said.contains("ttl=32"), "{said}");
        places.push(address);
    }
    assert_eq!(places[0], places[1], "the same key, the same address");
}

#[test]
fn a_given_address_that_linux_has_is_refused_with_the_reason() {
    let Some(site) = Site::new("refused", 1) else { return };
    site.run("ip address add fd00:5::15/64 dev tap0 nodad");
    let mut vm = site.boot(Guest::bundle(GIVEN));
    vm.wait_for("has the address fd00:5::15, too: it was there first");
    let given = "10.0.2.15".parse().expect("an address");
    assert!(site.ask(given).starts_with("VERSION"), "the other address serves on");
    drop(vm);
    site.run("ip address add 10.0.2.15/32 dev tap0");
    let life = site.boot(Guest::app("memcached")).finish();
    life.expect_status(69).expect("has the address 10.0.2.15, too").expect("no address is left");
}

#[test]
fn both_families_are_given_and_groups_are_known_to_linuxs_bridge() {
    let Some(site) = Site::new("groups", 1) else { return };
    let (has_bridge, why) = site.try_run(
        "ip link add br0 type bridge mcast_snooping 1 mcast_querier 1 mcast_query_response_interval 100",
    );
    if !has_bridge {
        println!("skipped: this kernel has no bridge that snoops: {why}");
        return;
    }
    for step in [
        "ip address flush dev tap0",
        "ip link set tap0 master br0",
        "ip link set br0 up",
        "ip address add 10.0.2.2/24 dev br0",
        "ip address add fd00:5::2/64 dev br0 nodad",
    ] {
        site.run(step);
    }
    let vm = site.boot(Guest::bundle(GIVEN));
    for address in ["10.0.2.15", "fd00:5::15"] {
        assert!(site.ask(address.parse().expect("an address")).starts_with("VERSION"), "{address}");
    }
    site.run_until("bridge mdb show", "ff02::1:ff00:15");
    drop(vm);
}

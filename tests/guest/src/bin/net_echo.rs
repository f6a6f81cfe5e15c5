//! Drives a virtio network device: asks the gateway of QEMU's user-mode network for its address, by polling
//! and by interrupts.
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nom_app::alloc::{vec, vec::Vec};
use nom_app::net::{self, DmaBuffer, Options, PairSetup, QueuePair};
use nom_app::port::buffer::Buffers as _;
use nom_app::port::nic::{Head, Nic, Outgoing, Received};
use nom_app::port::world::Idle as _;
use nom_app::{args, board, cores, port, println, time};
use nom_guest_tests::{Check, Failure, expect, expect_that, run};

nom_app::main!(main);

/// How long an answer may take.
const TIMEOUT_NS: u64 = 5_000_000_000;
/// How often the gateway is asked.
const ROUNDS: u16 = 50;
/// The bit by which its interrupts wake the core.
const BIT: u8 = 3;
const OUR_IP: [u8; 4] = [10, 0, 2, 15];
const GATEWAY_IP: [u8; 4] = [10, 0, 2, 2];

fn main() -> u8 {
    run(&[
        ("net-address", address),
        ("net-polling", polling),
        ("net-interrupts", interrupts),
        ("net-cost", cost),
        ("net-cores", all_cores),
    ])
}

fn failed(error: net::Error) -> Failure {
    nom_app::alloc::format!("{error}").into()
}

/// The device, as the arguments say: `split` refuses packed rings.
fn open() -> Result<QueuePair, Failure> {
    let split = args().any(|argument| argument == "split");
    let refused = if split { net::ring_feature::PACKED } else { 0 };
    let mut opened = net::open(net::find()?, &Options { refused, ..Options::default() }).map_err(failed)?;
    let features = opened.device.features();
    let layout = if features & net::ring_feature::PACKED == 0 { "split" } else { "packed" };
    println!("net layout={layout} features={features:#x}");
    expect_that("the link is up", opened.device.is_link_up().map_err(failed)?)?;
    net::start(opened.pairs.remove(0), BIT).map_err(failed)
}

/// An ARP request for the gateway's address (RFC 826).
fn request(mac: [u8; 6]) -> Outgoing<DmaBuffer> {
    let mut head = Head::zeroed(60);
    head[..6].fill(0xff);
    head[6..12].copy_from_slice(&mac);
    head[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    head[22..28].copy_from_slice(&mac);
    head[28..32].copy_from_slice(&OUR_IP);
    head[38..42].copy_from_slice(&GATEWAY_IP);
    Outgoing { head, payload: Default::default(), checksum: None, segmentation: None, tag: None }
}

/// The gateway's Ethernet address, if the frame is its answer.
fn answer(frame: &Received<DmaBuffer>, mac: [u8; 6]) -> Option<[u8; 6]> {
    let bytes: &[u8] = frame.frame.first()?;
    let is_answer = bytes.len() >= 42
        && bytes[..6] == mac
        && bytes[12..22] == [8, 6, 0, 1, 8, 0, 6, 4, 0, 2]
        && bytes[28..32] == GATEWAY_IP;
    is_answer.then(|| bytes[22..28].try_into().ok()).flatten()
}

/// Sends a request.
fn send(pair: &mut QueuePair) -> Check {
    expect_that("there is room", pair.room() > 0)?;
    expect_that("the frame is taken", pair.transmit(&mut request(pair.properties().mac)).is_ok())?;
    pair.kick();
    Ok(())
}

/// Waits for the answer to the request that was sent after `since_ns`; `wait` says how, until a deadline.
fn answered(
    pair: &mut QueuePair,
    since_ns: u64,
    mut wait: impl FnMut(&mut QueuePair, u64),
) -> Result<[u8; 6], Failure> {
    let (mac, deadline) = (pair.properties().mac, since_ns + TIMEOUT_NS);
    while time::now_ns() < deadline {
        wait(pair, deadline);
        while let Some(frame) = pair.receive() {
            if let Some(gateway) = answer(&frame, mac) {
                expect_that("it was received after it was sent", frame.at_ns >= since_ns)?;
                return Ok(gateway);
            }
        }
    }
    Err("the gateway does not answer".into())
}

/// Asks the gateway by polling.
fn ask(pair: &mut QueuePair) -> Result<[u8; 6], Failure> {
    let since = time::now_ns();
    send(pair)?;
    answered(pair, since, |_, _| core::hint::spin_loop())
}

fn show(pair: &QueuePair) {
    for (name, count) in pair.counters().named().filter(|(_, count)| *count > 0) {
        println!("net {name}={count}");
    }
}

fn address() -> Check {
    let mut pair = open()?;
    let properties = pair.properties();
    expect("the address", properties.mac, [0x52, 0x54, 0, 0x12, 0x34, 0x56])?;
    expect("the MTU", properties.mtu, 1500)?;
    let gateway = ask(&mut pair)?;
    println!("net gateway={gateway:02x?}");
    Ok(())
}

fn polling() -> Check {
    let mut pair = open()?;
    for _ in 0..ROUNDS {
        ask(&mut pair)?;
    }
    let counters = pair.counters();
    expect("frames sent", counters.sent_frames, ROUNDS.into())?;
    expect("interrupts", counters.interrupts, 0)?;
    expect_that("each batch was kicked, or the device was looking", {
        counters.kicks + counters.kicks_suppressed == counters.sent_batches
    })?;
    show(&pair);
    Ok(())
}

fn interrupts() -> Check {
    let mut pair = open()?;
    let (mut wakeups, mut idle) = (0, port::Idle);
    for _ in 0..ROUNDS {
        // Armed before anything is sent, so that the answer cannot be there already.
        let since = time::now_ns();
        expect_that("nothing came yet", pair.arm())?;
        send(&mut pair)?;
        answered(&mut pair, since, |_, deadline| {
            let woken = idle.sleep(Some(deadline));
            wakeups += u64::from(woken.interrupts == 1 << BIT);
        })?;
    }
    pair.disarm();
    let counters = pair.counters();
    show(&pair);
    println!("net wakeups={wakeups}");
    expect("interrupts that came due", counters.interrupts, ROUNDS.into())?;
    // QEMU announces the first chain that it uses of each queue, whether that was asked for or not.
    expect_that("each woke the core", (counters.interrupts..=counters.interrupts + 2).contains(&wakeups))?;
    expect("switches to interrupts", counters.switches_to_interrupts, 1)?;
    expect("switches to polling", counters.switches_to_polling, 1)
}

/// Frames that each core has had answered.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Uses every queue pair on a core of its own, sleeping on interrupts there.
fn all_cores() -> Check {
    let cores = board().machine.cores.load(Relaxed) as u16;
    let options = Options { pairs: cores, ..Options::default() };
    let opened = net::open(net::find()?, &options).map_err(failed)?;
    let pairs = opened.pairs.len() as u64;
    println!("net cores={cores} pairs={pairs}");
    if cores == 1 {
        return Ok(());
    }
    let work = |pair: PairSetup| {
        move || {
            if let Err(why) = on_this_core(pair) {
                println!("FAILED net-cores: {why:?}");
            }
        }
    };
    let started = opened.pairs.into_iter().map(|pair| cores::acquire(work(pair)));
    started.collect::<Result<Vec<_>, _>>()?.into_iter().for_each(cores::Core::join);
    expect("frames answered", ANSWERED.load(Relaxed), pairs * u64::from(ROUNDS))
}

fn on_this_core(pair: PairSetup) -> Check {
    let number = pair.number();
    let mut pair = net::start(pair, BIT).map_err(failed)?;
    let mut idle = port::Idle;
    for _ in 0..ROUNDS {
        let since = time::now_ns();
        send(&mut pair)?;
        answered(&mut pair, since, |pair, deadline| {
            if pair.arm() {
                idle.sleep(Some(deadline));
            }
        })?;
        ANSWERED.fetch_add(1, Relaxed);
    }
    let counters = pair.counters();
    println!("net pair={number} received={} interrupts={}", counters.received_frames, counters.interrupts);
    Ok(())
}

/// Frames that are sent and received together.
const BATCH: usize = 32;

/// What a frame costs: in cycles, which are instructions where the machine counts them (`-icount shift=0`).
fn cost() -> Check {
    let mut pair = open()?;
    let value = pair.buffer(&[7; 400]).ok_or("no memory")?;
    for slices in [0, 1, 4] {
        let frames = |pair: &mut QueuePair| -> Vec<_> {
            let one = |_| Outgoing {
                payload: vec![value.clone(); slices].into(),
                ..request(pair.properties().mac)
            };
            (0..BATCH).map(one).collect()
        };
        // The first batch finds cold tables of the translator and pools that are still to grow.
        for warm in [false, true] {
            let mut batch = frames(&mut pair);
            let (before, start) = (pair.counters(), time::cycles());
            let refused = batch.iter_mut().filter_map(|frame| pair.transmit(frame).err()).count();
            let queued = time::cycles();
            pair.kick();
            let kicked = time::cycles();
            expect("frames refused", refused, 0)?;
            let (received, receiving) = receive_batch(&mut pair, before.received_frames)?;
            if warm {
                let each = (queued - start) / BATCH as u64;
                println!("net cost slices={slices} transmit={each} kick={}", kicked - queued);
                println!("net cost received={received} receive={}", receiving / received.max(1));
            }
        }
    }
    Ok(())
}

/// Receives the answers to a batch. Returns how many of them were measured, and the cycles that they took.
fn receive_batch(pair: &mut QueuePair, before: u64) -> Result<(u64, u64), Failure> {
    let deadline = time::now_ns() + TIMEOUT_NS;
    let (mut measured, mut cycles) = (0, 0);
    while pair.counters().received_frames < before + BATCH as u64 {
        expect_that("all are answered", time::now_ns() < deadline)?;
        let start = time::cycles();
        let frame = pair.receive();
        let end = time::cycles();
        if frame.is_some() {
            drop(frame);
            cycles += time::cycles() - end + end - start;
            measured += 1;
        }
    }
    Ok((measured, cycles))
}

#!/usr/bin/env python3
"""Floods a machine while an honest client goes on: `flood.py [--rounds N] [--seconds S] [--rate FRAMES]`.

Each kind of flood runs in turns against the machine and against nobody on the same wire, which costs the
computer the same: the client's requests under the one, divided by those under the other, are what the flood
costs the machine. One line of JSON says that for each kind, and what memory was free after each round.
"""

import argparse
import itertools
import json
import multiprocessing
import random
import socket
import statistics
import time

from scapy.all import ARP, ICMP, IP, TCP, UDP, Ether, IPv6, Raw, conf, fragment
from scapy.layers.inet6 import (ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS, ICMPv6NDOptDstLLAddr,
                                ICMPv6NDOptSrcLLAddr, IPv6ExtHdrFragment)
from scapy.utils6 import in6_mactoifaceid

from honest import PORT, Client

# Whoever has this address is not there.
NOBODY = "02:00:00:00:ee:ee"
# Different frames of a flood, sent in a circle.
VARIETY = 400
# Clients that read nothing, and that write a byte at a time.
SLOW = 100
# How long the machine may take until it has answered what readers take, and what it then writes in a while
# at most: the answer to who asks how much that is.
SETTLING, STILL = 60, 64 << 10


def ethernet(drawn):
    return Ether(src="02:00:00:%02x:%02x:%02x" % tuple(drawn.randrange(256) for _ in range(3)), dst=NOBODY)


def strangers(drawn, nom):
    """A packet from somewhere on the network, to the machine."""
    return ethernet(drawn) / IP(src=f"10.0.2.{drawn.randrange(20, 250)}", dst=nom["ip"])


def machine6(mac):
    return f"fe80::{in6_mactoifaceid(mac).lower()}"


def segments(flags):
    def frames(drawn, nom):
        numbers = {"seq": drawn.getrandbits(32), "ack": drawn.getrandbits(32)}
        ports = {"sport": drawn.randrange(1024, 65536), "dport": PORT}
        return [strangers(drawn, nom) / TCP(flags=flags, **ports, **numbers)]
    return frames


def fragments(drawn, nom):
    """The first of two fragments, whose second never comes; every fourth time over IPv6."""
    if drawn.randrange(4) == 0:
        header = IPv6ExtHdrFragment(id=drawn.getrandbits(32), m=1, offset=drawn.randrange(3) * 70)
        return [ethernet(drawn) / IPv6(src=link_local(drawn), dst=nom["ip6"]) / header / Raw(b"x" * 512)]
    packet = strangers(drawn, nom)
    packet[IP].id = drawn.getrandbits(16)
    return [fragment(packet / UDP(dport=PORT) / Raw(b"x" * 1000), 512)[drawn.randrange(2)]]


def echoes(drawn, nom):
    payload = b"x" * drawn.randrange(1200)
    return [strangers(drawn, nom) / ICMP(type=8, id=drawn.getrandbits(16)) / Raw(payload)]


def questions(drawn, nom):
    sender = f"10.0.2.{drawn.randrange(20, 250)}"
    frame = ethernet(drawn)
    return [frame / ARP(op=drawn.choice([1, 2]), hwsrc=frame.src, psrc=sender, pdst=nom["ip"])]


def link_local(drawn):
    return f"fe80::{drawn.getrandbits(16):x}:{drawn.getrandbits(16):x}"


def neighbours(drawn, nom):
    frame, sender = ethernet(drawn), link_local(drawn)
    head = frame / IPv6(src=sender, dst=nom["ip6"], hlim=255)
    return [head / drawn.choice([
        ICMPv6ND_NS(tgt=nom["ip6"]) / ICMPv6NDOptSrcLLAddr(lladdr=frame.src),
        ICMPv6ND_NA(tgt=sender, O=1) / ICMPv6NDOptDstLLAddr(lladdr=frame.src),
        ICMPv6EchoRequest(data=b"x" * 100),
    ])]


KINDS = {
    "syn": segments("S"), "ack": segments("A"), "rst": segments("R"), "fin": segments("FA"),
    "fragments": fragments, "icmp": echoes, "arp": questions, "nd": neighbours,
}


def hardware_address(nom):
    """The machine's, as Linux has learnt it."""
    socket.create_connection((nom, PORT), 10).close()
    for line in open("/proc/net/arp"):
        if line.startswith(f"{nom} "):
            return line.split()[3]
    raise SystemExit(f"{nom} is no neighbour")


def send(device, frames, rate, stop):
    """Sends frames in a circle, so many a second, until told to stop."""
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind((device, 0))
    begin, sent = time.monotonic(), 0
    for frame in itertools.cycle(frames):
        if sent % 16 == 0:
            if stop.is_set():
                return
            time.sleep(max(0.0, begin + sent / rate - time.monotonic()))
        try:
            wire.send(frame)
        except OSError:
            pass  # A full queue of the device: the machine is behind, and that is what a flood does.
        sent += 1


class Asking(Client):
    """An honest client that counts its answers."""

    def requests(self, seconds):
        """How many requests are answered in so long."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            self.ask()
            count += 1
        return count


def under(client, options, frames):
    """The honest client's requests while `frames` are sent."""
    stop = multiprocessing.Event()
    child = multiprocessing.Process(target=send, args=(options.device, frames, options.rate, stop))
    child.start()
    try:
        return client.requests(options.seconds)
    finally:
        stop.set()
        child.join()


def flood(client, options, kind, mac):
    """The client's requests under a flood of nobody, and of the machine, in each turn."""
    drawn = random.Random(kind)
    nom = {"ip": options.nom, "ip6": machine6(mac)}
    frames = [bytes(frame) for _ in range(VARIETY) for frame in KINDS[kind](drawn, nom)]
    to_machine = [bytes.fromhex(mac.replace(":", "")) + frame[6:] for frame in frames]
    turn = lambda: (under(client, options, frames), under(client, options, to_machine))
    return [turn() for _ in range(options.turns)]


def left(counts):
    """What is left of the client's rate, in the middle of all turns."""
    return round(statistics.median(there / max(1, nobody) for nobody, there in counts), 3)


def slow(client, options):
    """The client's requests without, and with clients that read nothing of what they ask for and clients
    that write a byte at a time, in each turn: they come and go in between, since where the computer runs
    whom drifts over seconds, and is no fault of theirs."""
    return [(alone(client, options), beside_slow(client, options)) for _ in range(options.turns)]


def alone(client, options):
    """The client's requests beside nobody, after as long a rest as beside slow clients."""
    settle(client)
    return client.requests(options.seconds)


def beside_slow(client, options):
    """The client's requests beside slow clients, who have gone afterwards."""
    readers = [socket.create_connection((options.nom, PORT), 10) for _ in range(SLOW)]
    writers = [socket.create_connection((options.nom, PORT), 10) for _ in range(SLOW)]
    for reader in readers:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.setblocking(False)
        try:
            reader.send(b"stats\r\n" * 1000)
        except BlockingIOError:
            pass
    for byte in b"get honest":
        for writer in writers:
            writer.send(bytes([byte]))
    settle(client)
    beset = client.requests(options.seconds)
    for writer in writers:
        writer.settimeout(60)
        writer.sendall(b"\r\n")
        if not writer.recv(100).startswith(b"VALUE honest"):
            raise SystemExit("a slow writer was not answered")
    for other in readers + writers:
        other.close()
    rest(client)
    return beset


def settle(client):
    """Waits until no reader's queue takes more: what they asked is work like other work until then."""
    end, last = time.monotonic() + SETTLING, 0
    while (written := client.stat("bytes_written")) - last > STILL:
        if time.monotonic() > end:
            raise SystemExit(f"readers who do not read are still answered after {SETTLING} seconds")
        last = written
        time.sleep(0.5)


def rest(client):
    """Waits until nobody else is connected."""
    while client.stat("curr_connections") > 1:
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="tap0")
    parser.add_argument("--nom", default="10.0.2.15")
    parser.add_argument("--rounds", type=int, default=1, help="how often all floods come")
    parser.add_argument("--turns", type=int, default=1, help="comparisons a flood; their median counts")
    parser.add_argument("--kinds", default=",".join([*KINDS, "slow"]), help="which floods")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of half a turn")
    parser.add_argument("--rate", type=float, default=2000, help="frames a second")
    options = parser.parse_args()
    conf.verb = 0
    mac = hardware_address(options.nom)
    client = Asking(options.nom)
    kinds = options.kinds.split(",")
    result = {"rate": options.rate, "free_bytes": [], "counts": {kind: [] for kind in kinds}}
    for _ in range(options.rounds):
        for kind in kinds:
            is_slow = kind == "slow"
            result["counts"][kind] += slow(client, options) if is_slow else flood(client, options, kind, mac)
        # Its connections are over, and the machine tells its memory once a second.
        rest(client)
        time.sleep(1.5)
        result["free_bytes"].append(client.stat("nom_free_bytes"))
    result["left"] = {kind: left(counts) for kind, counts in result["counts"].items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()

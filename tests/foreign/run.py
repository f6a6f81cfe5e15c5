#!/usr/bin/env python3
"""Reads tables of stimulus and answer (see README.md) and holds a machine to them, as a peer that is no nom.

Frames are written and read by Scapy, on one end of a TAP device whose other end is the machine's. Each row
has a port or an address of its own; rows run beside each other, as they mostly wait for silence.
"""

import argparse
import concurrent.futures
import pathlib
import queue
import re
import socket
import sys
import threading
import time

from scapy.all import (  # noqa: F401: tables name what they like of it
    ARP, Ether, ICMP, ICMPerror, IP, IPerror, IPv6, Raw, TCP, TCPerror, UDP, conf, fragment, fragment6,
)
from scapy.layers import inet, inet6
from scapy.pton_ntop import inet_ntop, inet_pton
from scapy.utils6 import in6_getnsma, in6_mactoifaceid
from scapy.layers.inet6 import *  # noqa: F401,F403

# How long an answer may take on a busy computer, and how long nothing must come where none is due: longer
# than an acknowledgement may be delayed (40 ms), shorter than the first retransmission (200 ms) mostly is.
PATIENCE_S = 5.0
SILENCE_S = 0.15
# The first of the ports of which each row of TCP has one of its own.
FIRST_PORT = 20000
# Rows at a time; each has an address of its own.
WORKERS = 12



class Wrong(Exception):
    """What the machine did is not what the row says."""


class Wire:
    """The TAP device: sends frames, and hands what comes to the peers that it concerns."""

    def __init__(self, device):
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind((device, 0))
        self.peers = []
        threading.Thread(target=self.receive, daemon=True).start()

    def send(self, frame):
        self.socket.send(bytes(frame))

    def receive(self):
        while True:
            data, address = self.socket.recvfrom(1 << 17)
            if address[2] == socket.PACKET_OUTGOING:
                continue
            frame = Ether(data)
            for peer in list(self.peers):
                peer.take(frame)


class Peer:
    """One host on the wire, with addresses of its own, and what has come for it."""

    def __init__(self, wire, number):
        self.wire = wire
        self.mac = f"02:00:00:00:01:{number:02x}"
        self.ip = f"10.0.2.{100 + number}"
        self.ip6 = f"fe80::1:{number:x}"
        self.came = queue.Queue()
        # Whether somebody else (a router, say) answers for the neighbours of this peer.
        self.is_answering = True
        wire.peers.append(self)

    def take(self, frame):
        multicast = int(frame.dst[:2], 16) & 1
        if frame.dst != self.mac and not multicast:
            return
        if self.is_answering and self.answer_neighbour(frame):
            return
        self.came.put(frame)

    def answer_neighbour(self, frame):
        """Says where this peer is, if that is asked."""
        if ARP in frame and frame[ARP].op == 1 and frame[ARP].pdst == self.ip:
            reply = ARP(op=2, hwsrc=self.mac, psrc=self.ip, hwdst=frame[ARP].hwsrc, pdst=frame[ARP].psrc)
            self.wire.send(Ether(src=self.mac, dst=frame.src) / reply)
            return True
        if inet6.ICMPv6ND_NS in frame and frame[inet6.ICMPv6ND_NS].tgt == self.ip6:
            option = inet6.ICMPv6NDOptDstLLAddr(lladdr=self.mac)
            advert = inet6.ICMPv6ND_NA(tgt=self.ip6, R=0, S=1, O=1) / option
            packet = IPv6(src=self.ip6, dst=frame[IPv6].src, hlim=255) / advert
            self.wire.send(Ether(src=self.mac, dst=frame.src) / packet)
            return True
        return False

    def forget(self):
        """What came for rows before is of no interest."""
        self.is_answering = True
        while not self.came.empty():
            self.came.get_nowait()

    def next(self, seconds):
        """The next frame that comes within so long; none if none does."""
        try:
            return self.came.get(timeout=max(seconds, 0.001))
        except queue.Empty:
            return None


class Nom:
    """The machine's addresses, as it says them."""

    def __init__(self, wire, ip):
        self.ip = ip
        peer = Peer(wire, 99)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            question = ARP(op=1, hwsrc=peer.mac, psrc=peer.ip, pdst=ip)
            wire.send(Ether(src=peer.mac, dst="ff:ff:ff:ff:ff:ff") / question)
            frame = peer.next(1)
            if frame is not None and ARP in frame and frame[ARP].psrc == ip:
                break
        else:
            raise Wrong(f"{ip} answers no ARP request")
        wire.peers.remove(peer)
        self.mac = frame[ARP].hwsrc
        self.ip6 = f"fe80::{in6_mactoifaceid(self.mac).lower()}"
        self.group = inet_ntop(socket.AF_INET6, in6_getnsma(inet_pton(socket.AF_INET6, self.ip6)))


# ---------------------------------------------------------------------------------------------------------
# TCP: segments relative to where the two sides are.

SEGMENT = re.compile(r"^(?P<flags>[SAFRPU]+|-)(?P<rest>(\s.*)?)$")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')
LETTERS = {"F": 0x01, "S": 0x02, "R": 0x04, "P": 0x08, "A": 0x10, "U": 0x20}


def text(word):
    return word[1:-1].encode().decode("unicode_escape").encode("latin-1")


class Connection:
    """The peer's end of one connection: counts what both sides have sent, and believes nothing."""

    def __init__(self, nom, peer, port, own_port):
        self.nom, self.peer, self.port, self.own_port = nom, peer, port, own_port
        self.mine = 0x7FFF_0000 + own_port
        self.theirs = 0
        self.stamp, self.heard_stamp, self.stamps = 1000, 0, False
        self.last, self.seen, self.options = None, set(), []

    def number(self, word, base):
        """`seq+3`, `seq-1`, `ack=0`: relative to the base, or absolute."""
        if word[3] == "=":
            return int(word[4:], 0)
        return (base + int(word[3:], 0)) & 0xFFFF_FFFF

    def send(self, words):
        flags, seq, ack, window, payload, options = words[0], None, self.theirs, 65535, b"", []
        stamp, urgent, in_order = ("S" in flags and None) or self.stamp, 0, True
        stamped = self.stamps
        for word in words[1:]:
            if word.startswith("seq"):
                seq, in_order = self.number(word, self.mine), False
            elif word.startswith("from"):
                self.mine = (self.mine + int(word[4:])) & 0xFFFF_FFFF
            elif word.startswith("ack"):
                ack = self.number(word, self.theirs)
            elif word.startswith("win="):
                window = int(word[4:])
            elif word.startswith("len="):
                payload = b"x" * int(word[4:])
            elif word.startswith('"'):
                payload = text(word)
            elif word.startswith("mss="):
                options.append(("MSS", int(word[4:])))
            elif word.startswith("wscale="):
                options.append(("WScale", int(word[7:])))
            elif word == "sackok":
                options.append(("SAckOK", b""))
            elif word.startswith("ts") and word != "ts":
                stamp, stamped = (self.stamp + int(word[2:])) & 0xFFFF_FFFF, True
            elif word == "ts":
                stamp, stamped, self.stamps = self.stamp, True, True
            elif word == "nots":
                stamped = False
            elif word.startswith("urg="):
                urgent = int(word[4:])
            else:
                raise Wrong(f"`{word}`: expected seq, ack, win, len, mss, wscale, sackok, ts, urg or text")
        bits = 0 if flags == "-" else sum(LETTERS[letter] for letter in flags)
        if stamped:
            options = [("NOP", None), ("NOP", None), ("Timestamp", (stamp, self.heard_stamp))] + options
            if "R" not in flags and in_order:
                self.stamp = stamp
        seq = self.mine if seq is None else seq
        ports = {"sport": self.own_port, "dport": self.port}
        segment = TCP(**ports, seq=seq, ack=ack if bits & 0x10 else 0, flags=bits, window=window,
                      options=options, urgptr=urgent)
        length = len(payload) + bool(bits & 2) + bool(bits & 1)
        self.last = {"seq": seq, "ack": ack, "end": (seq + length) & 0xFFFF_FFFF}
        if in_order:
            self.mine = (self.mine + length) & 0xFFFF_FFFF
        packet = IP(src=self.peer.ip, dst=self.nom.ip) / segment
        packet = packet / payload if payload else packet
        self.peer.wire.send(Ether(src=self.peer.mac, dst=self.nom.mac) / packet)

    def icmp(self, words):
        """`icmp 3/4 mtu=600 seq-1`: an error about the segment of the machine's that begins there."""
        kind, code = (int(part) for part in words[1].split("/"))
        seq, mtu, port = self.theirs, 0, self.own_port
        for word in words[2:]:
            if word.startswith("seq"):
                seq = self.number(word, self.theirs)
            elif word.startswith("mtu="):
                mtu = int(word[4:])
            elif word.startswith("port+"):
                port += int(word[5:])
            else:
                raise Wrong(f"`{word}`: expected seq, mtu or port")
        quoted = TCP(sport=self.port, dport=port, seq=seq, flags="A")
        quote = IP(src=self.nom.ip, dst=self.peer.ip, len=1500) / quoted
        error = IP(src=self.peer.ip, dst=self.nom.ip) / ICMP(type=kind, code=code, nexthopmtu=mtu)
        self.peer.wire.send(Ether(src=self.peer.mac, dst=self.nom.mac) / error / bytes(quote)[:28])

    def next(self, seconds):
        """The next segment of this connection, none if none comes in time."""
        end = time.monotonic() + seconds
        while True:
            frame = self.peer.next(end - time.monotonic())
            if frame is None:
                return None
            if TCP not in frame or IP not in frame:
                continue
            if frame[TCP].dport == self.own_port and frame[TCP].sport == self.port:
                return frame[IP]

    def describe(self, packet):
        segment, payload = packet[TCP], self.payload(packet)
        relative = lambda value, base: (value - base + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000
        ack = f" ack{relative(segment.ack, self.mine):+}" if segment.flags & 0x10 else ""
        seq = f" seq{relative(segment.seq, self.theirs):+}"
        return f"{segment.flags}{seq}{ack} len={len(payload)} win={segment.window} {segment.options}"

    @staticmethod
    def payload(packet):
        length = packet.len - 4 * packet.ihl - 4 * packet[TCP].dataofs
        return bytes(packet[TCP].payload)[:length]

    def note(self, packet):
        """Counts what came in order; says whether it came before."""
        segment = packet[TCP]
        length = len(self.payload(packet)) + bool(segment.flags & 2) + bool(segment.flags & 1)
        key = (segment.seq, length)
        again = length > 0 and key in self.seen
        if length:
            self.seen.add(key)
        if segment.flags & 2:
            self.theirs = segment.seq
        if segment.seq == self.theirs:
            self.theirs = (self.theirs + length) & 0xFFFF_FFFF
        for name, value in segment.options:
            if name == "Timestamp":
                self.heard_stamp = value[0]
        self.options = segment.options
        return again

    def expect(self, words):
        """Waits for an answer and compares it."""
        while True:
            packet = self.next(PATIENCE_S)
            if packet is None:
                raise Wrong(f"nothing came, expected {' '.join(words)}")
            before, said = (self.mine, self.theirs), self.describe(packet)
            again = self.note(packet)
            why = self.differs(packet, words, before)
            if why is None:
                return
            # What is sent again since we say nothing to it is no answer.
            if not again:
                raise Wrong(f"{said}: {why}, expected {' '.join(words)}")

    def differs(self, packet, words, before):
        mine, theirs = before
        segment, payload = packet[TCP], self.payload(packet)
        flags = set(str(segment.flags)) - {"P"}
        if flags != set(words[0]) - {"P"}:
            return "other flags"
        # A SYN has any number, and who acknowledges nothing has none.
        expected = {"seq": None if segment.flags & 2 else theirs}
        expected["ack"] = mine if segment.flags & 0x10 else None
        for word in words[1:]:
            name = word[:3]
            if word in ("seq=seg.ack", "ack=seg.end"):
                expected[name] = self.last[word[-3:]]
            elif name in expected:
                expected[name] = self.number(word, theirs if name == "seq" else mine)
            elif word.startswith('"'):
                if not payload.startswith(text(word)):
                    return f"payload {payload[:40]}"
            elif word.startswith("len<="):
                if not 0 < len(payload) <= int(word[5:]):
                    return f"{len(payload)} bytes of payload"
            elif word.startswith("len="):
                if len(payload) != int(word[4:]):
                    return f"{len(payload)} bytes of payload"
            elif word.startswith("win="):
                if segment.window != int(word[4:]):
                    return f"window {segment.window}"
            elif not self.has_option(segment, word):
                return f"options {segment.options}"
        for name, value in expected.items():
            if value is not None and getattr(segment, name) != value:
                return f"other {name}"
        return None

    def has_option(self, segment, word):
        options = dict(segment.options)
        match word:
            case "ts":
                return "Timestamp" in options and options["Timestamp"][1] == self.stamp
            case "nots":
                return "Timestamp" not in options
            case "wscale":
                return "WScale" in options
            case "nowscale":
                return "WScale" not in options
            case "sackok":
                return "SAckOK" in options
            case "nosackok":
                return "SAckOK" not in options
            case "mss":
                return "MSS" in options
            case "sack":
                return "SAck" in options
            case "nosack":
                return "SAck" not in options
            case "nosack":
                return "SAck" not in options
        raise Wrong(f"`{word}`: expected seq, ack, win, len, text or an option")

    def silence(self):
        """Nothing new may come for a while."""
        end = time.monotonic() + SILENCE_S
        while (packet := self.next(end - time.monotonic())) is not None:
            said = self.describe(packet)
            if not self.note(packet):
                raise Wrong(f"{said}: expected nothing")

    @staticmethod
    def missing():
        raise Wrong("nothing came, expected a retransmission")

    def step(self, line):
        """One line of a script: `> ...` goes to the machine, `< ...` comes from it."""
        words = WORD.findall(line[1:])
        if line.startswith(">") and words[0] == "icmp":
            self.icmp(words)
        elif line.startswith(">"):
            self.send(words)
        elif words == ["nothing"]:
            self.silence()
        elif words == ["again"]:
            # What was not acknowledged comes again; until it does so once more there is some time.
            while not self.note(self.next(PATIENCE_S) or self.missing()):
                pass
        else:
            self.expect(words)


# ---------------------------------------------------------------------------------------------------------
# Packets as Scapy writes them: what an answer's pattern says must be so, what it leaves out may be anything.


def matches(pattern, packet):
    """Whether `packet` has each layer of `pattern`, with each field that is given there."""
    layer = pattern
    while layer and layer.__class__.__name__ != "NoPayload":
        kind = layer.__class__
        if isinstance(layer, Raw):
            if not bytes(packet).rstrip(b"\0").endswith(layer.load.rstrip(b"\0")):
                return False
        elif kind not in packet:
            return False
        else:
            found = packet[kind]
            for name, value in layer.fields.items():
                if getattr(found, name) != value:
                    return False
        layer = layer.payload
    return True


def run_packets(nom, peer, lines, number):
    """Lines of Scapy's packets, sent and awaited."""
    names = dict(globals(), me=peer.ip, me6=peer.ip6, mac=peer.mac, nom=nom.ip, nom6=nom.ip6, nommac=nom.mac,
                 group=nom.group, number=number)
    peer_mac = peer.mac

    def framed(packet):
        if Ether in packet:
            return packet
        kind = {IP: nom.mac, IPv6: nom.mac, ARP: "ff:ff:ff:ff:ff:ff"}[packet.__class__]
        if IPv6 in packet and packet[IPv6].dst.startswith("ff02:"):
            groups = packet[IPv6].dst
            kind = inet6.in6_getnsmac(socket.inet_pton(socket.AF_INET6, groups))
        return Ether(src=peer_mac, dst=kind) / packet

    for line in lines:
        body = line[1:].strip()
        if line.startswith(">"):
            sent = eval(body, names)  # noqa: S307: the tables are the project's own
            for packet in sent if isinstance(sent, list) else [sent]:
                peer.wire.send(framed(packet))
        elif line.startswith("!"):
            # `! deaf`: from here on the peer does not answer for its neighbours by itself.
            if body == "deaf":
                peer.is_answering = False
            elif body != "alone":
                raise Wrong(f"`{body}`: expected deaf or alone")
        elif body.startswith("nothing"):
            # `nothing but X` allows X any number of times, `nothing like X` forbids X to all, too.
            words = body.split(" ", 2)
            pattern = eval(words[2], names) if len(words) > 2 else None
            end = time.monotonic() + SILENCE_S
            while (frame := peer.next(end - time.monotonic())) is not None:
                is_like = pattern is not None and matches(pattern, frame)
                if is_like != ("but" in words) and (is_like or concerns(frame, peer)):
                    raise Wrong(f"{frame.summary()}: expected {body}")
        else:
            pattern, end = eval(body, names), time.monotonic() + PATIENCE_S
            while True:
                frame = peer.next(end - time.monotonic())
                if frame is None:
                    raise Wrong(f"nothing came, expected {body}")
                if matches(pattern, frame):
                    break
                if concerns(frame, peer):
                    raise Wrong(f"{frame.summary()}: expected {body}")


def concerns(frame, peer):
    """What is sent to all may be another row's, or the machine's own business; and a segment may be the
    retransmission for a row of TCP that is over."""
    is_over = TCP in frame and frame[TCP].dport >= FIRST_PORT
    return frame.dst == peer.mac and not is_over


# ---------------------------------------------------------------------------------------------------------
# Tables.


class Row:
    def __init__(self, place, name, kind, lines):
        self.place, self.name, self.kind, self.lines = place, name, kind, lines


class Table:
    """A file: states and probes of TCP, rows of columns, and blocks of packets."""

    def __init__(self, path):
        self.path, self.port, self.rows = path, 11211, []
        self.scripts = {}
        block = None
        for number, line in enumerate(path.read_text().splitlines(), 1):
            place = f"{path.name}:{number}"
            if not line.strip() or line.startswith("#"):
                continue
            if line[0] in " \t":
                block.append(line.strip())
            elif line.startswith("state ") or line.startswith("probe "):
                block = self.scripts.setdefault(line.split()[1], [])
            elif line.startswith("row "):
                block = []
                self.rows.append(Row(place, line[4:], "packets", block))
            elif line.count("|") == 4:
                self.rows.append(self.columns(place, *(part.strip() for part in line.split("|"))))
            else:
                raise SystemExit(f"{place}: `{line}`: expected state, probe, row, or five columns")

    def columns(self, place, state, stimulus, answer, then, why):
        """`STATE | stimuli | answers | probe | source and reason`"""
        steps = [f"> {part.strip()}" for part in stimulus.split(";")]
        steps += [f"< {part.strip()}" for part in answer.split(";")]
        lines = [f"@{state}"] + steps + ([f"@{then}"] if then else [])
        return Row(place, f"{state}: {stimulus} ({why})", "tcp", lines)

    def expand(self, lines):
        """A script's lines, with the scripts that it names in their place."""
        for line in lines:
            if not line.startswith("@"):
                yield line
            elif line[1:] in self.scripts:
                yield from self.expand(self.scripts[line[1:]])
            else:
                raise Wrong(f"no state or probe `{line[1:]}` in {self.path.name}")


def run_row(table, row, nom, peer, number):
    peer.forget()
    lines = list(table.expand(row.lines))
    if row.kind == "packets":
        return run_packets(nom, peer, lines, number)
    port = table.port
    if lines and lines[0].startswith("port "):
        port, lines = int(lines[0][5:]), lines[1:]
    connection = Connection(nom, peer, port, FIRST_PORT + number)
    for line in lines:
        connection.step(line)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="tap0", help="the TAP device")
    parser.add_argument("--nom", default="10.0.2.15", help="the machine's IPv4 address")
    parser.add_argument("--only", default="", help="rows whose place or name contains this")
    parser.add_argument("tables", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    conf.verb = 0
    wire = Wire(options.device)
    nom = Nom(wire, options.nom)
    tables = [Table(path) for path in options.tables]
    rows = [(table, row) for table in tables for row in table.rows]
    rows = [(table, row) for table, row in rows if options.only in f"{row.place} {row.name}"]
    peers = queue.Queue()
    for number in range(WORKERS):
        peers.put(Peer(wire, number))

    def attempt(job):
        number, (table, row) = job
        peer = peers.get()
        try:
            run_row(table, row, nom, peer, number)
        except Wrong as wrong:
            return f"{row.place}: {row.name}\n    {wrong}"
        except Exception as error:  # noqa: BLE001: a row that cannot be read is a failure like another
            return f"{row.place}: {row.name}\n    {type(error).__name__}: {error}"
        finally:
            peers.put(peer)
        return None

    jobs = list(enumerate(rows))
    alone = [job for job in jobs if "! alone" in job[1][1].lines]
    together = [job for job in jobs if job not in alone]
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        wrong = [job for job, failure in zip(together, pool.map(attempt, together)) if failure]
    wrong += [job for job in alone if attempt(job)]
    # By itself once more: a retransmission may have come when an answer was due, and carried it.
    failures = [failure for number, row in wrong if (failure := attempt((number + len(rows), row)))]
    assert FIRST_PORT + 2 * len(rows) < 1 << 16, "too many rows for a port each"
    for failure in failures:
        print(failure)
    print(f"{len(wrong)} rows were tried twice")
    print(f"{len(rows) - len(failures)} of {len(rows)} rows")
    sys.exit(1 if failures or not rows else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Crowds of clients around a memcached, or with `--http` an nhttpd: `crowd.py [--clients N] [--rounds N]`.

Each round so many clients connect and say nothing, some more are refused, all go; then others connect, ask
once and go, so many a second. Beside them an honest client asks on. One line of JSON says what became of
them, how often the honest client was answered in a second without the crowd and beside it, and how much
memory was free before the first round and after each. Needs `-c` one above the clients; nhttpd forgets who
says nothing for a minute, so that with it nobody is refused for sure: `--beyond 0`.
"""

import argparse
import errno
import itertools
import json
import multiprocessing
import selectors
import socket
import struct
import subprocess
import time

from honest import ANSWER, PATIENCE, PORT, QUESTION, Browser, Client

# Attempts of a process that are under way at a time.
AHEAD = 40
RESET = struct.pack("ii", 1, 0)


class Memcached(Client):
    """What the crowd knows of a memcached."""

    PORT, QUESTION = PORT, QUESTION
    REFUSAL = b"ERROR Too many open connections\r\n"

    @staticmethod
    def is_open(said):
        """Whether more has to come of an answer."""
        return said != ANSWER and ANSWER.startswith(said)

    @staticmethod
    def is_answer(said):
        return said == ANSWER


class Nhttpd(Browser):
    """What it knows of an nhttpd."""

    REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\n"

    @staticmethod
    def is_open(said):
        return not said.endswith(b"\r\n\r\n")

    @staticmethod
    def is_answer(said):
        return said.startswith(b"HTTP/1.1 200 OK\r\n") and said.endswith(b"\r\n\r\n")


class Asking:
    """Has an honest client ask on."""

    def requests(self, seconds):
        """How many requests are answered in so long."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            self.ask()
            count += 1
        return count

    def until(self, condition):
        """Asks on until `condition`, and says how often it was answered."""
        end = time.monotonic() + PATIENCE
        for count in itertools.count(1):
            self.ask()
            if condition():
                return count
            if time.monotonic() > end:
                raise SystemExit(f"nothing came of it: {self.stat('curr_connections')} connections are open")


class AskingMemcached(Asking, Memcached):
    """An honest client of a memcached that asks on."""


class AskingNhttpd(Asking, Nhttpd):
    """An honest client of an nhttpd that asks on."""


def begin(source, nom, port):
    """An attempt to connect."""
    attempt = socket.socket()
    attempt.setblocking(False)
    attempt.bind((source, 0))
    if attempt.connect_ex((nom, port)) not in (0, errno.EINPROGRESS):
        raise SystemExit(f"{source} cannot connect")
    return attempt


def arrive(source, nom, port, count):
    """So many connections, opened side by side; and the attempts that failed."""
    watch, clients, failed, begun = selectors.DefaultSelector(), [], 0, 0
    while len(clients) + failed < count:
        while begun < count and begun - len(clients) - failed < AHEAD:
            watch.register(begin(source, nom, port), selectors.EVENT_WRITE)
            begun += 1
        for key, _ in watch.select(PATIENCE):
            watch.unregister(key.fileobj)
            if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                failed += 1
            else:
                clients.append(key.fileobj)
    return clients, failed


def crowd(kind, source, nom, count, pipe):
    """A process with a part of the crowd, which does as it is told."""
    clients = []
    while (order := pipe.recv()) != "end":
        if order == "arrive":
            clients, failed = arrive(source, nom, kind.PORT, count)
            pipe.send(failed)
        elif order == "go":
            for client in clients:
                client.close()
            clients = []
            pipe.send(0)
        else:
            pipe.send(visits(kind, source, nom, *order))


def visit(kind, source, nom):
    """Connects, asks, hears the answer and goes, every other time without a farewell."""
    with socket.socket() as one:
        one.settimeout(PATIENCE)
        one.bind((source, 0))
        one.connect((nom, kind.PORT))
        one.sendall(kind.QUESTION)
        said = one.recv(1000)
        while said and kind.is_open(said) and (more := one.recv(1000)):
            said += more
        if one.fileno() % 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return kind.is_answer(said)


def visits(kind, source, nom, rate, seconds):
    """Visits for so long, at most so many a second: those that were answered, and those that were not."""
    start, answered, failed = time.monotonic(), 0, 0
    while (passed := time.monotonic() - start) < seconds:
        time.sleep(max(0.0, (answered + failed) / rate - passed))
        try:
            is_answered = visit(kind, source, nom)
        except OSError:
            is_answered = False
        answered, failed = answered + is_answered, failed + (not is_answered)
    return answered, failed


def is_refused(kind, nom):
    """Whether one is told that it is one too many, or, where places are short, reset without a word."""
    try:
        with socket.create_connection((nom, kind.PORT), PATIENCE) as other:
            return b"".join(iter(lambda: other.recv(100), b"")).startswith(kind.REFUSAL)
    except ConnectionResetError:
        return True


class Crowd:
    """All of its processes."""

    def __init__(self, options):
        device = ["dev", options.device]
        # Who has lost the last word of a handshake by cookies, and says nothing, is nobody's client: no frame
        # is to be lost on this computer.
        subprocess.run(["ip", "link", "set", *device, "txqueuelen", "10000"], check=True)
        self.pipes = []
        for number in range(options.processes):
            source = f"10.0.2.{100 + number}"
            subprocess.run(["ip", "address", "replace", f"{source}/24", *device], check=True)
            pipe, other = multiprocessing.Pipe()
            part = (options.clients * (number + 1)) // options.processes
            part -= (options.clients * number) // options.processes
            about = (options.kind, source, options.nom, part, other)
            multiprocessing.Process(target=crowd, args=about, daemon=True).start()
            self.pipes.append(pipe)

    def all(self, order, client):
        """Has all do it, while the honest client asks on: what they say, and how often it was answered."""
        for pipe in self.pipes:
            pipe.send(order)
        honest = client.until(lambda: all(pipe.poll() for pipe in self.pipes))
        return [pipe.recv() for pipe in self.pipes], honest


def settle(client, options, connections):
    """Waits until so many are open. nhttpd's count is of its stack, which has others, too."""
    end = time.monotonic() + PATIENCE
    if options.http and connections > 1:
        return
    more = 1000 if options.http else 0
    while not connections <= (there := client.stat("curr_connections")) <= connections + more:
        if time.monotonic() > end:
            raise SystemExit(f"{there} connections are open instead of {connections}")
        time.sleep(0.1)


def free(client):
    """Memory is told once a second, and given back by pieces."""
    time.sleep(3.5)
    return client.stat("nom_free_bytes")


def one_round(options, client, everybody):
    alone = client.requests(1)
    failed, honest = everybody.all("arrive", client)
    settle(client, options, options.clients + 1)
    crowded = client.requests(1)
    # Whoever asks an nhttpd's control port now comes last, and is remembered for a minute with the room of
    # all who came before.
    refused, counted, low = 0, 0, 0
    if not options.http:
        before = client.stat("rejected_connections")
        refused = sum(is_refused(options.kind, options.nom) for _ in range(options.beyond))
        counted = client.stat("rejected_connections") - before
        low = free(client)
    _, leaving = everybody.all("go", client)
    settle(client, options, 1)
    start = time.monotonic()
    order = (options.rate / options.processes, options.seconds)
    visited, beside = everybody.all(order, client)
    passed = time.monotonic() - start
    settle(client, options, 1)
    answered = sum(answered for answered, _ in visited)
    return {
        "failed": sum(failed), "refused": refused, "counted": counted, "honest": [honest, leaving, beside],
        "unanswered": sum(failed for _, failed in visited), "visits_per_second": round(answered / passed),
        "crowded_free_bytes": low, "free_bytes": free(client), "alone": alone, "crowded": crowded,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="tap0")
    parser.add_argument("--nom", default="10.0.2.15")
    parser.add_argument("--clients", type=int, default=50000, help="who connect and say nothing")
    parser.add_argument("--processes", type=int, default=8, help="each with an address of its own")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=10000, help="connections a second that ask and go")
    parser.add_argument("--seconds", type=float, default=3, help="how long they come")
    parser.add_argument("--beyond", type=int, default=200, help="who connect then, and are refused")
    parser.add_argument("--http", action="store_true", help="around an nhttpd")
    options = parser.parse_args()
    options.kind = Nhttpd if options.http else Memcached
    client = (AskingNhttpd if options.http else AskingMemcached)(options.nom)
    everybody = Crowd(options)
    result = {"beyond": options.beyond, "free_bytes": free(client)}
    result["rounds"] = [one_round(options, client, everybody) for _ in range(options.rounds)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()

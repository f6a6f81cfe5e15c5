#!/usr/bin/env python3
"""Crowds of clients around a memcached: `crowd.py [--clients N] [--rounds N] [--rate CONNECTIONS]`.

Each round so many clients connect and say nothing, some more are refused, all go; then others connect, ask
once and go, so many a second. Beside them an honest client asks on. One line of JSON says what became of
them, and how much memory was free before the first round and after each. Needs `-c` one above the clients.
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

from honest import ANSWER, PATIENCE, PORT, QUESTION, Client

REFUSAL = b"ERROR Too many open connections\r\n"
# Attempts of a process that are under way at a time.
AHEAD = 40
# Clients beyond `-c`.
BEYOND = 200
RESET = struct.pack("ii", 1, 0)


class Asking(Client):
    """An honest client that asks on until something comes of it."""

    def until(self, condition):
        """Asks on until `condition`, and says how often it was answered."""
        end = time.monotonic() + PATIENCE
        for count in itertools.count(1):
            self.ask()
            if condition():
                return count
            if time.monotonic() > end:
                raise SystemExit(f"nothing came of it: {self.stat('curr_connections')} connections are open")


def begin(source, nom):
    """An attempt to connect."""
    attempt = socket.socket()
    attempt.setblocking(False)
    attempt.bind((source, 0))
    if attempt.connect_ex((nom, PORT)) not in (0, errno.EINPROGRESS):
        raise SystemExit(f"{source} cannot connect")
    return attempt


def arrive(source, nom, count):
    """So many connections, opened side by side; and the attempts that failed."""
    watch, clients, failed, begun = selectors.DefaultSelector(), [], 0, 0
    while len(clients) + failed < count:
        while begun < count and begun - len(clients) - failed < AHEAD:
            watch.register(begin(source, nom), selectors.EVENT_WRITE)
            begun += 1
        for key, _ in watch.select(PATIENCE):
            watch.unregister(key.fileobj)
            if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                failed += 1
            else:
                clients.append(key.fileobj)
    return clients, failed


def crowd(source, nom, count, pipe):
    """A process with a part of the crowd, which does as it is told."""
    clients = []
    while (order := pipe.recv()) != "end":
        if order == "arrive":
            clients, failed = arrive(source, nom, count)
            pipe.send(failed)
        elif order == "go":
            for client in clients:
                client.close()
            clients = []
            pipe.send(0)
        else:
            pipe.send(visits(source, nom, *order))


def visit(source, nom):
    """Connects, asks, hears the answer and goes, every other time without a farewell."""
    with socket.socket() as one:
        one.settimeout(PATIENCE)
        one.bind((source, 0))
        one.connect((nom, PORT))
        one.sendall(QUESTION)
        said = one.recv(100)
        while said and said != ANSWER and ANSWER.startswith(said):
            said += one.recv(100)
        if one.fileno() % 2:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return said == ANSWER


def visits(source, nom, rate, seconds):
    """Visits for so long, at most so many a second: those that were answered, and those that were not."""
    start, answered, failed = time.monotonic(), 0, 0
    while (passed := time.monotonic() - start) < seconds:
        time.sleep(max(0.0, (answered + failed) / rate - passed))
        try:
            is_answered = visit(source, nom)
        except OSError:
            is_answered = False
        answered, failed = answered + is_answered, failed + (not is_answered)
    return answered, failed


def is_refused(nom):
    """Whether one is told that it is one too many, or, where places are short, reset without a word."""
    try:
        with socket.create_connection((nom, PORT), PATIENCE) as other:
            return b"".join(iter(lambda: other.recv(100), b"")) == REFUSAL
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
            about = (source, options.nom, part, other)
            multiprocessing.Process(target=crowd, args=about, daemon=True).start()
            self.pipes.append(pipe)

    def all(self, order, client):
        """Has all do it, while the honest client asks on: what they say, and how often it was answered."""
        for pipe in self.pipes:
            pipe.send(order)
        honest = client.until(lambda: all(pipe.poll() for pipe in self.pipes))
        return [pipe.recv() for pipe in self.pipes], honest


def settle(client, connections):
    """Waits until so many are open."""
    end = time.monotonic() + PATIENCE
    while (there := client.stat("curr_connections")) != connections:
        if time.monotonic() > end:
            raise SystemExit(f"{there} connections are open instead of {connections}")
        time.sleep(0.1)


def free(client):
    """Memory is told once a second, and given back by pieces."""
    time.sleep(3.5)
    return client.stat("nom_free_bytes")


def one_round(options, client, everybody):
    failed, honest = everybody.all("arrive", client)
    settle(client, options.clients + 1)
    before = client.stat("rejected_connections")
    refused = sum(is_refused(options.nom) for _ in range(BEYOND))
    counted = client.stat("rejected_connections") - before
    low = free(client)
    _, leaving = everybody.all("go", client)
    settle(client, 1)
    start = time.monotonic()
    order = (options.rate / options.processes, options.seconds)
    visited, beside = everybody.all(order, client)
    passed = time.monotonic() - start
    settle(client, 1)
    answered = sum(answered for answered, _ in visited)
    return {
        "failed": sum(failed), "refused": refused, "counted": counted, "honest": [honest, leaving, beside],
        "unanswered": sum(failed for _, failed in visited), "visits_per_second": round(answered / passed),
        "crowded_free_bytes": low, "free_bytes": free(client),
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
    options = parser.parse_args()
    client = Asking(options.nom)
    everybody = Crowd(options)
    result = {"beyond": BEYOND, "free_bytes": free(client)}
    result["rounds"] = [one_round(options, client, everybody) for _ in range(options.rounds)]
    print(json.dumps(result))


if __name__ == "__main__":
    main()

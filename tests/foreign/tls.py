#!/usr/bin/env python3
"""Clients of a TLS front, by OpenSSL: `tls.py --root FILE` and four ports.

`--front` and `--store-front` are ports of proxies, `--web` and `--store` those of what is behind them: an
HTTP server with `/` and `/long.txt`, and a memcached. One line of JSON says what became of each attempt.
"""

import argparse
import concurrent.futures
import json
import socket
import ssl

PATIENCE = 60
CLIENTS = 8
VALUE = bytes(range(256)) * 400


def connect(port):
    """A connection in the clear."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def shake_hands(port, root, most=None):
    """One in TLS, for which `root` vouches."""
    context = ssl.create_default_context(cafile=root)
    if most:
        context.minimum_version = context.maximum_version = most
    return context.wrap_socket(connect(port), server_hostname="localhost")


def read_all(stream):
    """What comes until the end."""
    pieces = []
    while piece := stream.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def get(stream, path):
    """The body that a server answers."""
    stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    return read_all(stream).split(b"\r\n\r\n", 1)[1]


def store(stream, key):
    """Whether a value comes back that was stored, both larger than a record."""
    stream.sendall(b"set %s 0 0 %d\r\n%s\r\nget %s\r\nquit\r\n" % (key, len(VALUE), VALUE, key))
    return read_all(stream) == b"STORED\r\nVALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(VALUE), VALUE)


def refusal(attempt):
    """How an attempt ends that is to fail."""
    try:
        attempt()
    except ssl.SSLError as error:
        return error.reason
    return "none"


def noise(port):
    """What a client is told that speaks no TLS."""
    stream = connect(port)
    stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
    return read_all(stream).hex()


def main():
    """Makes all attempts."""
    parser = argparse.ArgumentParser()
    for name in ["front", "store-front", "web", "store"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--root", required=True)
    options = parser.parse_args()
    front, root = options.front, options.root
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        pages = [pool.submit(lambda: get(shake_hands(front, root), "/long.txt")) for _ in range(CLIENTS)]
        kept = [
            pool.submit(lambda key=key: store(shake_hands(options.store_front, root), b"key%d" % key))
            for key in range(CLIENTS)
        ]
        long = get(connect(options.web), "/long.txt")
        said = {
            "version": shake_hands(front, root).version(),
            "same": sum(page.result() == long for page in pages),
            "bytes": len(long),
            "stored": sum(one.result() for one in kept),
            "clear": store(connect(options.store), b"clear"),
            "older": refusal(lambda: shake_hands(front, root, ssl.TLSVersion.TLSv1_2)),
            "stranger": refusal(lambda: shake_hands(front, None)),
            "noise": noise(front),
        }
    print(json.dumps(said))


main()

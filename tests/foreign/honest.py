"""An honest client of a memcached, beside whom others flood and crowd it."""

import socket

PORT = 11211
# How long anything but the connection may take.
PATIENCE = 60
QUESTION, ANSWER = b"get honest\r\n", b"VALUE honest 0 5\r\nvalue\r\nEND\r\n"


class Client:
    """Who asks honestly, and checks each answer."""

    def __init__(self, nom):
        self.socket = socket.create_connection((nom, PORT), 10)
        self.socket.settimeout(PATIENCE)
        self.ask(b"set honest 0 0 5\r\nvalue\r\n", b"STORED\r\n")

    def ask(self, question=QUESTION, answer=ANSWER):
        self.socket.sendall(question)
        said = b""
        while len(said) < len(answer):
            piece = self.socket.recv(65536)
            if not piece:
                raise SystemExit(f"the honest client's connection ended after {said!r}")
            said += piece
        if said != answer:
            raise SystemExit(f"the honest client was told {said!r} instead of {answer!r}")

    def stat(self, name):
        self.socket.sendall(b"stats\r\n")
        said = b""
        while not said.endswith(b"END\r\n"):
            said += self.socket.recv(65536)
        return int(said.split(b"STAT " + name.encode() + b" ")[1].split(b"\r\n")[0])

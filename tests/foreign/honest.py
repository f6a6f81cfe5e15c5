"""Honest clients of a memcached and of an nhttpd, beside whom others flood and crowd it."""

import socket
import urllib.request

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


class Browser:
    """The same of an nhttpd, whose control port tells numbers."""

    PORT, CONTROL = 80, 9999
    QUESTION = b"HEAD / HTTP/1.1\r\nHost: nom\r\n\r\n"
    # Where the pages of its metrics have what memcached calls otherwise.
    METRICS = {"curr_connections": "nom_connections", "nom_free_bytes": "nhttpd_free_bytes"}

    def __init__(self, nom):
        self.nom = nom
        self.socket = socket.create_connection((nom, self.PORT), 10)
        self.socket.settimeout(PATIENCE)
        self.ask()

    def ask(self):
        self.socket.sendall(self.QUESTION)
        said = b""
        while not said.endswith(b"\r\n\r\n"):
            piece = self.socket.recv(65536)
            if not piece:
                raise SystemExit(f"the honest client's connection ended after {said!r}")
            said += piece
        if not said.startswith(b"HTTP/1.1 200 OK\r\n"):
            raise SystemExit(f"the honest client was told {said!r} instead of a page's head")

    def stat(self, name):
        with urllib.request.urlopen(f"http://{self.nom}:{self.CONTROL}/metrics", timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(self.METRICS[name] + " "))

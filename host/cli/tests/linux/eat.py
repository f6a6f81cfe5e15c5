# Waits until memcached beside it has a value `go`, then takes all memory.
import socket
import time


def is_asked():
    with socket.create_connection(("127.0.0.1", 11211)) as connection:
        connection.sendall(b"get go\r\n")
        return b"VALUE" in connection.recv(100)


while not is_asked():
    time.sleep(0.05)
taken = []
while True:
    taken.append(b"x" * (1 << 20))

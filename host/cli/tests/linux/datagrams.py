"""Sends datagrams back, their bytes in reverse. To `whole` it answers with the name of the error that a long
datagram is refused with that is not to be cut."""
import errno
import socket

IP_MTU_DISCOVER, IP_PMTUDISC_WANT, IP_PMTUDISC_DO = 10, 1, 2


def refusal(server, peer):
    server.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    try:
        server.sendto(bytes(1473), peer)
        return b"none"
    except OSError as error:
        return errno.errorcode[error.errno].encode()
    finally:
        server.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_WANT)


with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
    server.bind(("", 7))
    while True:
        question, peer = server.recvfrom(65535)
        server.sendto(refusal(server, peer) if question == b"whole" else question[::-1], peer)

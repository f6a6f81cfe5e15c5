/* Queues of errors (MSG_ERRQUEUE): datagrams that nobody takes, and sends without a copy. What is seen is printed, a
 * line that begins with "= ", and compared with Linux. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "say.h"

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

typedef union {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
} address;

static address loopback(int domain, int port) {
	address at = {0};
	at.any.sa_family = domain;
	if (domain == AF_INET)
		at.v4.sin_port = htons(port), at.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		at.v6.sin6_port = htons(port), at.v6.sin6_addr = in6addr_loopback;
	return at;
}

static void say_extended(int domain, struct cmsghdr *head) {
	struct sock_extended_err *told = (void *)CMSG_DATA(head);
	say("level", head->cmsg_level), say("type", head->cmsg_type), say("length", head->cmsg_len);
	say("error", told->ee_errno), say("origin", told->ee_origin);
	say("its type", told->ee_type), say("its code", told->ee_code);
	say("info", told->ee_info), say("data", told->ee_data);
	address *by = (void *)SO_EE_OFFENDER(told);
	if (told->ee_origin == SO_EE_ORIGIN_ZEROCOPY)
		return;
	say("of", by->any.sa_family);
	if (domain == AF_INET)
		say("says so", ntohl(by->v4.sin_addr.s_addr)), say("no port", by->v4.sin_port);
	else
		say("says so", by->v6.sin6_addr.s6_addr[15]), say("no port", by->v6.sin6_port);
}

static void receive(int descriptor, int domain, size_t room) {
	char bytes[64] = "", control[256];
	address from = {0};
	struct iovec piece = {bytes, room};
	struct msghdr message = {&from, sizeof from, &piece, 1, control, sizeof control, 0};
	struct pollfd asked = {descriptor, POLLOUT, 0};
	poll(&asked, 1, 0);
	say("ready", asked.revents);
	long count = recvmsg(descriptor, &message, MSG_ERRQUEUE);
	say("received", count);
	if (count < 0)
		return;
	say("first byte", bytes[0]), say("flags", message.msg_flags), say("name", message.msg_namelen);
	if (message.msg_namelen > 0)
		say("to", domain == AF_INET ? ntohs(from.v4.sin_port) == 9 : ntohs(from.v6.sin6_port) == 9);
	for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head))
		say_extended(domain, head);
}

static int error_of(int descriptor) {
	int error = -1;
	getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error});
	return error;
}

/* A socket that is not connected. */
static void refused(int domain) {
	int client = socket(domain, SOCK_DGRAM, 0), on = 1;
	int level = domain == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
	int option = domain == AF_INET ? IP_RECVERR : IPV6_RECVERR;
	address nobody = loopback(domain, 9), other = loopback(domain, 10);
	socklen_t len = domain == AF_INET ? sizeof nobody.v4 : sizeof nobody.v6;
	say("to nobody", sendto(client, "x", 1, 0, &nobody.any, len));
	say("no error", error_of(client));
	receive(client, domain, 64);
	say("reports", setsockopt(client, level, option, &on, sizeof on));
	say("to nobody", sendto(client, "abc", 3, 0, &nobody.any, len));
	say("again is refused", sendto(client, "y", 1, 0, &other.any, len));
	say("then not", sendto(client, "longer", 6, 0, &nobody.any, len));
	receive(client, domain, 64);
	receive(client, domain, 4);
	receive(client, domain, 64);
	say("no error", error_of(client));
	say("to nobody", sendto(client, "abc", 3, 0, &nobody.any, len));
	say("the error", error_of(client)), say("once", error_of(client));
	receive(client, domain, 64);
	close(client);
}

static void connected(void) {
	int client = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	address nobody = loopback(AF_INET, 9);
	setsockopt(client, IPPROTO_IP, IP_RECVERR, &on, sizeof on);
	connect(client, &nobody.any, sizeof nobody.v4);
	say("to nobody", send(client, "x", 1, 0));
	char byte;
	say("refused", recv(client, &byte, 1, MSG_DONTWAIT));
	receive(client, AF_INET, 64);
	say("nothing more", recv(client, &byte, 1, MSG_DONTWAIT));
	close(client);
}

static void wait_for_error(int descriptor) {
	struct pollfd asked = {descriptor, 0, 0};
	say("told", poll(&asked, 1, 5000)), say("by", asked.revents);
}

static void without_copy(void) {
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	address at = loopback(AF_INET, 0);
	bind(listener, &at.any, sizeof at.v4), listen(listener, 1);
	getsockname(listener, &at.any, &(socklen_t){sizeof at.v4});
	connect(client, &at.any, sizeof at.v4);
	int server = accept(listener, NULL, NULL);
	char bytes[3000] = "abc";
	say("without asking", send(client, bytes, 3, MSG_ZEROCOPY));
	say("is received", recv(server, bytes, 3, MSG_WAITALL));
	receive(client, AF_INET, 0);
	int bad = 7;
	say("no such value", setsockopt(client, SOL_SOCKET, SO_ZEROCOPY, &bad, sizeof bad));
	say("asked for", setsockopt(client, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
	for (int i = 0; i < 3; i++) {
		say("sent", send(client, bytes, sizeof bytes, MSG_ZEROCOPY));
		say("is received", recv(server, bytes, sizeof bytes, MSG_WAITALL));
	}
	wait_for_error(client);
	usleep(20000);
	receive(client, AF_INET, 0);
	say("plain ones", send(client, bytes, 5, 0)), say("are not told", recv(server, bytes, 5, MSG_WAITALL));
	receive(client, AF_INET, 0);
	say("one more", send(client, bytes, 5, MSG_ZEROCOPY)), say("received", recv(server, bytes, 5, MSG_WAITALL));
	wait_for_error(client);
	receive(client, AF_INET, 0);
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	say("not of local ones", setsockopt(pair[0], SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
}

int main(void) {
	setvbuf(stdout, NULL, _IONBF, 0);
	refused(AF_INET);
	refused(AF_INET6);
	connected();
	without_copy();
	return 0;
}

/* Sends datagrams whose headers say how they are to be treated, and prints what comes of that and of their times;
 * compared as calls.c is. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

static void set(int fd, const char *what, int level, int name, int value) {
	say(what, setsockopt(fd, level, name, &value, sizeof value));
}

static void tell(int fd, const char *what, int level, int name) {
	int value = -1;
	socklen_t len = sizeof value;
	say(what, getsockopt(fd, level, name, &value, &len));
	say(what, value);
}

/* Whether a time of so many units a second is within ten seconds of now. */
static int is_now(const void *data, long units) {
	long told[2];
	memcpy(told, data, sizeof told);
	long late = time(NULL) - told[0];
	return late >= -1 && late < 10 && told[1] >= 0 && told[1] < units;
}

static void receive(const char *what, int fd, size_t room) {
	union {
		char room[512];
		struct cmsghdr head;
	} control;
	char bytes[64];
	struct iovec piece = {bytes, sizeof bytes};
	struct msghdr message = {NULL, 0, &piece, 1, &control, room, 0};
	long count = recvmsg(fd, &message, MSG_DONTWAIT);
	say(what, count);
	if (count < 0)
		return;
	printf("= flags %x control %lu\n", message.msg_flags, (unsigned long)message.msg_controllen);
	for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
		size_t len = one->cmsg_len - CMSG_LEN(0);
		int value = 0;
		memcpy(&value, CMSG_DATA(one), len < sizeof value ? len : sizeof value);
		/* Ports are by chance. */
		if (one->cmsg_level == IPPROTO_IP ? one->cmsg_type == IP_ORIGDSTADDR : one->cmsg_type == IPV6_ORIGDSTADDR)
			value &= 0xffff;
		if (one->cmsg_level == SOL_SOCKET)
			value = len >= 16 && is_now(CMSG_DATA(one), one->cmsg_type == SO_TIMESTAMP ? 1000000 : 1000000000);
		printf("= level %d kind %d bytes %zu says %d\n", one->cmsg_level, one->cmsg_type, len, value);
	}
	fflush(stdout);
}

/* Sends with up to two marks of its own; a mark of no bytes is left out. */
struct mark {
	int level, name, value;
	size_t len;
};

static void send_with(const char *what, int fd, const void *to, socklen_t to_len, struct mark a, struct mark b) {
	union {
		char room[128];
		struct cmsghdr head;
	} control;
	struct mark marks[] = {a, b};
	struct iovec piece = {"hello", 5};
	struct msghdr message = {(void *)to, to_len, &piece, 1, &control, sizeof control, 0};
	memset(&control, 0, sizeof control);
	size_t used = 0;
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	for (int i = 0; i < 2; i++) {
		if (!marks[i].len)
			continue;
		one->cmsg_level = marks[i].level, one->cmsg_type = marks[i].name;
		one->cmsg_len = CMSG_LEN(marks[i].len);
		memcpy(CMSG_DATA(one), &marks[i].value, marks[i].len);
		used += CMSG_SPACE(marks[i].len);
		one = CMSG_NXTHDR(&message, one);
	}
	message.msg_controllen = used;
	if (!used)
		message.msg_control = NULL;
	say(what, sendmsg(fd, &message, 0));
}

static const struct mark none = {0};

/* How a family calls what its headers say, and what asks for that. */
struct names {
	int level, want_hops, want_class, hops, class;
};

/* Both marks are wanted; those of a socket come, and none at first. */
static void of_sockets(int server, int client, const void *at, socklen_t len, const struct names *names) {
	set(server, "hops are wanted", names->level, names->want_hops, 1);
	set(server, "class is wanted", names->level, names->want_class, 1);
	tell(server, "told", names->level, names->want_hops);
	tell(server, "told", names->level, names->want_class);
	send_with("plain", client, at, len, none, none);
	receive("both", server, 512);
	set(client, "few hops", names->level, names->hops, 3);
	set(client, "class", names->level, names->class, 0xb8);
	send_with("by the socket", client, at, len, none, none);
	receive("both", server, 512);
}

static void four(void) {
	int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	socklen_t len = sizeof at;
	bind(server, (void *)&at, sizeof at);
	getsockname(server, (void *)&at, &len);
	send_with("plain", client, &at, len, none, none);
	receive("nothing is wanted", server, 512);
	of_sockets(server, client, &at, len, &(struct names){IPPROTO_IP, IP_RECVTTL, IP_RECVTOS, IP_TTL, IP_TOS});
	struct mark hops = {IPPROTO_IP, IP_TTL, 9, 4}, service = {IPPROTO_IP, IP_TOS, 2, 4};
	send_with("by the message", client, &at, len, hops, service);
	receive("both", server, 512);
	service.len = 1, service.value = 1;
	send_with("one of them, a byte", client, &at, len, service, none);
	receive("both", server, 512);
	receive("nothing", server, 512);
	for (int value = -1; value < 258; value += value == 1 ? 254 : 1) {
		hops.value = service.value = value, service.len = 4;
		send_with("hops", client, &at, len, hops, none);
		send_with("service", client, &at, len, service, none);
	}
	hops.len = 2;
	send_with("half a number", client, &at, len, hops, none);
	set(server, "an address is wanted", IPPROTO_IP, IP_PKTINFO, 1);
	set(server, "a time is wanted", SOL_SOCKET, SO_TIMESTAMP, 1);
	tell(server, "told", SOL_SOCKET, SO_TIMESTAMP);
	for (int i = 0; i < 20; i++)
		recv(server, &(char){0}, 1, MSG_DONTWAIT);
	send_with("plain", client, &at, len, none, none);
	receive("all, in order", server, 512);
	set(server, "a finer time", SOL_SOCKET, SO_TIMESTAMPNS, 1);
	tell(server, "told", SOL_SOCKET, SO_TIMESTAMP);
	tell(server, "told", SOL_SOCKET, SO_TIMESTAMPNS);
	send_with("plain", client, &at, len, none, none);
	receive("all, in order", server, 512);
	set(server, "where to is wanted", IPPROTO_IP, IP_RECVORIGDSTADDR, 1);
	tell(server, "told", IPPROTO_IP, IP_RECVORIGDSTADDR);
	send_with("plain", client, &at, len, none, none);
	receive("all, in order", server, 512);
	for (size_t room = 8; room < 170; room += 12) {
		send_with("plain", client, &at, len, none, none);
		receive("as many as there is room for", server, room);
	}
	set(server, "no time", SOL_SOCKET, SO_TIMESTAMPNS, 0);
	tell(server, "told", SOL_SOCKET, SO_TIMESTAMPNS);
	/* Where they are told and not asked for, Linux has them if anybody asked. */
	int stamps[] = {0, SOF_TIMESTAMPING_RX_SOFTWARE, SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE};
	for (int i = 0; i < 3; i++) {
		set(server, "stamps", SOL_SOCKET, SO_TIMESTAMPING, stamps[i]);
		/* Linux begins to stamp what it receives a little later, by work that it puts off. */
		usleep(100000);
		tell(server, "told", SOL_SOCKET, SO_TIMESTAMPING);
		send_with("plain", client, &at, len, none, none);
		receive("with a stamp or not", server, 512);
	}
	set(server, "a time, too", SOL_SOCKET, SO_TIMESTAMPNS, 1);
	send_with("plain", client, &at, len, none, none);
	receive("both", server, 512);
	set(server, "no such stamp", SOL_SOCKET, SO_TIMESTAMPING, 1 << 30);
	set(server, "no time", SOL_SOCKET, SO_TIMESTAMPNS, 0);
	set(server, "no stamps", SOL_SOCKET, SO_TIMESTAMPING, 0);
	set(server, "no hops", IPPROTO_IP, IP_RECVTTL, 0);
	send_with("plain", client, &at, len, none, none);
	receive("what is left", server, 512);
	close(server), close(client);
}

static void six(void) {
	int server = socket(AF_INET6, SOCK_DGRAM, 0), client = socket(AF_INET6, SOCK_DGRAM, 0);
	int old = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in6 at = {.sin6_family = AF_INET6};
	socklen_t len = sizeof at;
	bind(server, (void *)&at, sizeof at);
	getsockname(server, (void *)&at, &len);
	at.sin6_addr = in6addr_loopback;
	of_sockets(server, client, &at, len,
	           &(struct names){IPPROTO_IPV6, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS, IPV6_UNICAST_HOPS, IPV6_TCLASS});
	for (int value = -2; value < 258; value += value == 1 ? 254 : 1) {
		struct mark hops = {IPPROTO_IPV6, IPV6_HOPLIMIT, value, 4};
		struct mark class = {IPPROTO_IPV6, IPV6_TCLASS, value, 4};
		set(client, "class", IPPROTO_IPV6, IPV6_TCLASS, value);
		tell(client, "told", IPPROTO_IPV6, IPV6_TCLASS);
		send_with("hops", client, &at, len, hops, none);
		receive("both", server, 512);
		send_with("class", client, &at, len, class, none);
		receive("both", server, 512);
	}
	set(server, "a time is wanted", SOL_SOCKET, SO_TIMESTAMPNS, 1);
	set(server, "an address is wanted", IPPROTO_IPV6, IPV6_RECVPKTINFO, 1);
	send_with("plain", client, &at, len, none, none);
	receive("all, in order", server, 512);
	set(server, "where to is wanted", IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, 1);
	send_with("plain", client, &at, len, none, none);
	receive("all, in order", server, 512);
	set(server, "those of IPv4", IPPROTO_IP, IP_RECVTTL, 1);
	set(server, "those of IPv4", IPPROTO_IP, IP_RECVTOS, 1);
	struct sockaddr_in four = {AF_INET, at.sin6_port, {htonl(INADDR_LOOPBACK)}, {0}};
	send_with("by IPv4", old, &four, sizeof four, none, none);
	receive("all, in order", server, 512);
	close(server), close(client), close(old);
}

static void devices(void) {
	int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
	char name[16] = "";
	socklen_t len = sizeof name;
	say("of all", getsockopt(server, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
	say("bytes", len);
	say("there is none", setsockopt(server, SOL_SOCKET, SO_BINDTODEVICE, "none", 4));
	say("this machine's", setsockopt(server, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2));
	say("no room", getsockopt(server, SOL_SOCKET, SO_BINDTODEVICE, name, &(socklen_t){15}));
	len = sizeof name;
	say("which", getsockopt(server, SOL_SOCKET, SO_BINDTODEVICE, name, &len));
	printf("= %s of %u bytes\n", name, len);
	tell(server, "its number", SOL_SOCKET, SO_BINDTOIFINDEX);
	struct sockaddr_in at = {.sin_family = AF_INET};
	len = sizeof at;
	bind(server, (void *)&at, sizeof at);
	getsockname(server, (void *)&at, &len);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	set(client, "by its number", SOL_SOCKET, SO_BINDTOIFINDEX, 1);
	set(client, "no number", SOL_SOCKET, SO_BINDTOIFINDEX, -1);
	send_with("within", client, &at, sizeof at, none, none);
	receive("comes", server, 512);
	at.sin_addr.s_addr = htonl(0xc0000201);
	say("without", sendto(client, "hello", 5, 0, (void *)&at, sizeof at));
	say("of all again", setsockopt(server, SOL_SOCKET, SO_BINDTODEVICE, "", 0));
	tell(server, "no number", SOL_SOCKET, SO_BINDTOIFINDEX);
	close(server), close(client);
}

static void segments(void) {
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	socklen_t len = sizeof at;
	tell(client, "before it knows better", IPPROTO_TCP, TCP_MAXSEG);
	bind(listener, (void *)&at, sizeof at);
	getsockname(listener, (void *)&at, &len);
	listen(listener, 1);
	tell(listener, "of who listens", IPPROTO_TCP, TCP_MAXSEG);
	say("connects", connect(client, (void *)&at, sizeof at));
	int most = 0;
	getsockopt(client, IPPROTO_TCP, TCP_MAXSEG, &most, &(socklen_t){sizeof most});
	say("longer now", most > 536);
	close(listener), close(client);
}

int main(void) {
	devices();
	segments();
	four();
	six();
	return 0;
}

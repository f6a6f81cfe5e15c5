/* Sends datagrams, packets in sequence and urgent bytes, and prints what each call said; compared as calls.c is. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

static char bytes[300000];

static void events(const char *what, int fd) {
	struct pollfd polled = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP, 0};
	poll(&polled, 1, 0);
	printf("= %s: events %x\n", what, polled.revents);
	fflush(stdout);
}

static socklen_t named(struct sockaddr_un *at, const char *name) {
	memset(at, 0, sizeof *at);
	at->sun_family = AF_UNIX;
	if (name[0] == '@') {
		strcpy(at->sun_path + 1, name + 1);
		return offsetof(struct sockaddr_un, sun_path) + strlen(name);
	}
	strcpy(at->sun_path, name);
	return sizeof *at;
}

static int bound(int kind, const char *name) {
	struct sockaddr_un at;
	int fd = socket(AF_UNIX, kind, 0);
	socklen_t len = named(&at, name);
	say(name, bind(fd, (void *)&at, len));
	return fd;
}

static void receive(const char *what, int fd, size_t room, int flags) {
	struct sockaddr_un from;
	socklen_t len = sizeof from;
	memset(&from, 0, sizeof from);
	ssize_t count = recvfrom(fd, bytes, room, flags, (void *)&from, &len);
	say(what, count);
	if (count < 0)
		return;
	const char *path = len <= 2 ? "" : from.sun_path[0] ? from.sun_path : from.sun_path + 1;
	printf("= from %u bytes `%.10s` says `%.5s`\n", len, path, count ? bytes : "");
	fflush(stdout);
}

static void local_datagrams(void) {
	struct sockaddr_un server_at, client_at, other_at;
	int server = bound(SOCK_DGRAM, "/tmp/server"), client = bound(SOCK_DGRAM, "@client");
	int again = socket(AF_UNIX, SOCK_DGRAM, 0), nameless = socket(AF_UNIX, SOCK_DGRAM, 0);
	socklen_t server_len = named(&server_at, "/tmp/server"), client_len = named(&client_at, "@client");
	say("an abstract name again", bind(again, (void *)&client_at, client_len));
	say("a path again", bind(again, (void *)&server_at, server_len));
	say("another name", bind(client, (void *)&server_at, server_len));
	say("send to", sendto(client, "hello", 5, 0, (void *)&server_at, server_len));
	receive("look", server, sizeof bytes, MSG_PEEK);
	receive("receive", server, sizeof bytes, 0);
	say("send an empty one", sendto(nameless, "", 0, 0, (void *)&server_at, server_len));
	receive("receive it", server, sizeof bytes, 0);
	receive("receive none", server, sizeof bytes, MSG_DONTWAIT);
	say("answer", sendto(server, "answer", 6, 0, (void *)&client_at, client_len));
	receive("cut", client, 3, 0);
	say("answer again", sendto(server, "answer", 6, 0, (void *)&client_at, client_len));
	int unread = -1;
	say("unread", ioctl(client, FIONREAD, &unread));
	say("bytes", unread);
	receive("cut, and told how long it was", client, 3, MSG_TRUNC);
	say("send without a peer", send(nameless, "x", 1, 0));
	say("name of a peer that is none", getpeername(nameless, (void *)&other_at, &(socklen_t){sizeof other_at}));
	say("listen", listen(server, 1));
	say("accept", accept(server, NULL, NULL));
	socklen_t len = named(&other_at, "/tmp/nothing");
	say("send to nothing", sendto(client, "x", 1, 0, (void *)&other_at, len));
	close(open("/tmp/nothing", O_CREAT, 0600));
	say("send to a file", sendto(client, "x", 1, 0, (void *)&other_at, len));
	len = named(&other_at, "@nobody");
	say("send to a name of nobody", sendto(client, "x", 1, 0, (void *)&other_at, len));
	int stream = bound(SOCK_STREAM, "@stream");
	len = named(&other_at, "@stream");
	say("send to a stream", sendto(client, "x", 1, 0, (void *)&other_at, len));
	say("connect to a stream", connect(client, (void *)&other_at, len));
	say("send too much", sendto(client, bytes, sizeof bytes, 0, (void *)&server_at, server_len));
	say("connect", connect(client, (void *)&server_at, server_len));
	say("send to the peer", send(client, "peer", 4, 0));
	receive("receive it", server, sizeof bytes, 0);
	say("connect back", connect(server, (void *)&client_at, client_len));
	say("a third is not heard", sendto(nameless, "x", 1, 0, (void *)&server_at, server_len));
	say("nor connects", connect(nameless, (void *)&server_at, server_len));
	events("connected", client);
	send(client, "unread", 6, 0);
	close(server);
	events("the peer has gone", client);
	say("send to who has gone", send(client, "x", 1, 0));
	say("and again", send(client, "x", 1, 0));
	say("and again", send(client, "x", 1, 0));
	say("the path is still there", unlink("/tmp/server"));
	say("nobody any more", connect(client, (void *)&(struct sockaddr){AF_UNSPEC}, sizeof(sa_family_t)));
	int any = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct sockaddr_un at = {AF_UNIX};
	say("any name", bind(any, (void *)&at, sizeof(sa_family_t)));
	len = sizeof at;
	getsockname(any, (void *)&at, &len);
	printf("= its length %u, its first byte %d\n", len, at.sun_path[0]);
	say("send to it", sendto(client, "any", 3, 0, (void *)&at, len));
	receive("receive it", any, sizeof bytes, 0);
	close(any);
	close(client);
	close(nameless);
	close(stream);
	close(again);
}

static void full(void) {
	struct sockaddr_un at;
	int server = bound(SOCK_DGRAM, "@full"), client = socket(AF_UNIX, SOCK_DGRAM, 0), sent = 0;
	socklen_t len = named(&at, "@full");
	connect(client, (void *)&at, len);
	while (send(client, "x", 1, MSG_DONTWAIT) == 1)
		sent++;
	say("full", -1);
	say("some were sent", sent > 5);
	events("full", client);
	receive("one", server, 8, 0);
	events("room", client);
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 30; i++)
			send(client, "y", 1, 0);
		_exit(3);
	}
	for (int i = 0; i < 29 + sent; i++)
		recv(server, bytes, 8, 0);
	int status;
	waitpid(child, &status, 0);
	say("who waited for room sent", WEXITSTATUS(status));
	say("shut what is received", shutdown(server, SHUT_RD));
	recv(server, bytes, 8, 0);
	say("send then", send(client, "x", 1, MSG_NOSIGNAL));
	say("shut what is sent", shutdown(client, SHUT_WR));
	say("send then", send(client, "x", 1, MSG_NOSIGNAL));
	close(server);
	close(client);
	int pair[2];
	say("a pair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	say("one way", send(pair[0], "one", 3, 0));
	say("the same way", send(pair[0], "two", 3, 0));
	receive("receive", pair[1], 64, 0);
	receive("receive", pair[1], 64, 0);
	send(pair[1], "lost", 4, 0);
	close(pair[0]);
	receive("who closed had not read all", pair[1], 64, MSG_DONTWAIT);
	receive("then", pair[1], 64, MSG_DONTWAIT);
	say("nor is one there", send(pair[1], "x", 1, 0));
	close(pair[1]);
}

static void packets(void) {
	struct sockaddr_un at;
	int pair[2], listener = bound(SOCK_SEQPACKET, "@packets"), client = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	socklen_t len = named(&at, "@packets");
	say("not yet", connect(client, (void *)&at, len));
	say("listen", listen(listener, 4));
	say("send before", send(client, "x", 1, MSG_NOSIGNAL));
	say("receive before", recv(client, bytes, 1, 0));
	int stream = socket(AF_UNIX, SOCK_STREAM, 0);
	say("a stream does not fit", connect(stream, (void *)&at, len));
	say("connect", connect(client, (void *)&at, len));
	int accepted = accept(listener, NULL, NULL);
	say("accept", accepted >= 0);
	say("first", send(client, "first", 5, 0));
	say("second", send(client, "second", 6, 0));
	say("cut", recv(accepted, bytes, 2, 0));
	say("whole", recv(accepted, bytes, 64, 0));
	say("empty", send(client, "", 0, 0));
	say("it comes", recv(accepted, bytes, 64, 0));
	say("too much", send(client, bytes, sizeof bytes, 0));
	int kind = 0;
	getsockopt(client, SOL_SOCKET, SO_TYPE, &kind, &(socklen_t){sizeof kind});
	say("kind", kind == SOCK_SEQPACKET);
	say("say where", sendto(client, "there", 5, 0, (void *)&at, len));
	send(client, "more", 4, 0);
	struct iovec piece = {bytes, 3};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
	say("message", recvmsg(accepted, &message, 0));
	printf("= flags %x\n", message.msg_flags);
	events("one more", accepted);
	close(accepted);
	events("closed with one unread", client);
	say("reset", recv(client, bytes, 8, MSG_DONTWAIT));
	say("then the end", recv(client, bytes, 8, MSG_DONTWAIT));
	say("send then", send(client, "x", 1, MSG_NOSIGNAL));
	say("a pair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair));
	send(pair[0], "ab", 2, 0);
	say("shut", shutdown(pair[0], SHUT_WR));
	events("shut", pair[1]);
	say("receive", recv(pair[1], bytes, 8, 0));
	say("the end", recv(pair[1], bytes, 8, 0));
	say("no such kind", socketpair(AF_UNIX, SOCK_RDM, 0, pair));
}

/* Descriptors and who sends, along with messages. */
static void passes(int kind) {
	int pair[2], ends[2], on = 1;
	union {
		char room[256];
		struct cmsghdr head;
	} control = {{0}};
	struct iovec piece = {"go", 2};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control};
	say("pair", socketpair(AF_UNIX, kind, 0, pair));
	say("who sends is wanted", setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	pipe(ends);
	control.head = (struct cmsghdr){CMSG_LEN(sizeof *ends), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.head), &ends[1], sizeof *ends);
	message.msg_controllen = CMSG_SPACE(sizeof *ends);
	say("send a descriptor", sendmsg(pair[0], &message, 0));
	close(ends[1]);
	for (int i = 0; i < 2; i++) {
		char text[8];
		struct iovec into = {text, sizeof text};
		struct msghdr got = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
		say("receive", recvmsg(pair[1], &got, i == 0 ? MSG_PEEK : 0));
		printf("= flags %x length %lu\n", got.msg_flags, (unsigned long)got.msg_controllen);
		for (struct cmsghdr *head = CMSG_FIRSTHDR(&got); head; head = CMSG_NXTHDR(&got, head)) {
			printf("= level %d kind %d length %lu\n", head->cmsg_level, head->cmsg_type, (unsigned long)head->cmsg_len);
			struct ucred who;
			int given;
			if (head->cmsg_type == SCM_CREDENTIALS) {
				memcpy(&who, CMSG_DATA(head), sizeof who);
				printf("= own process %d user %d group %d\n", who.pid == getpid(), who.uid, who.gid);
			} else {
				memcpy(&given, CMSG_DATA(head), sizeof given);
				say("write to it", write(given, "yes", 3));
				close(given);
			}
		}
	}
	say("read", read(ends[0], bytes, 64));
	say("nobody writes", read(ends[0], bytes, 64));
	struct ucred self = {getpid(), 0, 0};
	control.head = (struct cmsghdr){CMSG_LEN(sizeof self), SOL_SOCKET, SCM_CREDENTIALS};
	memcpy(CMSG_DATA(&control.head), &self, sizeof self);
	message.msg_controllen = CMSG_SPACE(sizeof self);
	say("say who sends", sendmsg(pair[0], &message, 0));
	self.pid = 99999999;
	memcpy(CMSG_DATA(&control.head), &self, sizeof self);
	say("say somebody who is not there", sendmsg(pair[0], &message, 0));
	struct ucred peer;
	socklen_t len = sizeof peer;
	say("the peer", getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &len));
	printf("= %u bytes, own %d, root %d\n", len, peer.pid == getpid(), peer.uid == 0);
	close(pair[0]);
	close(pair[1]);
	close(ends[0]);
}

/* Two descriptors come to who may have one more. */
static void too_many(void) {
	int ends[2], sent[2] = {1, 2};
	char room[64] = "", byte = 'b';
	struct rlimit before, limit;
	socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
	struct iovec piece = {&byte, 1};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = CMSG_SPACE(sizeof sent)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof sent);
	memcpy(CMSG_DATA(head), sent, sizeof sent);
	say("two", sendmsg(ends[0], &message, 0));
	say("two more", sendmsg(ends[0], &message, 0));
	int next = dup(1);
	close(next);
	getrlimit(RLIMIT_NOFILE, &before);
	limit = before, limit.rlim_cur = next + 1;
	setrlimit(RLIMIT_NOFILE, &limit);
	for (int time = 0; time < 2; time++) {
		memset(room, 0, sizeof room);
		message.msg_controllen = sizeof room;
		say("received", recvmsg(ends[1], &message, 0));
		printf("= flags %x control %ld of %ld\n", message.msg_flags, (long)message.msg_controllen, (long)head->cmsg_len);
	}
	setrlimit(RLIMIT_NOFILE, &before);
	close(next), close(ends[0]), close(ends[1]);
}

static struct sockaddr_in at4(int port) {
	return (struct sockaddr_in){AF_INET, port, {htonl(INADDR_LOOPBACK)}};
}

static int port_of(int fd) {
	struct sockaddr_in6 own;
	getsockname(fd, (void *)&own, &(socklen_t){sizeof own});
	return own.sin6_port;
}

static void udp(void) {
	int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0), other = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in at = at4(0), from, own;
	socklen_t len = sizeof from;
	say("no port yet", port_of(server));
	say("bind", bind(server, (void *)&at, sizeof at));
	say("bind again", bind(server, (void *)&at, sizeof at));
	at.sin_port = port_of(server);
	say("a port", at.sin_port != 0);
	say("taken", bind(other, (void *)&at, sizeof at));
	say("not ours", bind(other, (void *)&(struct sockaddr_in){AF_INET, 0, {htonl(0xc0000201)}}, sizeof at));
	events("new", client);
	say("nothing is there", recv(server, bytes, 8, MSG_DONTWAIT));
	say("send to", sendto(client, "hello", 5, 0, (void *)&at, sizeof at));
	events("one", server);
	say("look", recv(server, bytes, 8, MSG_PEEK));
	int unread = -1;
	say("unread", ioctl(server, FIONREAD, &unread));
	say("bytes", unread);
	say("receive", recvfrom(server, bytes, 8, 0, (void *)&from, &len));
	printf("= length %u, its port %d, loopback %d\n", len, from.sin_port == port_of(client), from.sin_addr.s_addr == at.sin_addr.s_addr);
	say("answer", sendto(server, "answer", 6, 0, (void *)&from, len));
	say("cut, and told how long it was", recv(client, bytes, 2, MSG_TRUNC));
	say("an empty one", sendto(client, "", 0, 0, (void *)&at, sizeof at));
	say("it comes", recv(server, bytes, 8, 0));
	say("the longest", sendto(client, bytes, 65507, 0, (void *)&at, sizeof at));
	say("it comes", recv(server, bytes, sizeof bytes, 0));
	say("longer", sendto(client, bytes, 65508, 0, (void *)&at, sizeof at));
	say("no peer", send(client, "x", 1, 0));
	say("port 0", sendto(client, "x", 1, 0, (void *)&(struct sockaddr_in){AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, sizeof at));
	say("connect", connect(client, (void *)&at, sizeof at));
	len = sizeof own;
	getsockname(client, (void *)&own, &len);
	say("loopback from now on", own.sin_addr.s_addr == at.sin_addr.s_addr);
	say("send", send(client, "peer", 4, 0));
	say("read", read(server, bytes, 8));
	own.sin_port = port_of(client);
	say("another sends", sendto(other, "x", 1, 0, (void *)&own, sizeof own));
	say("which is not heard", recv(client, bytes, 8, MSG_DONTWAIT));
	say("shut nothing", shutdown(server, SHUT_RDWR));
	close(server);
	events("nobody yet", client);
	say("send to nobody", send(client, "x", 1, 0));
	events("refused", client);
	int error = 0;
	say("the error", getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &(socklen_t){sizeof error}));
	say("is", error);
	say("send to nobody", send(client, "x", 1, 0));
	say("told by receiving", recv(client, bytes, 8, 0));
	send(client, "x", 1, 0);
	say("told by sending", send(client, "x", 1, 0));
	say("who is not connected is told nothing", sendto(other, "x", 1, 0, (void *)&at, sizeof at));
	say("nor then", recv(other, bytes, 8, MSG_DONTWAIT));
	say("no peer any more", connect(client, (void *)&(struct sockaddr){AF_UNSPEC}, sizeof(struct sockaddr)));
	say("none", getpeername(client, (void *)&own, &len));
	say("listen", listen(client, 1));
	say("another family", sendto(client, "x", 1, 0, (void *)&(struct sockaddr_in6){AF_INET6, at.sin_port, 0, IN6ADDR_LOOPBACK_INIT}, sizeof(struct sockaddr_in6)));
	close(client);
	close(other);
}

static void shared_ports(void) {
	int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0), on = 1, client = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in at = at4(0);
	say("reuse", setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	say("bind", bind(one, (void *)&at, sizeof at));
	at.sin_port = port_of(one);
	say("without reuse", bind(two, (void *)&at, sizeof at));
	setsockopt(two, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	say("with", bind(two, (void *)&at, sizeof at));
	say("send", sendto(client, "x", 1, 0, (void *)&at, sizeof at));
	say("the first", recv(one, bytes, 8, MSG_DONTWAIT));
	say("the last", recv(two, bytes, 8, MSG_DONTWAIT));
	close(two);
	say("send", sendto(client, "x", 1, 0, (void *)&at, sizeof at));
	say("the first", recv(one, bytes, 8, MSG_DONTWAIT));
	close(one);
	int six = socket(AF_INET6, SOCK_DGRAM, 0), four = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in6 all = {AF_INET6, 0, 0, IN6ADDR_ANY_INIT}, from;
	say("all addresses", bind(six, (void *)&all, sizeof all));
	all.sin6_port = at.sin_port = port_of(six);
	say("of both families", bind(four, (void *)&at, sizeof at));
	say("send by IPv4", sendto(client, "four", 4, 0, (void *)&at, sizeof at));
	socklen_t len = sizeof from;
	say("receive", recvfrom(six, bytes, 8, 0, (void *)&from, &len));
	printf("= length %u mapped %d\n", len, IN6_IS_ADDR_V4MAPPED(&from.sin6_addr));
	int client6 = socket(AF_INET6, SOCK_DGRAM, 0);
	all.sin6_addr = in6addr_loopback;
	say("send by IPv6", sendto(client6, "six", 3, 0, (void *)&all, sizeof all));
	say("receive", recvfrom(six, bytes, 8, 0, (void *)&from, &len));
	say("loopback", IN6_IS_ADDR_LOOPBACK(&from.sin6_addr));
	say("answer", sendto(six, "back", 4, 0, (void *)&from, len));
	say("receive", recv(client6, bytes, 8, 0));
	close(six);
	six = socket(AF_INET6, SOCK_DGRAM, 0);
	setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
	all.sin6_addr = in6addr_any;
	say("of one family", bind(six, (void *)&all, sizeof all));
	say("so that the other is free", bind(four, (void *)&at, sizeof at));
	close(six);
	close(four);
	close(client);
	close(client6);
}

static void where_to(void) {
	int server = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	struct sockaddr_in at = {AF_INET}, from;
	bind(server, (void *)&at, sizeof at);
	say("where to is wanted", setsockopt(server, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
	at = at4(port_of(server));
	sendto(client, "hello", 5, 0, (void *)&at, sizeof at);
	union {
		char room[128];
		struct cmsghdr head;
	} control;
	struct iovec piece = {bytes, 3};
	struct msghdr message = {&from, sizeof from, &piece, 1, &control, sizeof control, 0};
	say("message", recvmsg(server, &message, 0));
	struct in_pktinfo info;
	memcpy(&info, CMSG_DATA(&control.head), sizeof info);
	printf("= flags %x name %u control %lu level %d kind %d index %d to %d %d\n", message.msg_flags, message.msg_namelen,
	       (unsigned long)message.msg_controllen, control.head.cmsg_level, control.head.cmsg_type, info.ipi_ifindex,
	       info.ipi_addr.s_addr == at.sin_addr.s_addr, info.ipi_spec_dst.s_addr == at.sin_addr.s_addr);
	struct iovec texts[3] = {{"a", 1}, {"bc", 2}, {"def", 3}};
	struct mmsghdr many[4] = {{{0}}};
	for (int i = 0; i < 3; i++)
		many[i].msg_hdr = (struct msghdr){&at, sizeof at, &texts[i], 1};
	say("send several", sendmmsg(client, many, 3, 0));
	printf("= lengths %u %u %u\n", many[0].msg_len, many[1].msg_len, many[2].msg_len);
	char rooms[4][8];
	for (int i = 0; i < 4; i++) {
		texts[i % 3] = (struct iovec){rooms[i], 8};
		many[i].msg_hdr = (struct msghdr){NULL, 0, &texts[i % 3], 1};
	}
	say("receive several", recvmmsg(server, many, 4, MSG_WAITFORONE, NULL));
	printf("= lengths %u %u %u\n", many[0].msg_len, many[1].msg_len, many[2].msg_len);
	say("receive none", recvmmsg(server, many, 2, MSG_DONTWAIT, NULL));
	struct timeval limit = {0, 20000}, told;
	say("a limit", setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	say("it is over", recv(server, bytes, 8, 0));
	say("to who reads, too", read(server, bytes, 8));
	getsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &told, &(socklen_t){sizeof told});
	say("told", told.tv_sec == 0 && told.tv_usec == 20000);
	int ttl[] = {-1, 0, 1, 255, 256};
	for (int i = 0; i < 5; i++) {
		say("ttl", setsockopt(server, IPPROTO_IP, IP_TTL, &ttl[i], sizeof on));
		say("of groups", setsockopt(server, IPPROTO_IP, IP_MULTICAST_TTL, &ttl[i], sizeof on));
	}
	say("by a byte", setsockopt(server, IPPROTO_IP, IP_MULTICAST_TTL, &(char){7}, 1));
	getsockopt(server, IPPROTO_IP, IP_MULTICAST_TTL, &on, &(socklen_t){sizeof on});
	say("told", on);
	struct ip_mreq group = {{htonl(0xe0000101)}, {htonl(INADDR_LOOPBACK)}};
	say("join", setsockopt(server, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
	say("join again", setsockopt(server, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
	say("sent by loopback", setsockopt(client, IPPROTO_IP, IP_MULTICAST_IF, &group.imr_interface, sizeof group.imr_interface));
	at.sin_addr = group.imr_multiaddr;
	say("send to all", sendto(client, "all", 3, 0, (void *)&at, sizeof at));
	say("receive", recv(server, bytes, 8, 0));
	say("leave", setsockopt(server, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group));
	say("leave again", setsockopt(server, IPPROTO_IP, IP_DROP_MEMBERSHIP, &group, sizeof group));
	group.imr_multiaddr.s_addr = htonl(INADDR_LOOPBACK);
	say("no group", setsockopt(server, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
	close(server);
	close(client);
}

static void pair_of_tcp(int *ends) {
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = at4(0);
	bind(listener, (void *)&at, sizeof at);
	listen(listener, 5);
	at.sin_port = port_of(listener);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	connect(ends[0], (void *)&at, sizeof at);
	ends[1] = accept(listener, NULL, NULL);
	close(listener);
}

static void urgent(void) {
	int ends[2], on = 1, at_mark = -1;
	pair_of_tcp(ends);
	say("none", recv(ends[1], bytes, 8, MSG_OOB));
	say("send", send(ends[0], "abc", 3, MSG_OOB));
	say("send more", send(ends[0], "de", 2, 0));
	events("urgent", ends[1]);
	say("look", recv(ends[1], bytes, 8, MSG_OOB | MSG_PEEK));
	say("before it", recv(ends[1], bytes, 8, 0));
	say("mark", ioctl(ends[1], SIOCATMARK, &at_mark));
	say("at it", at_mark);
	say("it", recv(ends[1], bytes, 8, MSG_OOB));
	printf("= %c\n", bytes[0]);
	say("it again", recv(ends[1], bytes, 8, MSG_OOB));
	say("behind it", recv(ends[1], bytes, 8, 0));
	printf("= %.2s\n", bytes);
	ioctl(ends[1], SIOCATMARK, &at_mark);
	say("at it", at_mark);
	say("among the others", setsockopt(ends[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
	send(ends[0], "xyz", 3, MSG_OOB);
	say("apart there is none", recv(ends[1], bytes, 8, MSG_OOB));
	say("before it", recv(ends[1], bytes, 8, 0));
	say("it", recv(ends[1], bytes, 8, 0));
	printf("= %c\n", bytes[0]);
	close(ends[0]);
	close(ends[1]);
	pair_of_tcp(ends);
	struct tcp_info info;
	socklen_t len = sizeof info;
	say("information", getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &len));
	say("established", info.tcpi_state);
	send(ends[0], "unread", 6, 0);
	close(ends[1]);
	events("reset", ends[0]);
	say("told", recv(ends[0], bytes, 8, 0));
	say("then the end", recv(ends[0], bytes, 8, 0));
	say("send then", send(ends[0], "x", 1, MSG_NOSIGNAL));
	close(ends[0]);
	pair_of_tcp(ends);
	struct linger none = {1, 0}, told;
	say("no lingering", setsockopt(ends[1], SOL_SOCKET, SO_LINGER, &none, sizeof none));
	getsockopt(ends[1], SOL_SOCKET, SO_LINGER, &told, &(socklen_t){sizeof told});
	printf("= linger %d %d\n", told.l_onoff, told.l_linger);
	send(ends[1], "late", 4, 0);
	close(ends[1]);
	say("what came before", recv(ends[0], bytes, 8, 0));
	say("reset, told by sending", send(ends[0], "x", 1, MSG_NOSIGNAL));
	say("once", send(ends[0], "x", 1, MSG_NOSIGNAL));
	close(ends[0]);
}

static void said_at(const char *what, int fd, int (*name)(int, struct sockaddr *, socklen_t *)) {
	struct sockaddr_in at = {0};
	socklen_t len = sizeof at;
	say(what, name(fd, (struct sockaddr *)&at, &len));
	printf("= %s\n", inet_ntoa(at.sin_addr));
	fflush(stdout);
}

/* A connection from another loopback address than it goes to. */
static void from_another(void) {
	int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = at4(0);
	bind(listener, (struct sockaddr *)&at, sizeof at);
	listen(listener, 1);
	at = at4(port_of(listener));
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000002)};
	say("bound", bind(from, (struct sockaddr *)&own, sizeof own));
	say("connected", connect(from, (struct sockaddr *)&at, sizeof at));
	int to = accept(listener, NULL, NULL);
	said_at("own", from, getsockname), said_at("peer", from, getpeername);
	said_at("there own", to, getsockname), said_at("there peer", to, getpeername);
	close(to), close(from), close(listener);
}

/* Who sends to one that is gone hears of it by the answer. */
static void gone(void) {
	int ends[2];
	char byte;
	signal(SIGPIPE, SIG_IGN);
	pair_of_tcp(ends);
	close(ends[1]);
	usleep(20000);
	say("the end", read(ends[0], &byte, 1));
	events("still there", ends[0]);
	say("into the void", write(ends[0], "x", 1));
	usleep(20000);
	events("heard of it", ends[0]);
	struct sockaddr_in peer;
	socklen_t len = sizeof peer;
	say("nobody is there", getpeername(ends[0], (struct sockaddr *)&peer, &len));
	say("no more", write(ends[0], "y", 1));
	say("the end", read(ends[0], &byte, 1));
	close(ends[0]);
	pair_of_tcp(ends);
	write(ends[0], "unread", 6);
	usleep(20000);
	close(ends[1]);
	usleep(20000);
	events("reset", ends[0]);
	say("nobody is there", getpeername(ends[0], (struct sockaddr *)&peer, &len));
	say("told once", write(ends[0], "x", 1));
	say("no more", write(ends[0], "y", 1));
	say("the end", read(ends[0], &byte, 1));
	close(ends[0]);
	pair_of_tcp(ends);
	shutdown(ends[0], SHUT_WR);
	say("one's own end", write(ends[0], "x", 1));
	close(ends[0]), close(ends[1]);
}

/* Sends so many bytes by one call, with what control data says of how long datagrams are. */
static void send_with(const char *what, int fd, size_t count, int level, int type, const void *data, size_t len) {
	char control[64] = {0};
	struct iovec piece = {bytes, count};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
	message.msg_controllen = sizeof control;
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	*head = (struct cmsghdr){CMSG_LEN(len), level, type};
	memcpy(CMSG_DATA(head), data, len);
	message.msg_controllen = CMSG_SPACE(len);
	say(what, sendmsg(fd, &message, 0));
}

/* Receives all that there is, and prints how long each was and what was told of it. */
static void received(int fd) {
	for (;;) {
		char control[128];
		struct iovec piece = {bytes, sizeof bytes};
		struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control};
		message.msg_controllen = sizeof control;
		ssize_t count = recvmsg(fd, &message, MSG_DONTWAIT);
		if (count < 0)
			break;
		printf("= received %zd\n", count);
		for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head))
			printf("= told %d %d of %zu: %d\n", head->cmsg_level, head->cmsg_type, (size_t)head->cmsg_len,
				head->cmsg_type == SO_RXQ_OVFL ? *(int *)CMSG_DATA(head) > 0 : *(int *)CMSG_DATA(head));
	}
	fflush(stdout);
}

/* udp(7): many datagrams by one call, several as one, and how many were lost. */
static void many_as_one(void) {
	enum { SEGMENT = 103, GRO = 104 };
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0), value;
	bind(to, (void *)&at, len), getsockname(to, (void *)&at, &len), connect(from, (void *)&at, len);
	static const int sizes[] = {0, 1000, 65535, 65536, -1, 1000};
	for (size_t each = 0; each < sizeof sizes / sizeof *sizes; each++) {
		say("set", setsockopt(from, SOL_UDP, SEGMENT, &sizes[each], 4));
		socklen_t four = 4;
		say("get", getsockopt(from, SOL_UDP, SEGMENT, &value, &four) == 0 ? value : -1);
	}
	for (size_t count = 0; count <= 4000; count += 500) {
		say("sent", send(from, bytes, count, 0));
		received(to);
	}
	say("most", send(from, bytes, 64000, 0)), received(to);
	int small = 100;
	setsockopt(from, SOL_UDP, SEGMENT, &small, 4);
	say("most pieces", send(from, bytes, 6400, 0));
	say("more pieces", send(from, bytes, 20000, 0));
	received(to);
	unsigned short own = 700;
	send_with("by its own", from, 1500, SOL_UDP, SEGMENT, &own, sizeof own), received(to);
	send_with("by a long one", from, 1500, SOL_UDP, SEGMENT, bytes, 4), received(to);
	send_with("by another", from, 1500, SOL_UDP, GRO, &own, sizeof own), received(to);
	own = 0;
	send_with("by none", from, 1500, SOL_UDP, SEGMENT, &own, sizeof own), received(to);
	static const int ons[] = {1, 5, 0, 1};
	for (size_t each = 0; each < sizeof ons / sizeof *ons; each++) {
		say("set", setsockopt(to, SOL_UDP, GRO, &ons[each], 4));
		socklen_t four = 4;
		say("get", getsockopt(to, SOL_UDP, GRO, &value, &four) == 0 ? value : -1);
	}
	for (size_t count = 50; count <= 450; count += 100) {
		say("sent", send(from, bytes, count, 0));
		received(to);
	}
	int on = 1, stream = socket(AF_INET, SOCK_STREAM, 0);
	say("of a stream", setsockopt(stream, SOL_UDP, SEGMENT, &small, 4));
	say("lost ones", setsockopt(to, SOL_SOCKET, SO_RXQ_OVFL, &on, 4));
	say("sent", send(from, bytes, 10, 0)), received(to);
	small = 0;
	setsockopt(from, SOL_UDP, SEGMENT, &small, 4);
	while (send(from, bytes, 10000, MSG_DONTWAIT) >= 0 && ++small < 200)
		;
	while (recv(to, bytes, sizeof bytes, MSG_DONTWAIT) >= 0)
		;
	say("sent", send(from, bytes, 10, 0)), received(to);
	close(to), close(from), close(stream);
}

int main(void) {
	chdir("/tmp");
	local_datagrams();
	full();
	packets();
	passes(SOCK_STREAM);
	passes(SOCK_DGRAM);
	passes(SOCK_SEQPACKET);
	too_many();
	udp();
	many_as_one();
	shared_ports();
	where_to();
	urgent();
	gone();
	from_another();
	return 0;
}

/* What is sent by several calls as one: UDP_CORK, TCP_CORK, MSG_MORE, SPLICE_F_MORE. What is seen is printed, a line
 * that begins with "= ", and compared with Linux. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "say.h"

#ifndef UDP_CORK
#define UDP_CORK 1
#endif

static struct sockaddr_in address_of(int socket) {
	struct sockaddr_in at;
	getsockname(socket, (void *)&at, &(socklen_t){sizeof at});
	return at;
}

static int bound(int kind) {
	int made = socket(AF_INET, kind, 0);
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bind(made, (void *)&at, sizeof at);
	return made;
}

static void cork(int socket, int level, int option, int value) {
	say("corked", setsockopt(socket, level, option, &value, sizeof value));
	int told = 9;
	getsockopt(socket, level, option, &told, &(socklen_t){sizeof told});
	say("is corked", told);
}

static void take(const char *what, int socket) {
	char bytes[70000];
	long count = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
	say(what, count);
	for (long i = 0; i < count && count < 20; i++)
		say("byte", bytes[i]);
}

static void datagrams(void) {
	int taker = bound(SOCK_DGRAM), other = bound(SOCK_DGRAM), giver = bound(SOCK_DGRAM);
	struct sockaddr_in to = address_of(taker), elsewhere = address_of(other);
	cork(giver, IPPROTO_UDP, UDP_CORK, 5);
	say("first", sendto(giver, "ab", 2, 0, (void *)&to, sizeof to));
	say("second, elsewhere", sendto(giver, "cde", 3, 0, (void *)&elsewhere, sizeof elsewhere));
	say("third, nowhere", send(giver, "f", 1, 0));
	take("corked", taker);
	cork(giver, IPPROTO_UDP, UDP_CORK, 0);
	take("uncorked", taker), take("nothing more", taker), take("nothing elsewhere", other);
	cork(giver, IPPROTO_UDP, UDP_CORK, 0);
	take("nothing was begun", taker);

	say("more comes", sendto(giver, "xy", 2, MSG_MORE, (void *)&to, sizeof to));
	take("not yet", taker);
	say("and more", send(giver, "", 0, MSG_MORE));
	say("all came", send(giver, "z", 1, 0));
	take("all", taker);
	say("nothing begun, nowhere", send(giver, "z", 1, MSG_MORE));

	char *long_one = calloc(1, 40000);
	say("half", sendto(giver, long_one, 40000, MSG_MORE, (void *)&to, sizeof to));
	say("too much", send(giver, long_one, 40000, 0));
	take("nothing is left", taker);
	say("anew, nowhere", send(giver, "z", 1, 0));
	connect(giver, (void *)&to, sizeof to);
	struct iovec piece = {"pq", 2};
	struct mmsghdr several[2] = {{{.msg_iov = &piece, .msg_iovlen = 1}, 0}, {{.msg_iov = &piece, .msg_iovlen = 1}, 0}};
	say("several", sendmmsg(giver, several, 2, MSG_MORE));
	say("written", write(giver, "!", 1));
	take("of several", taker);
	say("begun", send(giver, "lost", 4, MSG_MORE));
	close(giver);
	take("who closes sends nothing", taker);
	free(long_one);
	close(taker), close(other);
}

static void segment_max(int socket, int most) {
	say("longest segment", setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &most, sizeof most));
	int told = 9;
	getsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &told, &(socklen_t){sizeof told});
	say("is", told);
}

static void connection(void) {
	int listener = bound(SOCK_STREAM);
	listen(listener, 1);
	int giver = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in to = address_of(listener);
	segment_max(giver, 87), segment_max(giver, 1000);
	connect(giver, (void *)&to, sizeof to);
	int taker = accept(listener, NULL, NULL);
	segment_max(giver, 0), segment_max(giver, 32768);
	say("of a connection", (segment_max(giver, 1200), 0));
	cork(giver, IPPROTO_TCP, TCP_CORK, 1);
	say("corked", send(giver, "abc", 3, 0));
	cork(giver, IPPROTO_TCP, TCP_CORK, 0);
	char bytes[16];
	say("all", recv(taker, bytes, 3, MSG_WAITALL));
	say("more comes", send(giver, "abc", 3, MSG_MORE));
	int pipes[2];
	say("pipe", pipe(pipes));
	say("into it", write(pipes[1], "defg", 4));
	say("spliced", splice(pipes[0], NULL, giver, NULL, 4, SPLICE_F_MORE));
	say("all came", send(giver, "h", 1, 0));
	say("all", recv(taker, bytes, 8, MSG_WAITALL));
	bytes[8] = 0;
	printf("= %s\n", bytes);
	cork(giver, IPPROTO_TCP, TCP_CORK, 1);
	say("corked", send(giver, "bye", 3, 0));
	say("shut", shutdown(giver, SHUT_WR));
	say("what was corked", recv(taker, bytes, 9, MSG_WAITALL));
	close(taker), close(giver), close(listener);
}

int main(void) {
	datagrams();
	connection();
	return 0;
}

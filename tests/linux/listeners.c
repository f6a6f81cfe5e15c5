/* Who listens at which address of a port, and who gets a connection: SO_REUSEADDR, SO_REUSEPORT, IPV6_V6ONLY. What is
 * seen is printed, a line that begins with "= ", and compared with Linux. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

static void say_text(const char *what, const char *text) {
	printf("= %s: %s\n", what, text);
}

#define LISTENERS 3
#define PORT 2600

struct at {
	union {
		struct sockaddr any;
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	};
	socklen_t length;
};

static struct at at(const char *address, int port) {
	struct at made = {0};
	if (strchr(address, ':')) {
		made.six.sin6_family = AF_INET6;
		made.six.sin6_port = htons(port);
		inet_pton(AF_INET6, address, &made.six.sin6_addr);
		made.length = sizeof made.six;
	} else {
		made.four.sin_family = AF_INET;
		made.four.sin_port = htons(port);
		inet_pton(AF_INET, address, &made.four.sin_addr);
		made.length = sizeof made.four;
	}
	return made;
}

/* A socket that is bound: its descriptor, or a negative number of an error. */
static int bound(const char *address, int port, int shared, int six_only) {
	struct at where = at(address, port);
	int made = socket(where.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
	if (shared)
		setsockopt(made, SOL_SOCKET, shared, &one, sizeof one);
	if (six_only)
		setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (!bind(made, &where.any, where.length))
		return made;
	int failed = errno;
	close(made);
	return -failed;
}

/* The same, and it listens. */
static int listening(const char *address, int port, int shared, int six_only) {
	int made = bound(address, port, shared, six_only);
	if (made < 0 || !listen(made, 64))
		return made;
	int failed = errno;
	close(made);
	return -failed;
}

static const char *error_of(int made) {
	return made < 0 ? strerrorname_np(-made) : "none";
}

/* Ends a connection by a reset, so that nothing of its port is left for a minute. */
static void reset(int client) {
	struct linger now = {1, 0};
	setsockopt(client, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(client);
}

/* Which of the listeners a connection comes to: its number, or what became of it. */
static int taker(const char *address, int port, const int *listeners) {
	struct at where = at(address, port);
	int client = socket(where.any.sa_family, SOCK_STREAM, 0), found = -1;
	if (connect(client, &where.any, where.length))
		found = -errno;
	for (int index = 0; index < LISTENERS && found == -1; index++) {
		int taken = listeners[index] < 0 ? -1 : accept(listeners[index], NULL, NULL);
		if (taken >= 0) {
			struct at own = {.length = sizeof own.six};
			getsockname(taken, &own.any, &own.length);
			say("of family", own.any.sa_family);
			found = index;
			reset(client);
			close(taken);
		}
	}
	if (found < 0)
		close(client);
	return found;
}

static void close_all(const int *listeners) {
	for (int index = 0; index < LISTENERS; index++)
		if (listeners[index] >= 0)
			close(listeners[index]);
}

static void one_address_each(void) {
	int listeners[] = {listening("127.0.0.1", PORT, 0, 0), listening("127.0.0.2", PORT, 0, 0), -1};
	say("first", taker("127.0.0.1", PORT, listeners));
	say("second", taker("127.0.0.2", PORT, listeners));
	say("nobody", taker("127.0.0.3", PORT, listeners));
	say_text("all beside them", error_of(listening("0.0.0.0", PORT, 0, 0)));
	say_text("both families beside them", error_of(listening("::", PORT, 0, 0)));
	listeners[2] = listening("::", PORT, 0, 1);
	say("IPv6 beside them", taker("::1", PORT, listeners));
	close_all(listeners);
	say("nobody any more", taker("127.0.0.1", PORT, listeners));
}

static void shared_addresses(void) {
	int first = bound("0.0.0.0", PORT + 1, SO_REUSEADDR, 0), second = bound("127.0.0.1", PORT + 1, SO_REUSEADDR, 0);
	say("both are bound", first >= 0 && second >= 0);
	say("one listens", listen(first, 5));
	say("the other does not", listen(second, 5));
	say_text("for", strerrorname_np(errno));
	close(first);
	say("but then", listen(second, 5));
	close(second);
	int listeners[] = {listening("0.0.0.0", PORT + 2, SO_REUSEPORT, 0), listening("127.0.0.1", PORT + 2, SO_REUSEPORT, 0),
		-1};
	say("the nearest", taker("127.0.0.1", PORT + 2, listeners));
	say("the other", taker("127.0.0.2", PORT + 2, listeners));
	say_text("who shares nothing", error_of(listening("127.0.0.1", PORT + 2, 0, 0)));
	say_text("who shares unless one listens", error_of(listening("127.0.0.1", PORT + 2, SO_REUSEADDR, 0)));
	close_all(listeners);
}

static void shared_ports(void) {
	int listeners[] = {listening("127.0.0.1", PORT + 3, SO_REUSEPORT, 0), listening("127.0.0.1", PORT + 3, SO_REUSEPORT, 0),
		-1};
	int counts[2] = {0};
	for (int times = 0; times < 60; times++) {
		struct at where = at("127.0.0.1", PORT + 3);
		int client = socket(AF_INET, SOCK_STREAM, 0);
		connect(client, &where.any, where.length);
		for (int index = 0; index < 2; index++) {
			int taken = accept(listeners[index], NULL, NULL);
			if (taken >= 0) {
				counts[index]++;
				reset(client);
				close(taken);
			}
		}
	}
	say("all came", counts[0] + counts[1]);
	say("to both", counts[0] > 10 && counts[1] > 10);
	close(listeners[0]);
	listeners[0] = -1;
	say("who stays", taker("127.0.0.1", PORT + 3, listeners));
	say("each time", taker("127.0.0.1", PORT + 3, listeners));
	close_all(listeners);
}

/* As servers do that have a listener a process. */
static void shared_by_processes(void) {
	int told[2];
	say("pipe", pipe(told));
	pid_t children[2];
	for (int index = 0; index < 2; index++) {
		children[index] = fork();
		if (!children[index]) {
			int listener = listening("127.0.0.1", PORT + 4, SO_REUSEPORT, 0);
			write(told[1], "", 1);
			for (;;) {
				poll(&(struct pollfd){listener, POLLIN, 0}, 1, -1);
				int taken = accept(listener, NULL, NULL);
				if (taken < 0)
					continue;
				char name = 'a' + index;
				write(taken, &name, 1);
				read(taken, &name, 1);
				close(taken);
			}
		}
	}
	for (int index = 0; index < 2; index++) {
		char byte;
		read(told[0], &byte, 1);
	}
	int counts[2] = {0};
	for (int times = 0; times < 60; times++) {
		struct at where = at("127.0.0.1", PORT + 4);
		int client = socket(AF_INET, SOCK_STREAM, 0);
		char name = 0;
		if (!connect(client, &where.any, where.length) && read(client, &name, 1) == 1)
			counts[name - 'a']++;
		reset(client);
	}
	say("answered", counts[0] + counts[1]);
	say("by both", counts[0] > 10 && counts[1] > 10);
	for (int index = 0; index < 2; index++) {
		kill(children[index], SIGKILL);
		waitpid(children[index], NULL, 0);
	}
}

static void both_families(void) {
	int listeners[] = {listening("::", PORT + 5, 0, 0), -1, -1};
	say("by IPv4", taker("127.0.0.1", PORT + 5, listeners));
	say("by IPv6", taker("::1", PORT + 5, listeners));
	say_text("IPv4 beside it", error_of(listening("0.0.0.0", PORT + 5, 0, 0)));
	say_text("one address beside it", error_of(listening("127.0.0.1", PORT + 5, 0, 0)));
	close_all(listeners);
	listeners[0] = listening("::ffff:127.0.0.1", PORT + 6, 0, 0);
	say("an address of IPv4 by another name", taker("127.0.0.1", PORT + 6, listeners));
	say_text("by its own", error_of(listening("127.0.0.1", PORT + 6, 0, 0)));
	close_all(listeners);
}

int main(void) {
	one_address_each();
	shared_addresses();
	shared_ports();
	shared_by_processes();
	both_families();
	return 0;
}

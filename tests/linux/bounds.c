/* What a process may do to others, with which rights a program begins, where programs jump that have no code there,
 * and what calls say at their bounds: of connections, descriptors, sets, bytes. Prints what each call said; compared
 * as calls.c is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define OTHER 1000

#define tell(...) (printf("= " __VA_ARGS__), putchar('\n'), fflush(stdout))

static long result(const char *what, long value) {
	say(what, value);
	return value;
}

static char self[4096];

/* Runs this in a child, and says how that ended. */
static void in_child(const char *what, void (*act)(void)) {
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		act();
		fflush(stdout);
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		tell("%s: ended by %d", what, WTERMSIG(status));
	else
		tell("%s: status %d", what, WEXITSTATUS(status));
}

static pid_t parent;

static void touches_parent(void) {
	int descriptor = syscall(SYS_pidfd_open, parent, 0);
	setresgid(OTHER, OTHER, OTHER);
	setresuid(OTHER, OTHER, OTHER);
	result("pidfd_send_signal", syscall(SYS_pidfd_send_signal, descriptor, 0, NULL, 0));
	result("pidfd_send_signal term", syscall(SYS_pidfd_send_signal, descriptor, SIGTERM, NULL, 0));
	struct rlimit limit = {1, 1};
	result("prlimit get", prlimit(parent, RLIMIT_NOFILE, NULL, &limit));
	result("prlimit set", prlimit(parent, RLIMIT_CPU, &limit, NULL));
	result("prlimit own", prlimit(getpid(), RLIMIT_NOFILE, NULL, &limit));
}

static int readable, secret;

static void attaches_parents(void) {
	setresgid(OTHER, OTHER, OTHER);
	setresuid(OTHER, OTHER, OTHER);
	say("shmat", shmat(readable, NULL, 0) == (void *)-1 ? -1 : 0);
	say("shmat to read", shmat(readable, NULL, SHM_RDONLY) == (void *)-1 ? -1 : 0);
	say("shmat of what is not", shmat(secret, NULL, SHM_RDONLY) == (void *)-1 ? -1 : 0);
	struct shmid_ds status;
	result("IPC_STAT", shmctl(secret, IPC_STAT, &status));
	result("shmget", shmget(0x6e6f6d, 0, 0) == readable ? 0 : -1);
	result("shmget to write", shmget(0x6e6f6d, 0, 0600));
	result("shmget of more", shmget(0x6e6f6d, 8192, 0600));
}

static void segments(void) {
	readable = shmget(0x6e6f6d, 4096, IPC_CREAT | 0644);
	secret = shmget(IPC_PRIVATE, 4096, 0600);
	in_child("another user's segments", attaches_parents);
	shmctl(readable, IPC_RMID, NULL);
	shmctl(secret, IPC_RMID, NULL);
}

/* A copy of this program of these permissions, whose user and group are the first. */
static const char *copied(const char *path, int permissions) {
	int from = open(self, O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
	char bytes[65536];
	for (ssize_t count; (count = read(from, bytes, sizeof bytes)) > 0;)
		write(to, bytes, count);
	close(from);
	close(to);
	chmod(path, permissions);
	return path;
}

static void tells_rights(void) {
	uid_t users[3];
	gid_t groups[3];
	char name[16] = "";
	getresuid(users, users + 1, users + 2);
	getresgid(groups, groups + 1, groups + 2);
	prctl(PR_GET_NAME, name);
	tell("users %d %d %d groups %d %d %d, is called %s", users[0], users[1], users[2], groups[0], groups[1], groups[2],
	    name);
	fflush(stdout);
}

static const char *begun;

static void begins(void) {
	setresgid(OTHER, OTHER, OTHER);
	setresuid(OTHER, OTHER, OTHER);
	prctl(PR_SET_NAME, "before");
	execl(begun, begun, "rights", NULL);
	result("execl", -1);
}

static void begins_without_gain(void) {
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	begins();
}

static void *begins_another(void *nothing) {
	execl(self, self, "rights", NULL);
	return NULL;
}

static void *waits_for_ever(void *nothing) {
	for (;;)
		pause();
}

static void begins_from_a_thread(void) {
	pthread_t threads[3];
	for (int index = 0; index < 2; index++)
		pthread_create(threads + index, NULL, waits_for_ever, NULL);
	pthread_create(threads + 2, NULL, begins_another, NULL);
	waits_for_ever(NULL);
}

static void begins_beside_threads(void) {
	pthread_t threads[2];
	for (int index = 0; index < 2; index++)
		pthread_create(threads + index, NULL, waits_for_ever, NULL);
	begins_another(NULL);
}

static void jumps_beyond(void) {
	((void (*)(void))-1)();
}

static void jumps_into_nothing(void) {
	((void (*)(void))0x7fffdead0000)();
}

static void has_a_handler_nowhere(void) {
	struct sigaction action = {.sa_handler = (void (*)(int))-4096};
	sigaction(SIGUSR1, &action, NULL);
	raise(SIGUSR1);
}

static void rights(void) {
	parent = getpid();
	in_child("another user", touches_parent);
	segments();
	begun = copied("/tmp/usual", 0755);
	in_child("begins", begins);
	begun = copied("/tmp/user", 04755);
	in_child("begins as its user", begins);
	in_child("begins without gain", begins_without_gain);
	begun = copied("/tmp/group", 02755);
	in_child("begins as its group", begins);
	begun = copied("/tmp/locks", 02745);
	in_child("no group that may execute", begins);
	begun = copied("/tmp/secret", 0711);
	in_child("may execute and not read", begins);
	in_child("begins from a thread", begins_from_a_thread);
	in_child("begins beside threads", begins_beside_threads);
	in_child("jumps beyond", jumps_beyond);
	in_child("jumps into nothing", jumps_into_nothing);
	in_child("has a handler nowhere", has_a_handler_nowhere);
}

static int listens(const char *path, int backlog) {
	struct sockaddr_un address = {AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&address, sizeof address);
	listen(listener, backlog);
	return listener;
}

static int connects(const char *path, int flags) {
	struct sockaddr_un address = {AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	int client = socket(AF_UNIX, SOCK_STREAM | flags, 0);
	struct timeval soon = {0, 50000};
	if (flags == 0)
		setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
	return result("connect", connect(client, (struct sockaddr *)&address, sizeof address)) == 0 ? client : -1;
}

static void *accepts_later(void *listener) {
	usleep(100000);
	accept(*(int *)listener, NULL, NULL);
	return NULL;
}

static void too_many_connect(void) {
	int listener = listens("/tmp/crowded", 1);
	connects("/tmp/crowded", SOCK_NONBLOCK);
	connects("/tmp/crowded", SOCK_NONBLOCK);
	connects("/tmp/crowded", SOCK_NONBLOCK);
	connects("/tmp/crowded", 0);
	pthread_t thread;
	pthread_create(&thread, NULL, accepts_later, &listener);
	struct sockaddr_un address = {AF_UNIX, "/tmp/crowded"};
	int client = socket(AF_UNIX, SOCK_STREAM, 0);
	result("connect waits", connect(client, (struct sockaddr *)&address, sizeof address));
	pthread_join(thread, NULL);
	/* Of TCP nobody is told that there are too many. */
	struct sockaddr_in here = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
	socklen_t bytes = sizeof here;
	int port = socket(AF_INET, SOCK_STREAM, 0);
	bind(port, (struct sockaddr *)&here, bytes);
	listen(port, 1);
	getsockname(port, (struct sockaddr *)&here, &bytes);
	for (int index = 0; index < 4; index++) {
		client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		result("connect to a port", connect(client, (struct sockaddr *)&here, bytes));
	}
}

static void no_descriptor_left(void) {
	int listener = listens("/tmp/full", 5), client = connects("/tmp/full", 0);
	struct rlimit before, none;
	getrlimit(RLIMIT_NOFILE, &before);
	int next = dup(0);
	close(next);
	none = (struct rlimit){next, before.rlim_max};
	setrlimit(RLIMIT_NOFILE, &none);
	result("accept", accept(listener, NULL, NULL));
	int pair[2] = {-1, -1};
	none.rlim_cur = next + 1;
	setrlimit(RLIMIT_NOFILE, &none);
	result("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	tell("is the next: %d", dup(0) == next);
	close(next);
	setrlimit(RLIMIT_NOFILE, &before);
	int accepted = accept(listener, NULL, NULL);
	tell("accepted later: %d", accepted == next);
	result("it is there", write(client, "x", 1));
	result("socketpair nowhere", socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)8));
	tell("left none open: %d", dup(0) == next + 1);
}

static void long_sets(void) {
	struct rlimit limit = {8192, 8192};
	result("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	int ends[2];
	pipe(ends);
	int high = dup2(ends[1], 3000);
	static uint64_t set[16384 / 64];
	set[high / 64] |= 1ULL << high % 64;
	struct timeval now = {0, 0};
	result("select", select(high + 1, NULL, (fd_set *)set, NULL, &now));
	tell("is set: %d", (int)(set[high / 64] >> high % 64 & 1));
	result("select of more", select(16384, NULL, (fd_set *)set, NULL, &now));
	result("select of less than none", select(-1, NULL, NULL, NULL, &now));
	close(high);
	result("select of none", select(high + 1, NULL, (fd_set *)set, NULL, &now));
}

#define MEBIBYTE (1 << 20)

static void *sends_all(void *socket) {
	char *bytes = calloc(1, MEBIBYTE);
	for (int at = 0; at < MEBIBYTE; at++)
		bytes[at] = at >> 12;
	for (int done = 0; done < MEBIBYTE;)
		done += send(*(int *)socket, bytes + done, MEBIBYTE - done < 100000 ? MEBIBYTE - done : 100000, 0);
	return NULL;
}

static void receives_all(int family, int pair[2]) {
	pthread_t thread;
	pthread_create(&thread, NULL, sends_all, pair + 1);
	unsigned char *bytes = malloc(MEBIBYTE);
	result("recv all", recv(pair[0], bytes, MEBIBYTE, MSG_WAITALL));
	int wrong = 0;
	for (int at = 0; at < MEBIBYTE; at++)
		wrong += bytes[at] != (unsigned char)(at >> 12);
	tell("of %d wrong: %d", family, wrong);
	pthread_join(thread, NULL);
	send(pair[1], "rest", 4, 0);
	shutdown(pair[1], SHUT_WR);
	struct iovec pieces[2] = {{bytes, 3}, {bytes + 100, 100}};
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
	result("recvmsg until the end", recvmsg(pair[0], &message, MSG_WAITALL));
	tell("%.3s %.1s", bytes, bytes + 100);
}

static void all_bytes(void) {
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	receives_all(AF_UNIX, pair);
	struct sockaddr_in here = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}};
	socklen_t bytes = sizeof here;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&here, bytes);
	listen(listener, 5);
	getsockname(listener, (struct sockaddr *)&here, &bytes);
	pair[1] = socket(AF_INET, SOCK_STREAM, 0);
	connect(pair[1], (struct sockaddr *)&here, bytes);
	pair[0] = accept(listener, NULL, NULL);
	receives_all(AF_INET, pair);
}

int main(int count, char **arguments) {
	if (count > 1) {
		tells_rights();
		return 3;
	}
	self[readlink("/proc/self/exe", self, sizeof self - 1)] = 0;
	/* Who begins it as another user has to reach it. */
	strcpy(self, copied("/tmp/bounds", 0755));
	rights();
	in_child("too many connect", too_many_connect);
	in_child("no descriptor left", no_descriptor_left);
	in_child("long sets", long_sets);
	in_child("all bytes", all_bytes);
	return 0;
}

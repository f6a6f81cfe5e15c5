/* Signals that tell that a descriptor is ready (O_ASYNC, F_SETOWN, F_SETSIG). What is seen is printed, a line that
 * begins with "= ", and compared with Linux. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

#ifndef SIOCSPGRP
#define SIOCSPGRP 0x8902
#define SIOCGPGRP 0x8904
#endif

static sigset_t all;

/* What has come, of a descriptor that is called `one`. */
static void take(const char *what, int one) {
	struct timespec wait = {0, 200000000};
	siginfo_t info;
	int signal = sigtimedwait(&all, &info, &wait);
	say(what, signal);
	if (signal < 0)
		return;
	say("code", info.si_code);
	if (signal >= SIGRTMIN)
		say("band", info.si_band), say("of this one", info.si_fd == one);
}

static void nothing(void) { take("nothing", 0); }

static void drive(int descriptor, int is_driven) {
	int flags = fcntl(descriptor, F_GETFL);
	say("driven", fcntl(descriptor, F_SETFL, is_driven ? flags | O_ASYNC : flags & ~O_ASYNC));
	say("flag", (fcntl(descriptor, F_GETFL) & O_ASYNC) != 0);
}

static void pipes(void) {
	int ends[2];
	char bytes[70000];
	say("pipe", pipe2(ends, O_NONBLOCK));
	say("nobody yet", fcntl(ends[0], F_GETOWN));
	drive(ends[0], 1);
	say("written", write(ends[1], "a", 1));
	nothing();
	say("owned", fcntl(ends[0], F_SETOWN, getpid()));
	say("by us", fcntl(ends[0], F_GETOWN) == getpid());
	say("written", write(ends[1], "b", 1));
	take("by default", ends[0]);
	nothing();
	say("read", read(ends[0], bytes, sizeof bytes));
	nothing();
	say("signal", fcntl(ends[0], F_SETSIG, SIGRTMIN + 3));
	say("is", fcntl(ends[0], F_GETSIG) == SIGRTMIN + 3);
	say("written", write(ends[1], "c", 1));
	take("tells more", ends[0]);
	say("again", write(ends[1], "d", 1));
	take("again", ends[0]);
	drive(ends[0], 0);
	say("written", write(ends[1], "e", 1));
	nothing();
	drive(ends[0], 1);
	say("no signal", fcntl(ends[0], F_SETSIG, 0));
	say("a bad one", fcntl(ends[0], F_SETSIG, 65));
	say("closed", close(ends[1]));
	take("its other end is closed", ends[0]);
	close(ends[0]);

	say("pipe", pipe2(ends, O_NONBLOCK));
	fcntl(ends[1], F_SETOWN, getpid()), fcntl(ends[1], F_SETSIG, SIGRTMIN);
	drive(ends[1], 1);
	say("filled", write(ends[1], bytes, 65536));
	nothing();
	say("read", read(ends[0], bytes, sizeof bytes));
	take("room", ends[1]);
	close(ends[0]);
	take("its reader is gone", ends[1]);
	close(ends[1]);
}

static void owners(void) {
	int ends[2], told = 0;
	say("pair", socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
	say("a bad number", fcntl(ends[0], F_SETOWN, INT_MIN));
	say("nobody has it", fcntl(ends[0], F_SETOWN, 999999));
	say("no such group", fcntl(ends[0], F_SETOWN, -999999));
	struct f_owner_ex owner = {F_OWNER_TID, syscall(SYS_gettid)};
	say("a thread", fcntl(ends[0], F_SETOWN_EX, &owner));
	say("is", fcntl(ends[0], F_GETOWN_EX, &owner)), say("kind", owner.type), say("we", owner.pid == getpid());
	owner = (struct f_owner_ex){F_OWNER_PGRP, getpgrp()};
	say("a group", fcntl(ends[0], F_SETOWN_EX, &owner));
	say("is", fcntl(ends[0], F_GETOWN_EX, &owner)), say("kind", owner.type), say("ours", owner.pid == getpgrp());
	say("as a number", fcntl(ends[0], F_GETOWN) == -getpgrp());
	owner = (struct f_owner_ex){7, getpid()};
	say("a bad kind", fcntl(ends[0], F_SETOWN_EX, &owner));
	owner.pid = 0;
	say("of nobody", fcntl(ends[0], F_SETOWN_EX, &owner));
	int own = getpid();
	say("by ioctl", ioctl(ends[0], SIOCSPGRP, &own));
	say("told", ioctl(ends[0], SIOCGPGRP, &told)), say("we", told == own);
	uid_t users[2] = {9, 9};
	say("users", fcntl(ends[0], 17, users)), say("real", users[0]), say("effective", users[1]);
	int on = 1;
	say("driven", ioctl(ends[0], FIOASYNC, &on));
	say("flag", (fcntl(ends[0], F_GETFL) & O_ASYNC) != 0);
	say("sent", send(ends[1], "x", 1, 0));
	take("it came", ends[0]);
	say("owner of nothing", fcntl(ends[0], F_SETOWN, 0));
	say("is", fcntl(ends[0], F_GETOWN));
	say("sent", send(ends[1], "x", 1, 0));
	nothing();
	close(ends[0]), close(ends[1]);
	int counter = eventfd(0, 0);
	say("who tells nobody", ioctl(counter, FIOASYNC, &on));
	on = 0;
	say("need not leave off", ioctl(counter, FIOASYNC, &on));
	close(counter);
}

static void child(void) {
	int ends[2], ready[2];
	char byte;
	say("pipes", pipe(ends) + pipe(ready));
	pid_t other = fork();
	if (other == 0) {
		struct timespec wait = {5, 0};
		siginfo_t info;
		if (write(ready[1], "r", 1) != 1)
			_exit(9);
		_exit(sigtimedwait(&all, &info, &wait) == SIGIO ? 7 : 8);
	}
	say("its owner", fcntl(ends[0], F_SETOWN, other));
	drive(ends[0], 1);
	say("ready", read(ready[0], &byte, 1));
	say("written", write(ends[1], "x", 1));
	int status;
	say("ended", waitpid(other, &status, 0) == other);
	say("was told", WEXITSTATUS(status));
	say("has no owner", fcntl(ends[0], F_GETOWN));
	nothing();
	close(ends[0]), close(ends[1]), close(ready[0]), close(ready[1]);
}

static struct sockaddr_in bound(int socket) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bind(socket, (void *)&at, sizeof at);
	getsockname(socket, (void *)&at, &(socklen_t){sizeof at});
	return at;
}

static void network(void) {
	int taker = socket(AF_INET, SOCK_DGRAM, 0), giver = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in to = bound(taker);
	fcntl(taker, F_SETOWN, getpid()), fcntl(taker, F_SETSIG, SIGRTMIN + 1);
	drive(taker, 1);
	for (int i = 0; i < 2; i++) {
		say("sent", sendto(giver, "x", 1, 0, (void *)&to, sizeof to));
		take("datagram", taker);
	}
	close(taker), close(giver);
	nothing();

	int listener = socket(AF_INET, SOCK_STREAM, 0);
	to = bound(listener);
	listen(listener, 4);
	fcntl(listener, F_SETOWN, getpid());
	drive(listener, 1);
	giver = socket(AF_INET, SOCK_STREAM, 0);
	say("connected", connect(giver, (void *)&to, sizeof to));
	take("somebody comes", listener);
	taker = accept(listener, NULL, NULL);
	say("not its", fcntl(taker, F_GETOWN)), say("flag", (fcntl(taker, F_GETFL) & O_ASYNC) != 0);
	say("sent", send(giver, "x", 1, 0));
	nothing();
	fcntl(taker, F_SETOWN, getpid());
	say("urgent", send(giver, "!", 1, MSG_OOB));
	take("without being asked", taker);
	drive(taker, 1);
	say("sent", send(giver, "y", 1, 0));
	take("bytes", taker);
	close(giver), close(taker), close(listener);
}

int main(void) {
	sigemptyset(&all);
	sigaddset(&all, SIGIO), sigaddset(&all, SIGURG);
	for (int i = 0; i < 5; i++)
		sigaddset(&all, SIGRTMIN + i);
	sigprocmask(SIG_BLOCK, &all, NULL);
	pipes();
	owners();
	child();
	network();
	return 0;
}

/* Stops children and lets them go on, names them by descriptors, opens pipes that have names, moves bytes between
 * descriptors, and prints what each call said; compared as calls.c is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

static int to_child[2], to_parent[2];
static volatile int handled, told_code, told_status;

static void handle(int signal, siginfo_t *info, void *context) {
	handled++;
	told_code = info->si_code;
	told_status = info->si_status;
}

static void wait_said(const char *what, pid_t child, int options) {
	int status = 0;
	pid_t found = waitpid(child, &status, options);
	if (found <= 0)
		return say(what, found);
	printf("= %s: status %x stopped %d by %d continued %d ended %d by %d\n", what, status, WIFSTOPPED(status),
	       WIFSTOPPED(status) ? WSTOPSIG(status) : 0, WIFCONTINUED(status), WIFEXITED(status) || WIFSIGNALED(status),
	       WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	fflush(stdout);
}

static pid_t begin(void (*child)(void)) {
	pipe(to_child);
	pipe(to_parent);
	pid_t pid = fork();
	/* A group of its own, whose keeper is this process: one that nobody keeps is not stopped by a terminal's signals. */
	setpgid(pid, pid);
	if (pid == 0) {
		child();
		_exit(7);
	}
	return pid;
}

static void over(void) {
	close(to_child[0]), close(to_child[1]), close(to_parent[0]), close(to_parent[1]);
}

/* Answers each byte. */
static void answers(void) {
	char byte;
	close(to_child[1]);
	while (read(to_child[0], &byte, 1) == 1)
		write(to_parent[1], &byte, 1);
}

/* Answers a byte when it was let go on by a handler. */
static void answers_then(void) {
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
	sigaction(SIGCONT, &action, NULL);
	raise(SIGSTOP);
	char byte = '0' + handled;
	write(to_parent[1], &byte, 1);
	signal(SIGTSTP, SIG_IGN);
	raise(SIGTSTP);
	write(to_parent[1], "i", 1);
	signal(SIGTSTP, SIG_DFL);
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTSTP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGTSTP);
	write(to_parent[1], "b", 1);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	write(to_parent[1], "c", 1);
	struct timespec time = {0, 50000000};
	write(to_parent[1], nanosleep(&time, NULL) == 0 ? "s" : "e", 1);
	for (;;)
		pause();
}

static int answer(void) {
	char byte = 0;
	struct pollfd polled = {to_parent[0], POLLIN, 0};
	int count;
	do
		count = poll(&polled, 1, 20000);
	while (count < 0 && errno == EINTR);
	return count == 1 && read(to_parent[0], &byte, 1) == 1 ? byte : -1;
}

static int silent(void) {
	struct pollfd polled = {to_parent[0], POLLIN, 0};
	int count;
	do
		count = poll(&polled, 1, 100);
	while (count < 0 && errno == EINTR);
	return count == 0;
}

static void stops(void) {
	pid_t child = begin(answers);
	write(to_child[1], "a", 1);
	say("it answers", answer());
	say("stop", kill(child, SIGSTOP));
	wait_said("stopped", child, WUNTRACED);
	wait_said("told once", child, WUNTRACED | WNOHANG);
	write(to_child[1], "b", 1);
	say("it is silent", silent());
	say("another signal waits", kill(child, SIGUSR1));
	wait_said("it does not end", child, WUNTRACED | WNOHANG);
	say("but for one", kill(child, SIGKILL));
	wait_said("killed", child, 0);
	over();
	child = begin(answers);
	kill(child, SIGTSTP);
	wait_said("stopped by a terminal's", child, WUNTRACED);
	write(to_child[1], "c", 1);
	say("it is silent", silent());
	say("let it go on", kill(child, SIGCONT));
	wait_said("going on", child, WCONTINUED);
	wait_said("told once", child, WCONTINUED | WNOHANG);
	say("it answers", answer());
	siginfo_t info = {0};
	kill(child, SIGTTIN);
	say("waitid", waitid(P_PID, child, &info, WSTOPPED | WNOWAIT));
	printf("= code %d status %d own %d\n", info.si_code, info.si_status, info.si_pid == child);
	say("waitid again", waitid(P_PID, child, &info, WSTOPPED));
	memset(&info, 0, sizeof info);
	say("waitid no more", waitid(P_PID, child, &info, WSTOPPED | WNOHANG));
	say("of nobody", info.si_pid);
	say("options that are none", waitpid(child, NULL, 0x40));
	kill(child, SIGCONT);
	close(to_child[1]);
	wait_said("ended", child, 0);
	over();
}

/* Children that end while their parent waits and wants to know of none, or of none by waiting. */
static void nobody_waits(void) {
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDWAIT};
	signal(SIGCHLD, SIG_IGN);
	if (fork() == 0) {
		usleep(50000);
		_exit(3);
	}
	say("ignored and waited for", wait(NULL));
	sigaction(SIGCHLD, &action, NULL);
	handled = 0;
	if (fork() == 0) {
		usleep(50000);
		_exit(3);
	}
	say("not kept and waited for", wait(NULL));
	say("but told", handled);
	signal(SIGCHLD, SIG_DFL);
}

static void handlers(void) {
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGCHLD, &action, NULL);
	pid_t child = begin(answers_then);
	wait_said("it stops itself", child, WUNTRACED);
	printf("= told %d code %d status %d\n", handled > 0, told_code, told_status);
	kill(child, SIGCONT);
	say("its handler has run", answer());
	say("what is ignored stops nobody", answer());
	say("nor what is blocked", answer());
	wait_said("but then it does", child, WUNTRACED);
	say("it is silent", silent());
	kill(child, SIGCONT);
	say("it goes on", answer());
	kill(child, SIGSTOP);
	wait_said("stopped in its sleep", child, WUNTRACED);
	kill(child, SIGCONT);
	say("which is not interrupted", answer() != -1);
	action.sa_flags |= SA_NOCLDSTOP;
	sigaction(SIGCHLD, &action, NULL);
	handled = 0;
	kill(child, SIGSTOP);
	wait_said("stopped", child, WUNTRACED);
	say("without a word", handled);
	kill(child, SIGKILL);
	wait_said("killed", child, 0);
	say("of its end there is", handled);
	signal(SIGCHLD, SIG_DFL);
	over();
	nobody_waits();
	say("a group that is not there", setpgid(0, 99999));
	say("somebody else's child", setpgid(getppid(), 0) == -1);
	child = begin(answers);
	say("a group of its own", setpgid(child, child));
	say("its group", getpgid(child) == child);
	kill(-child, SIGSTOP);
	wait_said("stopped as a group", -child, WUNTRACED);
	kill(-child, SIGCONT);
	close(to_child[1]);
	wait_said("ended", child, 0);
	over();
}

/* What else than SIGCHLD tells of a child's end, or nothing. */
static void end_signals(void) {
	int status = 0, other[] = {SIGUSR1, 0};
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 2; i++) {
		handled = 0;
		pid_t child = syscall(SYS_clone, other[i], 0, 0, 0, 0);
		if (child == 0)
			_exit(9);
		say("not of the usual kind", waitpid(child, &status, 0));
		long found = syscall(SYS_wait4, i ? child : -1, &status, i ? 0x40000000 : 0x80000000, NULL);
		say("found", found == child);
		say("status", status);
		say("handled", handled);
		say("code", handled ? told_code : 0);
	}
	pid_t child = fork();
	if (child == 0)
		_exit(3);
	say("not of the other kind", syscall(SYS_wait4, child, &status, 0x80000000, NULL));
	say("usual", waitpid(child, &status, 0) == child);
	signal(SIGUSR1, SIG_DFL);
}

static void named_pipes(void) {
	char bytes[16] = "";
	say("mkfifo", mkfifo("fifo", 0600));
	say("write without a reader", open("fifo", O_WRONLY | O_NONBLOCK));
	int reads = open("fifo", O_RDONLY | O_NONBLOCK);
	say("read without a writer", reads >= 0);
	say("nothing", read(reads, bytes, 16));
	struct pollfd polled = {reads, POLLIN, 0};
	say("poll", poll(&polled, 1, 0));
	int writes = open("fifo", O_WRONLY | O_NONBLOCK);
	say("write with a reader", writes >= 0);
	say("nothing yet", read(reads, bytes, 16));
	say("write", write(writes, "named", 5));
	say("poll", poll(&polled, 1, 0));
	say("read", read(reads, bytes, 16));
	close(writes);
	polled.revents = 0;
	say("poll", poll(&polled, 1, 0));
	printf("= events %x\n", polled.revents);
	say("the end", read(reads, bytes, 16));
	close(reads);
	pid_t child = fork();
	if (child == 0) {
		int fd = open("fifo", O_WRONLY);
		_exit(write(fd, "late", 4) == 4 ? 5 : 6);
	}
	int waits = open("fifo", O_RDONLY);
	say("opened when the other is there", waits >= 0);
	say("read", read(waits, bytes, 16));
	say("the end", read(waits, bytes, 16));
	wait_said("child", child, 0);
	close(waits);
	int both = open("fifo", O_RDWR);
	say("both", both >= 0);
	say("to oneself", write(both, "me", 2));
	say("read", read(both, bytes, 16));
	struct stat status;
	fstat(both, &status);
	say("a pipe", S_ISFIFO(status.st_mode));
	close(both);
	signal(SIGPIPE, SIG_IGN);
	reads = open("fifo", O_RDONLY | O_NONBLOCK);
	writes = open("fifo", O_WRONLY);
	close(reads);
	say("nobody reads", write(writes, "x", 1));
	close(writes);
	/* Who comes last finds the other, and hears when he goes. */
	child = fork();
	if (child == 0) {
		int fd = open("fifo", O_WRONLY);
		write(fd, "one", 3);
		nanosleep(&(struct timespec){0, 100000000}, NULL);
		write(fd, "two", 3);
		nanosleep(&(struct timespec){0, 100000000}, NULL);
		_exit(7);
	}
	nanosleep(&(struct timespec){0, 50000000}, NULL);
	waits = open("fifo", O_RDONLY);
	fcntl(waits, F_SETFL, O_NONBLOCK);
	int set = epoll_create1(0);
	struct epoll_event wanted = {EPOLLIN | EPOLLRDHUP | EPOLLET, {0}}, told;
	say("watched", epoll_ctl(set, EPOLL_CTL_ADD, waits, &wanted));
	for (int i = 0; i < 3; i++) {
		say("told", epoll_wait(set, &told, 1, 2000));
		printf("= events %x\n", told.events);
		say("read", read(waits, bytes, 16));
		say("no more", read(waits, bytes, 16));
	}
	close(set), close(waits);
	wait_said("child", child, 0);
	unlink("fifo");
}

static void moves(void) {
	char bytes[64] = "";
	int ends[2], others[2], full[2], pair[2], file = open("file", O_CREAT | O_RDWR, 0600), copy = open("copy", O_CREAT | O_RDWR, 0600);
	pipe(ends), pipe(others), pipe(full);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	write(file, "0123456789", 10);
	loff_t at = 2, to = 1;
	say("a file to a pipe", splice(file, &at, ends[1], NULL, 4, 0));
	say("offset", at);
	say("position", lseek(file, 0, SEEK_CUR));
	say("at the end", splice(file, NULL, ends[1], NULL, 4, 0));
	say("tee", tee(ends[0], others[1], 64, 0));
	say("a pipe to a pipe", splice(others[0], NULL, full[1], NULL, 2, 0));
	say("a pipe to a socket", splice(ends[0], NULL, pair[0], NULL, 64, SPLICE_F_MORE));
	say("read", read(pair[1], bytes, 64));
	printf("= %.4s\n", bytes);
	write(pair[1], "back", 4);
	say("a socket to a pipe", splice(pair[0], NULL, ends[1], NULL, 64, 0));
	say("a pipe to a file", splice(ends[0], NULL, copy, &to, 64, 0));
	say("offset", to);
	say("pread", pread(copy, bytes, 64, 0));
	say("nothing there", splice(ends[0], NULL, copy, NULL, 64, SPLICE_F_NONBLOCK));
	say("no pipe", splice(file, NULL, copy, NULL, 4, 0));
	say("a pipe with an offset", splice(others[0], &at, copy, NULL, 4, 0));
	say("a pipe to itself", splice(ends[0], NULL, ends[1], NULL, 4, 0));
	say("the wrong end", splice(file, NULL, ends[0], NULL, 4, 0));
	say("flags that are none", splice(file, NULL, ends[1], NULL, 4, 0x80));
	say("tee of a file", tee(file, ends[1], 4, 0));
	struct iovec pieces[2] = {{"ab", 2}, {"cde", 3}};
	say("from memory", vmsplice(ends[1], pieces, 2, 0));
	say("read", read(ends[0], bytes, 64));
	say("from memory to a file", vmsplice(file, pieces, 2, 0));
	at = 0, to = 20;
	say("copy", copy_file_range(file, &at, copy, &to, 100, 0));
	printf("= offsets %ld %ld\n", (long)at, (long)to);
	at = 0, to = 5;
	say("over itself", copy_file_range(file, &at, file, &to, 9, 0));
	say("copy with flags", copy_file_range(file, NULL, copy, NULL, 9, 1));
	say("copy to a pipe", copy_file_range(file, NULL, ends[1], NULL, 9, 0));
	fcntl(full[1], F_SETFL, O_NONBLOCK);
	while (write(full[1], bytes, 64) > 0 || write(full[1], bytes, 1) > 0)
		;
	lseek(file, 0, SEEK_SET);
	say("a full pipe", splice(file, NULL, full[1], NULL, 4, 0));
	close(others[0]);
	say("nobody reads", splice(file, NULL, others[1], NULL, 4, 0));
	say("nothing to move", splice(file, NULL, ends[1], NULL, 0, 0));
}

static int process_descriptor(pid_t process, unsigned flags) {
	return syscall(SYS_pidfd_open, process, flags);
}

static long send_by(int descriptor, int signal, siginfo_t *info, unsigned flags) {
	return syscall(SYS_pidfd_send_signal, descriptor, signal, info, flags);
}

/* Processes by descriptors. */
static void by_descriptor(void) {
	pid_t child = begin(answers);
	int fd = process_descriptor(child, 0), hasty = process_descriptor(child, O_NONBLOCK), own = process_descriptor(getpid(), 0);
	say("a descriptor", fd >= 0);
	say("closed on exec", fcntl(fd, F_GETFD));
	struct pollfd polled = {fd, POLLIN, 0};
	say("it is there", poll(&polled, 1, 0));
	say("asked for", send_by(fd, 0, NULL, 0));
	say("one's own", send_by(own, 0, NULL, 0));
	siginfo_t info = {0};
	say("waits for nobody yet", waitid(P_PIDFD, fd, &info, WEXITED | WNOHANG));
	say("would wait", waitid(P_PIDFD, hasty, &info, WEXITED));
	say("not one's own child", waitid(P_PIDFD, own, &info, WEXITED));
	char byte;
	say("it is not read", read(fd, &byte, 1));
	info.si_signo = SIGTERM, info.si_code = SI_USER;
	say("as if by somebody else", send_by(fd, SIGTERM, &info, 0));
	say("another signal than said", send_by(fd, SIGINT, &info, 0));
	say("no such signal", send_by(fd, 99, NULL, 0));
	say("flags that are none", send_by(fd, SIGTERM, NULL, 8));
	say("no such descriptor", send_by(99, SIGTERM, NULL, 0));
	int directory = open("/proc/self", O_RDONLY | O_DIRECTORY), other = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
	say("by its directory", send_by(directory, 0, NULL, 0));
	say("by another one", send_by(other, 0, NULL, 0));
	close(directory), close(other);
	say("of something else", send_by(to_child[1], SIGTERM, NULL, 0));
	say("end", send_by(fd, SIGTERM, NULL, 0));
	say("it has ended", poll(&polled, 1, 20000));
	printf("= events %x\n", polled.revents & POLLIN);
	say("is still sent signals", send_by(fd, SIGTERM, NULL, 0));
	say("waitid", waitid(P_PIDFD, fd, &info, WEXITED));
	printf("= code %d status %d own %d\n", info.si_code, info.si_status, info.si_pid == child);
	say("no more", waitid(P_PIDFD, fd, &info, WEXITED));
	say("nor sent signals", send_by(fd, SIGTERM, NULL, 0));
	say("nobody of that number", process_descriptor(child, 0));
	say("no number", process_descriptor(-1, 0));
	say("flags that are none", process_descriptor(getpid(), 1));
	close(fd), close(hasty), close(own);
	over();
	int made = -1;
	child = syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, NULL, &made, NULL, 0);
	if (child == 0)
		_exit(9);
	say("made with a child", made >= 0);
	say("waitid", waitid(P_PIDFD, made, &info, WEXITED));
	printf("= status %d own %d\n", info.si_status, info.si_pid == child);
	int thread = 0;
	say("and its number", syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, NULL, &thread, NULL, 0));
	close(made);
}

/* Who reads a part of what came is told of more alone, by edge. */
static void edges(void) {
	int ends[2], set = epoll_create1(0);
	char byte;
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends);
	struct epoll_event event = {EPOLLIN | EPOLLOUT | EPOLLET, {0}}, told = {0};
	epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event);
	write(ends[1], "ab", 2);
	say("told", epoll_wait(set, &told, 1, 0));
	printf("= events %x\n", told.events);
	say("a part", read(ends[0], &byte, 1));
	say("nothing new", epoll_wait(set, &told, 1, 0));
	write(ends[1], "c", 1);
	say("more", epoll_wait(set, &told, 1, 0));
	printf("= events %x\n", told.events);
	close(ends[0]), close(ends[1]), close(set);
}

int main(void) {
	chdir("/tmp");
	stops();
	by_descriptor();
	edges();
	handlers();
	end_signals();
	named_pipes();
	moves();
	return 0;
}

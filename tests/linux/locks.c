/* Locks files with several processes and prints what each said; compared as calls.c is. A child acts only when its
 * parent has told it to, and says when it is done, so that the order is the same each time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

static int to_child[2], to_parent[2];

static void tell(int *pipe) { write(pipe[1], "x", 1); }

static void await(int *pipe) {
	char byte;
	if (read(pipe[0], &byte, 1) != 1)
		exit(3);
}

static struct flock records(int kind, long start, long len) {
	return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
}

static int set(int fd, int command, int kind, long start, long len) {
	struct flock lock = records(kind, start, len);
	return fcntl(fd, command, &lock);
}

static void ask(const char *what, int fd, int command, int kind, long start, long len, pid_t other) {
	struct flock lock = records(kind, start, len);
	if (fcntl(fd, command, &lock) != 0)
		return say(what, -1);
	printf("= %s: kind %d from %ld len %ld whose %s\n", what, lock.l_type, (long)lock.l_start, (long)lock.l_len,
	       lock.l_type == F_UNLCK ? "nobody" : lock.l_pid == other ? "other" : lock.l_pid == -1 ? "file" : "unknown");
	fflush(stdout);
}

static void one_process(int fd) {
	struct flock wrong = records(7, 0, 1);
	say("a kind that is none", fcntl(fd, F_SETLK, &wrong));
	wrong = records(F_RDLCK, -1, 1);
	say("before the start", fcntl(fd, F_SETLK, &wrong));
	wrong = records(F_RDLCK, 9223372036854775807, 2);
	say("behind the end", fcntl(fd, F_SETLK, &wrong));
	wrong = records(F_RDLCK, 0, 1);
	wrong.l_whence = 9;
	say("from nowhere", fcntl(fd, F_SETLK, &wrong));
	wrong = records(F_UNLCK, 0, 1);
	say("whether none can be had", fcntl(fd, F_GETLK, &wrong));
	wrong = records(F_RDLCK, 0, 1);
	wrong.l_pid = 1;
	say("a description's with a process", fcntl(fd, F_OFD_SETLK, &wrong));
	say("no descriptor", set(99, F_SETLK, F_RDLCK, 0, 1));
	int reads = open("file", O_RDONLY), writes = open("file", O_WRONLY);
	say("exclusive by who reads", set(reads, F_SETLK, F_WRLCK, 0, 1));
	say("shared by who writes", set(writes, F_SETLK, F_RDLCK, 0, 1));
	say("flock by who reads", flock(reads, LOCK_EX | LOCK_NB));
	say("flock by another description", flock(writes, LOCK_SH | LOCK_NB));
	say("flock by the first again", flock(reads, LOCK_SH | LOCK_NB));
	say("flock shared by both", flock(writes, LOCK_SH | LOCK_NB));
	say("flock exclusive with a sharer", flock(reads, LOCK_EX | LOCK_NB));
	int third = open("file", O_RDWR);
	close(writes);
	say("what could not become exclusive is lost", flock(third, LOCK_EX | LOCK_NB));
	say("flock without an operation", flock(third, LOCK_NB));
	say("unlock", flock(third, LOCK_UN));
	say("a description's record", set(third, F_OFD_SETLK, F_WRLCK, 10, 10));
	ask("is in the process's own way", fd, F_GETLK, F_RDLCK, 0, 0, 0);
	say("and cannot be had", set(fd, F_SETLK, F_RDLCK, 19, 1));
	int twin = dup(third);
	close(third);
	say("not while a twin is open", set(fd, F_SETLK, F_RDLCK, 19, 1));
	close(twin);
	say("but then", set(fd, F_SETLK, F_RDLCK, 19, 1));
	say("all given up", set(fd, F_SETLK, F_UNLCK, 0, 0));
	int ends[2];
	pipe(ends);
	say("flock of a pipe", flock(ends[0], LOCK_EX));
	close(reads);
}

/* What the parent has is looked at from here. */
static void look(int fd) {
	pid_t parent = getppid();
	await(to_child);
	ask("two that touch are one", fd, F_GETLK, F_WRLCK, 0, 0, parent);
	ask("behind it", fd, F_GETLK, F_WRLCK, 30, 0, parent);
	ask("shared beside exclusive", fd, F_GETLK, F_RDLCK, 12, 1, parent);
	say("a byte of it", set(fd, F_SETLK, F_RDLCK, 29, 1));
	say("the byte behind", set(fd, F_SETLK, F_WRLCK, 30, 1));
	tell(to_parent), await(to_child);
	ask("a hole in the middle", fd, F_GETLK, F_WRLCK, 14, 6, parent);
	ask("and what is left", fd, F_GETLK, F_WRLCK, 14, 100, parent);
	tell(to_parent), await(to_child);
	ask("a shared one in it", fd, F_GETLK, F_RDLCK, 0, 12, parent);
	ask("is in the way of writers", fd, F_GETLK, F_WRLCK, 0, 12, parent);
	tell(to_parent), await(to_child);
	ask("gone by the close of another descriptor", fd, F_GETLK, F_WRLCK, 0, 0, parent);
	tell(to_parent), await(to_child);
	/* It is told before it waits, so that the parent gives the lock up while it waits, or just before. */
	tell(to_parent);
	say("waits for it", set(fd, F_SETLKW, F_WRLCK, 0, 0));
	tell(to_parent), await(to_child);
	alarm(1);
	say("waits until a signal", set(fd, F_OFD_SETLKW, F_WRLCK, 0, 0));
	alarm(1);
	say("waits for all until a signal", flock(open("file", O_RDWR), LOCK_EX));
	tell(to_parent), await(to_child);
	exit(0);
}

static void ring(int signal) { (void)signal; }

static void two_processes(int fd) {
	pid_t child = fork();
	if (child == 0)
		look(fd);
	set(fd, F_SETLK, F_WRLCK, 10, 10);
	set(fd, F_SETLK, F_WRLCK, 20, 10);
	tell(to_child), await(to_parent);
	ask("the child's", fd, F_GETLK, F_WRLCK, 0, 0, child);
	set(fd, F_SETLK, F_UNLCK, 14, 6);
	tell(to_child), await(to_parent);
	set(fd, F_SETLK, F_RDLCK, 11, 1);
	tell(to_child), await(to_parent);
	close(open("file", O_RDONLY));
	tell(to_child), await(to_parent);
	say("all but the child's", set(fd, F_SETLK, F_WRLCK, 0, 30));
	tell(to_child), await(to_parent);
	usleep(20000);
	set(fd, F_SETLK, F_UNLCK, 0, 0);
	await(to_parent);
	say("the child has it", set(fd, F_SETLK, F_RDLCK, 0, 1));
	int other = open("file", O_RDWR);
	/* The child's own record is not in the way of what it asks for as a description; this one is. */
	flock(other, LOCK_SH);
	tell(to_child), await(to_parent);
	tell(to_child);
	waitpid(child, NULL, 0);
	close(other);
	say("its end gives all up", set(fd, F_SETLK, F_WRLCK, 0, 0));
	say("and this, too", set(fd, F_SETLK, F_UNLCK, 0, 0));
}

static void deadlock(int fd) {
	set(fd, F_SETLK, F_WRLCK, 0, 1);
	pid_t child = fork();
	if (child == 0) {
		set(fd, F_SETLK, F_WRLCK, 1, 1);
		tell(to_parent);
		set(fd, F_SETLKW, F_WRLCK, 0, 1);
		exit(0);
	}
	await(to_parent);
	int result = 0;
	/* Until the child waits there is none: then this waits until a signal, and tries again. */
	do {
		usleep(50000);
		alarm(1);
		result = set(fd, F_SETLKW, F_WRLCK, 1, 1);
	} while (result == -1 && errno == EINTR);
	alarm(0);
	say("waiting for who waits for oneself", result);
	set(fd, F_SETLK, F_UNLCK, 0, 1);
	waitpid(child, NULL, 0);
	say("who waited got it, and its end gave it up", set(fd, F_SETLK, F_WRLCK, 0, 2));
}

static void *waits(void *own) { return (void *)(long)(set(*(int *)own, F_SETLKW, F_WRLCK, 0, 1) == -1 ? errno : 0); }

/* What waits for a lock by a descriptor that another thread closes does not get it. */
static void closed_meanwhile(void) {
	int own = open("raced", O_CREAT | O_RDWR, 0600);
	pid_t child = fork();
	if (child == 0) {
		set(own, F_SETLK, F_WRLCK, 0, 1);
		tell(to_parent), await(to_child);
		set(own, F_SETLK, F_UNLCK, 0, 1);
		tell(to_parent), await(to_child);
		say("so that another gets it", set(own, F_SETLK, F_WRLCK, 0, 1));
		exit(0);
	}
	await(to_parent);
	pthread_t thread;
	void *result = NULL;
	pthread_create(&thread, NULL, waits, &own);
	usleep(50000);
	close(own);
	tell(to_child), await(to_parent);
	pthread_join(thread, &result);
	errno = (long)result;
	say("by what was closed meanwhile", result ? -1 : 0);
	tell(to_child);
	waitpid(child, NULL, 0);
	unlink("raced");
}

/* Each adds one to a number in the file a hundred times: none is lost if the lock keeps others out. */
static void count(int fd, int whole) {
	int number = 0;
	pwrite(fd, &number, sizeof number, 0);
	for (int which = 0; which < 3; which++)
		if (fork() == 0) {
			int own = open("file", O_RDWR);
			for (int turn = 0; turn < 100; turn++) {
				whole ? flock(own, LOCK_EX) : set(own, F_SETLKW, F_WRLCK, 0, 4);
				pread(own, &number, sizeof number, 0);
				number++;
				usleep(turn % 7 == 0 ? 100 : 0);
				pwrite(own, &number, sizeof number, 0);
				whole ? flock(own, LOCK_UN) : set(own, F_SETLK, F_UNLCK, 0, 4);
			}
			exit(0);
		}
	while (wait(NULL) > 0)
		;
	pread(fd, &number, sizeof number, 0);
	say(whole ? "counted under flock" : "counted under records", number);
}

int main(void) {
	struct sigaction action = {.sa_handler = ring};
	chdir("/tmp");
	sigaction(SIGALRM, &action, NULL);
	pipe(to_child), pipe(to_parent);
	int fd = open("file", O_CREAT | O_RDWR, 0600);
	one_process(fd);
	two_processes(fd);
	deadlock(fd);
	closed_meanwhile();
	set(fd, F_SETLK, F_UNLCK, 0, 0);
	count(fd, 0);
	count(fd, 1);
	return 0;
}

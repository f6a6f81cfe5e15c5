/* Queues of messages, semaphores and messages of System V, signals that carry values, policies of the scheduler, users
 * that come back, locks that know who has them. Prints what each call said; compared as calls.c is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

union semun {
	int value;
	struct semid_ds *status;
	unsigned short *values;
};

static struct timespec in_ms(long ms) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	now.tv_nsec += ms * 1000000;
	now.tv_sec += now.tv_nsec / 1000000000;
	now.tv_nsec %= 1000000000;
	return now;
}

static int status_of(pid_t child) {
	int status = 0;
	waitpid(child, &status, 0);
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void queues(void) {
	char name[32], text[64];
	unsigned priority = 0;
	struct mq_attr wanted = {0, 2, 16, 0}, found;
	snprintf(name, sizeof name, "/nom-%d", getpid());
	say("no such queue", mq_open(name, O_RDWR));
	wanted.mq_maxmsg = 0;
	say("of no messages", mq_open(name, O_RDWR | O_CREAT, 0600, &wanted));
	wanted.mq_maxmsg = 2;
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &wanted);
	say("made", queue >= 0);
	say("twice", mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &wanted));
	say("closed at exec", fcntl(queue, F_GETFD));
	say("low", mq_send(queue, "low", 3, 1));
	say("high", mq_send(queue, "higher", 6, 9));
	say("too long", mq_send(queue, text, 17, 0));
	say("no such priority", mq_send(queue, "x", 1, 32768));
	struct timespec soon = in_ms(20), wrong = {0, 1000000000};
	say("full", mq_timedsend(queue, "x", 1, 0, &soon));
	say("no time", mq_timedsend(queue, "x", 1, 0, &wrong));
	mq_getattr(queue, &found);
	printf("= attributes: %ld %ld %ld %ld\n", found.mq_flags, found.mq_maxmsg, found.mq_msgsize, found.mq_curmsgs);
	say("too little room", mq_receive(queue, text, 15, NULL));
	say("received", mq_receive(queue, text, sizeof text, &priority));
	say("priority", priority);
	say("and", mq_receive(queue, text, sizeof text, &priority));
	say("priority", priority);
	found.mq_flags = O_NONBLOCK;
	say("will not wait", mq_setattr(queue, &found, NULL));
	say("empty", mq_receive(queue, text, sizeof text, NULL));
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 77};
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	say("tells", mq_notify(queue, &event));
	say("another is told", mq_notify(queue, &event));
	pid_t child = fork();
	if (child == 0)
		_exit(mq_send(queue, "y", 1, 0) == 0 ? 5 : 6);
	say("child", status_of(child));
	say("told", sigwaitinfo(&set, &info));
	printf("= of: %d %d %d\n", info.si_code, info.si_value.sival_int, info.si_pid == child);
	say("tells again", mq_notify(queue, &event));
	say("no more", mq_notify(queue, NULL));
	child = fork();
	if (child == 0) {
		struct timespec late = in_ms(20000);
		mq_receive(queue, text, sizeof text, NULL);
		fcntl(queue, F_GETFL);
		found.mq_flags = 0;
		mq_setattr(queue, &found, NULL);
		ssize_t count = mq_timedreceive(queue, text, sizeof text, &priority, &late);
		_exit(count == 2 ? (int)priority : 99);
	}
	usleep(50000);
	say("to who waits", mq_send(queue, "zz", 2, 3));
	say("child", status_of(child));
	say("unlinked", mq_unlink(name));
	say("again", mq_unlink(name));
	say("closed", mq_close(queue));
	say("no queue", mq_send(1, "x", 1, 0));
	fflush(stdout);
}

static void semaphores(void) {
	unsigned short values[3] = {1, 2, 3};
	struct semid_ds status;
	union semun argument = {.values = values};
	say("no semaphores", semget(IPC_PRIVATE, 0, 0600));
	int set = semget(IPC_PRIVATE, 3, IPC_CREAT | 0600);
	say("made", set >= 0);
	say("all", semctl(set, 0, SETALL, argument));
	say("value", semctl(set, 1, GETVAL));
	say("no such one", semctl(set, 3, GETVAL));
	struct sembuf both[] = {{0, -1, 0}, {1, -3, IPC_NOWAIT}}, too_far[] = {{3, 1, 0}}, high[] = {{0, 32767, 0}};
	say("all or none", semop(set, both, 2));
	say("none was", semctl(set, 0, GETVAL));
	say("too far", semop(set, too_far, 1));
	say("too high", semop(set, high, 1));
	say("nothing", semop(set, both, 0));
	struct sembuf down = {0, -2, 0}, zero = {1, 0, IPC_NOWAIT}, undone = {2, -1, SEM_UNDO};
	struct timespec little = {0, 20000000};
	say("in time", semtimedop(set, &down, 1, &little));
	say("not zero", semop(set, &zero, 1));
	pid_t child = fork();
	if (child == 0)
		_exit(semop(set, &undone, 1) == 0 ? semctl(set, 2, GETVAL) : 99);
	say("taken", status_of(child));
	say("given back", semctl(set, 2, GETVAL));
	child = fork();
	if (child == 0)
		_exit(semop(set, &down, 1) == 0 ? 7 : errno);
	while (semctl(set, 0, GETNCNT) != 1)
		usleep(1000);
	struct sembuf up = {0, 1, 0};
	say("up", semop(set, &up, 1));
	say("down", status_of(child));
	say("waits no more", semctl(set, 0, GETNCNT));
	say("by who", semctl(set, 0, GETPID) == child);
	argument.value = 32768;
	say("more than can be", semctl(set, 0, SETVAL, argument));
	argument.status = &status;
	say("status", semctl(set, 0, IPC_STAT, argument));
	printf("= of: %lu %o %d\n", status.sem_nsems, status.sem_perm.mode & 0777, status.sem_otime != 0);
	child = fork();
	if (child == 0)
		_exit(semop(set, &down, 1) == 0 ? 0 : errno == EIDRM);
	while (semctl(set, 0, GETNCNT) != 1)
		usleep(1000);
	say("removed", semctl(set, 0, IPC_RMID));
	say("who waits is told", status_of(child));
	say("gone", semctl(set, 0, GETVAL));
	fflush(stdout);
}

static void mailboxes(void) {
	struct {
		long type;
		char text[32];
	} message = {3, "three"};
	struct msqid_ds status;
	int box = msgget(IPC_PRIVATE, 0600);
	say("made", box >= 0);
	say("empty", msgrcv(box, &message, 32, 0, IPC_NOWAIT));
	say("three", msgsnd(box, &message, 5, 0));
	message.type = 1;
	say("one", msgsnd(box, &message, 3, 0));
	message.type = 2;
	say("two", msgsnd(box, &message, 4, 0));
	message.type = 0;
	say("no type", msgsnd(box, &message, 4, 0));
	say("too long", msgsnd(box, &message, 8193, 0));
	say("status", msgctl(box, IPC_STAT, &status));
	printf("= of: %lu %lu %lu\n", status.msg_qnum, status.msg_qbytes, (unsigned long)status.__msg_cbytes);
	say("too little room", msgrcv(box, &message, 2, 2, 0));
	say("a part", msgrcv(box, &message, 2, 2, MSG_NOERROR));
	say("lowest", msgrcv(box, &message, 32, -3, 0));
	say("its type", message.type);
	say("but three", msgrcv(box, &message, 32, 3, MSG_EXCEPT | IPC_NOWAIT));
	say("first", msgrcv(box, &message, 32, 0, 0));
	say("its type", message.type);
	pid_t child = fork();
	if (child == 0)
		_exit(msgrcv(box, &message, 32, 5, 0) == 1 ? message.text[0] : 99);
	usleep(20000);
	message.type = 5, message.text[0] = 42;
	say("to who waits", msgsnd(box, &message, 1, 0));
	say("child", status_of(child));
	say("removed", msgctl(box, IPC_RMID, NULL));
	say("gone", msgsnd(box, &message, 1, 0));
	fflush(stdout);
}

static void values(void) {
	sigset_t set;
	siginfo_t info;
	union sigval value = {.sival_int = 5};
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	say("queued", sigqueue(getpid(), SIGRTMIN, value));
	value.sival_int = 6;
	say("and", pthread_sigqueue(pthread_self(), SIGRTMIN, value));
	say("nobody", sigqueue(1 << 22, SIGRTMIN, value));
	say("no signal", sigqueue(getpid(), 65, value));
	say("only asks", sigqueue(getpid(), 0, value));
	for (int i = 0; i < 2; i++) {
		say("came", sigwaitinfo(&set, &info) == SIGRTMIN);
		printf("= with: %d %d\n", info.si_value.sival_int, info.si_code);
	}
	fflush(stdout);
}

static void scheduling(void) {
	struct sched_param parameter = {0};
	struct timespec interval;
	say("policy", sched_getscheduler(0));
	say("no priority", sched_setscheduler(0, SCHED_FIFO, &parameter));
	parameter.sched_priority = 20;
	say("too many", sched_setscheduler(0, SCHED_OTHER, &parameter));
	say("in turns", sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &parameter));
	say("policy", sched_getscheduler(0));
	say("interval", sched_rr_get_interval(0, &interval) == 0 && interval.tv_nsec > 0);
	pid_t child = fork();
	if (child == 0)
		_exit(sched_getscheduler(0));
	say("a child's", status_of(child));
	parameter.sched_priority = 30;
	say("higher", sched_setparam(0, &parameter));
	parameter.sched_priority = 100;
	say("too high", sched_setparam(0, &parameter));
	sched_getparam(0, &parameter);
	say("it is", parameter.sched_priority);
	say("nobody", sched_getscheduler(1 << 22));
	say("no thread", sched_getscheduler(-1));
	say("no policy", sched_setscheduler(0, 77, &parameter));
	parameter.sched_priority = 0;
	say("as all", sched_setscheduler(0, SCHED_OTHER, &parameter));
	struct timex state = {0};
	say("clock", adjtimex(&state) >= 0 && state.tick == 10000);
}

/* numa(7), as libnuma and who does without it ask: there is one node. */
static long mode_and_nodes(unsigned long address, unsigned long flags) {
	int mode = -7;
	unsigned long nodes[2] = {~0ul, ~0ul};
	if (syscall(SYS_get_mempolicy, &mode, nodes, 129, address, flags))
		return -1;
	return mode * 100 + (long)nodes[0] * 10 + (long)nodes[1];
}

static long prefer(int mode, unsigned long first, unsigned long second) {
	unsigned long nodes[2] = {first, second};
	return syscall(SYS_set_mempolicy, mode, nodes, 129);
}

static void nodes(void) {
	enum { DEFAULT, PREFERRED, BIND, INTERLEAVE, LOCAL, MANY, NO_MODE = 77, STATIC = 1 << 15, RELATIVE = 1 << 14 };
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*page = 1;
	say("at first", mode_and_nodes(0, 0));
	say("allowed", mode_and_nodes(0, 4));
	say("of a page", mode_and_nodes((unsigned long)page, 3));
	say("of nothing", mode_and_nodes(8, 2));
	say("an address for nothing", mode_and_nodes((unsigned long)page, 0));
	say("a node without interleaving", mode_and_nodes(0, 1));
	say("a flag that is none", mode_and_nodes(0, 8));
	say("allowed and more", mode_and_nodes(0, 5));
	say("nothing told", syscall(SYS_get_mempolicy, NULL, NULL, 0, 0, 0));
	const struct { int mode; unsigned long first, second; } asked[] = {
		{BIND, 1, 0}, {BIND, 0, 0}, {BIND, 2, 0}, {BIND, 3, 0}, {INTERLEAVE, 1, 1}, {PREFERRED, 1, 0},
		{PREFERRED, 0, 0}, {PREFERRED | STATIC, 0, 0}, {LOCAL, 0, 0}, {LOCAL, 1, 0}, {LOCAL | STATIC, 0, 0},
		{DEFAULT, 1, 0}, {MANY, 1, 0}, {NO_MODE, 1, 0}, {BIND | STATIC, 1, 0}, {BIND | STATIC | RELATIVE, 1, 0},
		{BIND | RELATIVE, 1, 0}, {INTERLEAVE, 1, 0}, {-1, 1, 0},
	};
	for (size_t each = 0; each < sizeof asked / sizeof *asked; each++) {
		say("asked", prefer(asked[each].mode, asked[each].first, asked[each].second));
		say("told", mode_and_nodes(0, 0));
	}
	say("the next", mode_and_nodes(0, 1));
	pid_t child = fork();
	if (child == 0)
		_exit(mode_and_nodes(0, 0) & 127);
	say("a child's", status_of(child));
	say("no mask", syscall(SYS_set_mempolicy, BIND, NULL, 0));
	say("a bad mask", syscall(SYS_set_mempolicy, BIND, 8, 64));
	say("a long mask", syscall(SYS_set_mempolicy, BIND, page, 1 << 20));
	say("as all", syscall(SYS_set_mempolicy, DEFAULT, NULL, 0));
	unsigned long first = 1;
	say("bind", syscall(SYS_mbind, page, 8192, BIND, &first, 64, 0));
	say("bind nothing", syscall(SYS_mbind, page, 0, BIND, &first, 64, 0));
	say("bind within a page", syscall(SYS_mbind, page + 1, 4096, BIND, &first, 64, 0));
	say("bind by no flag", syscall(SYS_mbind, page, 4096, BIND, &first, 64, 8));
	munmap(page + 4096, 4096);
	say("bind what is not there", syscall(SYS_mbind, page, 8192, BIND, &first, 64, 0));
	void *pages[] = {page, page + 4096};
	int status[2] = {-1, -1}, where[2] = {0, 0};
	say("where", syscall(SYS_move_pages, 0, 1, pages, NULL, status, 0));
	say("there", status[0]);
	say("move", syscall(SYS_move_pages, 0, 1, pages, where, status, 2));
	say("to nobody", syscall(SYS_migrate_pages, 1 << 22, 64, &first, &first));
	say("migrate", syscall(SYS_migrate_pages, 0, 64, &first, &first));
	munmap(page, 4096);
}

static void *another_for_files(void *unused) {
	setfsuid(65534);
	say("a thread does not open it", open("/tmp/private", O_RDONLY));
	return unused;
}

static void users(void) {
	close(open("/tmp/private", O_CREAT | O_WRONLY, 0600));
	pid_t child = fork();
	if (child == 0) {
		uid_t all[3];
		struct stat made;
		say("for files", setfsuid(65534));
		say("no number", setfsuid(-1));
		say("does not open it", open("/tmp/private", O_RDONLY));
		close(open("/tmp/made", O_CREAT | O_WRONLY, 0600));
		say("made", stat("/tmp/made", &made));
		say("whose", made.st_uid);
		say("signals still", kill(getppid(), 0));
		say("whole again", seteuid(0));
		say("told", setfsuid(-1));
		say("opens it", open("/tmp/private", O_RDONLY) >= 0);
		unlink("/tmp/made");
		pthread_t thread;
		pthread_create(&thread, NULL, another_for_files, NULL);
		pthread_join(thread, NULL);
		say("the others do", open("/tmp/private", O_RDONLY) >= 0);
		say("for a while", seteuid(65534));
		say("not this one", setresuid(7, -1, -1));
		getresuid(&all[0], &all[1], &all[2]);
		printf("= %d %d %d\n", all[0], all[1], all[2]);
		say("who began it may read it", access("/tmp/private", R_OK));
		say("it may not", faccessat(AT_FDCWD, "/tmp/private", R_OK, AT_EACCESS));
		say("nor open it", open("/tmp/private", O_RDONLY));
		say("signals root", kill(getppid(), 0));
		say("again", seteuid(0));
		say("for good", setuid(65534));
		say("not any more", setuid(0));
		say("signals root", kill(getppid(), 0));
		_exit(0);
	}
	say("child", status_of(child));
}

static pthread_mutex_t mutex;
static int count;

static void *adds(void *nothing) {
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&mutex);
		int now = count;
		if (i % 64 == 0)
			sched_yield();
		count = now + 1;
		pthread_mutex_unlock(&mutex);
	}
	return nothing;
}

static void inheriting(void) {
	pthread_mutexattr_t attributes;
	pthread_t threads[3];
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	printf("= a mutex: %d\n", pthread_mutex_init(&mutex, &attributes));
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, adds, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("= counted: %d\n", count);
	say("locked", pthread_mutex_lock(&mutex));
	say("tried", pthread_mutex_trylock(&mutex));
	printf("= unlocked: %d\n", pthread_mutex_unlock(&mutex));
	fflush(stdout);
}

static volatile sig_atomic_t trapped;

static void trap(int signal, siginfo_t *info, void *context) {
	trapped++;
}

static void breakpoints(void) {
	struct sigaction action = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
	sigaction(SIGTRAP, &action, NULL);
	__asm__ volatile("int3");
	__asm__ volatile(".byte 0xcd, 3");
	say("breakpoints", trapped);
	signal(SIGTRAP, SIG_DFL);
}

static void limits(void) {
	pid_t child = fork();
	if (child == 0) {
		struct rlimit limit = {1, 2};
		signal(SIGXCPU, SIG_IGN);
		say("limit", setrlimit(RLIMIT_CPU, &limit));
		for (;;)
			;
	}
	say("computes too long", status_of(child));
	char bytes[4] = {1, 1, 1, 1};
	struct iovec piece = {bytes, 4};
	int zero = open("/dev/zero", O_RDWR);
	say("anywhere", pread(zero, bytes, 4, 1 << 20));
	say("zero", bytes[3]);
	say("and written", pwrite(zero, bytes, 4, 7));
	say("goes nowhere", lseek(zero, 7, SEEK_SET));
	say("with flags", preadv2(zero, &piece, 1, 0, 0));
	say("no such flag", preadv2(zero, &piece, 1, 0, 1 << 20));
	say("lock what", mlockall(0));
	fflush(stdout);
}

int main(void) {
	queues();
	semaphores();
	mailboxes();
	values();
	scheduling();
	nodes();
	users();
	inheriting();
	breakpoints();
	limits();
	return 0;
}

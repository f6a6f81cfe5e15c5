/* Processor time and its timers, and calls that a signal interrupts while they wait, for a limited time or not: which
 * of them are made again, which say so, and what was left. Prints what each call said; compared as calls.c is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

#define MS 1000000LL

static long long clock_ns(clockid_t clock) {
	struct timespec time = {0, 0};
	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* Computes until this thread has had the processor for so long. */
static void compute(long long ns) {
	long long end = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 1000; i++)
			;
}

static long long usage_ns(const struct rusage *usage) {
	return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000LL +
	       (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000LL;
}

static void *computes(void *ns) {
	compute(*(long long *)ns);
	return NULL;
}

static void *waits(void *clock) {
	clockid_t *own = clock;
	pthread_getcpuclockid(pthread_self(), own);
	compute(30 * MS);
	return NULL;
}

static void processor_clocks(void) {
	long long process = clock_ns(CLOCK_PROCESS_CPUTIME_ID), thread = clock_ns(CLOCK_THREAD_CPUTIME_ID), ns = 400 * MS;
	/* A machine does not know when its host does not run it: that counts as if it ran. */
	usleep(600000);
	say("who sleeps does not run", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process < 500 * MS);
	compute(60 * MS);
	say("who computes does", clock_ns(CLOCK_THREAD_CPUTIME_ID) - thread >= 60 * MS);
	say("and its process", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process >= 60 * MS);
	process = clock_ns(CLOCK_PROCESS_CPUTIME_ID), thread = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	pthread_t other;
	pthread_create(&other, NULL, computes, &ns);
	pthread_join(other, NULL);
	say("another thread's counts for the process", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process >= ns);
	say("but not for this one", clock_ns(CLOCK_THREAD_CPUTIME_ID) - thread < 300 * MS);
	clockid_t clock = 0;
	pthread_create(&other, NULL, waits, &clock);
	pthread_join(other, NULL);
	struct timespec time;
	timer_t timer;
	/* Linux may be about to forget a thread when it says that it has ended. */
	for (int turn = 0; turn < 200 && clock_gettime(clock, &time) == 0; turn++)
		usleep(10000);
	say("the clock of a thread that ended", clock_gettime(clock, &time));
	say("its number is below zero", clock < 0);
	say("the clock of a process", clock_getcpuclockid(getpid(), &clock));
	say("reads", clock_gettime(clock, &time));
	say("as the process's own", clock_ns(clock) <= clock_ns(CLOCK_PROCESS_CPUTIME_ID));
	say("of one that is not there", clock_getcpuclockid(99999, &clock) == ESRCH);
	say("by its number", syscall(SYS_clock_gettime, ~99999 << 3 | 2, &time));
	say("of a thread that is not there", syscall(SYS_clock_gettime, ~99999 << 3 | 6, &time));
	pid_t other_process = fork();
	if (other_process == 0)
		for (;;)
			pause();
	say("of another process's thread", syscall(SYS_clock_gettime, ~other_process << 3 | 6, &time));
	say("a timer of that", timer_create(~other_process << 3 | 6, NULL, &timer));
	kill(other_process, SIGKILL);
	waitpid(other_process, NULL, 0);
	say("of no kind", syscall(SYS_clock_gettime, ~99999 << 3 | 3, &time));
	say("its resolution", clock_getres(CLOCK_PROCESS_CPUTIME_ID, &time));
}

static void usages(void) {
	struct rusage usage;
	struct tms ticks;
	pid_t child = fork();
	if (child == 0) {
		compute(60 * MS);
		_exit(3);
	}
	clockid_t clock;
	clock_getcpuclockid(child, &clock);
	while (clock_ns(clock) < 20 * MS)
		usleep(1000);
	say("a child's clock goes", 1);
	int status;
	say("wait4", wait4(child, &status, 0, &usage) == child);
	say("says how long it ran", usage_ns(&usage) >= 60 * MS && usage_ns(&usage) < 5000 * MS);
	say("getrusage", getrusage(RUSAGE_CHILDREN, &usage));
	say("keeps it", usage_ns(&usage) >= 60 * MS);
	say("times", times(&ticks) != (clock_t)-1);
	say("too", ticks.tms_cutime + ticks.tms_cstime >= 4 && ticks.tms_utime + ticks.tms_stime >= 4);
	say("of this thread", getrusage(RUSAGE_THREAD, &usage));
	say("it ran", usage_ns(&usage) >= 60 * MS);
	say("of nobody", getrusage(99, &usage));
}

static volatile int rang, last_code;
static volatile pid_t rang_in;

static void ring(int signal, siginfo_t *info, void *context) {
	rang++;
	last_code = info->si_code;
	rang_in = gettid();
}

static void handle(int signal, int flags) {
	struct sigaction action = {.sa_sigaction = ring, .sa_flags = SA_SIGINFO | flags};
	sigaction(signal, &action, NULL);
}

/* Computes until `rang` is so much, or for two seconds. */
static int compute_until(int count) {
	long long end = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + 2000 * MS;
	while (rang < count && clock_ns(CLOCK_PROCESS_CPUTIME_ID) < end)
		for (volatile int i = 0; i < 1000; i++)
			;
	return rang >= count;
}

static void interval_timer(int which, int signal) {
	struct itimerval every = {{0, 20000}, {0, 20000}}, now = {{0, 0}, {0, 0}}, never = now;
	handle(signal, SA_RESTART);
	rang = 0;
	long long before = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	say("a timer of processor time", setitimer(which, &every, NULL));
	say("rings", compute_until(4));
	say("not too often", clock_ns(CLOCK_PROCESS_CPUTIME_ID) - before >= 60 * MS);
	say("its code", last_code);
	say("getitimer", getitimer(which, &now));
	say("its interval", now.it_interval.tv_usec);
	say("what is left", now.it_value.tv_sec == 0 && now.it_value.tv_usec > 0 && now.it_value.tv_usec <= 30000);
	int then = rang;
	usleep(300000);
	say("not while nobody runs", rang - then <= 3);
	rang = 0;
	say("but then again", compute_until(2));
	say("stopped", setitimer(which, &never, &now));
	say("it was there", now.it_interval.tv_usec);
	rang = 0;
	compute(60 * MS);
	say("and is quiet", rang);
	say("getitimer", getitimer(which, &now));
	say("nothing is left", now.it_value.tv_sec == 0 && now.it_value.tv_usec == 0);
	signal == SIGPROF ? say("no such timer", setitimer(3, &every, NULL)) : say("wrong", getitimer(-1, &now));
}

static void processor_timers(void) {
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
	struct itimerspec when = {{0, 0}, {1000, 0}}, left;
	timer_t timer;
	handle(SIGUSR2, SA_RESTART);
	say("of the process", timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer));
	say("set", timer_settime(timer, 0, &when, NULL));
	say("gettime", timer_gettime(timer, &left));
	say("about all is left", left.it_value.tv_sec >= 900 && left.it_value.tv_sec <= 1000);
	when = (struct itimerspec){{0, 15000000}, {0, 15000000}};
	timer_settime(timer, 0, &when, NULL);
	rang = 0;
	say("rings", compute_until(3));
	say("its code", last_code);
	say("deleted", timer_delete(timer));
	long long now = clock_ns(CLOCK_PROCESS_CPUTIME_ID) + 30 * MS;
	timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer);
	when = (struct itimerspec){{0, 0}, {now / 1000000000, now % 1000000000}};
	rang = 0;
	say("at a point of time", timer_settime(timer, TIMER_ABSTIME, &when, NULL));
	say("rings", compute_until(1));
	say("when it is that time", clock_ns(CLOCK_PROCESS_CPUTIME_ID) >= now);
	timer_delete(timer);
	event.sigev_notify = SIGEV_THREAD_ID;
	event._sigev_un._tid = gettid();
	say("of a thread", timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
	when = (struct itimerspec){{0, 15000000}, {0, 15000000}};
	timer_settime(timer, 0, &when, NULL);
	rang = 0;
	long long ns = 400 * MS;
	pthread_t other;
	pthread_create(&other, NULL, computes, &ns);
	pthread_join(other, NULL);
	say("not for another's time", rang <= 18);
	rang = 0;
	say("for its own", compute_until(3));
	say("in that thread", rang_in == gettid());
	timer_delete(timer);
	struct timespec short_time = {0, 20000000};
	say("sleep on a thread's clock", clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &short_time, NULL));
	pthread_create(&other, NULL, computes, &ns);
	say("sleep on the process's", clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &short_time, NULL));
	pthread_join(other, NULL);
}

/* Calls that wait, each with a way to let it end. */

static int ends[2], pair[2], event_fd, full_pipe[2], full_pair[2], listener, lock_fds[2], files, set, signals_fd, quiet;
static volatile int is_entering, is_over;
static uint32_t word;
static pid_t child;
static pthread_t main_thread;
static char bytes[1 << 18];

/* Signals the main thread a few times while it is in a call, then lets that end. */
static void *disturbs(void *let_end) {
	while (!is_entering)
		usleep(500);
	for (int i = 0; i < 3 && !is_over; i++) {
		usleep(10000);
		if (!is_over)
			pthread_kill(main_thread, SIGUSR1);
	}
	usleep(10000);
	if (!is_over && let_end)
		((void (*)(void))let_end)();
	return NULL;
}

static void writes(void) { write(ends[1], "x", 1); }
static void sends(void) { write(pair[1], "x", 1); }
static void counts(void) { eventfd_write(event_fd, 5); }
static void empties(void) { read(full_pipe[0], bytes, sizeof bytes); }
static void receives(void) { read(full_pair[1], bytes, sizeof bytes); }
static void wakes(void) { syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0); }
static void ends_child(void) { kill(child, SIGKILL); }
static void unlocks(void) { flock(lock_fds[1], LOCK_UN); }
static void opens(void) { close(open("ends", O_WRONLY)); }
static void is_signalled(void) { kill(getpid(), SIGUSR2); }
static void wakes_by(void) { pthread_kill(main_thread, SIGUSR2); }
static void connects(void) {
	struct sockaddr_un name = {AF_UNIX, "listener"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	connect(fd, (struct sockaddr *)&name, sizeof name);
	close(fd);
}

static struct timespec left_time;
static struct timeval left_value;

static long in_read(void) { return read(ends[0], bytes, 1); }
static long in_readv(void) {
	struct iovec piece = {bytes, 1};
	return readv(ends[0], &piece, 1);
}
static long in_partial_write(void) { return write(ends[1], bytes, 200000); }
static long in_write(void) { return write(full_pipe[1], bytes, 1); }
static long in_recv(void) { return recv(pair[0], bytes, 1, 0); }
static long in_recvmsg(void) {
	struct iovec piece = {bytes, 1};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
	return recvmsg(pair[0], &message, 0);
}
static long in_send(void) { return send(full_pair[0], bytes, 1, 0); }
static long in_accept(void) { return accept(listener, NULL, NULL) >= 0 ? 1 : -1; }
static long in_eventfd(void) { return read(event_fd, bytes, 8); }
static long in_poll(void) {
	struct pollfd polled = {ends[0], POLLIN, 0};
	return poll(&polled, 1, -1);
}
static long in_poll_limited(void) {
	struct pollfd polled = {ends[0], POLLIN, 0};
	return poll(&polled, 1, 20000);
}
static long in_ppoll(void) {
	struct pollfd polled = {ends[0], POLLIN, 0};
	left_time = (struct timespec){20, 0};
	return syscall(SYS_ppoll, &polled, 1, &left_time, NULL, 8);
}
static long in_select(void) {
	fd_set read_set;
	FD_ZERO(&read_set);
	FD_SET(ends[0], &read_set);
	return select(ends[0] + 1, &read_set, NULL, NULL, NULL);
}
static long in_select_limited(void) {
	fd_set read_set;
	FD_ZERO(&read_set);
	FD_SET(ends[0], &read_set);
	left_value = (struct timeval){20, 0};
	return select(ends[0] + 1, &read_set, NULL, NULL, &left_value);
}
static long in_pselect(void) {
	fd_set read_set;
	FD_ZERO(&read_set);
	FD_SET(ends[0], &read_set);
	left_time = (struct timespec){20, 0};
	return syscall(SYS_pselect6, ends[0] + 1, &read_set, NULL, NULL, &left_time, NULL);
}
static long in_epoll_wait(void) {
	struct epoll_event event;
	return epoll_wait(set, &event, 1, -1);
}
static long in_epoll_limited(void) {
	struct epoll_event event;
	return epoll_wait(set, &event, 1, 20000);
}
static long in_nanosleep(void) {
	struct timespec time = {20, 0};
	return syscall(SYS_nanosleep, &time, &left_time);
}
static long in_clock_nanosleep(void) {
	struct timespec time = {20, 0};
	return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, &left_time);
}
static long in_sleep_until(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += 20;
	return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}
static long in_futex(void) { return syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0); }
static long in_futex_limited(void) {
	struct timespec time = {20, 0};
	return syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &time, NULL, 0);
}
static long in_futex_until(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	time.tv_sec += 20;
	return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0, &time, NULL, ~0);
}
static long in_pause(void) { return pause(); }
static long in_sigsuspend(void) {
	sigset_t none;
	sigemptyset(&none);
	return sigsuspend(&none);
}
static long in_sigtimedwait(void) {
	struct timespec time = {20, 0};
	sigset_t wanted;
	sigemptyset(&wanted), sigaddset(&wanted, SIGUSR2);
	return sigtimedwait(&wanted, NULL, &time);
}
static long in_signalfd(void) { return read(signals_fd, bytes, sizeof(struct signalfd_siginfo)); }
static long in_wait(void) { return wait4(child, NULL, 0, NULL) == child ? 1 : -1; }
static long in_waitid(void) {
	siginfo_t info;
	return waitid(P_PID, child, &info, WEXITED | WNOWAIT);
}
static long in_flock(void) { return flock(lock_fds[0], LOCK_EX); }
static long in_open(void) {
	int fd = open("ends", O_RDONLY);
	return fd < 0 ? -1 : close(fd);
}
static long in_sendfile(void) { return sendfile(full_pipe[1], files, NULL, 1); }
static long in_splice(void) { return splice(ends[0], NULL, files, NULL, 1, 0); }
static long in_timerfd(void) {
	struct itimerspec when = {{0, 0}, {0, 100000000}};
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime(fd, 0, &when, NULL);
	long result = read(fd, bytes, 8);
	int before = errno;
	close(fd);
	errno = before;
	return result;
}

static void fill(int fd) {
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	while (write(fd, bytes, 4096) > 0)
		;
	while (write(fd, bytes, 1) > 0)
		;
	fcntl(fd, F_SETFL, flags);
}

static void drain(int fd) {
	int flags = fcntl(fd, F_GETFL);
	fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	while (read(fd, bytes, sizeof bytes) > 0)
		;
	fcntl(fd, F_SETFL, flags);
}

/* One call, as signals with handlers of these flags interrupt it. */
static void interrupted(const char *name, long (*call)(void), void (*let_end)(void), int flags) {
	handle(SIGUSR1, flags);
	fill(full_pipe[1]), fill(full_pair[0]);
	drain(ends[0]), drain(pair[0]), drain(event_fd);
	rang = is_entering = is_over = 0;
	pthread_t other;
	pthread_create(&other, NULL, disturbs, let_end);
	is_entering = 1;
	long result = call();
	int error = errno;
	is_over = 1;
	pthread_join(other, NULL);
	printf("= %s, %s: ", name, flags ? "SA_RESTART" : "plain");
	if (result < 0)
		printf("%s", strerrorname_np(error));
	else
		printf("%ld", result);
	printf("%s\n", rang ? "" : " undisturbed");
	fflush(stdout);
}

struct waiting {
	const char *name;
	long (*call)(void);
	void (*let_end)(void);
};

static const struct waiting without_limit[] = {
	{"read", in_read, writes}, {"readv", in_readv, writes}, {"write", in_write, empties},
	{"write of more than fits", in_partial_write, NULL}, {"recv", in_recv, sends}, {"recvmsg", in_recvmsg, sends},
	{"send", in_send, receives}, {"accept", in_accept, connects}, {"eventfd", in_eventfd, counts},
	{"poll", in_poll, writes}, {"select", in_select, writes}, {"epoll_wait", in_epoll_wait, writes},
	{"futex", in_futex, wakes}, {"pause", in_pause, wakes_by}, {"sigsuspend", in_sigsuspend, wakes_by},
	{"flock", in_flock, unlocks}, {"open", in_open, opens}, {"sendfile", in_sendfile, empties},
	{"splice from", in_splice, writes}, {"timerfd", in_timerfd, NULL},
};

static const struct waiting with_limit[] = {
	{"poll", in_poll_limited, writes}, {"ppoll", in_ppoll, writes}, {"select", in_select_limited, writes},
	{"pselect", in_pselect, writes}, {"epoll_wait", in_epoll_limited, writes}, {"nanosleep", in_nanosleep, NULL},
	{"clock_nanosleep", in_clock_nanosleep, NULL}, {"until a point of time", in_sleep_until, NULL},
	{"futex", in_futex_limited, wakes}, {"futex until a point of time", in_futex_until, wakes},
};

static int is_partly_over(long long ns) {
	return ns > 0 && ns < 20000 * MS;
}

static void of_both_kinds(int flags) {
	for (unsigned i = 0; i < sizeof without_limit / sizeof *without_limit; i++)
		interrupted(without_limit[i].name, without_limit[i].call, without_limit[i].let_end, flags);
	for (unsigned i = 0; i < sizeof with_limit / sizeof *with_limit; i++) {
		left_time = (struct timespec){0, 0};
		left_value = (struct timeval){0, 0};
		interrupted(with_limit[i].name, with_limit[i].call, with_limit[i].let_end, flags);
		printf("= a part is left: %d %d\n", is_partly_over(left_time.tv_sec * 1000 * MS + left_time.tv_nsec),
		       is_partly_over(left_value.tv_sec * 1000 * MS + left_value.tv_usec * 1000LL));
	}
	struct timeval limit = {20, 0}, none = {0, 0};
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(full_pair[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	interrupted("recv with a limit", in_recv, sends, flags);
	interrupted("send with a limit", in_send, receives, flags);
	interrupted("accept with a limit", in_accept, connects, flags);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
	setsockopt(full_pair[0], SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
	flock(lock_fds[0], LOCK_UN), flock(lock_fds[1], LOCK_EX);
	if ((child = fork()) == 0)
		for (;;)
			pause();
	interrupted("wait4", in_wait, ends_child, flags);
	kill(child, SIGKILL), waitpid(child, NULL, 0);
	if ((child = fork()) == 0)
		for (;;)
			pause();
	interrupted("waitid", in_waitid, ends_child, flags);
	kill(child, SIGKILL), waitpid(child, NULL, 0);
	sigset_t blocked;
	sigemptyset(&blocked), sigaddset(&blocked, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	interrupted("sigtimedwait", in_sigtimedwait, is_signalled, flags);
	interrupted("signalfd", in_signalfd, is_signalled, flags);
	pthread_sigmask(SIG_UNBLOCK, &blocked, NULL);
}

static void timeouts_are_told(void) {
	struct timeval time = {0, 3000}, zero = {0, 0}, wrong = {-1, 0}, more = {0, 2500000};
	say("select for a while", select(0, NULL, NULL, NULL, &time));
	say("nothing is left", time.tv_sec == 0 && time.tv_usec == 0);
	say("for no time", select(0, NULL, NULL, NULL, &zero));
	say("for less", select(0, NULL, NULL, NULL, &wrong));
	write(ends[1], "x", 1);
	fd_set read_set;
	FD_ZERO(&read_set);
	FD_SET(ends[0], &read_set);
	say("something is there", select(ends[0] + 1, &read_set, NULL, NULL, &more));
	say("nearly all is left", more.tv_sec >= 1 && more.tv_usec < 1000000);
	struct timespec rest = {20, 0};
	FD_ZERO(&read_set);
	FD_SET(ends[0], &read_set);
	say("pselect", syscall(SYS_pselect6, ends[0] + 1, &read_set, NULL, NULL, &rest, NULL));
	say("has told, too", rest.tv_sec == 19);
	drain(ends[0]);
}

/* A signal that nobody handles interrupts nothing. */
static void ignored(void) {
	struct timespec time = {0, 150000000};
	signal(SIGUSR1, SIG_IGN);
	is_entering = is_over = 0;
	pthread_t other;
	pthread_create(&other, NULL, disturbs, NULL);
	is_entering = 1;
	say("asleep among ignored signals", nanosleep(&time, NULL));
	is_over = 1;
	pthread_join(other, NULL);
}

static void interruptions(void) {
	struct sockaddr_un name = {AF_UNIX, "listener"};
	struct epoll_event event = {EPOLLIN, {0}};
	sigset_t read_signals, others;
	main_thread = pthread_self();
	sigemptyset(&read_signals), sigaddset(&read_signals, SIGUSR2);
	handle(SIGUSR2, 0);
	pipe(ends), pipe(full_pipe);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair), socketpair(AF_UNIX, SOCK_STREAM, 0, full_pair);
	event_fd = eventfd(0, 0);
	signals_fd = signalfd(-1, &read_signals, SFD_NONBLOCK);
	fcntl(signals_fd, F_SETFL, 0);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	bind(listener, (struct sockaddr *)&name, sizeof name), listen(listener, 5);
	lock_fds[0] = open("lock", O_CREAT | O_RDWR, 0600), lock_fds[1] = open("lock", O_RDWR);
	flock(lock_fds[1], LOCK_EX);
	files = open("files", O_CREAT | O_RDWR, 0600);
	write(files, bytes, 4096), lseek(files, 0, SEEK_SET);
	mkfifo("ends", 0600);
	set = epoll_create1(0);
	epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event);
	of_both_kinds(SA_RESTART);
	of_both_kinds(0);
	timeouts_are_told();
	ignored();
}

int main(void) {
	chdir("/tmp");
	processor_clocks();
	usages();
	interval_timer(ITIMER_PROF, SIGPROF);
	interval_timer(ITIMER_VIRTUAL, SIGVTALRM);
	processor_timers();
	interruptions();
	return 0;
}

/* Threads that compute side by side on two processors, and what others do to them meanwhile. What is seen is printed,
 * a line that begins with "= ", and compared with Linux. Nothing that may differ is printed: no times, no numbers of
 * processes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

enum { PAGE = 4096, PAGES = 256 };

static atomic_int go_on, ready;

/* Computes without a call until it is told to stop. */
static void *spin(void *argument) {
	volatile uint64_t *count = argument;
	ready++;
	while (go_on)
		++*count;
	return NULL;
}

/* Both have begun, and had time enough to be where they compute. */
static void settle(int threads) {
	while (ready < threads)
		;
	usleep(30000);
}

static void start(pthread_t *threads, int count, void *(*main)(void *), volatile uint64_t *arguments) {
	ready = 0;
	go_on = 1;
	for (int i = 0; i < count; i++)
		pthread_create(&threads[i], NULL, main, (void *)&arguments[i]);
}

static void finish(pthread_t *threads, int count) {
	go_on = 0;
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void *compute_on(void *argument) {
	uint64_t *own = argument;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(*own, &set);
	sched_setaffinity(0, sizeof set, &set);
	ready++;
	for (volatile uint64_t i = 0; i < 100000000; i++)
		;
	*own = sched_getcpu();
	return NULL;
}

/* Each may be on one processor, and is there when it has computed. */
static void places(void) {
	cpu_set_t both;
	pthread_t threads[2];
	volatile uint64_t where[2] = {0, 1};
	CPU_ZERO(&both);
	CPU_SET(0, &both);
	CPU_SET(1, &both);
	say("may be on both", sched_setaffinity(0, sizeof both, &both));
	CPU_ZERO(&both);
	say("processors", sysconf(_SC_NPROCESSORS_ONLN) >= 2);
	say("is told so", sched_getaffinity(0, sizeof both, &both) != -1 ? CPU_COUNT(&both) : -1);
	start(threads, 2, compute_on, where);
	finish(threads, 2);
	say("the first was on", where[0]);
	say("the second was on", where[1]);
	CPU_ZERO(&both);
	say("on none", sched_setaffinity(0, sizeof both, &both));
	CPU_SET(1, &both);
	say("nobody's", sched_setaffinity(999999, sizeof both, &both));
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t locked_sum;
static _Atomic uint64_t atomic_sum;

static void *add(void *unused) {
	ready++;
	while (ready < 2)
		;
	for (int i = 0; i < 3000000; i++)
		atomic_sum++;
	for (int i = 0; i < 200000; i++) {
		pthread_mutex_lock(&lock);
		for (volatile int j = 0; j < 20; j++)
			;
		locked_sum++;
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void sums(void) {
	pthread_t threads[2];
	volatile uint64_t unused[2];
	start(threads, 2, add, unused);
	finish(threads, 2);
	say("added by atomics", atomic_sum);
	say("added under a lock", locked_sum);
}

static atomic_int handled;

static void note(int signal) {
	handled++;
}

/* Signals come to a thread that makes no call, on the other processor, from one that hardly does. */
static void signals(void) {
	pthread_t thread;
	volatile uint64_t count = 0;
	cpu_set_t second;
	CPU_ZERO(&second);
	CPU_SET(1, &second);
	signal(SIGUSR1, note);
	start(&thread, 1, spin, &count);
	pthread_setaffinity_np(thread, sizeof second, &second);
	settle(1);
	for (int i = 0; i < 200; i++) {
		pthread_kill(thread, SIGUSR1);
		while (handled <= i)
			;
	}
	finish(&thread, 1);
	say("signals", handled);
}

/* Processor time of threads that compute elsewhere, and a timer on it. */
static void processor_time(void) {
	pthread_t threads[2];
	clockid_t clock;
	struct timespec time;
	volatile uint64_t counts[2] = {0};
	struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
	signal(SIGPROF, note);
	handled = 0;
	start(threads, 2, spin, counts);
	settle(2);
	setitimer(ITIMER_PROF, &often, NULL);
	while (handled < 5)
		usleep(1000);
	setitimer(ITIMER_PROF, &never, NULL);
	say("a timer on it rang", handled >= 5);
	for (int i = 0; i < 2; i++) {
		pthread_getcpuclockid(threads[i], &clock);
		do
			clock_gettime(clock, &time);
		while (!time.tv_sec && time.tv_nsec < 5000000);
		say("its clock went on", counts[i] > 0);
	}
	finish(threads, 2);
}

struct pairs {
	volatile uint64_t first, second;
	char rest[PAGE - 16];
};

static struct pairs *pairs;

/* Changes a page's first word, then its second, of one page after the other. */
static void *change_pairs(void *unused) {
	ready++;
	for (uint64_t round = 1; go_on; round++)
		for (int i = 0; i < 64; i++) {
			pairs[i].first = round;
			pairs[i].second = round;
		}
	return NULL;
}

static int torn(void) {
	int count = 0;
	for (int i = 0; i < 64; i++)
		count += pairs[i].first - pairs[i].second > 1;
	return count;
}

/* Processes that begin as a copy of one whose other thread writes: what they have is of one moment, and stays. */
static void copies(void) {
	pthread_t thread;
	volatile uint64_t unused;
	int wrong = 0, status;
	pairs = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	start(&thread, 1, change_pairs, &unused);
	settle(1);
	for (int i = 0; i < 50; i++) {
		pid_t child = fork();
		if (child == 0) {
			uint64_t sum = 0, again = 0;
			int count = torn();
			for (int j = 0; j < 64; j++)
				sum += pairs[j].first;
			for (volatile int j = 0; j < 1000000; j++)
				;
			for (int j = 0; j < 64; j++)
				again += pairs[j].first;
			_exit(count + (sum != again));
		}
		waitpid(child, &status, 0);
		wrong += WEXITSTATUS(status);
	}
	finish(&thread, 1);
	say("copies that were torn", wrong);
	for (int i = 0; i < 64; i++)
		wrong += pairs[i].first != pairs[i].second;
	say("writes that were lost", wrong);
}

static volatile uint8_t *words;
static pthread_barrier_t barrier;

static atomic_int at_page[2];

/* Each writes its own words of all pages, both at the same time. */
static void *write_words(void *argument) {
	uint64_t own = *(uint64_t *)argument;
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < PAGES; i++) {
		at_page[own] = i;
		while (at_page[!own] < i)
			;
		words[i * PAGE + own] = own + 1;
	}
	return NULL;
}

/* What two threads write on pages that a child has, too, is there, wherever the copy was made. */
static void written_by_two(void) {
	pthread_t threads[2];
	volatile uint64_t which[2] = {0, 1};
	int lost = 0;
	pthread_barrier_init(&barrier, NULL, 2);
	for (int round = 0; round < 60; round++) {
		words = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < PAGES; i++)
			words[i * PAGE + 9] = 9;
		pid_t child = fork();
		if (child == 0) {
			pause();
			_exit(0);
		}
		at_page[0] = at_page[1] = -1;
		start(threads, 2, write_words, which);
		finish(threads, 2);
		for (int i = 0; i < PAGES; i++)
			lost += words[i * PAGE] != 1 || words[i * PAGE + 1] != 2 || words[i * PAGE + 9] != 9;
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		munmap((void *)words, PAGES * PAGE);
	}
	say("words that were lost", lost);
}

static atomic_int wrong_pages;

/* What a page of a file has must be there as soon as the page is. */
static void *read_file(void *argument) {
	pthread_barrier_wait(&barrier);
	for (int i = 0; i < PAGES; i++)
		wrong_pages += words[i * PAGE + 100] != (uint8_t)(i + 1);
	return NULL;
}

static void file_by_two(int flags, const char *what) {
	pthread_t threads[2];
	volatile uint64_t unused[2];
	static uint8_t page[PAGE];
	wrong_pages = 0;
	int file = open("/tmp/pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
	for (int i = 0; i < PAGES; i++) {
		memset(page, i + 1, PAGE);
		if (write(file, page, PAGE) != PAGE)
			say("write", -1);
	}
	for (int round = 0; round < 20; round++) {
		words = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, file, 0);
		start(threads, 2, read_file, unused);
		finish(threads, 2);
		munmap((void *)words, PAGES * PAGE);
	}
	close(file);
	unlink("/tmp/pages");
	say(what, wrong_pages);
}

static volatile uint8_t *guarded;
static atomic_int faults;

static void let_in(int signal) {
	mprotect((void *)guarded, PAGE, PROT_READ | PROT_WRITE);
	faults++;
}

static void *write_guarded(void *argument) {
	ready++;
	while (go_on)
		guarded[0]++;
	return NULL;
}

/* Memory that is closed to a thread while it writes there, as collectors of garbage do. */
static void protection(void) {
	pthread_t thread;
	volatile uint64_t unused;
	guarded = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	signal(SIGSEGV, let_in);
	start(&thread, 1, write_guarded, &unused);
	settle(1);
	for (int i = 0; i < 100; i++) {
		mprotect((void *)guarded, PAGE, i & 1 ? PROT_NONE : PROT_READ);
		while (faults <= i)
			;
	}
	finish(&thread, 1);
	say("faults", faults);
}

/* A child whose two other threads compute, and count in shared memory. */
static pid_t counting(volatile uint64_t *counts) {
	pid_t child = fork();
	if (child == 0) {
		pthread_t threads[2];
		start(threads, 2, spin, counts);
		settle(2);
		counts[2] = 1;
		pause();
	}
	while (!counts[2])
		usleep(1000);
	return child;
}

/* Whoever computes elsewhere is stopped, goes on, and ends with its process. */
static void ends(void) {
	volatile uint64_t *counts =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t child = counting(counts);
	kill(child, SIGSTOP);
	say("stopped", waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	uint64_t before[2] = {counts[0], counts[1]};
	usleep(20000);
	say("counted while it was stopped", counts[0] != before[0] || counts[1] != before[1]);
	kill(child, SIGCONT);
	while (counts[0] == before[0] || counts[1] == before[1])
		usleep(1000);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	say("ended by", WTERMSIG(status));
	before[0] = counts[0];
	usleep(20000);
	say("counted after its end", counts[0] != before[0]);
	for (int way = 0; way < 2; way++) {
		child = fork();
		if (child == 0) {
			pthread_t threads[2];
			volatile uint64_t own[2];
			start(threads, 2, spin, own);
			settle(2);
			if (way)
				execl("/proc/self/exe", "cores", "and end", NULL);
			_exit(4);
		}
		waitpid(child, &status, 0);
		say(way ? "another program's end" : "its own end", WEXITSTATUS(status));
	}
}

/* Many processes that compute, one after the other and several at a time: none is left over, nor what it had. */
static void many(void) {
	int sum = 0, status;
	for (int round = 0; round < 40; round++) {
		pid_t children[3];
		for (int i = 0; i < 3; i++) {
			children[i] = fork();
			if (children[i] == 0) {
				for (volatile uint64_t j = 0; j < 3000000; j++)
					;
				_exit(i + 1);
			}
		}
		for (int i = 0; i < 3; i++) {
			waitpid(children[i], &status, 0);
			sum += WEXITSTATUS(status);
		}
	}
	say("ends of many", sum);
}

static int may_write, seen_late, first, second;

/* Writes one word, then reads another, without a barrier but the compiler's. */
static void *write_and_read(void *unused) {
	ready++;
	while (go_on) {
		while (go_on && !__atomic_load_n(&may_write, __ATOMIC_ACQUIRE))
			;
		__atomic_store_n(&first, 1, __ATOMIC_RELAXED);
		__asm__ volatile("" ::: "memory");
		int other = __atomic_load_n(&second, __ATOMIC_RELAXED);
		__atomic_store_n(&seen_late, !other, __ATOMIC_RELAXED);
		__atomic_store_n(&may_write, 0, __ATOMIC_RELEASE);
	}
	return NULL;
}

static long barrier_of(int command, int flags) {
	return syscall(SYS_membarrier, command, flags, 0);
}

/* A barrier that another thread has without knowing: one of both sees what the other wrote. */
static void barriers(void) {
	enum { PRIVATE = 8, REGISTER_PRIVATE = 16, CORE = 32, REGISTER_CORE = 64 };
	pthread_t thread;
	volatile uint64_t unused;
	int unseen = 0;
	say("there are barriers", (barrier_of(0, 0) & 127) == 127);
	say("not asked for", barrier_of(PRIVATE, 0));
	say("asked for", barrier_of(REGISTER_PRIVATE, 0));
	say("one", barrier_of(PRIVATE, 0));
	say("another kind, not asked for", barrier_of(CORE, 0));
	say("asked for", barrier_of(REGISTER_CORE, 0));
	say("another kind", barrier_of(CORE, 0));
	say("with a flag", barrier_of(PRIVATE, 2));
	say("of no kind", barrier_of(1 << 20, 0));
	start(&thread, 1, write_and_read, &unused);
	settle(1);
	for (int i = 0; i < 200; i++) {
		first = second = 0;
		__atomic_store_n(&may_write, 1, __ATOMIC_RELEASE);
		__atomic_store_n(&second, 1, __ATOMIC_RELAXED);
		barrier_of(PRIVATE, 0);
		int other = __atomic_load_n(&first, __ATOMIC_RELAXED);
		while (__atomic_load_n(&may_write, __ATOMIC_ACQUIRE))
			;
		unseen += !other && seen_late;
	}
	finish(&thread, 1);
	say("neither saw the other", unseen);
}

int main(int count, char **arguments) {
	if (count > 1)
		return 5;
	places();
	barriers();
	sums();
	signals();
	processor_time();
	copies();
	written_by_two();
	file_by_two(MAP_PRIVATE, "wrong pages of a file");
	file_by_two(MAP_SHARED, "wrong pages of one that is shared");
	protection();
	ends();
	many();
	return 0;
}

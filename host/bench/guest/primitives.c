/*
 * What programs ask of their system most, each timed by itself: the same file runs in the Debian guest and on nom.
 *
 * Prints `figure name=.. cycles=..` for each, the median of many batches, by the time-stamp counter: as init.rs
 * beside it does. Where QEMU counts instructions (`-icount shift=0`) that counter counts them, too.
 *
 * Where there are several processors it times only what concerns two of them.
 *
 * `nom bench linux` compiles it with this computer's cc, and says in both guests `primitives`; called with an
 * argument, as it does by itself, it ends at once.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { BATCHES = 31, CALLS = 200, SWITCHES = 1000, PAGE = 4096, PAGES = 256, FILE_BYTES = 64 * PAGE };
enum { LARGE_PAGES = 2048, COMPUTED = 20000000 };

typedef unsigned long long cycles;

static void check(int is_good, const char *what)
{
    if (!is_good) {
        perror(what);
        exit(1);
    }
}

static int ascending(const void *a, const void *b)
{
    cycles x = *(const cycles *)a, y = *(const cycles *)b;
    return (x > y) - (x < y);
}

/* The median of so many batches, which return the cycles of one operation. */
static void figure(const char *name, int batches, cycles (*batch)(void))
{
    cycles samples[BATCHES];
    batch();
    for (int i = 0; i < batches; i++)
        samples[i] = batch();
    qsort(samples, batches, sizeof *samples, ascending);
    printf("figure name=%s cycles=%llu\n", name, samples[batches / 2]);
    fflush(stdout);
}

static cycles system_call(void)
{
    cycles start = __rdtsc();
    for (int i = 0; i < CALLS; i++)
        syscall(SYS_getppid);
    return (__rdtsc() - start) / CALLS;
}

static cycles clock_read(void)
{
    struct timespec time;
    cycles start = __rdtsc();
    for (int i = 0; i < CALLS; i++)
        clock_gettime(CLOCK_MONOTONIC, &time);
    return (__rdtsc() - start) / CALLS;
}

/* Two threads, each of which waits until the other has had its turn. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned[2] = {PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};
static int turn;

static void take_turns(int self, int count)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++) {
        while (turn != self)
            pthread_cond_wait(&turned[self], &lock);
        turn = !self;
        pthread_cond_signal(&turned[!self]);
    }
    pthread_mutex_unlock(&lock);
}

static void *other_thread(void *unused)
{
    (void)unused;
    take_turns(1, (BATCHES + 1) * SWITCHES);
    return NULL;
}

static cycles context_switch(void)
{
    cycles start = __rdtsc();
    take_turns(0, SWITCHES);
    /* There and back. */
    return (__rdtsc() - start) / (2 * SWITCHES);
}

/* Two processes, of which each waits for the other's byte. */
static int there[2], back[2];

static cycles pipe_round_trip(void)
{
    char byte = 0;
    cycles start = __rdtsc();
    for (int i = 0; i < SWITCHES; i++) {
        check(write(there[1], &byte, 1) == 1, "write");
        check(read(back[0], &byte, 1) == 1, "read");
    }
    return (__rdtsc() - start) / SWITCHES;
}

static void pipes(void)
{
    check(pipe(there) == 0 && pipe(back) == 0, "pipe");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        char byte;
        close(there[1]);
        while (read(there[0], &byte, 1) == 1)
            check(write(back[1], &byte, 1) == 1, "write");
        _exit(0);
    }
    figure("pipe_round_trip", BATCHES, pipe_round_trip);
    close(there[1]);
    check(waitpid(child, NULL, 0) == child, "waitpid");
}

static cycles page_fault(void)
{
    char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(pages != MAP_FAILED, "mmap");
    /* Large pages would hide what a fault costs; a system without them need not know the word. */
    madvise(pages, PAGES * PAGE, MADV_NOHUGEPAGE);
    cycles start = __rdtsc();
    for (int i = 0; i < PAGES; i++)
        *(volatile char *)(pages + i * PAGE) = 1;
    cycles end = __rdtsc();
    check(munmap(pages, PAGES * PAGE) == 0, "munmap");
    return (end - start) / PAGES;
}

/* Memory of LARGE_PAGES, of whatever pages the system takes for it, filled in order: for each 4 KiB. */
static char *large;

static cycles fill(void)
{
    cycles start = __rdtsc();
    for (int i = 0; i < LARGE_PAGES; i++)
        *(volatile char *)(large + i * PAGE) += 1;
    return (__rdtsc() - start) / LARGE_PAGES;
}

static void map_large(void)
{
    large = mmap(NULL, LARGE_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(large != MAP_FAILED, "mmap");
    madvise(large, LARGE_PAGES * PAGE, MADV_HUGEPAGE);
}

static cycles large_fault(void)
{
    map_large();
    cycles each = fill();
    check(munmap(large, LARGE_PAGES * PAGE) == 0, "munmap");
    return each;
}

/* The same where a child had it, too, that has ended. */
static cycles write_after_fork(void)
{
    map_large();
    fill();
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0)
        _exit(0);
    check(waitpid(child, NULL, 0) == child, "waitpid");
    cycles each = fill();
    check(munmap(large, LARGE_PAGES * PAGE) == 0, "munmap");
    return each;
}

static cycles map_unmap(void)
{
    cycles start = __rdtsc();
    for (int i = 0; i < SWITCHES; i++) {
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(page != MAP_FAILED, "mmap");
        *(volatile char *)page = 1;
        check(munmap(page, PAGE) == 0, "munmap");
    }
    return (__rdtsc() - start) / SWITCHES;
}

/* A file that is in memory since it was written. */
static int file;
static char contents[FILE_BYTES];

static cycles read_page(void)
{
    cycles start = __rdtsc();
    for (int i = 0; i < FILE_BYTES / PAGE; i++)
        check(pread(file, contents, PAGE, i * PAGE) == PAGE, "pread");
    return (__rdtsc() - start) / (FILE_BYTES / PAGE);
}

static cycles read_whole(void)
{
    cycles start = __rdtsc();
    check(pread(file, contents, FILE_BYTES, 0) == FILE_BYTES, "pread");
    return __rdtsc() - start;
}

static void files(void)
{
    file = open("/tmp/primitives", O_RDWR | O_CREAT | O_TRUNC, 0600);
    check(file >= 0, "/tmp/primitives");
    memset(contents, 'x', FILE_BYTES);
    check(write(file, contents, FILE_BYTES) == FILE_BYTES, "write");
    figure("read_4k", BATCHES, read_page);
    figure("read_256k", BATCHES, read_whole);
}

static cycles fork_exit(void)
{
    cycles start = __rdtsc();
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0)
        _exit(0);
    check(waitpid(child, NULL, 0) == child, "waitpid");
    return __rdtsc() - start;
}

static char *self;

static cycles fork_exec(void)
{
    cycles start = __rdtsc();
    pid_t child = fork();
    check(child >= 0, "fork");
    if (child == 0) {
        execl(self, self, "and end", (char *)NULL);
        _exit(127);
    }
    int status;
    check(waitpid(child, &status, 0) == child && status == 0, "waitpid");
    return __rdtsc() - start;
}

static void stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    check(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

/* Computes for some milliseconds, without a call. */
static void *compute(void *unused)
{
    (void)unused;
    for (volatile int i = 0; i < COMPUTED; i++)
        ;
    return NULL;
}

static void *end_at_once(void *unused)
{
    return unused;
}

static cycles compute_beside(void *(*second)(void *))
{
    pthread_t thread;
    cycles start = __rdtsc();
    check(pthread_create(&thread, NULL, second, NULL) == 0, "pthread_create");
    compute(NULL);
    pthread_join(thread, NULL);
    return __rdtsc() - start;
}

/* Beside a thread that does nothing: what makes one counts in both. */
static cycles compute_alone(void)
{
    return compute_beside(end_at_once);
}

/* Twice as much, by two threads. */
static cycles compute_by_two(void)
{
    return compute_beside(compute);
}

static void *other_thread_elsewhere(void *unused)
{
    stay_on(1);
    return other_thread(unused);
}

static void two_processors(void)
{
    pthread_t other;
    figure("compute_alone", BATCHES, compute_alone);
    figure("compute_by_two", BATCHES, compute_by_two);
    stay_on(0);
    check(pthread_create(&other, NULL, other_thread_elsewhere, NULL) == 0, "pthread_create");
    figure("context_switch", BATCHES, context_switch);
    pthread_join(other, NULL);
}

static void one_processor(void)
{
    figure("system_call", BATCHES, system_call);
    figure("clock_read", BATCHES, clock_read);
    figure("page_fault", BATCHES, page_fault);
    figure("large_fault", BATCHES, large_fault);
    figure("write_after_fork", BATCHES, write_after_fork);
    figure("map_unmap", BATCHES, map_unmap);
    files();
    pthread_t other;
    check(pthread_create(&other, NULL, other_thread, NULL) == 0, "pthread_create");
    figure("context_switch", BATCHES, context_switch);
    pthread_join(other, NULL);
    pipes();
    figure("fork_exit", BATCHES / 2, fork_exit);
    figure("fork_exec", BATCHES / 2, fork_exec);
}

int main(int count, char **arguments)
{
    if (count > 1)
        return 0;
    self = arguments[0];
    if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
        two_processors();
    else
        one_processor();
    puts("figures end");
    return 0;
}

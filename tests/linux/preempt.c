/* Processes that make no system call, beside others that want the processor, too. What each sees is printed, a line
 * that begins with "= ", and compared with Linux. Nothing that may differ is printed: no times, no process numbers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

/* What is in all registers of a process: RAX to R15 but for RCX and RSP, then RSP, flags, control words of SSE and
 * x87, the stack of x87, and sixteen vector registers. */
struct state {
	uint64_t general[14], rsp, flags;
	uint32_t mxcsr, control;
	double x87[8];
	uint8_t vector[16][32] __attribute__((aligned(32)));
} __attribute__((aligned(32)));

/* As the assembly below has it. */
_Static_assert(offsetof(struct state, rsp) == 112 && offsetof(struct state, flags) == 120, "");
_Static_assert(offsetof(struct state, mxcsr) == 128 && offsetof(struct state, x87) == 136, "");
_Static_assert(offsetof(struct state, vector) == 224, "");

struct state given, found;
uint64_t rounds, own_stack, own_base, has_avx;
void fill_and_count(void);

/* Fills the registers from `given`, counts `rounds` down with RCX alone, and stores them in `found`. In between it
 * touches no memory, and the stack is wherever RSP happens to point. */
__asm__(
	".text\n.globl fill_and_count\nfill_and_count:\n"
	"push %rbx\npush %rbp\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp, own_stack(%rip)\n"
	"fninit\nfldcw given+132(%rip)\nldmxcsr given+128(%rip)\n"
	".irp n,0,1,2,3,4,5,6,7\nfldl given+136+8*\\n(%rip)\n.endr\n"
	"cmpq $0, has_avx(%rip)\nje 1f\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvmovaps given+224+32*\\n(%rip), %ymm\\n\n.endr\n"
	"jmp 2f\n"
	"1:\n.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovaps given+224+32*\\n(%rip), %xmm\\n\n.endr\n"
	"2: mov rounds(%rip), %rcx\n"
	"pushq given+120(%rip)\npopfq\n"
	"mov given+112(%rip), %rsp\n"
	"mov given(%rip), %rax\nmov given+8(%rip), %rbx\nmov given+16(%rip), %rdx\nmov given+24(%rip), %rsi\n"
	"mov given+32(%rip), %rdi\nmov given+40(%rip), %rbp\nmov given+48(%rip), %r8\nmov given+56(%rip), %r9\n"
	"mov given+64(%rip), %r10\nmov given+72(%rip), %r11\nmov given+80(%rip), %r12\nmov given+88(%rip), %r13\n"
	"mov given+96(%rip), %r14\nmov given+104(%rip), %r15\n"
	"3: lea -1(%rcx), %rcx\njrcxz 4f\njmp 3b\n"
	"4: mov %rax, found(%rip)\nmov %rbx, found+8(%rip)\nmov %rdx, found+16(%rip)\nmov %rsi, found+24(%rip)\n"
	"mov %rdi, found+32(%rip)\nmov %rbp, found+40(%rip)\nmov %r8, found+48(%rip)\nmov %r9, found+56(%rip)\n"
	"mov %r10, found+64(%rip)\nmov %r11, found+72(%rip)\nmov %r12, found+80(%rip)\nmov %r13, found+88(%rip)\n"
	"mov %r14, found+96(%rip)\nmov %r15, found+104(%rip)\nmov %rsp, found+112(%rip)\n"
	"mov own_stack(%rip), %rsp\n"
	"pushfq\npopq found+120(%rip)\npushq $0x202\npopfq\n"
	"mov %fs:0, %rax\nmov %rax, own_base(%rip)\n"
	"cmpq $0, has_avx(%rip)\nje 5f\n"
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvmovaps %ymm\\n, found+224+32*\\n(%rip)\n.endr\n"
	"vzeroupper\njmp 6f\n"
	"5:\n.irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nmovaps %xmm\\n, found+224+32*\\n(%rip)\n.endr\n"
	"6: stmxcsr found+128(%rip)\nfnstcw found+132(%rip)\n"
	".irp n,7,6,5,4,3,2,1,0\nfstpl found+136+8*\\n(%rip)\n.endr\n"
	"fninit\npushq $0x1f80\nldmxcsr (%rsp)\npop %rax\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbp\npop %rbx\nret\n");

static uint64_t next(uint64_t *random) {
	*random = *random * 6364136223846793005 + 1442695040888963407;
	return *random ^ *random >> 29;
}

static void make_state(uint64_t *random) {
	/* Carry, parity, adjust, zero, sign, direction, overflow, alignment check; 1 and interrupts are always there. */
	const uint64_t flags = 0x40cd5;
	const uint16_t rounding = next(random) & 0xc00;
	for (int i = 0; i < 14; i++)
		given.general[i] = next(random);
	given.rsp = next(random);
	given.flags = (next(random) & flags) | 0x202;
	given.mxcsr = 0x1f80 | rounding << 3;
	given.control = 0x37f | rounding;
	for (int i = 0; i < 8; i++)
		given.x87[i] = (double)next(random);
	for (unsigned i = 0; i < sizeof given.vector; i++)
		((uint8_t *)given.vector)[i] = next(random);
	if (!has_avx)
		for (int i = 0; i < 16; i++)
			memset(given.vector[i] + 16, 0, 16);
}

/* Counts with full registers until it is enough, and whether anything was changed meanwhile. */
static void keep_registers(volatile int *enough, volatile uint64_t *wrong, uint64_t seed) {
	uint64_t random = seed, base = (uint64_t)pthread_self();
	while (!*enough) {
		make_state(&random);
		fill_and_count();
		found.control &= 0xffff;
		if (memcmp(&given, &found, sizeof given) || own_base != base)
			++*wrong;
	}
}

static uint64_t now_ms(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

struct shared {
	volatile int enough;
	volatile uint64_t wrong, counts[2], progress;
};

/* Two processes keep their registers full, a third one computes with vectors of its own, this one sleeps. */
static void registers(struct shared *shared) {
	pid_t children[3];
	has_avx = __builtin_cpu_supports("avx");
	/* A few milliseconds: shorter than a turn, so that one ends at any place. */
	rounds = 3000000;
	for (int i = 0; i < 3; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			if (i < 2)
				keep_registers(&shared->enough, &shared->wrong, i + 1);
			for (volatile double sum = 0; !shared->enough; sum += 1.5)
				;
			_exit(0);
		}
	}
	for (int i = 0; i < 100; i++)
		usleep(10000);
	shared->enough = 1;
	for (int i = 0; i < 3; i++)
		waitpid(children[i], NULL, 0);
	say("registers that were not kept", shared->wrong);
}

/* Two processes that only count have about the same, and who sleeps wakes meanwhile. */
static void shares(struct shared *shared) {
	pid_t children[2];
	int status;
	/* On one processor, or each has what others leave of another one. */
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof one, &one);
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0)
			for (;;)
				shared->counts[i]++;
	}
	while (!shared->counts[0] || !shared->counts[1])
		usleep(1000);
	uint64_t before[2] = {shared->counts[0], shared->counts[1]};
	for (int i = 0; i < 100; i++)
		usleep(10000);
	uint64_t first = shared->counts[0] - before[0], second = shared->counts[1] - before[1];
	say("about equal shares", first < second * 2 && second < first * 2);
	for (int i = 0; i < 2; i++) {
		kill(children[i], i ? SIGKILL : SIGTERM);
		say("the one that counts is there", waitpid(children[i], &status, 0) == children[i]);
		say("and is ended by", WTERMSIG(status));
	}
}

static volatile sig_atomic_t rings;

static void ring(int signal) {
	rings++;
}

/* Signals come while a process computes, from a timer and from a child, and time passes. */
static void signals(void) {
	struct itimerval often = {{0, 10000}, {0, 10000}}, never = {{0, 0}, {0, 0}};
	signal(SIGALRM, ring);
	signal(SIGUSR1, ring);
	setitimer(ITIMER_REAL, &often, NULL);
	while (rings < 5)
		;
	setitimer(ITIMER_REAL, &never, NULL);
	say("the timer rang", rings >= 5);
	rings = 0;
	pid_t child = fork();
	if (child == 0) {
		usleep(5000);
		kill(getppid(), SIGUSR1);
		_exit(3);
	}
	while (!rings)
		;
	say("a signal of a child's", rings);
	waitpid(child, NULL, 0);
}

static __thread volatile uint64_t own;
static volatile int go_on = 1;

static void *count_own(void *argument) {
	uint64_t start = (uint64_t)argument << 56;
	own = start;
	while (go_on)
		own++;
	return (void *)(uint64_t)(own >> 56 == start >> 56 && own > start);
}

/* Threads, each with memory of its own behind FS. */
static void threads(void) {
	pthread_t all[3];
	void *kept;
	for (uint64_t i = 0; i < 3; i++)
		pthread_create(&all[i], NULL, count_own, (void *)(i + 1));
	for (int i = 0; i < 30; i++)
		usleep(10000);
	go_on = 0;
	for (int i = 0; i < 3; i++) {
		pthread_join(all[i], &kept);
		say("a thread kept what is its own", (long)kept);
	}
}

/* Threads that use other parts of a processor's registers each, and find them as they left them: while they compute
 * without a call, and behind a call that lets others run. Who uses a part of them not finds nothing there. */
enum { PLAIN, X87, X87_CONTROL, X87_POPPED, MMX, AVX, PARTS };

static volatile int parts_enough;
static uint64_t part_rounds[PARTS];

/* Either computes for a while or has others run, and changes no register but these. */
#define PAUSE \
	"mov %[spin], %%rcx\njrcxz 2f\n1: lea -1(%%rcx), %%rcx\njrcxz 3f\njmp 1b\n" \
	"2: mov $24, %%eax\nsyscall\n3:\n"
#define CHANGED "rax", "rcx", "r11", "memory", "cc"

/* How many of its upper halves are not zero. */
static int upper_halves(void) {
	uint64_t halves[16][2], sum = 0;
	if (!has_avx)
		return 0;
	__asm__ volatile(
		".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvextractf128 $1, %%ymm\\n, 16*\\n(%0)\n.endr\n"
		: : "r"(halves) : "memory");
	for (int i = 0; i < 16; i++)
		sum += halves[i][0] || halves[i][1];
	return sum;
}

/* Nothing on x87's stack, nothing set, and no more in its registers than `contents`. */
static int x87_is_empty(uint64_t contents) {
	uint16_t environment[14];
	uint64_t registers[8];
	__asm__ volatile("fnstenv %0\nfldenv %0\n"
		".irp n,0,1,2,3,4,5,6,7\nmovq %%mm\\n, 8*\\n(%1)\n.endr\nemms\n"
		: "=m"(environment) : "r"(registers) : "memory");
	for (int i = 0; i < 8; i++)
		if (registers[i] != contents)
			return 0;
	return environment[0] == 0x37f && (environment[2] & 0x3800) == 0 && environment[4] == 0xffff;
}

static void fill_mmx(uint64_t value) {
	__asm__ volatile(".irp n,0,1,2,3,4,5,6,7\nmovq %0, %%mm\\n\n.endr\n" : : "r"(value));
}

static int keeps_plain(uint64_t spin, uint64_t value) {
	uint64_t kept;
	fill_mmx(0);
	__asm__ volatile("emms\nmovq %[value], %%xmm7\n" PAUSE "movq %%xmm7, %[kept]\n"
		: [kept] "=r"(kept) : [value] "r"(value), [spin] "r"(spin) : CHANGED, "xmm7");
	return kept == value && x87_is_empty(0) && upper_halves() == 0;
}

static int keeps_x87(uint64_t spin, uint64_t value) {
	double given[2] = {(double)value, 0.5}, kept[2];
	__asm__ volatile("fninit\nfldl (%[given])\nfldl 8(%[given])\n" PAUSE "fstpl 8(%[kept])\nfstpl (%[kept])\n"
		: : [given] "r"(given), [kept] "r"(kept), [spin] "r"(spin) : CHANGED);
	return kept[0] == given[0] && kept[1] == given[1];
}

static int keeps_control(uint64_t spin, uint64_t value) {
	uint16_t given = 0x37f | (value & 0xc00), kept;
	__asm__ volatile("fninit\nfldcw %[given]\n" PAUSE "fnstcw %[kept]\nfninit\n"
		: [kept] "=m"(kept) : [given] "m"(given), [spin] "r"(spin) : CHANGED);
	return (kept & 0xf3f) == (given & 0xf3f);
}

/* What MMX's registers have is there behind EMMS, too. */
static int keeps_popped(uint64_t spin, uint64_t value) {
	fill_mmx(value);
	__asm__ volatile("emms\n" PAUSE : : [spin] "r"(spin) : CHANGED);
	return x87_is_empty(value);
}

static int keeps_mmx(uint64_t spin, uint64_t value) {
	uint64_t registers[8];
	fill_mmx(value);
	__asm__ volatile(PAUSE ".irp n,0,1,2,3,4,5,6,7\nmovq %%mm\\n, 8*\\n(%[to])\n.endr\nemms\n"
		: : [to] "r"(registers), [spin] "r"(spin) : CHANGED);
	for (int i = 0; i < 8; i++)
		if (registers[i] != value)
			return 0;
	return 1;
}

/* One upper half is enough to be kept, whichever it is. */
static int keeps_avx(uint64_t spin, uint64_t value) {
	uint64_t given[4] = {0, 0, 0, value}, kept[16][4];
	if (!has_avx)
		return 1;
	__asm__ volatile(
		"vzeroall\nvmovups %[given], %%ymm14\n" PAUSE
		".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\nvmovups %%ymm\\n, 32*\\n(%[kept])\n.endr\nvzeroall\n"
		: : [given] "m"(given), [kept] "r"(kept), [spin] "r"(spin)
		: CHANGED, "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
		"xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
	int wrong = 0;
	for (int i = 0; i < 16; i++)
		for (int word = 0; word < 4; word++)
			wrong += kept[i][word] != (i == 14 && word == 3 ? value : 0);
	return wrong == 0;
}

static void *keep_part(void *argument) {
	static int (*const keeps[PARTS])(uint64_t, uint64_t) =
		{keeps_plain, keeps_x87, keeps_control, keeps_popped, keeps_mmx, keeps_avx};
	const int part = (uint64_t)argument % PARTS;
	uint64_t random = (uint64_t)argument + 1, wrong = 0;
	for (int i = 0; !parts_enough; i++) {
		/* Most pauses are calls; the others some milliseconds. */
		uint64_t spin = i % 64 ? 0 : 2000000, value = next(&random) | 1;
		wrong += !keeps[part](spin, value);
		part_rounds[part]++;
	}
	return (void *)wrong;
}

static void on_signal(int signal) {
	double changed = signal;
	__asm__ volatile("fninit\nfldl %0\n" : : "m"(changed));
	if (has_avx)
		__asm__ volatile("vpcmpeqb %%xmm14, %%xmm14, %%xmm14\nvinsertf128 $1, %%xmm14, %%ymm14, %%ymm14\n"
			: : : "xmm14");
}

static void parts(void) {
	static const char *const names[PARTS] =
		{"plain", "x87", "x87's control word", "x87's empty registers", "MMX", "AVX"};
	pthread_t all[2 * PARTS];
	void *wrong;
	signal(SIGUSR2, on_signal);
	for (uint64_t i = 0; i < 2 * PARTS; i++)
		pthread_create(&all[i], NULL, keep_part, (void *)i);
	for (int i = 0; i < 60; i++) {
		usleep(10000);
		/* Its handler uses registers of its own; and a child has what its parent had. */
		pthread_kill(all[i % (2 * PARTS)], SIGUSR2);
	}
	parts_enough = 1;
	for (int i = 0; i < 2 * PARTS; i++) {
		pthread_join(all[i], &wrong);
		say(names[i % PARTS], (long)wrong);
	}
	for (int i = 0; i < PARTS; i++)
		say("and it was looked at often", part_rounds[i] > 20);
}

/* A child has the registers of its parent, also those that a parent has in the processor alone. */
static void inherited(void) {
	double given = 7.25, kept = 0;
	uint64_t half[4] = {1, 2, 3, 4}, found[4] = {1, 2, 3, 4};
	pid_t child;
	int status;
	for (int use = 0; use < 2; use++) {
		__asm__ volatile("fninit\nfldl %0\n" : : "m"(given));
		if (use && has_avx)
			__asm__ volatile("vmovups %0, %%ymm13\n" : : "m"(half) : "xmm13");
		__asm__ volatile("mov $57, %%eax\nsyscall\n" : "=a"(child) : : "rcx", "r11", "memory");
		if (use && has_avx)
			__asm__ volatile("vmovups %%ymm13, %0\nvzeroupper\n" : "=m"(found) : : "xmm13");
		__asm__ volatile("fstpl %0\n" : "=m"(kept));
		if (child == 0)
			_exit(kept == given && memcmp(half, found, sizeof half) == 0 ? 5 : 6);
		waitpid(child, &status, 0);
		say("a child has its parent's registers", WEXITSTATUS(status));
		say("and so has the parent", kept == given);
	}
}

int main(void) {
	struct shared *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	registers(shared);
	parts();
	inherited();
	shares(shared);
	signals();
	threads();
	return 0;
}

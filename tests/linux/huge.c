/* Huge pages of 2 MiB, and what happens to a part of one. What is seen is printed, a line that begins with "= ", and
 * compared with Linux, which may have none where memory is short: whether there is one is not printed. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

enum { PAGE = 4096, PAGES = 512, BLOCKS = 6 };
static const size_t BLOCK = (size_t)PAGE * PAGES;

static uint32_t *word(char *base, size_t block, size_t page) { return (uint32_t *)(base + block * BLOCK + page * PAGE); }

static char *fill(int advice) {
	char *base = mmap(NULL, BLOCKS * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("advised", madvise(base, BLOCKS * BLOCK, advice));
	for (size_t page = 0; page < BLOCKS * PAGES; page++)
		*word(base, 0, page) = page + 1;
	return base;
}

/* How many pages have in them what they should, of those that are to have it. */
static long intact(char *base, size_t from, size_t to, uint32_t more) {
	long count = 0;
	for (size_t page = from; page < to; page++)
		count += *word(base, 0, page) == page + 1 + more;
	return count;
}

static void parts(int advice) {
	char *base = fill(advice);
	say("a page may not be written", mprotect(word(base, 1, 7), PAGE, PROT_READ));
	say("nor some over an edge", mprotect(word(base, 1, 510), 4 * PAGE, PROT_NONE));
	say("may be again", mprotect(word(base, 1, 510), 4 * PAGE, PROT_READ | PROT_WRITE));
	say("all of it", intact(base, 0, BLOCKS * PAGES, 0));
	say("a page is forgotten", madvise(word(base, 3, 100), PAGE, MADV_DONTNEED));
	unsigned char there[3] = "";
	say("asked", mincore(word(base, 3, 99), 3 * PAGE, there));
	say("before", there[0] & 1), say("it", there[1] & 1), say("behind", there[2] & 1);
	say("is empty", *word(base, 3, 100)), say("beside it", *word(base, 3, 101) == 3 * PAGES + 102);
	say("one is unmapped", munmap(word(base, 4, 0), PAGE));
	say("to is told", madvise(word(base, 4, 0), PAGE, MADV_NORMAL));
	char *moved = mremap(word(base, 5, 3), 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, word(base, 4, 0));
	say("others come there", moved == (char *)word(base, 4, 0));
	say("with what they had", *word(base, 4, 2) == 5 * PAGES + 6);
	say("a longer one", mremap(base, BLOCKS * BLOCK, BLOCKS * BLOCK, 0) == MAP_FAILED);
	say("the rest of the first", intact(base, 0, 3 * PAGES + 100, 0));
	say("all goes", munmap(base, BLOCKS * BLOCK));
}

/* What parent and child write, neither sees of the other. */
static void children(int advice) {
	char *base = fill(advice);
	int pipes[2];
	if (pipe(pipes)) exit(1);
	pid_t child = fork();
	if (child == 0) {
		char byte;
		if (read(pipes[0], &byte, 1) != 1) _exit(1);
		long before = intact(base, 0, BLOCKS * PAGES, 0);
		for (size_t page = 0; page < BLOCKS * PAGES; page += 3)
			*word(base, 0, page) += 7;
		long own = 0;
		for (size_t page = 0; page < BLOCKS * PAGES; page++)
			own += *word(base, 0, page) == page + 1 + (page % 3 == 0 ? 7 : 0);
		munmap(word(base, 2, 0), BLOCK + PAGE);
		_exit(before == BLOCKS * PAGES && own == before ? 42 : 43);
	}
	for (size_t page = 0; page < BLOCKS * PAGES; page += 100)
		*word(base, 0, page) += 5;
	if (write(pipes[1], "x", 1) != 1) exit(1);
	int status;
	waitpid(child, &status, 0);
	say("the child saw", WEXITSTATUS(status));
	long own = 0;
	for (size_t page = 0; page < BLOCKS * PAGES; page++)
		own += *word(base, 0, page) == page + 1 + (page % 100 == 0 ? 5 : 0);
	say("the parent has", own);
	for (size_t page = 0; page < BLOCKS * PAGES; page++)
		*word(base, 0, page) = page + 4;
	say("all is its own again", intact(base, 0, BLOCKS * PAGES, 3));
	munmap(base, BLOCKS * BLOCK);
}

/* Frames that went, a page at a time, are somebody's again, and empty. */
static void reuse(void) {
	char *base = fill(MADV_HUGEPAGE);
	for (size_t page = 0; page < BLOCKS * PAGES; page += 2)
		madvise(word(base, 0, page), PAGE, MADV_DONTNEED);
	char *other = mmap(NULL, BLOCKS * BLOCK / 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	madvise(other, BLOCKS * BLOCK / 2, MADV_NOHUGEPAGE);
	long empty = 0;
	for (size_t page = 0; page < BLOCKS * PAGES / 2; page++) {
		empty += *word(other, 0, page) == 0;
		*word(other, 0, page) = 9;
	}
	say("others' pages are empty", empty);
	for (size_t page = 0; page < BLOCKS * PAGES; page += 2)
		empty += *word(base, 0, page) == 0;
	say("and those that were forgotten", empty);
	munmap(base, BLOCKS * BLOCK), munmap(other, BLOCKS * BLOCK / 2);
}

static long faults(void) {
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_minflt;
}

static int has_huge_pages(void) {
	char text[64] = "";
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
	if (file == NULL || fgets(text, sizeof text, file) == NULL) return 0;
	fclose(file);
	return strstr(text, "[never]") == NULL;
}

/* One touch brings 512 pages, where that is wished; not where it is not. */
static void count(void) {
	long before = faults();
	munmap(fill(MADV_HUGEPAGE), BLOCKS * BLOCK);
	long huge = faults() - before;
	munmap(fill(MADV_NOHUGEPAGE), BLOCKS * BLOCK);
	long small = faults() - before - huge;
	say("few touches", huge < 2 * BLOCKS || !has_huge_pages()), say("many touches", small >= BLOCKS * PAGES / 16);
}

/* Who was begun by a process counts its own touches, though it had that one's memory at first. */
static void count_of_a_child(const char *self) {
	char own[32];
	snprintf(own, sizeof own, "%ld", faults());
	char *arguments[] = {"huge", own, NULL};
	pid_t child;
	int status;
	say("begun", posix_spawn(&child, self, NULL, NULL, arguments, environ));
	waitpid(child, &status, 0);
	say("counts its own", WEXITSTATUS(status));
}

int main(int arguments, char **values) {
	if (arguments == 2)
		return faults() < atol(values[1]) / 2 ? 7 : 8;
	setvbuf(stdout, NULL, _IONBF, 0);
	int advice[] = {MADV_HUGEPAGE, MADV_NORMAL, MADV_NOHUGEPAGE};
	for (int which = 0; which < 3; which++)
		parts(advice[which]), children(advice[which]);
	reuse();
	count();
	count_of_a_child("/proc/self/exe");
	char *base = mmap(NULL, BLOCK, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	say("not at a page", madvise(base + 1, PAGE, MADV_HUGEPAGE));
	say("nothing there", madvise((void *)PAGE, PAGE, MADV_HUGEPAGE));
	return 0;
}

/* Takes all memory, again and again, in a machine whose memory that is: the process that does it ends, the others go on
 * and have what they had; what is only kept goes back before anybody ends. Its argument is a large file of its root. Not
 * compared with Linux, where it would be the memory of this computer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

#define MIB (1UL << 20)

static char *take(size_t bytes) {
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void eat_by_touching(void) {
	for (;;)
		memset(take(MIB), 1, MIB);
}

static void eat_by_calls(void) {
	int zeros = open("/dev/zero", O_RDONLY);
	for (;;)
		if (read(zeros, take(MIB), MIB) <= 0)
			_exit(8);
}

/* Pages that a file is mapped shared to: what was written there is the file's when nobody has it mapped any more. */
static void eat_by_a_shared_file(void) {
	int file = open("/tmp/shared", O_RDWR | O_CREAT, 0600);
	ftruncate(file, 512 * MIB);
	char *shared = mmap(NULL, 512 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	unlink("/tmp/shared");
	memset(shared, 1, 512 * MIB);
	_exit(8);
}

/* Bytes that wait in pipes, which are in no memory of the process's. */
static void eat_by_pipes(void) {
	static char bytes[64 << 10];
	struct rlimit many = {1 << 16, 1 << 16};
	setrlimit(RLIMIT_NOFILE, &many);
	for (int ends[2]; pipe(ends) == 0;)
		write(ends[1], bytes, sizeof bytes);
	_exit(8);
}

static void ended(const char *what, void (*eat)(void)) {
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		eat();
	waitpid(child, &status, 0);
	printf("= %s: ended by %d\n", what, WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
	fflush(stdout);
}

static unsigned long available(void) {
	struct sysinfo info;
	sysinfo(&info);
	return info.freeram;
}

static unsigned long sum_of(const char *path) {
	static char piece[MIB];
	unsigned long sum = 0;
	int file = open(path, O_RDONLY);
	for (ssize_t count; (count = read(file, piece, MIB)) > 0;)
		for (ssize_t at = 0; at < count; at += 4096)
			sum = sum * 31 + piece[at];
	close(file);
	return sum;
}

/* A child that has all memory but so much, and waits. */
static pid_t holder(unsigned long left) {
	int taken[2];
	char byte;
	pipe(taken);
	pid_t child = fork();
	if (child == 0) {
		while (available() > left)
			memset(take(MIB), 1, MIB);
		write(taken[1], "t", 1);
		pause();
	}
	close(taken[1]);
	read(taken[0], &byte, 1);
	close(taken[0]);
	return child;
}

static void what_is_cached_goes_first(const char *path) {
	unsigned long before = available(), sum = sum_of(path), kept = before - available();
	say("a file that was read is kept", kept > 24 * MIB);
	char *taken = take(before - 24 * MIB);
	memset(taken, 1, before - 24 * MIB);
	say("but goes when memory is wanted", taken[before - 25 * MIB]);
	say("and is read again", sum_of(path) == sum);
	munmap(taken, before - 24 * MIB);
}

static void who_writes_has_the_largest_end(void) {
	static char piece[MIB];
	int status = 0, file = open("/tmp/written", O_RDWR | O_CREAT, 0600);
	unlink("/tmp/written");
	pid_t child = holder(8 * MIB);
	unsigned long done = 0;
	for (ssize_t count; done < 32 * MIB && (count = write(file, piece, MIB)) > 0;)
		done += count;
	say("written", done / MIB);
	waitpid(child, &status, 0);
	say("who had most ended by", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	close(file);
}

static void files_without_end(void) {
	char name[32];
	int made = 0, file;
	mkdir("/tmp/many", 0700);
	chdir("/tmp/many");
	do {
		sprintf(name, "%d", made++);
		file = open(name, O_WRONLY | O_CREAT, 0600);
	} while (file >= 0 && close(file) == 0);
	say("files without end", file);
	while (made-- > 0)
		sprintf(name, "%d", made), unlink(name);
	chdir("/");
}

static void arguments_without_end(void) {
	enum { COUNT = 100000 };
	static char *arguments[COUNT + 1], text[100001];
	memset(text, 'a', sizeof text - 1);
	for (int index = 0; index < COUNT; index++)
		arguments[index] = text;
	say("arguments without end", execv("/nothing", arguments));
}

int main(int count, char **arguments) {
	int asks[2], answers[2];
	char byte = 'a';
	pipe(asks), pipe(answers);
	pid_t keeper = fork();
	if (keeper == 0) {
		close(asks[1]);
		char *kept = take(16 * MIB);
		memset(kept, 7, 16 * MIB);
		for (write(answers[1], &byte, 1); read(asks[0], &byte, 1) == 1; write(answers[1], &byte, 1))
			for (size_t at = 0; at < 16 * MIB; at += 512)
				if (kept[at] != 7)
					_exit(9);
		_exit(3);
	}
	close(asks[0]);
	read(answers[0], &byte, 1);
	ended("touched all", eat_by_touching);
	write(asks[1], "b", 1);
	say("another is there, and answers", read(answers[0], &byte, 1));
	ended("had calls touch all", eat_by_calls);
	write(asks[1], "c", 1);
	say("another is there, and answers", read(answers[0], &byte, 1));
	what_is_cached_goes_first(arguments[1]);
	ended("mapped a file and touched all", eat_by_a_shared_file);
	ended("filled pipes", eat_by_pipes);
	who_writes_has_the_largest_end();
	files_without_end();
	arguments_without_end();
	write(asks[1], "d", 1);
	say("another is there, and answers", read(answers[0], &byte, 1));
	close(asks[1]);
	int status = 0;
	waitpid(keeper, &status, 0);
	say("and ends by itself", WEXITSTATUS(status));
	struct rlimit limit = {64 * MIB, 64 * MIB};
	say("limit", setrlimit(RLIMIT_AS, &limit));
	say("more than that", take(128 * MIB) == MAP_FAILED ? -1 : 0);
	say("less", take(8 * MIB) == MAP_FAILED ? -1 : 0);
	say("more by the heap", sbrk(128 * MIB) == (void *)-1 ? -1 : 0);
	char *grows = take(MIB);
	say("more by growing", mremap(grows, MIB, 128 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
	return 0;
}

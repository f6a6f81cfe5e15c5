/* Takes all memory, twice, in a machine whose memory that is: the process that does it ends, the others go on and have
 * what they had. Not compared with Linux, where it would be the memory of this computer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

static void ended(const char *what, void (*eat)(void)) {
	int status = 0;
	pid_t child = fork();
	if (child == 0)
		eat();
	waitpid(child, &status, 0);
	printf("= %s: ended by %d\n", what, WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status));
	fflush(stdout);
}

int main(void) {
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

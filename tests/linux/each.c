/* Runs tests one by one, each with a limit of time, and says what came of each: the first process of a machine, or of
 * a name space of Linux. Arguments: a file with a test a line (its name, a tab, its command with words apart by
 * spaces), the directory that tests run in, and a test's limit in seconds. What tests print goes where this prints. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* More words than a command has. */
#define WORDS_MAX 256

static void run(char *command) {
	char *words[WORDS_MAX] = {NULL};
	int count = 0;
	for (char *word = strtok(command, " "); word && count < WORDS_MAX - 1; word = strtok(NULL, " "))
		words[count++] = word;
	execvp(words[0], words);
	perror(words[0]);
	_exit(127);
}

/* Seconds on a clock that goes only forwards. */
static time_t now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec;
}

/* Waits for a child, and for whoever else was left to the first process; 0 if it is late. */
static int wait_for(pid_t child, time_t limit, int *status) {
	sigset_t children;
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	time_t deadline = now() + limit;
	for (;;) {
		pid_t ended;
		while ((ended = waitpid(-1, status, WNOHANG)) > 0)
			if (ended == child)
				return 1;
		if (now() >= deadline)
			return 0;
		struct timespec second = {1, 0};
		sigtimedwait(&children, NULL, &second);
	}
}

/* One test from its line. */
static void test(char *line, time_t limit) {
	char *command = strchr(line, '\t');
	if (!command)
		return;
	*command++ = 0;
	printf("\n= begin %s\n", line);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		sigset_t none;
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setsid();
		run(command);
	}
	int status = 0;
	int in_time = wait_for(child, limit, &status);
	/* Whatever it has left. */
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	if (!in_time)
		printf("\n= end %s late\n", line);
	else if (WIFSIGNALED(status))
		printf("\n= end %s signal %d\n", line, WTERMSIG(status));
	else
		printf("\n= end %s status %d\n", line, WEXITSTATUS(status));
	fflush(stdout);
}

int main(int count, char **arguments) {
	if (count != 4 || getpid() != 1) {
		fprintf(stderr, "each: expected to be the first process, with a list, a directory and seconds\n");
		return 2;
	}
	sigset_t children;
	sigemptyset(&children);
	sigaddset(&children, SIGCHLD);
	sigprocmask(SIG_BLOCK, &children, NULL);
	FILE *list = fopen(arguments[1], "re");
	if (!list || chdir(arguments[2]) != 0) {
		perror(arguments[list ? 2 : 1]);
		return 2;
	}
	char *line = NULL;
	size_t capacity = 0;
	ssize_t length;
	while ((length = getline(&line, &capacity, list)) > 0) {
		line[strcspn(line, "\n")] = 0;
		test(line, atoi(arguments[3]));
	}
	printf("\n= over\n");
	return 0;
}

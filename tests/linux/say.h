/* What programs that are compared print: lines that begin with "= ". Needs _GNU_SOURCE. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What a call returned, or the name of its error. */
static void say(const char *what, long result) {
	if (result == -1)
		printf("= %s: %s\n", what, strerrorname_np(errno));
	else
		printf("= %s: %ld\n", what, result);
	fflush(stdout);
}

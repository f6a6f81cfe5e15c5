/* Pseudoterminals: lines that are edited and shown, keys that send signals, modes, sizes, sessions, hang-ups. Prints
 * what each call said; compared as calls.c is. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "say.h"

static int master, slave;

/* What there is to read within a while, each byte that is not printable as a number. */
static void shown(const char *what, int fd) {
	unsigned char bytes[4096];
	size_t count = 0;
	struct pollfd polled = {fd, POLLIN, 0};
	/* What was written before is there at once, but not on Linux, where another thread brings it. */
	while (count < sizeof bytes && poll(&polled, 1, count ? 60 : 3000) == 1 && polled.revents & POLLIN) {
		ssize_t more = read(fd, bytes + count, sizeof bytes - count);
		if (more <= 0)
			break;
		count += more;
	}
	printf("= %s: ", what);
	for (size_t i = 0; i < count; i++)
		printf(bytes[i] >= ' ' && bytes[i] < 127 && bytes[i] != '\\' ? "%c" : "\\%02x", bytes[i]);
	printf("\n");
	fflush(stdout);
}

static void types(const char *bytes) {
	write(master, bytes, strlen(bytes));
}

/* Waits until it can be read, and what one read says. */
static void line(const char *what) {
	unsigned char bytes[4096];
	struct pollfd polled = {slave, POLLIN, 0};
	if (poll(&polled, 1, 3000) != 1)
		return say("nothing to read", 0);
	ssize_t count = read(slave, bytes, sizeof bytes);
	printf("= %s: %zd ", what, count);
	for (ssize_t i = 0; i < count; i++)
		printf(bytes[i] >= ' ' && bytes[i] < 127 ? "%c" : "\\%02x", bytes[i]);
	printf("\n");
	fflush(stdout);
}

static void opening(void) {
	struct stat status;
	struct termios modes;
	struct winsize size = {1, 1, 1, 1}, large = {50, 132, 800, 600};
	int number = -1, lock = -1;
	master = posix_openpt(O_RDWR | O_NOCTTY);
	say("a master", master >= 0);
	say("is a terminal", isatty(master));
	say("its number", ioctl(master, TIOCGPTN, &number));
	char name[64], expected[64];
	say("its slave's name", ptsname_r(master, name, sizeof name));
	snprintf(expected, sizeof expected, "/dev/pts/%d", number);
	say("by that number", strcmp(name, expected) == 0);
	say("locked", ioctl(master, TIOCGPTLCK, &lock));
	say("at first", lock);
	say("open it so", open(name, O_RDWR | O_NOCTTY));
	say("grantpt", grantpt(master));
	say("unlockpt", unlockpt(master));
	slave = open(name, O_RDWR | O_NOCTTY);
	say("open it", slave >= 0);
	fstat(slave, &status);
	printf("= a device %d major %d minor by number %d\n", S_ISCHR(status.st_mode), major(status.st_rdev),
	       minor(status.st_rdev) == number);
	say("is a terminal", isatty(slave));
	say("its name", ttyname_r(slave, name, sizeof name));
	say("is that", strcmp(name, expected) == 0);
	say("tcgetattr", tcgetattr(slave, &modes));
	printf("= modes %x %x %x %x\n", modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag);
	for (int i = 0; i < 17; i++)
		printf("= character %d: %d\n", i, modes.c_cc[i]);
	say("window", ioctl(slave, TIOCGWINSZ, &size));
	printf("= %d %d %d %d\n", size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel);
	say("set by the master", ioctl(master, TIOCSWINSZ, &large));
	ioctl(slave, TIOCGWINSZ, &size);
	printf("= %d %d %d %d\n", size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel);
	say("asked of a slave", ioctl(slave, TIOCGPTN, &number));
	say("of what is no terminal", isatty(open("/dev/null", O_RDWR)));
	say("a request that is none", ioctl(slave, 0x5499, &number));
	int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	say("its peer", peer >= 0);
	say("is a terminal", isatty(peer));
	close(peer);
	say("no terminal of this session's", ioctl(slave, TIOCGPGRP, &number));
	say("nor its session", ioctl(slave, TIOCGSID, &number));
}

static void lines(void) {
	struct pollfd polled = {slave, POLLIN, 0};
	int unread = -1;
	types("ab");
	shown("echo", master);
	say("no line yet", poll(&polled, 1, 50));
	types("c\rnext\n");
	shown("its end", master);
	ioctl(slave, FIONREAD, &unread);
	line("a line");
	line("and the next");
	types("one two\x7f\x17x\x15last\n");
	shown("edited", master);
	line("what is left");
	types("\x01\x02\x7f\n");
	shown("control characters", master);
	line("one of them");
	types("\x16\x03q\n");
	shown("quoted", master);
	line("itself");
	types("half\x04");
	line("without an end");
	types("\x04");
	line("the end");
	shown("of which nothing is shown", master);
	types("a\tb\x12\n");
	shown("shown again", master);
	line("the same");
	say("write", write(slave, "out\n\ttab\r", 9));
	shown("as it is shown", master);
	types("forgotten\nso");
	shown("typed", master);
	say("flush", tcflush(slave, TCIFLUSH));
	say("nothing is there", poll(&polled, 1, 50));
	types("\n");
	line("and an end");
	shown("shown", master);
	say("flush what", ioctl(slave, TCFLSH, 9));
	say("drain", tcdrain(slave));
}

static void modes(void) {
	struct termios old, raw, quiet;
	struct pollfd polled = {slave, POLLIN, 0};
	char byte[8];
	tcgetattr(slave, &old);
	types("begun");
	shown("echo", master);
	raw = old;
	cfmakeraw(&raw);
	say("raw", tcsetattr(slave, TCSANOW, &raw));
	line("what was begun");
	types("\r\n\x03\x7f");
	line("as it is");
	say("write", write(slave, "\n", 1));
	shown("as it is", master);
	raw.c_cc[VMIN] = 3;
	tcsetattr(slave, TCSANOW, &raw);
	types("ab");
	say("fewer than wanted", poll(&polled, 1, 50));
	types("cd");
	line("enough");
	raw.c_cc[VMIN] = 0;
	tcsetattr(slave, TCSANOW, &raw);
	say("nothing wanted", read(slave, byte, sizeof byte));
	quiet = old;
	quiet.c_lflag &= ~ECHO;
	say("quiet", tcsetattr(master, TCSAFLUSH, &quiet));
	types("secret\n");
	line("secret");
	say("write", write(slave, "!", 1));
	shown("nothing else", master);
	quiet.c_lflag |= ECHO | ECHONL;
	quiet.c_lflag &= ~(ECHOE | ECHOCTL);
	tcsetattr(slave, TCSADRAIN, &quiet);
	types("ab\x7f\n");
	line("erased");
	shown("otherwise", master);
	tcsetattr(slave, TCSANOW, &old);
	fcntl(slave, F_SETFL, O_RDWR | O_NONBLOCK);
	say("nothing to read", read(slave, byte, 1));
	say("stop", tcflow(slave, TCOOFF));
	say("write", write(slave, "x", 1));
	say("go on", tcflow(slave, TCOON));
	say("write", write(slave, "x", 1));
	fcntl(slave, F_SETFL, O_RDWR);
	shown("written", master);
	tcgetattr(slave, &raw);
	say("as before", memcmp(&raw, &old, sizeof old) == 0);
}

static volatile int last;

static void handle(int signal) {
	last = signal;
	write(slave, &"?HIQ"[signal == SIGHUP ? 1 : signal == SIGINT ? 2 : signal == SIGQUIT ? 3 : 0], 1);
}

/* In a session of its own: makes the slave its terminal, and says what came. */
static void session(void) {
	close(master);
	say("a session", setsid() == getpid());
	say("no terminal", open("/dev/tty", O_RDWR) >= 0);
	say("take it", ioctl(slave, TIOCSCTTY, 0));
	say("again", ioctl(slave, TIOCSCTTY, 0));
	say("its group", tcgetpgrp(slave) == getpid());
	say("its session", tcgetsid(slave) == getpid());
	int own = open("/dev/tty", O_RDWR);
	say("its own terminal", own >= 0);
	say("is a terminal", isatty(own));
	close(own);
	signal(SIGINT, handle), signal(SIGQUIT, handle), signal(SIGHUP, handle), signal(SIGWINCH, handle);
	signal(SIGTTOU, SIG_IGN);
	say("a group that is not there", tcsetpgrp(slave, 99999));
	say("of another session", tcsetpgrp(slave, getppid()));
	pid_t child = fork();
	if (child == 0) {
		setpgid(0, 0);
		tcsetpgrp(slave, getpid());
		write(slave, "C", 1);
		for (;;)
			pause();
	}
	int status = 0;
	waitpid(child, &status, WUNTRACED);
	say("the child in front is stopped", WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
	say("to the front", tcsetpgrp(slave, getpid()));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	write(slave, "R", 1);
	for (;;)
		pause();
}

/* Waits until this byte is shown. */
static int until(char wanted) {
	char byte;
	struct pollfd polled = {master, POLLIN, 0};
	while (poll(&polled, 1, 10000) == 1 && read(master, &byte, 1) == 1)
		if (byte == wanted)
			return 1;
	return 0;
}

static void signals(void) {
	struct winsize size = {10, 20, 0, 0};
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		session();
	say("its child runs", until('C'));
	types("\x1a");
	say("it goes on itself", until('R'));
	say("who has it", tcgetpgrp(master) == child);
	say("whose it is", tcgetsid(master) == child);
	types("\x03");
	say("interrupted", until('I'));
	types("\x1c");
	say("and quit", until('Q'));
	say("another size", ioctl(master, TIOCSWINSZ, &size));
	say("is told", until('?'));
	say("not this one's", ioctl(slave, TIOCSPGRP, &child));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Readers without lines: how many bytes they wait for, and for how long. */
static void times(void) {
	struct termios old, timed;
	struct pollfd polled = {slave, POLLIN, 0};
	char bytes[8];
	tcgetattr(slave, &old);
	timed = old;
	cfmakeraw(&timed);
	timed.c_cc[VMIN] = 0, timed.c_cc[VTIME] = 2;
	tcsetattr(slave, TCSANOW, &timed);
	say("no byte in time", read(slave, bytes, sizeof bytes));
	types("x");
	line("one that is there");
	fcntl(slave, F_SETFL, O_RDWR | O_NONBLOCK);
	say("none at once", read(slave, bytes, sizeof bytes));
	timed.c_cc[VMIN] = 3;
	tcsetattr(slave, TCSANOW, &timed);
	types("ab");
	line("fewer at once");
	fcntl(slave, F_SETFL, O_RDWR);
	types("ab");
	say("one is enough to be told", poll(&polled, 1, 3000));
	say("fewer after a pause", read(slave, bytes, sizeof bytes));
	types("abcdef");
	line("all there are");
	types("abcd");
	poll(&polled, 1, 3000);
	say("as many as there is room for", read(slave, bytes, 2));
	say("and what is left after a pause", read(slave, bytes, 8));
	say("which is", bytes[0] == 'c' && bytes[1] == 'd');
	tcsetattr(slave, TCSANOW, &old);
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	while (read(master, bytes, sizeof bytes) > 0)
		;
	fcntl(master, F_SETFL, O_RDWR);
}

static volatile int caught;

static void catch(int signal) {
	caught = signal;
}

/* Starts a child in a group of its own that is not in the foreground; it ends with what `act` says. */
static pid_t behind(int (*act)(void)) {
	pid_t child = fork();
	if (child == 0) {
		setpgid(0, 0);
		_exit(act());
	}
	setpgid(child, child);
	return child;
}

static void stopped(const char *what, pid_t child) {
	int status = 0;
	waitpid(child, &status, WUNTRACED);
	say(what, WIFSTOPPED(status) ? WSTOPSIG(status) : -1);
}

static void ended(const char *what, pid_t child) {
	int status = 0;
	waitpid(child, &status, 0);
	say(what, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static int reads(void) {
	char byte;
	return read(slave, &byte, 1) == 1 ? byte : errno;
}

static int reads_ignoring(void) {
	signal(SIGTTIN, SIG_IGN);
	return reads();
}

static int reads_handling(void) {
	struct sigaction action = {.sa_handler = catch};
	sigaction(SIGTTIN, &action, NULL);
	int said = reads();
	return caught == SIGTTIN ? said : 99;
}

static int orphan[2];

static int reads_orphaned(void) {
	pid_t parent = getpid();
	if (fork() == 0) {
		/* With its parent the last one is gone who could let it go on. */
		while (getppid() == parent)
			usleep(1000);
		char said = reads();
		write(orphan[1], &said, 1);
		_exit(0);
	}
	return 0;
}

static int writes(void) {
	return write(slave, "w", 1) == 1 ? 0 : errno;
}

static int writes_blocking(void) {
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return writes();
}

static int changes(void) {
	struct termios modes;
	tcgetattr(slave, &modes);
	return tcsetattr(slave, TCSANOW, &modes) == 0 ? 0 : errno;
}

static int takes_front(void) {
	return tcsetpgrp(slave, getpid()) == 0 ? 0 : errno;
}

/* In a session of its own, whose children are behind. */
static void jobs(void) {
	struct termios modes;
	close(master);
	setsid();
	ioctl(slave, TIOCSCTTY, 0);
	signal(SIGTTOU, SIG_DFL);
	pid_t child = behind(reads);
	stopped("who reads behind is stopped", child);
	kill(child, SIGCONT);
	stopped("and again", child);
	say("in front", tcsetpgrp(slave, child));
	kill(child, SIGCONT);
	ended("it reads", child);
	signal(SIGTTOU, SIG_IGN);
	say("in front again", tcsetpgrp(slave, getpid()));
	signal(SIGTTOU, SIG_DFL);
	ended("who ignores it", behind(reads_ignoring));
	ended("who handles it", behind(reads_handling));
	ended("who writes", behind(writes));
	tcgetattr(slave, &modes);
	modes.c_lflag |= TOSTOP;
	tcsetattr(slave, TCSANOW, &modes);
	child = behind(writes);
	stopped("who writes is stopped", child);
	modes.c_lflag &= ~TOSTOP;
	tcsetattr(slave, TCSANOW, &modes);
	kill(child, SIGCONT);
	ended("it writes", child);
	modes.c_lflag |= TOSTOP;
	tcsetattr(slave, TCSANOW, &modes);
	ended("who blocks it writes", behind(writes_blocking));
	child = behind(changes);
	stopped("who changes it", child);
	kill(child, SIGKILL), waitpid(child, NULL, 0);
	child = behind(takes_front);
	stopped("who would be in front", child);
	kill(child, SIGKILL), waitpid(child, NULL, 0);
	char said = 0;
	pipe(orphan);
	ended("a parent ends", behind(reads_orphaned));
	read(orphan[0], &said, 1);
	say("whom nobody could let go on", said);
	write(slave, "J", 1);
	for (;;)
		pause();
}

static void job_control(void) {
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		jobs();
	types("r\n");
	say("all is done", until('J'));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	tcflush(slave, TCIOFLUSH);
}

/* What a read of the master says first, and how many bytes follow. */
static void packet(const char *what) {
	unsigned char bytes[64] = {0};
	struct pollfd polled = {master, POLLIN | POLLPRI, 0};
	if (poll(&polled, 1, 3000) != 1)
		return say("no packet", 0);
	ssize_t count = read(master, bytes, sizeof bytes);
	printf("= %s: %x %zd, urgent %d\n", what, bytes[0], count, !!(polled.revents & POLLPRI));
	fflush(stdout);
}

static void packets(void) {
	struct termios old, modes;
	int on = 1, asked = -1;
	char byte;
	master = posix_openpt(O_RDWR | O_NOCTTY);
	grantpt(master), unlockpt(master);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	tcgetattr(slave, &old);
	say("asked", ioctl(master, TIOCGPKT, &asked));
	say("no packets at first", asked);
	say("of a slave", ioctl(slave, TIOCPKT, &on));
	say("packets", ioctl(master, TIOCPKT, &on));
	ioctl(master, TIOCGPKT, &asked);
	say("are on", asked);
	write(slave, "abc", 3);
	packet("three bytes");
	tcflush(slave, TCIFLUSH);
	packet("input forgotten");
	tcflush(slave, TCIOFLUSH);
	packet("both forgotten");
	tcflow(slave, TCOOFF);
	packet("held");
	tcflow(slave, TCOOFF), tcflow(slave, TCOON);
	packet("goes on");
	types("\x13");
	packet("held by a key");
	types("\x11");
	packet("goes on by a key");
	modes = old;
	modes.c_iflag &= ~IXON;
	tcsetattr(slave, TCSANOW, &modes);
	packet("keys hold no more");
	tcsetattr(slave, TCSAFLUSH, &old);
	packet("they do, and input is forgotten");
	types("\x03");
	packet("a key that sends a signal");
	on = 0;
	ioctl(master, TIOCPKT, &on);
	fcntl(master, F_SETFL, O_RDWR | O_NONBLOCK);
	while (read(master, &byte, 1) > 0)
		;
	write(slave, "d", 1);
	usleep(50000);
	say("bytes alone", read(master, &byte, 1));
	say("which is", byte);
	say("a signal that keys do not send", ioctl(master, TIOCSIG, SIGTERM));
	say("one that they do", ioctl(master, TIOCSIG, SIGINT));
	close(master), close(slave);
}

static void old_requests(void) {
	int end, other;
	struct termio old, again;
	struct termios modes;
	openpty(&other, &end, NULL, NULL, NULL);
	say("TCGETA", ioctl(end, TCGETA, &old));
	printf("= %x %x %x %x %d %d\n", old.c_iflag, old.c_oflag, old.c_cflag, old.c_lflag, old.c_line, old.c_cc[VINTR]);
	old.c_lflag &= ~ECHO, old.c_cc[VINTR] = 7;
	say("TCSETAW", ioctl(end, TCSETAW, &old));
	say("TCGETA", ioctl(end, TCGETA, &again));
	tcgetattr(end, &modes);
	printf("= %x %x %d %d\n", again.c_lflag, modes.c_lflag, again.c_cc[VINTR], modes.c_cc[VINTR]);
	say("TCSETA to nowhere", ioctl(end, TCSETA, NULL));
	close(end), close(other);
}

/* Whoever has the master waits until a program writes, or the last one has gone. */
static void waiting(void) {
	char bytes[10];
	int other_master, other_slave, status;
	openpty(&other_master, &other_slave, NULL, NULL, NULL);
	pid_t child = fork();
	if (child == 0) {
		close(other_master);
		usleep(100000);
		write(other_slave, "naninani\n", 9);
		usleep(100000);
		_exit(0);
	}
	close(other_slave);
	say("waits", read(other_master, bytes, sizeof bytes));
	say("for nobody", read(other_master, bytes, sizeof bytes));
	waitpid(child, &status, 0);
	close(other_master);
}

static void hang_ups(void) {
	char byte;
	int other_master, other_slave;
	struct pollfd polled = {master, POLLIN | POLLOUT, 0};
	shown("what was left", master);
	close(slave);
	poll(&polled, 1, 1000);
	printf("= nobody has the slave: %x\n", polled.revents & (POLLHUP | POLLERR | POLLIN));
	fflush(stdout);
	say("read", read(master, &byte, 1));
	char name[64];
	ptsname_r(master, name, sizeof name);
	slave = open(name, O_RDWR | O_NOCTTY);
	say("opened again", slave >= 0);
	types("x\n");
	line("goes on");
	close(master);
	polled = (struct pollfd){slave, POLLIN | POLLOUT, 0};
	poll(&polled, 1, 1000);
	printf("= nobody has the master: %x\n", polled.revents & (POLLHUP | POLLERR | POLLIN | POLLOUT));
	fflush(stdout);
	say("read", read(slave, &byte, 1));
	say("write", write(slave, "x", 1));
	struct termios modes;
	say("tcgetattr", tcgetattr(slave, &modes));
	say("its name is gone", access(name, F_OK));
	close(slave);
	say("openpty", openpty(&other_master, &other_slave, NULL, NULL, NULL));
	close(other_master), close(other_slave);
	pid_t child = forkpty(&master, NULL, NULL, NULL);
	if (child == 0) {
		printf("in %d\n", isatty(0) && isatty(1) && tcgetpgrp(0) == getpid());
		fflush(stdout);
		for (;;)
			pause();
	}
	shown("forkpty", master);
	close(master);
	int status = 0;
	say("its child", waitpid(child, &status, 0) == child);
	say("ends by", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
}

int main(void) {
	opening();
	lines();
	modes();
	times();
	signals();
	job_control();
	hang_ups();
	waiting();
	packets();
	old_requests();
	return 0;
}

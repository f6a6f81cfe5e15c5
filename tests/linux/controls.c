/* Asks how a process is to be treated, whose child it is, what interfaces there are, and what is read of signals by a
 * descriptor, and prints what each call said; compared as calls.c is. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "say.h"

static void number(const char *what, int option) {
	int value = -1;
	long result = prctl(option, &value);
	printf("= %s: %ld, %d\n", what, result, value);
	fflush(stdout);
}

static void told_again(void) {
	say("dumpable", prctl(PR_GET_DUMPABLE));
	say("not", prctl(PR_SET_DUMPABLE, 0)), say("it is", prctl(PR_GET_DUMPABLE));
	say("half", prctl(PR_SET_DUMPABLE, 3)), say("again", prctl(PR_SET_DUMPABLE, 1));
	say("keeps capabilities", prctl(PR_GET_KEEPCAPS));
	say("does", prctl(PR_SET_KEEPCAPS, 1)), say("it does", prctl(PR_GET_KEEPCAPS));
	say("twice", prctl(PR_SET_KEEPCAPS, 2));
	say("slack", prctl(PR_GET_TIMERSLACK));
	say("more", prctl(PR_SET_TIMERSLACK, 60000)), say("it is", prctl(PR_GET_TIMERSLACK));
	say("as at first", prctl(PR_SET_TIMERSLACK, 0)), say("it is", prctl(PR_GET_TIMERSLACK));
	say("no huge pages", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)), say("none", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	say("with more", prctl(PR_SET_THP_DISABLE, 1, 1, 0, 0));
	say("huge ones", prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)), say("some", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	say("memory fails", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	say("late", prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_LATE, 0, 0));
	say("it is", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	say("never", prctl(PR_MCE_KILL, PR_MCE_KILL_SET, 7, 0, 0));
	say("as ever", prctl(PR_MCE_KILL, PR_MCE_KILL_CLEAR, 0, 0, 0));
	say("it is", prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	say("no new privileges", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	say("two", prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0));
	say("none from now on", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	say("none", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
	say("some again", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	say("events", prctl(PR_TASK_PERF_EVENTS_DISABLE)), say("events", prctl(PR_TASK_PERF_EVENTS_ENABLE));
	number("death signal", PR_GET_PDEATHSIG);
	say("SIGUSR1", prctl(PR_SET_PDEATHSIG, SIGUSR1)), number("it is", PR_GET_PDEATHSIG);
	say("no signal's", prctl(PR_SET_PDEATHSIG, 999)), number("it is", PR_GET_PDEATHSIG);
	say("none", prctl(PR_SET_PDEATHSIG, 0)), number("it is", PR_GET_PDEATHSIG);
	number("subreaper", PR_GET_CHILD_SUBREAPER);
	say("to nowhere", prctl(PR_GET_CHILD_SUBREAPER, 8));
	say("nothing", prctl(12345));
	pid_t child = fork();
	if (child == 0) {
		say("a child keeps capabilities", prctl(PR_GET_KEEPCAPS));
		say("and has no new privileges", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
		_exit(0);
	}
	waitpid(child, NULL, 0);
}

static volatile int last;

static void handle(int signal) {
	last = signal;
}

/* A child of a child that is left: it hears of that, and is its grandparent's, who waits for it. */
static void orphans(void) {
	int ready[2], said[2];
	char byte;
	pipe(ready), pipe(said);
	say("subreaper", prctl(PR_SET_CHILD_SUBREAPER, 1)), number("it is", PR_GET_CHILD_SUBREAPER);
	pid_t self = getpid(), between = fork();
	if (between == 0) {
		number("a child is none", PR_GET_CHILD_SUBREAPER);
		if (fork() == 0) {
			signal(SIGUSR2, handle);
			sigset_t all, before;
			sigfillset(&all);
			sigprocmask(SIG_SETMASK, &all, &before);
			prctl(PR_SET_PDEATHSIG, SIGUSR2);
			write(ready[1], "x", 1);
			while (last != SIGUSR2)
				sigsuspend(&before);
			write(said[1], getppid() == self ? "y" : "n", 1);
			_exit(9);
		}
		read(ready[0], &byte, 1);
		_exit(3);
	}
	int status = 0;
	say("its child", waitpid(between, &status, 0) == between), say("ends with", WEXITSTATUS(status));
	say("its orphan", read(said[0], &byte, 1)), say("is its own", byte == 'y');
	say("it waits", wait(&status) > 0), say("for it", WEXITSTATUS(status));
	say("for nobody else", wait(&status));
	between = fork();
	if (between == 0) {
		/* One that has ended, and whom nobody waited for. */
		if (fork() == 0)
			_exit(5);
		siginfo_t info;
		waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
		_exit(4);
	}
	waitpid(between, &status, 0);
	say("ends with", WEXITSTATUS(status));
	say("what it left", wait(&status) > 0), say("ended with", WEXITSTATUS(status));
	prctl(PR_SET_CHILD_SUBREAPER, 0);
}

/* A thread that is not the first reads what was sent to it alone. */
static void *reads_own(void *none) {
	sigset_t own;
	sigemptyset(&own), sigaddset(&own, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &own, NULL);
	int signals = signalfd(-1, &own, SFD_NONBLOCK);
	struct signalfd_siginfo info;
	say("nothing", read(signals, &info, sizeof info));
	raise(SIGUSR1);
	say("a thread's own", read(signals, &info, sizeof info));
	say("it is", info.ssi_signo == SIGUSR1), say("code", info.ssi_code);
	close(signals);
	return NULL;
}

static void request(const char *what, int fd, unsigned long number, const char *name) {
	struct ifreq asked = {0};
	strncpy(asked.ifr_name, name, IFNAMSIZ - 1);
	long result = ioctl(fd, number, &asked);
	say(what, result);
	if (result == 0)
		printf("= %s %d %s\n", asked.ifr_name, number == SIOCGIFADDR || number == SIOCGIFNETMASK ? 0 : asked.ifr_ifindex,
		       inet_ntoa(((struct sockaddr_in *)&asked.ifr_addr)->sin_addr));
	fflush(stdout);
}

static void interfaces(void) {
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char name[IF_NAMESIZE] = "";
	say("if_nametoindex", if_nametoindex("lo"));
	say("of nothing", if_nametoindex("nothing0"));
	say("if_indextoname", if_indextoname(1, name) != NULL), say("lo", strcmp(name, "lo") == 0);
	say("of 999", if_indextoname(999, name) != NULL ? 0 : -1);
	request("address", fd, SIOCGIFADDR, "lo");
	request("mask", fd, SIOCGIFNETMASK, "lo");
	request("MTU", fd, SIOCGIFMTU, "lo");
	request("metric", fd, SIOCGIFMETRIC, "lo");
	request("index", fd, SIOCGIFINDEX, "lo");
	request("of nothing", fd, SIOCGIFMTU, "nothing0");
	struct ifreq asked = {.ifr_name = "lo"};
	say("flags", ioctl(fd, SIOCGIFFLAGS, &asked)), say("are", asked.ifr_flags & (IFF_UP | IFF_LOOPBACK | IFF_RUNNING));
	struct ifreq room[8];
	struct ifconf all = {.ifc_len = sizeof room, .ifc_req = room};
	say("all", ioctl(fd, SIOCGIFCONF, &all)), say("the first is lo", strcmp(room[0].ifr_name, "lo") == 0);
	all.ifc_len = 39;
	say("without room", ioctl(fd, SIOCGIFCONF, &all)), say("bytes", all.ifc_len);
	say("of a pipe", ioctl(open("/dev/null", O_RDONLY), SIOCGIFMTU, &asked));
	int value = 0;
	socklen_t value_len = sizeof value;
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
	say("MTU of no way", getsockopt(fd, IPPROTO_IP, IP_MTU, &value, &value_len));
	say("a way", connect(fd, (struct sockaddr *)&to, sizeof to));
	say("its MTU", getsockopt(fd, IPPROTO_IP, IP_MTU, &value, &value_len)), say("is", value);
	say("mark", setsockopt(fd, SOL_SOCKET, SO_MARK, &value, sizeof value));
	say("at the end of addresses", ioctl(fd, SIOCGIFNAME, -1L)), say("all", ioctl(fd, SIOCGIFCONF, -1L));
	say("its flags", ioctl(fd, SIOCGIFFLAGS, -1L));
	say("a group's", setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, (void *)-1L, 8));
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	char kind[16] = "";
	socklen_t len = sizeof kind;
	say("congestion", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5));
	say("is", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kind, &len)), say("cubic", strcmp(kind, "cubic") == 0);
	say("bytes", len), say("none", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonesuch", 8));
	close(fd);
}

static long advice(int fd, long len, int advised) {
	return syscall(SYS_fadvise64, fd, 0L, len, advised);
}

static void files(void) {
	int pipes[2], file = open("/tmp", O_RDWR | O_TMPFILE, 0600);
	pipe(pipes);
	say("advice", advice(file, 100, POSIX_FADV_WILLNEED)), say("of a pipe", advice(pipes[0], 100, POSIX_FADV_WILLNEED));
	say("none", advice(file, 100, 77)), say("backwards", advice(file, -1, POSIX_FADV_NORMAL));
	say("of nothing", advice(999, 0, POSIX_FADV_NORMAL));
	/* Of flags only 32 bits count: what is above them is whatever lay there. */
	int other = open("/tmp", O_RDWR | O_TMPFILE, 0600);
	loff_t offset = 3;
	say("foobarbaz", write(file, "foobarbaz", 9));
	say("bar", syscall(SYS_copy_file_range, file, &offset, other, NULL, 3L, 0xffffffff00000000));
	say("offset", offset);
	say("flags", syscall(SYS_copy_file_range, file, &offset, other, NULL, 3L, 1L));
}

/* What /proc/locks says of a file; flock's process is not asked for. */
static void listed(int fd) {
	struct stat status;
	char line[200], kind[20], advisory[20], access[20], end[40];
	unsigned long inode, start;
	int major, minor, process, number;
	fstat(fd, &status);
	FILE *file = fopen("/proc/locks", "r");
	while (fgets(line, sizeof line, file)) {
		int count = sscanf(line, "%d: %19s %19s %19s %d %x:%x:%lu %lu %39s", &number, kind, advisory, access, &process,
		                   &major, &minor, &inode, &start, end);
		if (count == 10 && inode == status.st_ino)
			printf("= %s %s %s own %d, %lu to %s\n", kind, advisory, access, process == getpid(), start, end);
	}
	fclose(file);
	say("that is all", 0);
}

static void locks(void) {
	int file = open("/tmp/locked", O_RDWR | O_CREAT, 0600);
	listed(file);
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 3, .l_len = 7};
	say("a record", fcntl(file, F_SETLK, &lock)), listed(file);
	lock.l_type = F_UNLCK, fcntl(file, F_SETLK, &lock), listed(file);
	lock.l_type = F_RDLCK, lock.l_len = 0;
	say("a description's", fcntl(file, F_OFD_SETLK, &lock)), listed(file);
	close(file);
	unlink("/tmp/locked");
}

static void runs(const char *what, int directory, const char *path, int flags, const char *last) {
	pid_t child = fork();
	if (child == 0) {
		char *arguments[] = {"again", (char *)last, NULL}, *environment[] = {"A=b", NULL};
		say(what, syscall(SYS_execveat, directory, path, arguments, environment, flags));
		_exit(1);
	}
	int status = 0;
	waitpid(child, &status, 0);
	say(what, WEXITSTATUS(status));
}

static void programs(void) {
	char path[4096];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
	path[len] = 0;
	int open_one = open(path, O_RDONLY | O_PATH | O_CLOEXEC);
	char *slash = strrchr(path, '/');
	runs("absolute", 999, path, 0, "one");
	*slash = 0;
	int directory = open(path, O_RDONLY | O_DIRECTORY);
	runs("in a directory", directory, slash + 1, 0, "two");
	runs("not there", directory, "nothing-of-that-name", 0, "");
	runs("open", open_one, "", AT_EMPTY_PATH, "three");
	runs("empty", open_one, "", 0, "");
	runs("of nothing", 999, "x", 0, "");
	runs("flags", directory, slash + 1, 0x10, "");
	symlink("/proc/self/exe", "/tmp/a-link");
	int temporary = open("/tmp", O_RDONLY | O_DIRECTORY);
	runs("a link", temporary, "a-link", AT_SYMLINK_NOFOLLOW, "");
	unlink("/tmp/a-link");
}

/* openat2(2): ways that paths may not take. */
static int opened(const char *what, int directory, const char *path, struct open_how how, size_t size) {
	char bytes[64] = {0};
	memcpy(bytes, &how, sizeof how);
	int fd = syscall(SYS_openat2, directory, path, bytes, size);
	say(what, fd < 0 ? fd : 1);
	if (fd >= 0)
		close(fd);
	return fd;
}

static void ways(void) {
	static const char *paths[] = {
		"b/f", "./b/../b/f", "..", "../a/b/f", "b/../..", "/tmp/a/b/f", "/b/f", "/", "b/up/f", "b/top", "in",
		"b/top/b/f", "out", "absolute", "absolute/f", "b/nothing", "/proc/self/status", "self", "self/status",
		"magic", "magic/b/f", "loop", "in/",
	};
	mkdir("/tmp/a", 0777), mkdir("/tmp/a/b", 0777), mkdir("/tmp/other", 0777), mkdir("/tmp/b", 0777);
	close(open("/tmp/a/b/f", O_CREAT | O_WRONLY, 0666));
	close(open("/tmp/other/f", O_CREAT | O_WRONLY, 0666));
	int directory = open("/tmp/a", O_RDONLY | O_DIRECTORY);
	char own[64];
	snprintf(own, sizeof own, "/proc/self/fd/%d", directory);
	say("links", symlink("../b", "/tmp/a/b/up") | symlink("../..", "/tmp/a/b/top") | symlink("b/f", "/tmp/a/in")
		| symlink("../other/f", "/tmp/a/out") | symlink("/tmp/other", "/tmp/a/absolute")
		| symlink("/proc/self", "/tmp/a/self") | symlink(own, "/tmp/a/magic") | symlink("loop", "/tmp/a/loop"));
	static const unsigned long scopes[] = {
		0, RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT,
		RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT | RESOLVE_NO_XDEV,
	};
	for (size_t scope = 0; scope < sizeof scopes / sizeof *scopes; scope++) {
		for (size_t path = 0; path < sizeof paths / sizeof *paths; path++) {
			/* /tmp is a file system of its own on one side only. */
			if (scopes[scope] == RESOLVE_NO_XDEV && strstr("/tmp/a/b/f absolute absolute/f", paths[path]))
				continue;
			printf("= %lx %s\n", scopes[scope], paths[path]);
			opened("opened", directory, paths[path], (struct open_how){.resolve = scopes[scope]}, 24);
		}
		struct open_how link = {.flags = O_PATH | O_NOFOLLOW, .resolve = scopes[scope]};
		opened("a link itself", directory, "out", link, 24);
		struct open_how made = {.flags = O_CREAT | O_WRONLY, .mode = 0600, .resolve = scopes[scope]};
		opened("made", directory, "b/made", made, 24);
		opened("made outside", directory, "../other/made", made, 24);
		opened("made by a link", directory, "out", made, 24);
	}
	opened("short", directory, "b/f", (struct open_how){0}, 16);
	opened("long", directory, "b/f", (struct open_how){0}, 40);
	opened("longer than a page", directory, "b/f", (struct open_how){0}, 5000);
	say("at the end of all memory", syscall(SYS_openat2, directory, "b/f", -8ul, 40));
	opened("unknown flags", directory, "b/f", (struct open_how){.flags = 1ul << 40}, 24);
	opened("unknown low flags", directory, "b/f", (struct open_how){.flags = 8}, 24);
	opened("unknown ways", directory, "b/f", (struct open_how){.resolve = 1 << 20}, 24);
	opened("two roots", directory, "b/f", (struct open_how){.resolve = RESOLVE_BENEATH | RESOLVE_IN_ROOT}, 24);
	opened("a mode of nothing", directory, "b/f", (struct open_how){.mode = 0600}, 24);
	opened("a long mode", directory, "b/f", (struct open_how){.flags = O_CREAT, .mode = 010000}, 24);
	opened("a path to write", directory, "b/f", (struct open_how){.flags = O_PATH | O_TRUNC}, 24);
	opened("here", AT_FDCWD, "/tmp/a/b/f", (struct open_how){0}, 24);
	opened("of a file", open("/tmp/a/b/f", O_RDONLY), "f", (struct open_how){0}, 24);
	opened("of nothing", 999, "f", (struct open_how){.resolve = RESOLVE_BENEATH}, 24);
	opened("of nothing, by a whole path", 999, "/tmp", (struct open_how){0}, 24);
	struct open_how nameless = {.flags = O_TMPFILE | O_RDWR, .mode = 0600, .resolve = RESOLVE_BENEATH};
	opened("without a name", directory, "b", nameless, 24);
	opened("without a name, outside", directory, "..", nameless, 24);
	close(directory);
}

/* Reads and writes a child's memory, which lies where its parent's does. */
static void memory_of_others(void) {
	enum { PAGE = 4096 };
	int status, ready[2], done[2];
	char here[3 * PAGE], byte;
	char *there = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(there + 2 * PAGE, PAGE, PROT_READ);
	munmap(there + 3 * PAGE, PAGE);
	pipe(ready);
	pipe(done);
	pid_t child = fork();
	if (child == 0) {
		memset(there, 'c', 2 * PAGE);
		write(ready[1], "", 1);
		read(done[0], &byte, 1);
		_exit(there[5] == 'w' && there[PAGE + 5] == 'w' && there[4] == 'c' && there[6] == 'c');
	}
	read(ready[0], &byte, 1);
	struct iovec own[2] = {{here, 100}, {here + 200, 2 * PAGE}}, others[2] = {{there, 50}, {there + 100, 2 * PAGE}};
	say("read", process_vm_readv(child, own, 2, others, 2, 0));
	say("it is the child's", here[0] == 'c' && here[99] == 'c' && here[200] == 'c' && there[0] == 0);
	others[1] = (struct iovec){there + 3 * PAGE - 10, 20};
	say("as far as there is any", process_vm_readv(child, own, 2, others, 2, 0));
	say("nothing is there", process_vm_readv(child, own, 2, others + 1, 1, 0));
	others[1].iov_base = there + 3 * PAGE;
	say("nor here", process_vm_readv(child, own, 2, others + 1, 1, 0));
	here[0] = here[1] = 'w';
	struct iovec two = {here, 2}, to[2] = {{there + 5, 1}, {there + PAGE + 5, 1}};
	say("write", process_vm_writev(child, &two, 1, to, 2, 0));
	to[0].iov_base = there + 2 * PAGE;
	say("where it may not", process_vm_writev(child, &two, 1, to, 1, 0));
	say("flags", process_vm_readv(child, own, 1, others, 1, 1));
	say("nobody", process_vm_readv(999999, own, 1, others, 1, 0));
	say("nothing", process_vm_readv(child, own, 0, others, 0, 0));
	say("too many", process_vm_readv(child, own, 2000, others, 1, 0));
	pid_t other = fork();
	if (other == 0) {
		setuid(1000);
		say("another user's", process_vm_readv(child, own, 1, others, 1, 0));
		_exit(0);
	}
	waitpid(other, NULL, 0);
	write(done[1], "", 1);
	waitpid(child, &status, 0);
	say("it found what was written", WEXITSTATUS(status));
}

/* Memory that moves away from where it stays mapped. */
static void emptied(void) {
	enum { PAGE = 4096 };
	char *old = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(old, 'o', 4 * PAGE);
	char *new = mremap(old, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
	say("moved", new != MAP_FAILED && new != old);
	say("what was there", new[0] == 'o' && new[4 * PAGE - 1] == 'o');
	say("is there no more", old[0] | old[4 * PAGE - 1]);
	old[0] = 'n';
	say("and apart", new[0] == 'o');
	say("another length", (long)mremap(old, 4 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
	say("in its place", (long)mremap(old, 4 * PAGE, 4 * PAGE, MREMAP_DONTUNMAP, NULL));
	munmap(old, 4 * PAGE);
	say("of nothing", (long)mremap(old, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL));
}

/* What was removed while somebody was there. */
static void removed(void) {
	struct stat status;
	char path[64] = "";
	mkdir("/tmp/up", 0755), mkdir("/tmp/up/down", 0755), mkdir("/tmp/beside", 0755);
	say("to there", chdir("/tmp/up/down"));
	say("remove it", rmdir("/tmp/up/down"));
	say("and what it was in", rmdir("/tmp/up"));
	say("the way up", stat("..", &status));
	say("and further", stat("../..", &status) == 0 && status.st_nlink > 0);
	say("into it", rename("/tmp/beside", "new"));
	say("its path", readlink("/proc/self/cwd", path, sizeof path) > 0);
	say("is none", syscall(SYS_getcwd, path, sizeof path));
	say("back", chdir("../../beside"));
	chdir("/tmp");
	rmdir("/tmp/beside");
}

static long files_used(void) {
	struct statvfs space;
	statvfs("/tmp", &space);
	return space.f_files - space.f_ffree;
}

/* Directories that processes were in, and that are removed, go when nobody is in them. */
static void left(void) {
	long before = files_used();
	for (int turn = 0; turn < 20; turn++) {
		mkdir("/tmp/left", 0755), chdir("/tmp/left"), chdir("/tmp"), rmdir("/tmp/left");
		mkdir("/tmp/left", 0755);
		int there = open("/tmp/left", O_RDONLY | O_DIRECTORY);
		fchdir(there), close(there), chdir("/tmp"), rmdir("/tmp/left");
	}
	say("left", files_used() - before);
	int ends[2];
	char byte;
	pipe(ends);
	mkdir("/tmp/left", 0755), chdir("/tmp/left");
	pid_t child = fork();
	if (child == 0) {
		read(ends[0], &byte, 1);
		chroot(".");
		_exit(0);
	}
	chdir("/tmp"), rmdir("/tmp/left");
	say("a child is there", files_used() - before);
	write(ends[1], "", 1);
	siginfo_t info;
	waitid(P_PID, child, &info, WEXITED | WNOWAIT);
	say("and has ended", files_used() - before);
	waitpid(child, NULL, 0);
	close(ends[0]), close(ends[1]);
}

/* Opens a file of another process's in /proc, as user 1000. */
static void look(pid_t process, const char *name, int flags) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", process, name);
	int fd = open(path, flags);
	say(name, fd < 0 ? -1 : 0);
	close(fd);
}

/* What a process keeps to itself in /proc. */
static void kept(void) {
	int ends[2], status = 0;
	char own[64], path[64];
	pipe2(ends, O_CLOEXEC);
	snprintf(own, sizeof own, "fd/%d", ends[0]);
	for (int user = 0; user <= 1000; user += 1000) {
		pid_t parent = getpid(), child = fork();
		if (child == 0) {
			if (user != 0)
				setgroups(0, NULL), setgid(user), setuid(user);
			const char *names[] = {"environ", "auxv", "maps", "fd", "cwd", "exe", "root/tmp", "status", "stat", "limits"};
			for (int each = 0; each < sizeof names / sizeof *names; each++)
				look(parent, names[each], O_RDONLY);
			snprintf(path, sizeof path, "/proc/%d/%s", parent, own);
			int again = open(path, O_WRONLY | O_NONBLOCK);
			say("its pipe", again < 0 ? -1 : 0);
			snprintf(path, sizeof path, "/proc/%d/exe", parent);
			char target[256];
			say("its program", readlink(path, target, sizeof target) < 0 ? -1 : 0);
			_exit(again < 0 ? 1 : write(again, "x", 1) + 1);
		}
		waitpid(child, &status, 0);
		say("it ended by", WEXITSTATUS(status));
	}
	close(ends[0]), close(ends[1]);
}

static int reopened(int fd, int flags) {
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, flags);
}

/* What has no name is opened once more by its descriptor. */
static void opened_again(void) {
	int ends[2], pair[2], counter = eventfd(1, 0);
	char bytes[8];
	pipe(ends);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	say("a socket", reopened(pair[0], O_RDWR));
	say("a counter", reopened(counter, O_RDWR));
	int writes = reopened(ends[0], O_WRONLY | O_NONBLOCK), reads = reopened(ends[1], O_RDONLY | O_NONBLOCK);
	int both = reopened(ends[0], O_RDWR);
	int flags = (fcntl(writes, F_GETFL) | fcntl(reads, F_GETFL) << 16) & (O_ACCMODE | O_NONBLOCK) * 65537;
	say("how the ends of a pipe are", flags);
	say("both", fcntl(both, F_GETFL) & O_ACCMODE);
	say("how the first ones stay", fcntl(ends[0], F_GETFL) | fcntl(ends[1], F_GETFL));
	say("written", write(writes, "ab", 2));
	say("not read by that", read(writes, bytes, 1));
	say("read", read(reads, bytes, 1));
	say("by the first", read(ends[0], bytes, 1) == 1 && bytes[0] == 'b');
	say("not written by that", write(reads, "a", 1));
	say("nothing is left", read(reads, bytes, 1));
	say("by both", write(both, "cd", 2) + read(both, bytes, 8));
	close(ends[1]), close(both);
	say("somebody may write", read(reads, bytes, 1));
	close(writes);
	say("nobody may", read(reads, bytes, 1));
	say("nor is what was none", reopened(777, O_RDONLY));
	close(ends[0]), close(reads), close(pair[0]), close(pair[1]), close(counter);
}

/* What is read where nothing can be put stays where it was. */
static void nowhere(void) {
	int ends[2], pair[2], timer = timerfd_create(CLOCK_MONOTONIC, 0);
	char byte = 0;
	pipe(ends);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	write(ends[1], "p", 1), write(pair[1], "s", 1);
	say("a pipe to nowhere", read(ends[0], (void *)8, 1));
	fcntl(ends[0], F_SETFL, O_NONBLOCK), fcntl(pair[0], F_SETFL, O_NONBLOCK);
	say("is there", read(ends[0], &byte, 1) == 1 && byte == 'p');
	say("a socket to nowhere", read(pair[0], (void *)8, 1));
	say("is there", read(pair[0], &byte, 1) == 1 && byte == 's');
	struct itimerspec early = {{0, 0}, {-1, 0}}, often = {{-5, 0}, {1, 0}};
	say("a time before", timerfd_settime(timer, 0, &early, NULL));
	say("an interval before", timerfd_settime(timer, 0, &often, NULL));
	early.it_value.tv_sec = 0, early.it_value.tv_nsec = -1;
	say("less than nothing", timerfd_settime(timer, 0, &early, NULL));
	close(ends[0]), close(ends[1]), close(pair[0]), close(pair[1]), close(timer);
}

int main(int count, char **arguments) {
	if (count > 1) {
		printf("= %s %s %s\n", arguments[0], arguments[1], getenv("A"));
		return 40;
	}
	pthread_t thread;
	told_again();
	orphans();
	pthread_create(&thread, NULL, reads_own, NULL);
	pthread_join(thread, NULL);
	interfaces();
	files();
	locks();
	programs();
	ways();
	memory_of_others();
	emptied();
	removed();
	left();
	kept();
	opened_again();
	nowhere();
	return 0;
}

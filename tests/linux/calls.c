/* Makes many system calls of Linux and prints what each said, a line each that begins with "= ": the test compares
 * the lines of a run on Linux with those of a run in a machine of nom. Nothing that may differ is printed: no
 * addresses, times, process numbers. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/shm.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "say.h"

static void files(void) {
	char bytes[64] = "";
	struct stat status;
	int fd = open("file", O_CREAT | O_EXCL | O_RDWR, 0640);
	say("open exclusively", fd >= 0);
	say("open exclusively again", open("file", O_CREAT | O_EXCL | O_RDWR, 0640));
	say("write", write(fd, "hello, world", 12));
	say("pread", pread(fd, bytes, 5, 7));
	printf("= read: %.5s\n", bytes);
	say("lseek from the end", lseek(fd, -5, SEEK_END));
	say("lseek before the start", lseek(fd, -50, SEEK_CUR));
	say("lseek to data", lseek(fd, 3, SEEK_DATA));
	say("lseek to a hole", lseek(fd, 3, SEEK_HOLE));
	struct iovec pieces[2] = {{"ab", 2}, {"cde", 3}};
	say("pwritev", pwritev(fd, pieces, 2, 100));
	say("fstat", fstat(fd, &status));
	printf("= size %ld mode %o links %ld\n", (long)status.st_size, status.st_mode, (long)status.st_nlink);
	say("link", link("file", "other"));
	say("rename", rename("other", "third"));
	say("rename nothing", rename("other", "fourth"));
	say("rename without replacing", renameat2(AT_FDCWD, "third", AT_FDCWD, "file", RENAME_NOREPLACE));
	say("unlink", unlink("file"));
	say("unlink again", unlink("file"));
	say("fstat", fstat(fd, &status));
	printf("= links %ld\n", (long)status.st_nlink);
	say("ftruncate", ftruncate(fd, 7));
	say("read at the end", pread(fd, bytes, 5, 7));
	say("write nothing from nowhere", write(fd, NULL, 0));
	say("read nothing to nowhere", read(fd, NULL, 0));
	int twin = dup(fd);
	lseek(fd, 3, SEEK_SET);
	say("a twin's position", lseek(twin, 0, SEEK_CUR));
	say("fcntl F_GETFL", fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK));
	say("fcntl F_SETFL", fcntl(fd, F_SETFL, O_APPEND));
	say("append", pwrite(fd, "x", 1, 0));
	say("close", close(fd));
	say("close again", close(fd));
	say("read from what is closed", read(fd, bytes, 1));
	close(twin);
	say("mkdir", mkdir("directory", 0755));
	say("mkdir again", mkdir("directory", 0755));
	say("unlink a directory", unlink("directory"));
	say("rmdir a file", rmdir("third"));
	say("open a directory to write", open("directory", O_WRONLY));
	say("symlink", symlink("directory/..", "link"));
	say("readlink", readlink("link", bytes, sizeof bytes));
	say("open a link itself", open("link", O_RDONLY | O_NOFOLLOW));
	say("a file as a directory", open("third/x", O_RDONLY));
	say("symlink to itself", symlink("round", "round"));
	say("open a round link", open("round", O_RDONLY));
	say("chdir", chdir("directory"));
	char *at = getcwd(bytes, sizeof bytes);
	printf("= in %s\n", at ? strrchr(at, '/') : "nowhere");
	say("rmdir where one is", rmdir("../directory"));
	say("getcwd where nothing is", getcwd(bytes, sizeof bytes) ? 0 : -1);
	say("open where nothing is", open("x", O_CREAT | O_WRONLY, 0600));
	say("chdir back", chdir("/tmp"));
	DIR *all = opendir("/proc/self/fd");
	int count = 0;
	while (all && readdir(all))
		count++;
	closedir(all);
	say("descriptors and dots", count);
	say("a name too long", open(memset(malloc(300), 'n', 299), O_RDONLY));
	say("null pointer", open(NULL, O_RDONLY));
	fd = memfd_create("memory", MFD_CLOEXEC);
	say("memfd", write(fd, "m", 1));
	fd = open("/dev/zero", O_RDONLY);
	say("zeros", read(fd, bytes, 9));
	say("full", write(open("/dev/full", O_WRONLY), "x", 1));
}

/* What was told of changed files, a line each. */
static void told(int fd) {
	char bytes[4096] __attribute__((aligned(8)));
	ssize_t count = read(fd, bytes, sizeof bytes);
	say("bytes told", count);
	for (char *at = bytes; at < bytes + count;) {
		struct inotify_event *event = (void *)at;
		printf("= watch %d mask %x name %u `%s`\n", event->wd, event->mask, event->len,
		       event->len ? event->name : "");
		at += sizeof *event + event->len;
	}
}

static void notices(void) {
	int events = IN_ALL_EVENTS & ~IN_ACCESS;
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	mkdir("watched", 0700);
	say("nothing told", read(fd, NULL, 0));
	say("watch", inotify_add_watch(fd, "watched", events));
	say("watch nothing", inotify_add_watch(fd, "unwatched", events));
	say("watch for nothing", inotify_add_watch(fd, "watched", 0));
	say("watch what is no directory", inotify_add_watch(fd, "/proc/self/exe", events | IN_ONLYDIR));
	say("watch by something else", inotify_add_watch(1, "watched", events));
	int file = open("watched/file", O_CREAT | O_RDWR, 0600);
	write(file, "1", 1);
	write(file, "2", 1);
	say("watch", inotify_add_watch(fd, "watched/file", IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF));
	told(fd);
	fchmod(file, 0644);
	ftruncate(file, 0);
	struct pollfd ready = {fd, POLLIN};
	say("poll", poll(&ready, 1, 0));
	told(fd);
	link("watched/file", "watched/other");
	rename("watched/file", "watched/third");
	rename("watched/third", "outside");
	mkdir("watched/inner", 0700);
	symlink("x", "watched/link");
	told(fd);
	unlink("watched/other");
	unlink("outside");
	told(fd);
	close(file);
	told(fd);
	say("end a watch", inotify_rm_watch(fd, 1));
	say("end a watch again", inotify_rm_watch(fd, 1));
	told(fd);
	rmdir("watched/inner");
	unlink("watched/link");
	told(fd);
	say("watch once", inotify_add_watch(fd, "watched", IN_DELETE_SELF | IN_CREATE | IN_ONESHOT));
	close(open("watched/file", O_CREAT | O_WRONLY, 0600));
	unlink("watched/file");
	say("rmdir", rmdir("watched"));
	told(fd);
	say("read too little", read(fd, &ready, 4));
	close(fd);
}

/* The loopback's addresses, and whether the machine has others: these are its own. */
static void interfaces(void) {
	struct ifaddrs *all = NULL;
	say("getifaddrs", getifaddrs(&all));
	for (struct ifaddrs *each = all; each; each = each->ifa_next) {
		char text[64] = "";
		/* Computers may be without IPv6. */
		if (strcmp(each->ifa_name, "lo") != 0 || !each->ifa_addr || each->ifa_addr->sa_family == AF_INET6)
			continue;
		int family = each->ifa_addr->sa_family;
		if (family == AF_INET)
			inet_ntop(family, &((struct sockaddr_in *)each->ifa_addr)->sin_addr, text, sizeof text);
		printf("= %s %d %s up %d\n", each->ifa_name, family, text, !!(each->ifa_flags & IFF_UP));
		if (family == AF_INET) {
			inet_ntop(family, &((struct sockaddr_in *)each->ifa_netmask)->sin_addr, text, sizeof text);
			printf("= mask %s\n", text);
		}
	}
	freeifaddrs(all);
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
	struct sockaddr_nl own = {AF_NETLINK};
	socklen_t length = sizeof own;
	say("bind", bind(fd, (void *)&own, sizeof own));
	say("getsockname", getsockname(fd, (void *)&own, &length));
	say("its port is the process", own.nl_pid == getpid());
	struct { struct nlmsghdr head; char more[64]; } message = {{NLMSG_LENGTH(16), 12345, NLM_F_REQUEST, 7}};
	say("ask for nothing known", send(fd, &message, message.head.nlmsg_len, 0));
	say("recv", recv(fd, &message, sizeof message, MSG_DONTWAIT) > 0);
	say("is refused", message.head.nlmsg_type == NLMSG_ERROR && message.head.nlmsg_seq == 7);
	say("recv", recv(fd, &message, sizeof message, MSG_DONTWAIT));
	say("netlink of nothing", socket(AF_NETLINK, SOCK_RAW, 200));
	say("netlink streams", socket(AF_NETLINK, SOCK_STREAM, 0));
	close(fd);
}

/* Addresses of TCP sockets that others have already, or that are nobody's. */
static void addresses(void) {
	int one = 1, first = socket(AF_INET, SOCK_STREAM, 0), second = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in own = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, foreign = {AF_INET, htons(7777)};
	socklen_t length = sizeof own;
	foreign.sin_addr.s_addr = inet_addr("198.51.100.7");
	say("bind to no own address", bind(first, (void *)&foreign, sizeof foreign));
	say("bind to any port", bind(first, (void *)&own, sizeof own));
	say("getsockname", getsockname(first, (void *)&own, &length));
	say("has a port before it listens", own.sin_port != 0);
	say("bind to the same", bind(second, (void *)&own, sizeof own));
	setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	say("bind to the same, alone", bind(second, (void *)&own, sizeof own));
	close(first);
	say("bind to the same when it is free", bind(second, (void *)&own, sizeof own));
	first = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	say("bind both", bind(first, (void *)&own, sizeof own));
	say("listen", listen(second, 5));
	say("listen both", listen(first, 5));
	close(first);
	first = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	say("bind to who listens", bind(first, (void *)&own, sizeof own));
	say("bind again", bind(second, (void *)&own, sizeof own));
	close(first);
	close(second);
}

static void priorities(void) {
	errno = 0;
	say("getpriority", getpriority(PRIO_PROCESS, 0));
	say("setpriority", setpriority(PRIO_PROCESS, getpid(), 7));
	say("getpriority", getpriority(PRIO_PROCESS, getpid()));
	say("setpriority beyond", setpriority(PRIO_PROCESS, 0, -30));
	say("getpriority", getpriority(PRIO_PROCESS, 0));
	errno = 0;
	say("of nobody", getpriority(PRIO_PROCESS, 1 << 21));
	say("of nothing", getpriority(9, 0));
	setpriority(PRIO_PROCESS, 0, 0);
	for (int policy = 0; policy < 7; policy++) {
		say("least of a policy", sched_get_priority_min(policy));
		say("most of a policy", sched_get_priority_max(policy));
	}
}

/* Calls that C libraries make no more, and old programs do. */
static void old_times(void) {
	struct stat status;
	long seconds[2] = {5, 7};
	struct timeval times[2] = {{1000, 250000}, {2000, 999999}}, wrong[2] = {{1, 1000000}, {1, 0}};
	close(open("/tmp/times", O_CREAT | O_WRONLY, 0600));
	say("utime", syscall(SYS_utime, "/tmp/times", seconds));
	stat("/tmp/times", &status);
	say("its second", status.st_mtime);
	say("utimes", syscall(SYS_utimes, "/tmp/times", times));
	stat("/tmp/times", &status);
	say("its nanoseconds", status.st_mtim.tv_nsec);
	say("and when it was read", status.st_atim.tv_nsec);
	say("utimes wrong", syscall(SYS_utimes, "/tmp/times", wrong));
	say("utimes nowhere", syscall(SYS_utimes, "/tmp/times", 8L));
	say("futimesat", syscall(SYS_futimesat, AT_FDCWD, "/tmp/absent", times));
	int descriptor = open("/tmp/times", O_RDONLY);
	say("futimesat of it", syscall(SYS_futimesat, descriptor, NULL, times));
	close(descriptor);
	unlink("/tmp/times");
}

static void limits(void) {
	close_range(3, ~0U, 0);
	struct rlimit limit = {16, 32}, before;
	say("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 40;
	say("setrlimit of more than may be", setrlimit(RLIMIT_NOFILE, &limit));
	limit = (struct rlimit){1UL << 30, 1UL << 30};
	say("setrlimit of more than there is", setrlimit(RLIMIT_NOFILE, &limit));
	say("setrlimit of nothing", setrlimit(77, &limit));
	limit = (struct rlimit){4096, 8192};
	say("prlimit", prlimit(getpid(), RLIMIT_MEMLOCK, &limit, NULL));
	say("prlimit of nobody", prlimit(1 << 21, RLIMIT_NOFILE, NULL, &before));
	say("getrlimit", getrlimit(RLIMIT_MEMLOCK, &before));
	printf("= limit %ld %ld\n", (long)before.rlim_cur, (long)before.rlim_max);
	int count = 0;
	while (open("/dev/null", O_RDONLY) >= 0)
		count++;
	say("no more descriptors", -1);
	say("descriptors", count);
	pid_t child = fork();
	if (child == 0)
		_exit(getrlimit(RLIMIT_NOFILE, &before) == 0 ? before.rlim_cur : 1);
	int status;
	waitpid(child, &status, 0);
	say("a child's limit", WEXITSTATUS(status));
	say("dup2 beyond", dup2(0, 16));
	say("fcntl beyond", fcntl(0, F_DUPFD, 16));
	close_range(3, ~0U, 0);
	limit = (struct rlimit){32, 32};
	say("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
}

/* What was written in pieces that fit no page is read so, with holes between. */
static void pieces_of_files(void) {
	enum { BYTES = 300000 };
	unsigned char *written = malloc(BYTES), *read_back = malloc(BYTES);
	for (int i = 0; i < BYTES; i++)
		written[i] = i * 7 + i / 4096;
	int fd = open("pieces", O_CREAT | O_RDWR | O_TRUNC, 0600);
	for (int at = 0, len = 1; at < BYTES; at += len, len = (len * 5) % 70001 + 1)
		pwrite(fd, written + at, len < BYTES - at ? len : BYTES - at, at);
	say("read as a whole", pread(fd, read_back, BYTES, 0));
	say("the same", memcmp(written, read_back, BYTES));
	say("behind a hole", pwrite(fd, written, 5000, 2 * BYTES + 123));
	memset(read_back, 1, BYTES);
	say("the hole", pread(fd, read_back, BYTES, BYTES));
	int zeros = 0;
	for (int i = 0; i < BYTES; i++)
		zeros += read_back[i] == 0;
	say("is zeros", zeros);
	say("up to the end", pread(fd, read_back, BYTES, 2 * BYTES));
	say("the same behind it", memcmp(written, read_back + 123, 5000));
	say("at the end, to nowhere", pread(fd, NULL, 9, 3 * BYTES));
	say("to nowhere", pread(fd, NULL, 9, 0));
	say("from nowhere", pwrite(fd, NULL, 9, 0));
	say("nothing to nowhere", pread(fd, NULL, 0, 0));
	int directory = open(".", O_RDONLY);
	say("a directory", pread(directory, read_back, 9, 0));
	close(directory);
	unsigned char *mapped = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
	say("a file from what is mapped of it", pwrite(fd, mapped + 4096, 5000, 100));
	say("is there", pread(fd, read_back, 5000, 100) + memcmp(read_back, written + 4096, 5000));
	munmap(mapped, BYTES);
	close(fd);
	free(written);
	free(read_back);
}

static void attributes(void) {
	char bytes[64];
	int fd = open("attributes", O_CREAT | O_RDWR, 0600);
	say("no such attribute", setxattr("attributes", "nonsense.x", "v", 1, 0));
	say("nor to get", getxattr("attributes", "nonsense.x", bytes, sizeof bytes));
	say("nor of a descriptor", fgetxattr(fd, "nonsense.x", bytes, sizeof bytes));
	say("nor to remove", removexattr("attributes", "nonsense.x"));
	say("of nothing", getxattr("absent", "nonsense.x", bytes, sizeof bytes));
	say("of no descriptor", fsetxattr(-1, "nonsense.x", "v", 1, 0));
	say("set one", setxattr("attributes", "user.first", "value", 5, 0));
	say("and another", fsetxattr(fd, "user.second", "", 0, XATTR_CREATE));
	say("must be new", setxattr("attributes", "user.first", "other", 5, XATTR_CREATE));
	say("must be there", setxattr("attributes", "user.third", "other", 5, XATTR_REPLACE));
	say("is there", setxattr("attributes", "user.first", "longer value", 12, XATTR_REPLACE));
	say("other flags", setxattr("attributes", "user.first", "v", 1, 4));
	say("how long", getxattr("attributes", "user.first", NULL, 0));
	say("too little room", getxattr("attributes", "user.first", bytes, 5));
	say("room", fgetxattr(fd, "user.first", bytes, sizeof bytes));
	say("its value", memcmp(bytes, "longer value", 12));
	say("an empty one", getxattr("attributes", "user.second", bytes, sizeof bytes));
	say("an absent one", getxattr("attributes", "user.third", bytes, sizeof bytes));
	say("length of names", listxattr("attributes", NULL, 0));
	say("too little room for names", listxattr("attributes", bytes, 3));
	say("names", flistxattr(fd, bytes, sizeof bytes));
	say("no name", setxattr("attributes", "", "v", 1, 0));
	say("nothing behind the dot", setxattr("attributes", "user.", "v", 1, 0));
	char name[300] = "user.", *large = calloc(1, 70000);
	memset(name + 5, 'n', 260);
	say("too long a name", setxattr("attributes", name, "v", 1, 0));
	name[255] = 0;
	say("the longest", setxattr("attributes", name, "v", 1, 0));
	say("too long a value", setxattr("attributes", "user.large", large, 65537, 0));
	say("from nowhere", setxattr("attributes", "user.large", NULL, 5, 0));
	say("trusted", setxattr("attributes", "trusted.x", "t", 1, 0));
	say("trusted is told", getxattr("attributes", "trusted.x", bytes, sizeof bytes));
	symlink("attributes", "attributes-link");
	say("by a link", getxattr("attributes-link", "user.first", bytes, sizeof bytes));
	say("of the link", lgetxattr("attributes-link", "user.first", bytes, sizeof bytes));
	say("none on a link", lsetxattr("attributes-link", "user.first", "v", 1, 0));
	mkdir("attributes-directory", 0755);
	say("a directory's", setxattr("attributes-directory", "user.first", "v", 1, 0));
	say("remove", removexattr("attributes", "user.first"));
	say("once", fremovexattr(fd, "user.first"));
	rename("attributes", "attributes-renamed");
	say("goes along", getxattr("attributes-renamed", name, bytes, sizeof bytes));
	chmod("attributes-renamed", 0);
	pid_t child = fork();
	if (child == 0) {
		setuid(1000);
		say("who may not read", fgetxattr(fd, "user.second", bytes, sizeof bytes));
		say("nor write", fsetxattr(fd, "user.second", "v", 1, 0));
		say("nor trust", fgetxattr(fd, "trusted.x", bytes, sizeof bytes));
		say("nor be trusted", fsetxattr(fd, "trusted.x", "v", 1, 0));
		say("nor secure", fsetxattr(fd, "security.x", "v", 1, 0));
		_exit(0);
	}
	waitpid(child, NULL, 0);
	free(large);
	close(fd);
}

/* What is sealed of a file in memory nobody does any more. */
static void seals(void) {
	char bytes[8192] = "bytes";
	int fd = memfd_create("sealed", MFD_ALLOW_SEALING), plain = memfd_create("plain", 0);
	say("seals of one that has none", fcntl(fd, F_GET_SEALS));
	say("of one that gets none", fcntl(plain, F_GET_SEALS));
	say("which gets none", fcntl(plain, F_ADD_SEALS, F_SEAL_GROW));
	say("unknown seals", fcntl(fd, F_ADD_SEALS, 0x10000));
	ftruncate(fd, 4096);
	say("against growing", fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
	say("write within", pwrite(fd, bytes, 100, 0));
	say("write beyond", pwrite(fd, bytes, 100, 4090));
	say("grow", ftruncate(fd, 8192));
	say("allocate", fallocate(fd, 0, 4000, 1000));
	say("shrink", ftruncate(fd, 2000));
	say("against shrinking", fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
	say("shrink", ftruncate(fd, 1000));
	say("stay", ftruncate(fd, 2000));
	char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	say("against writing while it is mapped", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	munmap(shared, 4096);
	say("against writing", fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
	say("write", pwrite(fd, bytes, 1, 0));
	say("punch", fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 100));
	say("map to write", mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0);
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	say("a copy of one's own", shared != MAP_FAILED && !memcmp(shared, "bytes", 5));
	shared[0] = 'B';
	say("against seals", fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
	say("one more", fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	say("all", fcntl(fd, F_GET_SEALS));
	int ends[2];
	pipe(ends);
	say("of a pipe", fcntl(ends[0], F_GET_SEALS));
	close(ends[0]);
	close(ends[1]);
	close(plain);
	close(fd);
}

static void pipes(void) {
	int ends[2];
	char bytes[70000];
	say("pipe2", pipe2(ends, O_NONBLOCK));
	say("read nothing", read(ends[0], bytes, 9));
	say("write more than there is room", write(ends[1], bytes, sizeof bytes));
	say("write without room", write(ends[1], bytes, 1));
	struct pollfd polled = {ends[1], POLLOUT, 0};
	say("poll without room", poll(&polled, 1, 0));
	say("read", read(ends[0], bytes, 5000));
	say("poll with room", poll(&polled, 1, 0));
	close(ends[1]);
	while (read(ends[0], bytes, sizeof bytes) > 0)
		;
	polled = (struct pollfd){ends[0], POLLIN, 0};
	poll(&polled, 1, 0);
	say("events at the end", polled.revents);
	pipe(ends);
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	say("write to nobody", write(ends[1], "x", 1));
	int counter = eventfd(3, EFD_NONBLOCK | EFD_SEMAPHORE);
	unsigned long value = 4;
	say("eventfd write", write(counter, &value, 8));
	read(counter, &value, 8);
	say("eventfd takes", value);
	say("eventfd short", read(counter, &value, 4));
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	say("timer not set", read(timer, &value, 8));
	struct itimerspec when = {{0, 0}, {0, 1000000}};
	timerfd_settime(timer, 0, &when, NULL);
	polled = (struct pollfd){timer, POLLIN, 0};
	say("timer rings", poll(&polled, 1, 10000));
	say("timer read", read(timer, &value, 8));
	say("times", value);
}

static void watch(void) {
	int set = epoll_create1(EPOLL_CLOEXEC), ends[2];
	struct epoll_event event = {EPOLLIN, {.u64 = 7}}, found[4];
	pipe2(ends, O_NONBLOCK);
	say("epoll add", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	say("epoll add again", epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event));
	say("epoll of itself", epoll_ctl(set, EPOLL_CTL_ADD, set, &event));
	say("epoll of no descriptor", epoll_ctl(set, EPOLL_CTL_ADD, 999, &event));
	say("epoll of a file", epoll_ctl(set, EPOLL_CTL_ADD, open("/etc/passwd", O_RDONLY), &event));
	say("nothing ready", epoll_wait(set, found, 4, 0));
	write(ends[1], "ab", 2);
	say("ready", epoll_wait(set, found, 4, 1000));
	say("its data", found[0].data.u64);
	say("still ready", epoll_wait(set, found, 4, 0));
	event.events = EPOLLIN | EPOLLET;
	say("epoll change", epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event));
	say("edge", epoll_wait(set, found, 4, 0));
	say("no second edge", epoll_wait(set, found, 4, 0));
	write(ends[1], "c", 1);
	say("another edge", epoll_wait(set, found, 4, 0));
	event.events = EPOLLIN | EPOLLONESHOT;
	epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event);
	say("one shot", epoll_wait(set, found, 4, 0));
	say("spent", epoll_wait(set, found, 4, 0));
	close(ends[1]);
	event.events = 0;
	epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &event);
	say("hung up", epoll_wait(set, found, 4, 0));
	printf("= events %x\n", found[0].events);
	say("epoll remove", epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	say("epoll remove again", epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
	say("room for nobody", epoll_wait(set, found, 0, 0));
}

/* Sets within sets: how deep, in no circle, and that who waits for the outermost hears of all. */
static void nested_sets(void) {
	int sets[8], ends[2];
	struct epoll_event event = {EPOLLIN, {.u64 = 7}}, found[4];
	char byte;
	for (int i = 0; i < 8; i++)
		sets[i] = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < 6; i++)
		say("set in a set", epoll_ctl(sets[i], EPOLL_CTL_ADD, sets[i + 1], &event));
	say("circle", epoll_ctl(sets[1], EPOLL_CTL_ADD, sets[0], &event));
	say("wider circle", epoll_ctl(sets[4], EPOLL_CTL_ADD, sets[0], &event));
	say("set in two sets", epoll_ctl(sets[7], EPOLL_CTL_ADD, sets[3], &event));
	say("too deep", epoll_ctl(sets[7], EPOLL_CTL_ADD, sets[0], &event));
	pipe(ends);
	epoll_ctl(sets[3], EPOLL_CTL_ADD, ends[0], &event);
	say("outermost, nothing", epoll_wait(sets[0], found, 4, 0));
	write(ends[1], "x", 1);
	say("outermost", epoll_wait(sets[0], found, 4, 1000));
	say("innermost", epoll_wait(sets[3], found, 4, 0));
	read(ends[0], &byte, 1);
	say("outermost, no more", epoll_wait(sets[0], found, 4, 0));
	pid_t child = fork();
	if (child == 0) {
		usleep(100000);
		_exit(write(ends[1], "y", 1) != 1);
	}
	say("outermost, woken", epoll_wait(sets[0], found, 4, 10000));
	say("it wrote", waitpid(child, NULL, 0) == child);
	for (int i = 0; i < 8; i++)
		close(sets[i]);
	close(ends[0]), close(ends[1]);
}

static void local_sockets(void) {
	int pair[2], listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	char bytes[16] = "";
	say("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	say("send", send(pair[0], "both", 4, 0));
	say("peek", recv(pair[1], bytes, 2, MSG_PEEK));
	say("receive", recv(pair[1], bytes, 16, 0));
	say("receive nothing", recv(pair[1], bytes, 16, MSG_DONTWAIT));
	say("shut", shutdown(pair[0], SHUT_WR));
	say("the end", recv(pair[1], bytes, 16, 0));
	say("send after", send(pair[0], "x", 1, MSG_NOSIGNAL));
	struct sockaddr_un at = {AF_UNIX, "/tmp/socket"};
	say("connect to nothing", connect(client, (void *)&at, sizeof at));
	say("bind", bind(listener, (void *)&at, sizeof at));
	say("bind again", bind(client, (void *)&at, sizeof at));
	say("connect to who does not listen", connect(client, (void *)&at, sizeof at));
	say("listen", listen(listener, 5));
	say("connect", connect(client, (void *)&at, sizeof at));
	int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	say("accept", accepted >= 0);
	say("closes on exec", fcntl(accepted, F_GETFD));
	write(accepted, "over", 4);
	say("read", read(client, bytes, 16));
	say("get nothing", getsockopt(pair[0], SOL_SOCKET, 9999, bytes, &(socklen_t){4}));
	say("not a socket", send(1, "x", 1, 0));
}

/* Who writes more than there is memory for writes what there is room for, and who waits, all. */
static void much_at_once(void) {
	size_t much = 1UL << 30, some = 3 << 20;
	char *bytes = mmap(NULL, much, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct iovec pieces[2] = {{bytes, 3}, {bytes + 3, much - 3}};
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
	int ends[2], pair[2], status;
	pipe2(ends, O_NONBLOCK);
	say("write much", write(ends[1], bytes, much));
	pipe2(ends, O_NONBLOCK);
	say("write much in pieces", writev(ends[1], pieces, 2));
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
	say("send much", send(pair[0], bytes, much, 0) >= 65536);
	socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
	say("send much in pieces", sendmsg(pair[0], &message, 0) >= 65536);
	socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
	say("a message of much", send(pair[0], bytes, much, 0));
	say("a message of much in pieces", sendmsg(pair[0], &message, 0));
	say("a message of much, written", writev(pair[0], pieces, 2));
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	pieces[1].iov_len = some - 3;
	if (fork() == 0) {
		size_t count = 0;
		long last;
		close(pair[0]);
		while ((last = read(pair[1], bytes, 100000)) > 0)
			count += last;
		_exit(count == 3 * some);
	}
	say("send some", send(pair[0], bytes, some, 0));
	say("send some in pieces", sendmsg(pair[0], &message, 0));
	say("write some in pieces", writev(pair[0], pieces, 2));
	close(pair[0]);
	wait(&status);
	say("all came", WEXITSTATUS(status));
	munmap(bytes, much);
}

static void pass_descriptors(void) {
	int pair[2], ends[2], given = -1;
	char bytes[8] = "", control[CMSG_SPACE(sizeof given)] = "";
	struct iovec piece = {"go", 2};
	struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	pipe(ends);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof given);
	memcpy(CMSG_DATA(head), &ends[1], sizeof given);
	say("send before", send(pair[0], "x", 1, 0));
	say("send a descriptor", sendmsg(pair[0], &message, 0));
	say("and again", sendmsg(pair[0], &message, 0));
	close(ends[1]);
	piece = (struct iovec){bytes, sizeof bytes};
	memset(control, 0, sizeof control);
	say("receive what was before, too", recvmsg(pair[1], &message, 0));
	memcpy(&given, CMSG_DATA(head), sizeof given);
	close(given);
	message.msg_controllen = sizeof control;
	say("receive a descriptor", recvmsg(pair[1], &message, MSG_CMSG_CLOEXEC));
	say("control data", message.msg_controllen);
	printf("= %ld %d %d flags %x\n", (long)head->cmsg_len, head->cmsg_level, head->cmsg_type, message.msg_flags & ~MSG_CMSG_CLOEXEC);
	memcpy(&given, CMSG_DATA(head), sizeof given);
	say("closes on exec", fcntl(given, F_GETFD));
	say("write to what was given", write(given, "yes", 3));
	say("read it", read(ends[0], bytes, sizeof bytes));
	message.msg_controllen = sizeof control;
	piece = (struct iovec){"go", 2};
	memcpy(CMSG_DATA(head), &given, sizeof given);
	say("pass it on", sendmsg(pair[0], &message, 0));
	piece = (struct iovec){bytes, sizeof bytes};
	message.msg_control = NULL;
	message.msg_controllen = 0;
	say("receive without room", recvmsg(pair[1], &message, 0));
	printf("= flags %x\n", message.msg_flags);
	close(given);
	say("nobody writes", read(ends[0], bytes, sizeof bytes));
	message.msg_control = control;
	message.msg_controllen = sizeof control;
	given = 999;
	memcpy(CMSG_DATA(head), &given, sizeof given);
	say("send no descriptor", sendmsg(pair[0], &message, 0));
}

static void loopback(void) {
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}}, own, peer, name;
	socklen_t len = sizeof own;
	char bytes[100000] = "";
	say("bind", bind(listener, (void *)&at, sizeof at));
	say("listen", listen(listener, 5));
	say("getsockname", getsockname(listener, (void *)&at, &len));
	say("a port", at.sin_port != 0);
	say("connect", connect(client, (void *)&at, sizeof at));
	say("connect again", connect(client, (void *)&at, sizeof at));
	len = sizeof peer;
	int accepted = accept(listener, (void *)&peer, &len);
	say("accept", accepted >= 0);
	getsockname(client, (void *)&own, &len);
	say("one name", own.sin_port == peer.sin_port && own.sin_port != 0 && own.sin_addr.s_addr == at.sin_addr.s_addr);
	getsockname(accepted, (void *)&name, &len);
	say("the other name", name.sin_port == at.sin_port && name.sin_addr.s_addr == at.sin_addr.s_addr);
	getpeername(client, (void *)&name, &len);
	say("the peer's name", name.sin_port == at.sin_port);
	say("send", send(client, "question", 8, 0));
	say("receive", recv(accepted, bytes, sizeof bytes, 0));
	int on = 1, error = 7;
	len = sizeof on;
	say("no delay", setsockopt(client, IPPROTO_TCP, 1, &on, sizeof on));
	say("no error", getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len));
	say("error", error);
	struct pollfd polled = {client, POLLIN | POLLOUT | POLLRDHUP, 0};
	poll(&polled, 1, 1000);
	printf("= events %x\n", polled.revents);
	say("shut", shutdown(accepted, SHUT_WR));
	poll(&polled, 1, 1000);
	printf("= events %x\n", polled.revents);
	say("the end", recv(client, bytes, 16, 0));
	int soon = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	say("connect without waiting", connect(soon, (void *)&at, sizeof at));
	struct pollfd open_soon = {soon, POLLOUT, 0};
	say("is open soon", poll(&open_soon, 1, 10000));
	say("connect when it is open", connect(soon, (void *)&at, sizeof at));
	say("connect once more", connect(soon, (void *)&at, sizeof at));
	close(soon);
	off_t nowhere = -1;
	int null = open("/etc/passwd", O_RDONLY);
	say("sendfile from nowhere", sendfile(client, null, &nowhere, 5));
	close(null);
	close(accepted);
	close(listener);
	int late = socket(AF_INET, SOCK_STREAM, 0);
	say("refused", connect(late, (void *)&at, sizeof at));
	int never = socket(AF_INET, SOCK_STREAM, 0);
	say("send without a peer", send(never, "x", 1, MSG_NOSIGNAL));
	say("name without a peer", getpeername(never, (void *)&name, &len));
	say("accept without listening", accept(never, NULL, NULL));
	say("no such family", socket(99, SOCK_STREAM, 0));
	say("no such protocol", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
}

static volatile int handled, in_handler;
static sigjmp_buf back;

static void handle(int signal, siginfo_t *info, void *context) {
	handled = signal;
	in_handler = info->si_code;
}

static void escape(int signal, siginfo_t *info, void *context) {
	handled = signal;
	siglongjmp(back, info->si_code);
}

static void signals(void) {
	struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO}, before;
	sigset_t set, old;
	say("sigaction", sigaction(SIGUSR1, &action, NULL));
	say("sigaction of SIGKILL", sigaction(SIGKILL, &action, NULL));
	raise(SIGUSR1);
	say("handled", handled);
	say("from", in_handler);
	handled = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &old);
	kill(getpid(), SIGUSR1);
	kill(getpid(), SIGUSR1);
	say("blocked", handled);
	sigpending(&old);
	say("pending", sigismember(&old, SIGUSR1));
	struct timespec soon = {0, 1000000};
	siginfo_t info;
	say("waited for", sigtimedwait(&set, &info, &soon));
	say("waited in vain", sigtimedwait(&set, &info, &soon));
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	say("not handled", handled);
	int ends[2];
	char byte;
	pipe(ends);
	sigaction(SIGALRM, &action, &before);
	say("default before", before.sa_handler == SIG_DFL);
	struct itimerval timer = {{0, 0}, {0, 20000}};
	setitimer(ITIMER_REAL, &timer, NULL);
	say("read interrupted", read(ends[0], &byte, 1));
	say("by", handled);
	stack_t stack = {malloc(65536), 0, 65536};
	say("sigaltstack", sigaltstack(&stack, NULL));
	struct sigaction fault = {.sa_sigaction = escape, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGBUS, &fault, NULL);
	sigaction(SIGFPE, &fault, NULL);
	volatile char *page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int code = sigsetjmp(back, 1);
	if (code == 0)
		*page = 1;
	say("write to what is read only", code * 100 + handled);
	code = sigsetjmp(back, 1);
	if (code == 0)
		*(volatile int *)8 = 1;
	say("write to nothing", code * 100 + handled);
	volatile int zero = 0;
	code = sigsetjmp(back, 1);
	if (code == 0)
		zero = 1 / zero;
	say("division by zero", code * 100 + handled);
	int fd = open("/tmp/short", O_CREAT | O_RDWR, 0600);
	volatile char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	code = sigsetjmp(back, 1);
	if (code == 0)
		zero = *mapped;
	say("behind the end of a file", code * 100 + handled);
	say("bad signal", kill(getpid(), 99));
	say("no such process", kill(99999, 0));
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static __thread int own = 5;
static int turn, sum;

static void *take_turns(void *which) {
	long number = (long)which;
	own += number;
	for (int round = 0; round < 50; round++) {
		pthread_mutex_lock(&mutex);
		while (turn % 4 != number)
			pthread_cond_wait(&changed, &mutex);
		turn++;
		sum += own;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&mutex);
	}
	return (void *)(long)own;
}

/* Timers that send signals, and what is left of them. */
static void timers(void) {
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2, .sigev_value.sival_int = 77};
	struct itimerspec when = {{0, 0}, {1000, 0}}, left;
	struct itimerval real = {{3, 0}, {1000, 0}}, before;
	timer_t timer;
	siginfo_t info;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	say("timer_create", timer_create(CLOCK_MONOTONIC, &event, &timer));
	say("timer_settime", timer_settime(timer, 0, &when, NULL));
	say("timer_gettime", timer_gettime(timer, &left));
	say("about all is left", left.it_value.tv_sec >= 900 && left.it_value.tv_sec <= 1000);
	when = (struct itimerspec){{0, 2000000}, {0, 2000000}};
	timer_settime(timer, 0, &when, &left);
	say("was left", left.it_value.tv_sec >= 900);
	say("rings", sigwaitinfo(&set, &info));
	say("a timer's", info.si_code);
	say("with its value", info.si_value.sival_int);
	usleep(50000);
	say("rings again", sigwaitinfo(&set, &info));
	say("was missed meanwhile", timer_getoverrun(timer) >= 1);
	say("timer_delete", timer_delete(timer));
	say("timer_delete again", syscall(SYS_timer_delete, 12345));
	event.sigev_signo = 99;
	say("no such signal", timer_create(CLOCK_MONOTONIC, &event, &timer));
	say("no such clock", timer_create(99, NULL, &timer));
	say("setitimer", setitimer(ITIMER_REAL, &real, NULL));
	say("getitimer", getitimer(ITIMER_REAL, &before));
	say("its interval", before.it_interval.tv_sec);
	say("about all is left", before.it_value.tv_sec >= 900 && before.it_value.tv_sec <= 1000);
	unsigned rest = alarm(5);
	say("alarm", rest >= 900 && rest <= 1000);
	rest = alarm(0);
	say("and what was left", rest >= 1 && rest <= 5);
	say("nothing is left", alarm(0));
	/* One that was sent before its timer was deleted is not to end the process. */
	signal(SIGUSR2, SIG_IGN);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void threads(void) {
	pthread_t all[4];
	for (long index = 0; index < 4; index++)
		say("pthread_create", pthread_create(&all[index], NULL, take_turns, (void *)index));
	long ends = 0;
	for (int index = 0; index < 4; index++) {
		void *end;
		pthread_join(all[index], &end);
		ends = ends * 10 + (long)end;
	}
	say("their own", ends);
	say("turns", turn);
	say("sum", sum);
	pthread_mutex_lock(&mutex);
	struct timespec when;
	clock_gettime(CLOCK_REALTIME, &when);
	when.tv_nsec = (when.tv_nsec + 1000000) % 1000000000;
	say("in vain", pthread_cond_timedwait(&changed, &mutex, &when) == ETIMEDOUT);
	say("taken", pthread_mutex_trylock(&mutex) == EBUSY);
	char name[16] = "";
	prctl(PR_GET_NAME, name);
	printf("= named %s\n", name);
}

static void memory(void) {
	size_t page = 4096;
	char *at = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	say("mmap", at != MAP_FAILED);
	at[page] = 7;
	say("madvise", madvise(at, 4 * page, MADV_DONTNEED));
	say("forgotten", at[page]);
	at[0] = 3;
	at = mremap(at, 4 * page, 64 * page, MREMAP_MAYMOVE);
	say("moved", at[0]);
	say("munmap in the middle", munmap(at + page, page));
	int ends[2];
	pipe(ends);
	say("mprotect over a hole", mprotect(at, 4 * page, PROT_READ));
	say("mprotect", mprotect(at, page, PROT_READ));
	say("write from a hole", write(ends[1], at + page, 1));
	say("read to what is read only", read(open("/dev/zero", O_RDONLY), at, 1));
	say("mmap of no length", mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
	say("mmap of no file", mmap(NULL, page, PROT_READ, MAP_PRIVATE, 999, 0) == MAP_FAILED ? -1 : 0);
	say("munmap of no page", munmap(at + 1, page));
	int fd = open("/tmp/mapped", O_CREAT | O_RDWR | O_TRUNC, 0600);
	write(fd, "abc", 3);
	char *file = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	file[0] = 'x';
	char bytes[3];
	pread(fd, bytes, 3, 0);
	printf("= private %.3s, file %.3s, behind %d\n", file, bytes, file[3]);
	char *end = sbrk(0);
	say("sbrk", sbrk(100000) == end);
	end[99999] = 1;
	say("there", mincore(at, page, (unsigned char *)bytes));
}

/* What a child finds of memory about which something was said, and what may be said. */
static void advice(void) {
	size_t page = 4096;
	char *at = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *shared = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 4; i++)
		at[i * page] = 'a' + i;
	say("wiped", madvise(at + page, page, MADV_WIPEONFORK));
	say("not for a child", madvise(at + 2 * page, page, MADV_DONTFORK));
	say("shared is not wiped", madvise(shared, page, MADV_WIPEONFORK));
	fflush(stdout);
	int status;
	pid_t child = fork();
	if (child == 0) {
		say("first", at[0]), say("second", at[page]), say("last", at[3 * page]);
		say("third", madvise(at + 2 * page, page, MADV_NORMAL));
		at[page] = 'z';
		if (fork() == 0) {
			say("grandchild's second", at[page]);
			_exit(0);
		}
		wait(NULL);
		_exit(0);
	}
	waitpid(child, &status, 0);
	say("its end", status), say("still there", at[page]), say("and there", at[2 * page]);
	say("as ever", madvise(at + page, page, MADV_KEEPONFORK)), say("and here", madvise(at + 2 * page, page, MADV_DOFORK));
	fflush(stdout);
	child = fork();
	if (child == 0)
		_exit(at[page] == 'b' && at[2 * page] == 'c' ? 7 : 8);
	waitpid(child, &status, 0);
	say("a child has both", WEXITSTATUS(status));
	say("no such advice", madvise(at, page, -1)), say("nor that", madvise(at, page, 77));
	say("forgotten", madvise(at, 2 * page, MADV_DONTNEED));
	unsigned char there[2];
	say("brought", madvise(at, page, MADV_POPULATE_WRITE));
	mincore(at, 2 * page, there);
	say("it is", there[0] & 1), say("its neighbour", at[page]);
	munmap(at + page, page);
	say("over a hole", madvise(at, 4 * page, MADV_POPULATE_READ));
	munmap(at, 4 * page), munmap(shared, page);
}

static void flags_of_mmap(void) {
	size_t page = 4096;
	int fd = open("/tmp/validated", O_CREAT | O_RDWR | O_TRUNC, 0600), both = PROT_READ | PROT_WRITE;
	write(fd, "abc", 3);
	char *at = mmap(NULL, 3 * page, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	say("in 31 bits", (unsigned long)at < 1UL << 31 && (unsigned long)at >= 1UL << 30);
	char *second = mmap(NULL, page, both, MAP_PRIVATE | MAP_32BIT, fd, 0);
	say("and a file", (unsigned long)second < 1UL << 31), say("with its bytes", second[0]);
	char *wish = mmap(at + page, page, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	say("not over another", wish != at + page && (unsigned long)wish < 1UL << 31);
	munmap(at + page, page);
	say("where it is free", mmap(at + page, page, both, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0) == at + page);
	say("too much", mmap(NULL, 3UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0) == MAP_FAILED ? -1 : 0);
	munmap(at, 3 * page), munmap(second, page), munmap(wish, page);
	say("checked", mmap(NULL, page, both, MAP_SHARED_VALIDATE, fd, 0) == MAP_FAILED ? -1 : 0);
	say("by no disk", mmap(NULL, page, both, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0) == MAP_FAILED ? -1 : 0);
	say("unknown", mmap(NULL, page, both, MAP_SHARED_VALIDATE | 1 << 25, fd, 0) == MAP_FAILED ? -1 : 0);
	say("of no file", mmap(NULL, page, both, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
	say("unchecked", mmap(NULL, page, both, MAP_SHARED | 1 << 25, fd, 0) == MAP_FAILED ? -1 : 0);
	close(fd);
}

/* Pipes in which what is written at a time is read so. */
static void pipes_of_packets(void) {
	int ends[2], count = 0;
	char bytes[10000];
	memset(bytes, 'x', sizeof bytes);
	say("pipe", pipe2(ends, O_DIRECT | O_NONBLOCK));
	say("flags", fcntl(ends[0], F_GETFL) & O_DIRECT), say("and", fcntl(ends[1], F_GETFL) & O_DIRECT);
	say("first", write(ends[1], "abc", 3)), say("second", write(ends[1], "defg", 4)), say("none", write(ends[1], "", 0));
	say("long", write(ends[1], bytes, 5000));
	ioctl(ends[0], FIONREAD, &count);
	say("in all", count), say("of no length", read(ends[0], bytes, 0));
	say("first", read(ends[0], bytes, sizeof bytes)), say("a part", read(ends[0], bytes, 2)), say("is", bytes[0]);
	say("then", read(ends[0], bytes, sizeof bytes)), say("and", read(ends[0], bytes, sizeof bytes));
	say("no more", read(ends[0], bytes, sizeof bytes));
	for (count = 0; write(ends[1], "x", 1) == 1; count++)
		;
	say("room for", count);
	struct pollfd asked = {ends[1], POLLOUT, 0};
	poll(&asked, 1, 0);
	say("no room", asked.revents & POLLOUT), say("one goes", read(ends[0], bytes, sizeof bytes));
	poll(&asked, 1, 0);
	say("room", asked.revents & POLLOUT);
	say("not as much", write(ends[1], bytes, 5000));
	say("pages", fcntl(ends[1], F_GETPIPE_SZ)), say("fewer", fcntl(ends[1], F_SETPIPE_SZ, 8192));
	close(ends[1]);
	for (count = 0; read(ends[0], bytes, sizeof bytes) > 0; count++)
		;
	say("left", count), say("the end", read(ends[0], bytes, sizeof bytes));
	close(ends[0]);
}

static void sizes_of_pipes(void) {
	int ends[2];
	char bytes[4096] = "";
	pipe2(ends, O_NONBLOCK);
	say("at first", fcntl(ends[0], F_GETPIPE_SZ)), say("larger", fcntl(ends[0], F_SETPIPE_SZ, 100000));
	long count = 0;
	while (write(ends[1], bytes, sizeof bytes) > 0)
		count += sizeof bytes;
	say("takes", count), say("too small", fcntl(ends[1], F_SETPIPE_SZ, 4096));
	while (read(ends[0], bytes, sizeof bytes) > 0)
		;
	say("empty now", fcntl(ends[1], F_SETPIPE_SZ, 1)), say("takes", write(ends[1], bytes, sizeof bytes));
	say("no more", write(ends[1], bytes, 1));
	say("of no pipe", fcntl(open("/dev/zero", O_RDONLY), F_GETPIPE_SZ));
	close(ends[0]), close(ends[1]);
}

static void processes(const char *self) {
	int status, ends[2];
	pid_t child;
	char *arguments[] = {"calls", "child", "7", NULL}, *environment[] = {"KEY=value", NULL};
	pipe(ends);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	say("posix_spawn", posix_spawn(&child, self, &actions, NULL, arguments, environment));
	close(ends[1]);
	char bytes[64] = "";
	int count = 0, more;
	while ((more = read(ends[0], bytes + count, sizeof bytes - 1 - count)) > 0)
		count += more;
	printf("= it said %s", bytes);
	say("wait", waitpid(child, &status, 0) == child);
	say("exited", WIFEXITED(status) ? WEXITSTATUS(status) : -2);
	say("wait for nobody", waitpid(-1, &status, 0));
	child = fork();
	if (child == 0)
		_exit(9);
	siginfo_t info;
	say("waitid without a state", waitid(P_PID, child, &info, 0));
	say("waitid leaves it", waitid(P_PID, child, &info, WEXITED | WNOWAIT));
	say("waitid", waitid(P_ALL, 0, &info, WEXITED));
	say("its own", info.si_pid == child && info.si_signo == SIGCHLD);
	printf("= code %d status %d\n", info.si_code, info.si_status);
	say("waitid of nobody", waitid(P_ALL, 0, &info, WEXITED | WNOHANG));
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	info.si_pid = 5;
	say("waitid does not wait", waitid(P_PID, child, &info, WEXITED | WNOHANG));
	say("for nobody", info.si_pid);
	kill(child, SIGKILL);
	waitid(P_PID, child, &info, WEXITED);
	printf("= code %d status %d\n", info.si_code, info.si_status);
	arguments[1] = "abort";
	posix_spawn(&child, self, NULL, NULL, arguments, environment);
	waitpid(child, &status, 0);
	say("killed by", WIFSIGNALED(status) ? WTERMSIG(status) : -2);
	say("exec of nothing", posix_spawn(&child, "/nowhere", NULL, NULL, arguments, environment));
	say("exec of a directory", execv("/tmp", arguments));
	say("exec of no program", execv("/tmp/mapped", arguments));
	say("no such call", syscall(999));
	say("nor another time", syscall(999));
	say("parent", getppid() >= 0);
}

/* What processes have in common: files mapped shared, memory that belongs to nobody, segments. */
static void shared_memory(void) {
	const long page = 4096;
	char bytes[8] = "";
	int fd = open("shared", O_CREAT | O_RDWR, 0600), status, reader = open("shared", O_RDONLY);
	ftruncate(fd, page + 5);
	char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	say("read-only, to be written", mmap(NULL, page, PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED ? -1 : 0);
	char *seen = mmap(NULL, page, PROT_READ, MAP_SHARED, reader, page);
	say("made writable", mprotect(seen, page, PROT_READ | PROT_WRITE));
	memcpy(at, "mapped", 6);
	say("read what is mapped", pread(fd, bytes, 6, 0));
	printf("= %.6s\n", bytes);
	pwrite(fd, "WRIT", 4, page);
	printf("= %.4s %.4s\n", at + page, seen);
	pid_t child = fork();
	if (child == 0) {
		memcpy(at + page + 2, "child", 5);
		_exit(at[0] == 'm' ? 3 : 4);
	}
	waitpid(child, &status, 0);
	say("child", WEXITSTATUS(status));
	printf("= %.5s\n", seen);
	say("msync", msync(at, 2 * page, MS_SYNC));
	say("msync of both", msync(at, page, MS_SYNC | MS_ASYNC));
	say("msync of nothing", msync(at + 64 * page * 1024, page, MS_SYNC) < 0 ? -1 : 0);
	say("munmap", munmap(at, 2 * page));
	say("pread", pread(fd, bytes, 8, page));
	printf("= %.5s\n", bytes);
	int memory = memfd_create("memory", 0);
	ftruncate(memory, page);
	at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	strcpy(at, "of nobody");
	seen = mmap(NULL, page, PROT_READ, MAP_SHARED, memory, 0);
	printf("= %s\n", seen);
	int segment = shmget(IPC_PRIVATE, 100, IPC_CREAT | 0600);
	say("shmget of nothing", shmget(0x6e6f6d, 100, 0));
	say("shmget of no bytes", shmget(IPC_PRIVATE, 0, IPC_CREAT | 0600));
	at = shmat(segment, NULL, 0);
	seen = shmat(segment, NULL, SHM_RDONLY);
	struct shmid_ds about;
	child = fork();
	if (child == 0) {
		strcpy(at, "a segment");
		_exit(shmdt(seen));
	}
	waitpid(child, &status, 0);
	say("child", WEXITSTATUS(status));
	printf("= %s\n", seen);
	say("shmctl", shmctl(segment, IPC_STAT, &about));
	printf("= %ld attached, %ld bytes, mode %o\n", (long)about.shm_nattch, (long)about.shm_segsz, about.shm_perm.mode);
	say("shmdt", shmdt(at));
	say("shmdt again", shmdt(at));
	say("remove", shmctl(segment, IPC_RMID, NULL));
	say("it is there", shmctl(segment, IPC_STAT, &about));
	printf("= %ld attached, mode %o\n", (long)about.shm_nattch, about.shm_perm.mode);
	say("shmdt the last", shmdt(seen));
	say("it is gone", shmctl(segment, IPC_STAT, &about));
	close(memory);
	close(reader);
	close(fd);
}

/* Signals that are read. */
static void signals_read(void) {
	sigset_t set, old;
	struct signalfd_siginfo info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGURG);
	sigprocmask(SIG_BLOCK, &set, &old);
	int fd = signalfd(-1, &set, SFD_NONBLOCK);
	say("signalfd", fd >= 0);
	say("signalfd of no set", signalfd(0, &set, 0));
	say("none yet", read(fd, &info, sizeof info));
	say("too short", read(fd, &info, 8));
	struct pollfd waiting = {fd, POLLIN};
	say("poll", poll(&waiting, 1, 0));
	kill(getpid(), SIGURG);
	kill(getpid(), SIGUSR1);
	say("poll", poll(&waiting, 1, 1000));
	say("read", read(fd, &info, sizeof info));
	printf("= signal %u code %d mine %d\n", info.ssi_signo, info.ssi_code, info.ssi_pid == getpid());
	say("ignored, but blocked", read(fd, &info, sizeof info));
	printf("= signal %u\n", info.ssi_signo);
	sigdelset(&set, SIGUSR1);
	say("others", signalfd(fd, &set, 0) == fd);
	raise(SIGUSR1);
	say("not this one", read(fd, &info, sizeof info));
	struct timespec none = {0};
	sigaddset(&set, SIGUSR1);
	say("taken otherwise", sigtimedwait(&set, NULL, &none));
	close(fd);
	sigprocmask(SIG_SETMASK, &old, NULL);
}

/* The functions that need no call say what the calls say, in one order with them. */
static void clocks(void) {
	static const int numbers[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE,
		CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
	void *library = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*get)(int, struct timespec *) = library ? dlvsym(library, "__vdso_clock_gettime", "LINUX_2.6") : NULL;
	int (*day)(void *, void *) = library ? dlvsym(library, "__vdso_gettimeofday", "LINUX_2.6") : NULL;
	time_t (*seconds)(time_t *) = library ? dlvsym(library, "__vdso_time", "LINUX_2.6") : NULL;
	int (*resolution)(int, struct timespec *) =
		library ? dlvsym(library, "__vdso_clock_getres", "LINUX_2.6") : NULL;
	int (*place)(unsigned *, unsigned *, void *) = library ? dlvsym(library, "__vdso_getcpu", "LINUX_2.6") : NULL;
	say("vDSO", library && get && day && seconds && resolution && place ? 0 : -2);
	say("no such version", library && !dlvsym(library, "__vdso_time", "LINUX_2.5"));
	say("its address is told", getauxval(AT_SYSINFO_EHDR) != 0);
	if (!library || !get || !day || !seconds || !resolution || !place)
		return;
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct timespec times[3];
		int turns = 0;
		for (int turn = 0; turn < 2000; turn++) {
			syscall(SYS_clock_gettime, numbers[i], &times[0]);
			get(numbers[i], &times[1]);
			syscall(SYS_clock_gettime, numbers[i], &times[2]);
			long long ns[3];
			for (int j = 0; j < 3; j++)
				ns[j] = times[j].tv_sec * 1000000000LL + times[j].tv_nsec;
			int is_good = times[1].tv_nsec >= 0 && times[1].tv_nsec < 1000000000;
			turns += is_good && ns[0] <= ns[1] && ns[1] <= ns[2];
		}
		say("in order with the call", turns);
		struct timespec own = {9, 9}, calls = {8, 8};
		say("resolution", resolution(numbers[i], &own));
		syscall(SYS_clock_getres, numbers[i], &calls);
		say("the same resolution", own.tv_sec == calls.tv_sec && own.tv_nsec == calls.tv_nsec);
	}
	struct timespec time;
	say("no such clock by function", get(99, &time));
	say("nor its resolution", resolution(99, &time));
	struct timeval before, now, after;
	int minutes[2] = {7, 7};
	syscall(SYS_gettimeofday, &before, NULL);
	say("the time of day", day(&now, minutes));
	syscall(SYS_gettimeofday, &after, NULL);
	say("in order", !timercmp(&now, &before, <) && !timercmp(&after, &now, <) && now.tv_usec < 1000000);
	say("no zone", minutes[0] == 0 && minutes[1] == 0);
	say("nothing asked", day(NULL, NULL));
	time_t first = syscall(SYS_time, NULL), stored = 0, second = seconds(&stored), third = syscall(SYS_time, NULL);
	say("seconds", first <= second && second <= third && stored == second && seconds(NULL) >= second);
	unsigned processor = ~0U, node = ~0U;
	say("processor", place(&processor, &node, NULL));
	say("there is one", processor < 4096 && node < 4096);
	say("neither asked", place(NULL, NULL, NULL));
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512] = "", found[512] = "";
	while (maps && fgets(line, sizeof line, maps))
		if (strstr(line, "[vdso]"))
			strcpy(found, line);
	say("it is among the mappings", strstr(found, " r-xp ") != NULL);
	pid_t child = fork();
	if (child == 0)
		_exit(get(CLOCK_MONOTONIC, &time) == 0 ? 5 : 6);
	int status = 0;
	waitpid(child, &status, 0);
	say("a child has it", WEXITSTATUS(status));
}

int main(int count, char **arguments) {
	if (count == 3 && strcmp(arguments[1], "child") == 0) {
		printf("%s %s\n", arguments[2], getenv("KEY"));
		return atoi(arguments[2]);
	}
	if (count == 3)
		abort();
	char self[256] = "";
	readlink("/proc/self/exe", self, sizeof self - 1);
	umask(022);
	chdir("/tmp");
	close_range(3, ~0U, 0);
	files();
	pieces_of_files();
	attributes();
	seals();
	pipes();
	watch();
	nested_sets();
	local_sockets();
	much_at_once();
	pass_descriptors();
	loopback();
	signals();
	timers();
	threads();
	memory();
	advice();
	flags_of_mmap();
	pipes_of_packets();
	sizes_of_pipes();
	shared_memory();
	signals_read();
	clocks();
	processes(self);
	notices();
	interfaces();
	addresses();
	priorities();
	old_times();
	limits();
	return 0;
}

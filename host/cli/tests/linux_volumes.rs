//! Directories and disks of this computer that a program in a machine reads and writes: docs/linux.md.

mod common;

use common::{PATIENCE, Site, free_port, kill, said};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A directory of the site, to be lent.
fn directory(site: &Site, name: &str) -> PathBuf {
    let directory = site.path().join(name);
    std::fs::create_dir(&directory).expect("made");
    directory
}

/// Makes a disk of the site's, with an ext4; nothing where nobody can mount it.
fn disk(site: &Site, name: &str) -> Option<PathBuf> {
    let is_root = std::fs::metadata(site.path()).expect("it is there").uid() == 0;
    if !is_root || !is_there("e2fsprogs", "/sbin/mkfs.ext4") {
        eprintln!("skipped: root mounts disks");
        return None;
    }
    let image = site.path().join(name);
    std::fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("made");
    let made = Command::new("/sbin/mkfs.ext4").arg("-q").arg(&image).output().expect("it starts");
    assert!(made.status.success(), "{}", said(&made));
    Some(image)
}

/// Waits until a disk is nobody's, and checks that its file system is as its machine left it, and sound.
fn check(image: &Path) {
    let end = Instant::now() + PATIENCE;
    let tool = |name: &str, words: &[&str]| {
        Command::new(name).args(words).arg(image).output().unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    while !tool("/sbin/losetup", &["--associated"]).stdout.is_empty() {
        assert!(Instant::now() < end, "{} is still mounted", image.display());
        std::thread::sleep(Duration::from_millis(20));
    }
    let checked = tool("/sbin/e2fsck", &["-fn"]);
    let journal = String::from_utf8_lossy(&checked.stderr).contains("recovery");
    assert!(checked.status.success() && !journal, "{}", said(&checked));
}

/// Whether a program is there; says which package brings it if it is not.
fn is_there(package: &str, program: &str) -> bool {
    let is_there = Path::new(program).exists();
    if !is_there {
        eprintln!("skipped: there is no {program}: apt-get install {package}");
    }
    is_there
}

/// Runs a program to its end, with `options` of `nom run`.
fn run(site: &Site, options: &str, words: &[&str]) -> (Option<i32>, String) {
    let output = site.nom(&format!("run {options}")).args(words).output().expect("it starts");
    (output.status.code(), said(&output))
}

/// Options that take these tools along.
fn included(tools: &[&str]) -> String {
    tools.iter().map(|tool| format!(" --include /bin/{tool}")).collect()
}

/// Whether one of the lines that a machine said is this.
fn says(said: &str, line: &str) -> bool {
    said.lines().any(|other| other.trim_end() == line)
}

#[test]
fn what_a_shell_does_in_a_volume_is_done_here() {
    let site = Site::new();
    let (data, fixed) = (directory(&site, "data"), directory(&site, "fixed"));
    std::fs::write(data.join("before"), "from here\n").expect("written");
    std::fs::write(fixed.join("note"), "kept\n").expect("written");
    let script = "set -e; cd /data/deep/er/..; cd /data/deep/er; pwd; read line <before; echo read $line; \
        mkdir -p a/b; echo hello >a/b/it; echo more >>a/b/it; mv a/b/it a/moved; ln a/moved a/hard; \
        ln -s moved a/soft; read line <a/soft; echo through $line; rmdir a/b; rm before; \
        chmod 640 a/moved; touch -d @86400 a/hard; set +e; \
        mkdir a 2>&1; rmdir a 2>&1; mv a a/b 2>&1; rm absent 2>&1; true >/fixed/new; rm -f /fixed/note; \
        mv a/moved /tmp/across && mv /tmp/across a/moved; ls -1 /data/deep/er/a; read line </fixed/note; \
        echo still $line; test -w /fixed || echo not there; grep -o '/fixed 9p r[ow]' /proc/mounts; exit 3";
    let tools = ["mkdir", "mv", "ln", "rmdir", "rm", "chmod", "touch", "ls", "grep"];
    let options = format!("-v data:/data/deep/er -v fixed:/fixed:ro{}", included(&tools));
    let (status, said) = run(&site, &options, &["/bin/dash", "--", "-c", script]);
    assert_eq!(status, Some(3), "{said}");
    for line in [
        "/data/deep/er",
        "read from here",
        "through hello",
        "mkdir: cannot create directory 'a': File exists",
        "rmdir: failed to remove 'a': Directory not empty",
        "mv: cannot move 'a' to a subdirectory of itself, 'a/b'",
        "rm: cannot remove 'absent': No such file or directory",
        "rm: cannot remove '/fixed/note': Read-only file system",
        "still kept",
        "not there",
        "/fixed 9p ro",
    ] {
        assert!(says(&said, line), "{line}: {said}");
    }
    assert!(said.contains("cannot create /fixed/new: Read-only file system"), "{said}");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).expect(name);
    assert_eq!((read("a/moved"), read("a/hard")), ("hello\nmore\n".to_owned(), "hello\nmore\n".to_owned()));
    assert_eq!(std::fs::read_link(data.join("a/soft")).expect("a link"), Path::new("moved"));
    assert!(!data.join("before").exists() && !data.join("a/b").exists());
    let mode = std::os::unix::fs::MetadataExt::mode(&data.join("a/moved").metadata().expect("there"));
    assert_eq!(mode & 0o777, 0o640, "{mode:o}");
    assert_eq!(std::fs::read_dir(&fixed).expect("read").count(), 1);
}

/// What Linux says of it, and everything else goes on.
#[test]
fn what_is_damaged_on_a_disk_is_an_error_to_who_asks_for_it_alone() {
    const DEBUGFS: &str = "/sbin/debugfs";
    let site = Site::new();
    let Some(image) = disk(&site, "it.img") else { return };
    if !is_there("e2fsprogs", DEBUGFS) {
        return;
    }
    std::fs::write(site.path().join("some"), vec![b'x'; 20_000]).expect("written");
    let some = site.path().join("some").display().to_string();
    let debug = |command: &str| {
        let output = Command::new(DEBUGFS).args(["-w", "-R", command]).arg(&image).output();
        let output = output.expect("it starts");
        assert!(output.status.success(), "{command}: {}", said(&output));
    };
    debug(&format!("write {some} bad"));
    debug(&format!("write {some} good"));
    // Where its only piece lies (Documentation/filesystems/ext4, "The Contents of inode.i_block").
    debug("set_inode_field bad block[5] 0x7fffffff");
    let script = "cat /data/bad; wc -c </data/good; echo more >/data/new; cat /data/new; ls /data; exit 5";
    let options = "-v it.img:/data --include /bin/cat --include /bin/ls --include /usr/bin/wc";
    let (status, said) = run(&site, options, &["/bin/dash", "--", "-c", script]);
    assert_eq!(status, Some(5), "{said}");
    for line in ["cat: /data/bad: Structure needs cleaning", "20000", "more", "good", "new"] {
        assert!(says(&said, line), "{line}: {said}");
    }
}

/// As with Docker: what is beside it stays here, and in its place there it cannot be replaced.
#[test]
fn a_file_alone_is_read_and_written_here() {
    let site = Site::new();
    if std::fs::metadata(site.path()).expect("it is there").uid() != 0 {
        eprintln!("skipped: root lends files");
        return;
    }
    let data = directory(&site, "data");
    for (name, contents) in [("it", "from here\n"), ("fixed", "kept\n"), ("secret", "of ours\n")] {
        std::fs::write(data.join(name), contents).expect("written");
    }
    let script = "read line </etc/app/it.conf; echo read $line; echo from there >>/etc/app/it.conf; \
        echo lost >/etc/app/fixed; rm /etc/app/it.conf 2>&1; echo new >/etc/app/new; \
        mv /etc/app/new /etc/app/it.conf 2>&1; ls /etc/app; stat -c '%F of %s' /etc/app/it.conf; exit 4";
    let tools = ["ls", "mv", "rm", "stat"];
    let options = format!("-v data/it:/etc/app/it.conf -v data/fixed:/etc/app/fixed:ro{}", included(&tools));
    let (status, said) = run(&site, &options, &["/bin/dash", "--", "-c", script]);
    assert_eq!(status, Some(4), "{said}");
    for line in [
        "read from here",
        "rm: cannot remove '/etc/app/it.conf': Device or resource busy",
        "mv: cannot move '/etc/app/new' to '/etc/app/it.conf': Device or resource busy",
        "regular file of 21",
    ] {
        assert!(says(&said, line), "{line}: {said}");
    }
    assert!(said.contains("cannot create /etc/app/fixed: Read-only file system"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).expect(name);
    assert_eq!((&*read("it"), &*read("fixed")), ("from here\nfrom there\n", "kept\n"));
    let (status, said) = run(&site, "-v data/it:/bin", &["/bin/dash", "--", "-c", "true"]);
    assert!(status != Some(0) && said.contains("the volume at /bin"), "{said}");
}

#[test]
fn a_database_of_sqlite_is_one_here_too() {
    if !is_there("sqlite3", "/usr/bin/sqlite3") {
        return;
    }
    let site = Site::new();
    let file = directory(&site, "data").join("it.db");
    let fill = "create table t(a integer primary key, b text); begin; \
        with recursive n(i) as (select 1 union all select i+1 from n where i<500) \
        insert into t select i, hex(randomblob(200)) from n; commit; delete from t where a % 2; \
        begin; delete from t; rollback; vacuum; pragma integrity_check; select count(*) from t;";
    let (status, said) = run(&site, "-v data:/data", &["/usr/bin/sqlite3", "--", "/data/it.db", fill]);
    assert_eq!(status, Some(0), "{said}");
    assert!(says(&said, "250"), "{said}");
    let here = |script: &str| {
        let output = Command::new("/usr/bin/sqlite3").arg(&file).arg(script).output().expect("it starts");
        assert!(output.status.success(), "{}", common::said(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(here("pragma integrity_check; select count(*), sum(a) from t;"), "ok\n250|62750");
    here("insert into t values (1001, 'from here');");
    let ask = "select b from t where a = 1001; insert into t values (1002, 'from there');";
    let (status, said) = run(&site, "-v data:/data:ro", &["/usr/bin/sqlite3", "--", "/data/it.db", ask]);
    assert!(says(&said, "from here"), "{said}");
    assert!(status != Some(0) && said.contains("attempt to write a readonly database"), "{said}");
    assert_eq!(here("select count(*) from t;"), "251");
}

/// A connection to a redis, which asks one thing after the other.
struct Redis {
    stream: TcpStream,
}

impl Redis {
    fn connect(port: u16) -> std::io::Result<Redis> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Redis { stream })
    }

    /// Waits until one answers at a port.
    fn wait_for(site: &Site, port: u16) -> Redis {
        let end = Instant::now() + PATIENCE;
        loop {
            // QEMU accepts before the guest does.
            if let Ok(mut redis) = Redis::connect(port)
                && redis.ask("PING\r\n").is_ok_and(|answer| answer == "+PONG")
            {
                return redis;
            }
            assert!(Instant::now() < end, "no answer: {}", site.run("logs server"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The next line of what it answers.
    fn line(&mut self) -> std::io::Result<String> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        loop {
            self.stream.read_exact(&mut byte)?;
            match byte[0] {
                b'\n' => return Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
                byte => line.push(byte),
            }
        }
    }

    fn ask(&mut self, command: &str) -> std::io::Result<String> {
        self.stream.write_all(command.as_bytes())?;
        self.line()
    }

    /// Sets `count` keys from `first` on, and says how many of these it acknowledged before it fell silent;
    /// `underway` happens when all were asked for and none was answered.
    fn set(&mut self, first: u64, count: u64, underway: impl FnOnce()) -> u64 {
        let commands: String = (first..first + count).map(|key| format!("SET key:{key} {key}\r\n")).collect();
        if self.stream.write_all(commands.as_bytes()).is_err() {
            return 0;
        }
        underway();
        (0..count).take_while(|_| self.line().is_ok_and(|line| line == "+OK")).count() as u64
    }
}

/// How often the machine is killed; more by hand: `NOM_KILLS=100`.
const KILLS: u64 = 3;
/// Keys of one batch.
const BATCH: u64 = 20;

#[test]
fn what_a_shell_writes_to_a_disk_lies_in_its_file_system() {
    let site = Site::new();
    let Some(image) = disk(&site, "it.img") else { return };
    let script = "set -e; cd /data; mkdir -p deep/er; echo kept >deep/er/it; ln -s er/it deep/soft; \
        read line <deep/soft; echo through $line; rmdir lost+found; sync";
    let tools = "--include /bin/mkdir --include /bin/ln --include /bin/rmdir --include /bin/sync";
    let (status, said) = run(&site, &format!("-v it.img:/data {tools}"), &["/bin/dash", "--", "-c", script]);
    assert!(status == Some(0) && said.contains("through kept"), "{said}");
    check(&image);
    let script = "read line </data/deep/er/it; echo still $line; echo more >/data/new";
    let (_, said) = run(&site, "-v it.img:/data:ro", &["/bin/dash", "--", "-c", script]);
    assert!(said.contains("still kept"), "{said}");
    assert!(said.contains("cannot create /data/new: Read-only file system"), "{said}");
    check(&image);
}

/// Whatever redis acknowledged is there when the machine is killed in the middle of its work.
#[test]
fn what_redis_acknowledged_survives_the_machine() {
    let site = Site::new();
    directory(&site, "data");
    kill_redis(&site, "data", || {});
}

/// The same with a disk, which is sound each time.
#[test]
fn what_redis_acknowledged_on_a_disk_survives_the_machine() {
    let site = Site::new();
    let Some(image) = disk(&site, "it.img") else { return };
    kill_redis(&site, "it.img", || check(&image));
}

fn kill_redis(site: &Site, volume: &str, check: impl Fn()) {
    if !is_there("redis-server", "/usr/bin/redis-server") {
        return;
    }
    let kills = std::env::var("NOM_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(KILLS);
    let port = free_port();
    let mut command = site.nom(&format!("run -d --name server -p {port}:6379 -v {volume}:/data"));
    command.args(["/usr/bin/redis-server", "--", "--protected-mode", "no", "--save", "", "--dir", "/data"]);
    let output =
        command.args(["--appendonly", "yes", "--appendfsync", "always"]).output().expect("it starts");
    assert!(output.status.success(), "{}", said(&output));
    let mut acknowledged = 0;
    for life in 0..kills {
        let mut redis = Redis::wait_for(site, port);
        for _ in 0..1 + life % 3 {
            acknowledged += redis.set(acknowledged, BATCH, || {});
        }
        let known = site.wait_for("server", "its start", |known| known["running"] == true);
        acknowledged += redis.set(acknowledged, BATCH, || {
            std::thread::sleep(Duration::from_millis(life % 5 * 3));
            kill(&known, "process");
        });
        site.wait_for("server", "its end", |known| known["finished"].is_string());
        check();
        site.run("start server");
        let mut redis = Redis::wait_for(site, port);
        let keys: String = (0..acknowledged).map(|key| format!(" key:{key}")).collect();
        let answer = redis.ask(&format!("EXISTS{keys}\r\n")).expect("an answer");
        assert_eq!(answer, format!(":{acknowledged}"), "life {life}: keys that it acknowledged are lost");
    }
    assert!(acknowledged >= kills * BATCH);
}

#[test]
fn a_volume_that_cannot_be_is_refused_before_anything_boots() {
    let site = Site::new();
    directory(&site, "data");
    site.write("file", &"\0".repeat(4096));
    for (words, said) in [
        ("-v /dev/null:/data /bin/dash", "null is neither a directory nor a file"),
        ("-v absent:/data /bin/dash", "-v absent:/data: No such file or directory"),
        ("-v file:/data /bin/dash", "file is no directory and has no ext4: expected one made by `mkfs.ext4 "),
        ("-v data:/ /bin/dash", "the root has the program's own files, expected a path below it"),
        ("-v data:/a -v data:/a/ /bin/dash", "two directories at /a, expected one"),
        ("-v data:/:rw nhttpd", "files go along as a copy, which is read-only"),
    ] {
        let complaint = site.refused(&format!("run {words}"));
        assert!(complaint.contains(said), "{words}: {complaint}");
    }
    assert_eq!(site.run("ps -a --json").trim(), "[]", "nothing has begun");
}

#[test]
fn a_disk_that_is_damaged_or_in_use_is_refused_before_anything_boots() {
    let site = Site::new();
    let Some(image) = disk(&site, "it.img") else { return };
    site.run("run -d --name first -v it.img:/data /bin/sleep 1000");
    let complaint = site.refused("run -v it.img:/data /bin/dash");
    assert!(complaint.contains("it.img is in use by another machine"), "{complaint}");
    site.run("stop --time 0 first");
    check(&image);
    // A superblock has a sum.
    let file = std::fs::File::options().write(true).open(&image).expect("opened");
    file.write_all_at(b"damage", 1024 + 0x40).expect("written");
    let complaint = site.refused("run -v it.img:/data /bin/dash");
    assert!(complaint.contains("it.img cannot be mounted: mount: "), "{complaint}");
    assert!(complaint.contains("`e2fsck -f "), "{complaint}");
}

//! Machines in the background, as their owner commands them.

mod common;

use common::{Site, free_port, is_echoed, kill, said};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// What `echo` writes once it serves.
const SERVES: &str = "serves at";

#[test]
fn a_machine_is_stopped_started_and_forgotten() {
    let site = Site::new();
    let port = free_port();
    assert_eq!(site.run(&format!("run -d --name e -p 127.0.0.1:{port}:7 echo")), "e\n");
    is_echoed(port);
    let known = site.inspect("e");
    for (field, expected) in [
        ("state", json!("running")),
        ("cpus", json!(1)),
        ("memory", json!(64 << 20)),
        ("restart", json!("no")),
        ("finished", Value::Null),
        ("ports", json!([format!("127.0.0.1:{port}:7")])),
    ] {
        assert_eq!(known[field], expected, "{field} of {known:#}");
    }
    assert!(known["launch"]["config"]["image"].as_str().is_some_and(|path| path.ends_with("/e/image")));
    let refusal = site.refused("rm e");
    assert!(refusal.contains("`e` runs") && refusal.contains("nom stop e"), "{refusal}");
    assert!(site.refused("start e").contains("machine `e` runs already"));
    assert_eq!(site.run("stop --all"), "e\n");
    assert_eq!(site.run("stop --all"), "", "none runs");
    let known = site.inspect("e");
    assert_eq!((&known["running"], &known["stopped"]), (&json!(false), &json!(true)));
    assert!(known["finished"].is_string(), "{known:#}");
    assert_eq!(site.run("start e"), "e\n");
    is_echoed(port);
    site.wait_for_log("e", SERVES, 2);
    site.run("restart --time 1 e");
    is_echoed(port);
    site.wait_for_log("e", SERVES, 3);
    assert_eq!(site.run("rm -f e"), "e\n");
    assert!(site.refused("inspect e").contains("no machine `e`: there are none yet"));
}

#[test]
fn names_that_nobody_has_are_answered_with_those_that_there_are() {
    let site = Site::new();
    site.run("run -d --name one hello");
    site.wait_for("one", "its end", |known| known["running"] == json!(false));
    for words in ["rm two", "stop two", "start two", "restart two", "inspect two", "logs two", "stats two"] {
        let refusal = site.refused(words);
        assert!(refusal.contains("no machine `two`: expected one of one"), "{words}: {refusal}");
    }
    assert!(site.refused("rm one two").contains("two"));
    assert_eq!(site.inspect("one")["name"], "one", "a refusal has changed nothing");
    assert_eq!(site.run("rm --all"), "one\n");
}

#[test]
fn a_log_has_times_and_is_cut() {
    let site = Site::new();
    site.run("run -d --name h hello");
    site.wait_for("h", "its end", |known| known["running"] == json!(false));
    let stamped = site.run("logs -t h");
    let (time, line) = stamped.split_once(' ').expect("a time and a line");
    assert_eq!((time.len(), line), ("2026-11-22T09:30:00.000Z".len(), "Hello from nom!\n"));
    assert_eq!(site.run("logs --since 1h h"), "Hello from nom!\n");
    assert_eq!(site.run(&format!("logs --since {time} h")), "Hello from nom!\n");
    assert_eq!(site.run("logs --since 2100-01-01T00:00:00Z h"), "");
    assert_eq!(
        (site.run("logs --tail 1 h"), site.run("logs -n 0 h")),
        ("Hello from nom!\n".into(), "".into())
    );
    assert!(site.run("logs --control --tail 1 h").starts_with("halt status=0"));
    site.run("start h");
    site.wait_for_log("h", "Hello", 2);
    assert_eq!(site.run("logs --tail 1 h"), "Hello from nom!\n", "the log goes on");
}

#[test]
fn a_machine_whose_monitor_is_killed_is_started_again() {
    let site = Site::new();
    let port = free_port();
    site.run(&format!("run -d --name e --restart always -p 127.0.0.1:{port}:7 echo"));
    is_echoed(port);
    kill(&site.inspect("e"), "process");
    site.wait_for("e", "a second life", |known| known["restarts"] == json!(1) && known["state"] == "running");
    is_echoed(port);
    site.wait_for_log("e", SERVES, 2);
    site.run("stop e");
    let known = site.inspect("e");
    assert_eq!((&known["running"], &known["restarts"]), (&json!(false), &json!(1)), "it stays ended");
}

#[test]
fn what_fails_is_tried_so_often_and_no_more() {
    let site = Site::new();
    // An argument that `echo` does not know ends it with a status.
    site.run("run -d --name e --restart on-failure:2 echo -- nonsense");
    let known = site.wait_for("e", "its last end", |known| known["running"] == json!(false));
    assert_eq!(known["restarts"], json!(2), "{known:#}");
    assert!(known["status"].as_u64().is_some_and(|status| status != 0), "{known:#}");
}

#[test]
fn a_machine_ends_with_its_supervisor() {
    let site = Site::new();
    site.run("run -d --name e --restart always echo");
    site.wait_for_log("e", SERVES, 1);
    kill(&site.inspect("e"), "supervisor");
    site.wait_for("e", "its end", |known| known["running"] == json!(false));
    assert_eq!(site.run("rm e"), "e\n");
}

#[test]
fn whoever_starts_a_machine_in_the_foreground_is_told_that_it_was_stopped() {
    let site = Site::new();
    site.run("run -d --name e --restart always echo");
    site.run("stop e");
    let attached = site.nom("start --attach e").stdout(Stdio::piped()).spawn().expect("it starts");
    site.wait_for_log("e", SERVES, 1);
    site.wait_for("e", "its start", |known| known["running"] == json!(true));
    site.run("stop e");
    let output = attached.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(143), "as `nom generate systemd` has it: {}", said(&output));
    assert_eq!(site.inspect("e")["restart"], "always", "for the next unit");
}

#[test]
fn what_cannot_be_started_says_why_and_leaves_nothing() {
    let site = Site::new();
    for (words, expected) in [
        ("run -d --name x --device no-such-device hello", "no-such-device"),
        ("run -d --name x no-such-app", "no-such-app"),
        ("run -d --name x -m 1M hello", "--memory 1M"),
        ("run -d --name x --address 10.110.111.9 hello", "expected --network bridge"),
        ("up -f none.toml", "none.toml"),
        ("generate systemd none", "none"),
    ] {
        let output = site.nom(words).output().expect("it starts");
        assert!(output.status.code().is_some_and(|code| code != 0), "{words}");
        assert!(said(&output).contains(expected), "{words}: {}", said(&output));
        assert_eq!(site.run("ps --all --json"), "[]\n", "{words}");
    }
    for words in
        ["run --restart always hello", "run -d --restart yes hello", "rm", "stop", "logs --since x h"]
    {
        let output = site.nom(words).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{words}: {}", said(&output));
    }
}

#[test]
fn running_machines_are_measured() {
    let site = Site::new();
    site.run("run -d --name e echo");
    let list: Value = serde_json::from_str(&site.run("stats --no-stream --json")).expect("JSON");
    assert_eq!((&list[0]["name"], &list[0]["memory_max_bytes"]), (&json!("e"), &json!(64 << 20)));
    assert!(list[0]["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{list:#}");
    assert!(list[0]["cpu_percent"].as_f64().is_some_and(|share| share >= 0.0), "{list:#}");
    let table = site.run("stats --no-stream e");
    assert!(table.starts_with("NAME   CPU") && table.contains("\ne      "), "{table}");
}

#[test]
fn a_file_of_machines_is_followed_and_only_changes_are_made() {
    let site = Site::new();
    let (first, second) = (free_port(), free_port());
    let text = |port| {
        format!(
            "name = \"s\"\n[machines.echo]\napp = \"echo\"\nports = [\"127.0.0.1:{port}:7\"]\n\
             [machines.hello]\napp = \"hello\"\ndepends_on = [\"echo\"]\n"
        )
    };
    site.write("nom.toml", &text(first));
    assert_eq!(site.run("up -d"), "started s-echo\nstarted s-hello\n");
    is_echoed(first);
    site.wait_for("s-hello", "its end", |known| known["running"] == json!(false));
    let echo = site.inspect("s-echo")["process"].clone();
    assert_eq!(site.run("up -d"), "runs    s-echo\nstarted s-hello\n");
    assert_eq!(site.inspect("s-echo")["process"], echo);
    // A machine that is gone, as after a call that was interrupted, is made again; the other stays.
    site.run("rm -f s-hello");
    assert_eq!(site.run("up -d"), "runs    s-echo\nstarted s-hello\n");
    site.write("nom.toml", &text(second));
    assert_eq!(site.run("up -d").lines().next(), Some("removed s-echo"));
    is_echoed(second);
    site.write("nom.toml", "name = \"s\"\n[machines.hello]\napp = \"hello\"\nmemory = \"1K\"\n");
    assert!(site.refused("up -d").contains("nom.toml:4"));
    is_echoed(second);
    let removed = site.run("down");
    assert_eq!(removed.lines().collect::<Vec<_>>(), ["removed s-hello", "removed s-echo"]);
    assert_eq!(site.run("ps -a --json"), "[]\n");
}

#[test]
fn what_was_interrupted_is_mended_by_the_next_call() {
    let site = Site::new();
    let text = |name: &str| format!("[machines.{name}]\napp = \"echo\"\n");
    site.write("nom.toml", &format!("name = \"s\"\n{}{}{}", text("a"), text("b"), text("c")));
    let mut up = site.nom("up -d").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(up.stdout.take().expect("piped")).read_line(&mut first).expect("its first line");
    assert_eq!(first, "started s-a\n");
    // Somewhere in the start of the second.
    up.kill().expect("killed");
    up.wait().expect("waited for");
    let said = site.run("up -d");
    assert_eq!(said.lines().filter(|line| line.ends_with("s-a")).collect::<Vec<_>>(), ["runs    s-a"]);
    for name in ["s-a", "s-b", "s-c"] {
        assert_eq!(site.inspect(name)["running"], json!(true), "{name} after {said}");
    }
    assert_eq!(site.run("up -d"), "runs    s-a\nruns    s-b\nruns    s-c\n");
}

#[test]
fn in_the_foreground_lines_have_names_and_ctrl_c_ends_all() {
    let site = Site::new();
    site.write(
        "nom.toml",
        "name = \"s\"\n[machines.echo]\napp = \"echo\"\n[machines.hello]\napp = \"hello\"\n",
    );
    let up = site.nom("up").stdout(Stdio::piped()).spawn().expect("it starts");
    let is_up = |known: &Value| known["running"] == json!(true);
    let end = std::time::Instant::now() + common::PATIENCE;
    while !site.nom("inspect s-echo").output().is_ok_and(|output| output.status.success()) {
        assert!(std::time::Instant::now() < end, "`nom up` starts nothing");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    site.wait_for("s-echo", "its start", is_up);
    site.wait_for_log("s-echo", SERVES, 1);
    std::thread::sleep(std::time::Duration::from_millis(200));
    let interrupted =
        site.command("kill").args(["-INT", &up.id().to_string()]).status().expect("`kill` runs");
    assert!(interrupted.success());
    let output = up.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("echo  | serves at") && text.contains("stopped s-echo"), "{text}");
    assert_eq!(site.inspect("s-echo")["running"], json!(false));
}

use super::*;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::at(directory.path());
    (directory, store)
}

/// Writes down a machine whose monitor is this process (running) or has ended.
fn add(store: &Store, name: &str, running: bool, created_ms: u64) -> Machine {
    let (name, directory) = store.create(Some(name), "hello").expect("a free name");
    let ours = ProcessIdentity::of(std::process::id()).expect("this process runs");
    let process = if running { ours } else { ProcessIdentity { started: ours.started + 1, ..ours } };
    let record = Record {
        name,
        app: "hello".to_owned(),
        process,
        supervisor: None,
        created_ms,
        started_ms: created_ms,
        finished_ms: None,
        restart: Policy::No,
        restarts: 0,
        group: None,
        cpus: 1,
        memory: nom_vmm::Memory::DEFAULT,
        machine: nom_vmm::MachineKind::Q35,
        accelerator: nom_vmm::Accelerator::Tcg,
        ports: Vec::new(),
        detached: true,
        provider: None,
        programs: Vec::new(),
    };
    save(&directory, &record).expect("saved");
    Machine { record, directory }
}

/// A machine `web` that has ended.
pub fn ended(restart: Policy) -> (tempfile::TempDir, Machine) {
    let (directory, store) = store();
    let mut machine = add(&store, "web", false, 1);
    machine.record.restart = restart;
    (directory, machine)
}

#[test]
fn names_follow_what_runs() {
    let (_directory, store) = store();
    for (app, name) in [
        ("hello", "hello-1"),
        ("hello", "hello-2"),
        ("apps/hello/app.toml", "hello-3"),
        ("/tmp/my image.img", "myimage-1"),
        ("tests/guest/bundles/fault.toml", "fault-1"),
        ("...", "machine-1"),
    ] {
        assert_eq!(store.create(None, app).expect("created").0, name, "{app}");
    }
}

#[test]
fn a_name_that_leaves_the_directory_is_refused() {
    let (_directory, store) = store();
    for name in ["", "..", ".", "a/b", "../x", "-x", &"x".repeat(64)] {
        assert!(store.create(Some(name), "hello").is_err(), "{name}");
        assert!(store.find(name).is_err(), "{name}");
    }
}

#[test]
fn a_running_machine_keeps_its_name_and_an_ended_one_gives_it_up() {
    let (_directory, store) = store();
    add(&store, "web", true, 1);
    let refusal = store.create(Some("web"), "hello").expect_err("taken").to_string();
    assert!(refusal.contains("nom stop web"), "{refusal}");
    add(&store, "old", false, 2);
    store.create(Some("old"), "hello").expect("free again");
}

#[test]
fn an_unknown_machine_is_answered_with_those_that_there_are() {
    let (_directory, store) = store();
    assert!(store.find("web").expect_err("none").to_string().contains("there are none yet"));
    add(&store, "web", true, 1);
    assert!(store.find("wep").expect_err("none").to_string().contains("expected one of web"));
    assert_eq!(store.find("web").expect("found").record.name, "web");
}

#[test]
fn the_ending_is_what_the_kernel_reported() {
    let (_directory, store) = store();
    assert_eq!(add(&store, "web", true, 1).ending(), None);
    let ended = add(&store, "done", false, 2);
    assert!(matches!(ended.ending(), Some(Ending::Failed(_))));
    for request in Request::ALL {
        note(&ended.directory, request).expect("written");
        assert_eq!((Request::of(&ended.directory), ended.ending()), (Some(request), Some(request.ending())));
    }
    for obeyed in ["halt status=0", "exited app=x status=143\nhalt status=143"] {
        std::fs::write(ended.control_log(), obeyed).expect("written");
        assert_eq!(ended.ending(), Some(Ending::Killed), "{obeyed}");
    }
    std::fs::write(ended.control_log(), "boot clock=hpet\nhalt status=3\n").expect("written");
    assert_eq!(ended.ending(), Some(Ending::Halted(3)));
}

#[test]
fn the_oldest_ended_machines_are_forgotten() {
    let (_directory, store) = store();
    add(&store, "running", true, 0);
    for number in 1..=ENDED_KEPT as u64 + 3 {
        add(&store, &format!("ended{number}"), false, number);
    }
    store.prune().expect("pruned");
    let names: Vec<String> = store.list().expect("listed").into_iter().map(|m| m.record.name).collect();
    assert_eq!(names.len(), ENDED_KEPT + 1);
    assert_eq!(names[..2], ["running", "ended4"]);
}

#[test]
fn what_a_crash_left_is_removed_and_what_is_still_set_up_is_not() {
    let (_directory, store) = store();
    let [left, slow, new] = [(); 3].map(|()| store.create(None, "hello").expect("created").1);
    for old in [&left, &slow] {
        let directory = File::open(old).expect("it is there");
        directory.set_modified(SystemTime::now() - 2 * SETUP_MAX).expect("it is ours");
    }
    let held = hold(&slow).expect("held");
    store.prune().expect("pruned");
    assert_eq!([&left, &slow, &new].map(|directory| directory.exists()), [false, true, true]);
    drop(held);
    store.prune().expect("pruned");
    assert!(!slow.exists());
}

#[test]
fn a_name_is_free_again_soon_after_an_interrupted_start() {
    let (_directory, store) = store();
    let (_, left) = store.create(Some("web"), "hello").expect("created");
    let before = left.metadata().and_then(|left| left.modified()).expect("known");
    let (_, again) = store.create(Some("web"), "hello").expect("nobody holds it");
    assert_eq!(left, again);
    assert!(again.metadata().and_then(|again| again.modified()).expect("known") > before, "made anew");
    let _held = hold(&again).expect("held");
    let refusal = store.create(Some("web"), "hello").expect_err("held").to_string();
    assert!(refusal.contains("just being started"), "{refusal}");
}

#[test]
fn what_two_remove_at_once_is_gone_for_both() {
    let site = tempfile::tempdir().expect("a directory");
    for round in 0..20 {
        let directory = site.path().join(format!("machine-{round}"));
        std::fs::create_dir(&directory).expect("made");
        (0..200).for_each(|file| std::fs::write(directory.join(file.to_string()), "").expect("written"));
        std::thread::scope(|scope| {
            let both = [0, 1].map(|_| scope.spawn(|| remove(&directory)));
            for removed in both {
                removed.join().expect("no panic").expect("it is gone");
            }
        });
        assert!(!directory.exists());
    }
}

#[test]
fn a_machine_is_named_after_what_it_runs() {
    for (app, expected) in [
        ("hello", "hello"),
        ("apps/web/app.toml", "web"),
        ("/usr/bin/python3.11", "python3"),
        ("redis:7", "redis"),
        ("nginx:1.27-alpine", "nginx"),
        ("localhost:5000/shop/x:tag", "x"),
        ("registry.example/web@sha256:abc", "web"),
        ("./a:b", "ab"),
    ] {
        assert_eq!(base_name(app), expected, "{app}");
    }
}

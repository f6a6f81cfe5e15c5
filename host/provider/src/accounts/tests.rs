use super::*;

const WEB: &str = "web-1";

fn accounts() -> Accounts {
    Accounts::open(None).expect("in memory")
}

fn machine(name: &str, tenant: Option<&str>, holder: &str) -> NewMachine {
    NewMachine { name: name.into(), tenant: tenant.map(str::to_owned), holder: holder.into() }
}

fn who(accounts: &Accounts, key: &str, now: u64) -> Option<(Role, String)> {
    let identity = accounts.authenticate(key, now).expect("it answers");
    identity.map(|identity| (identity.role, identity.name))
}

#[test]
fn a_key_is_its_owners_until_it_ends() {
    let accounts = accounts();
    let key = accounts.add(Role::Tenant, "alice", 10).expect("made");
    let alice = Some((Role::Tenant, "alice".to_owned()));
    assert_eq!(who(&accounts, key.reveal(), 11), alice);
    let forged = key.reveal().replace("tenant", "operator");
    assert_eq!(who(&accounts, &forged, 11), None, "the role is part of what is hashed");
    let last = key.reveal().len() - 1;
    let digit = if key.reveal().ends_with('0') { "1" } else { "0" };
    assert_eq!(who(&accounts, &format!("{}{digit}", &key.reveal()[..last]), 11), None);
    assert_eq!(accounts.revoke(&Role::ALL, "alice", 20).expect("done"), 1);
    assert_eq!((who(&accounts, key.reveal(), 19), who(&accounts, key.reveal(), 20)), (alice, None));
    assert_eq!(accounts.revoke(&Role::ALL, "alice", 90).expect("done"), 0, "an end is not put off");
}

#[test]
fn of_a_key_the_file_has_a_hash_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.db");
    let accounts = Accounts::open(Some(&path)).expect("made");
    let key = accounts.add(Role::Operator, "root", 1).expect("made");
    let again = Accounts::open(Some(&path)).expect("another process");
    assert_eq!(who(&again, key.reveal(), 2), Some((Role::Operator, "root".into())), "seen at once");
    drop((accounts, again));
    let secret = key.reveal().rsplit('_').next().expect("its last part").as_bytes();
    for entry in std::fs::read_dir(directory.path()).expect("a list").flatten() {
        let bytes = std::fs::read(entry.path()).expect("a file");
        assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{entry:?} has the secret");
    }
}

#[test]
fn a_rotated_key_overlaps_the_old_one_for_a_while() {
    let accounts = accounts();
    assert!(accounts.rotate(Role::Tenant, "alice", 5, 5).is_err(), "there is none yet");
    let old = accounts.add(Role::Tenant, "alice", 5).expect("made");
    let new = accounts.rotate(Role::Tenant, "alice", 10, 100).expect("made");
    let both = |now| [&old, &new].map(|key| who(&accounts, key.reveal(), now).is_some());
    assert_eq!((both(99), both(100)), ([true, true], [false, true]));
    assert_eq!(accounts.list().expect("listed").len(), 2);
}

#[test]
fn a_machine_is_registered_before_it_has_keys_and_by_one_holder() {
    let accounts = accounts();
    let error = accounts.add(Role::Meter, WEB, 1).expect_err("unknown").to_string();
    assert!(error.contains("`web-1` is not registered"), "{error}");
    let first = accounts.register(&machine(WEB, Some("alice"), "here"), 1).expect("registered");
    assert_eq!(who(&accounts, &first.meter_key, 2), Some((Role::Meter, WEB.into())));
    assert_eq!(accounts.tenant_of(WEB).expect("answered").as_deref(), Some("alice"));
    let error = accounts.register(&machine(WEB, None, "there"), 2).expect_err("taken");
    assert!(error.downcast_ref::<CannotRegister>().is_some(), "{error}");
    assert_eq!(accounts.tenant_of(WEB).expect("answered").as_deref(), Some("alice"), "nothing changed");
    let second = accounts.register(&machine(WEB, Some("alice"), "here"), 3).expect("again");
    assert_eq!((who(&accounts, &first.machine_key, 3), who(&accounts, &first.meter_key, 3)), (None, None));
    assert!(who(&accounts, &second.machine_key, 3).is_some());
    accounts.revoke(&[Role::Machine, Role::Meter], WEB, 4).expect("given up");
    accounts.register(&machine(WEB, None, "there"), 5).expect("free again");
    assert_eq!(accounts.tenant_of(WEB).expect("answered"), None);
}

#[test]
fn what_is_no_name_gets_no_account() {
    let accounts = accounts();
    for name in ["", "a\nb", &"x".repeat(129)] {
        assert!(accounts.add(Role::Tenant, name, 1).is_err(), "{name:?}");
        assert!(accounts.register(&machine(name, None, ""), 1).is_err(), "{name:?}");
        assert!(accounts.register(&machine(WEB, Some(name), ""), 1).is_err(), "{name:?}");
    }
    assert!(accounts.register(&machine("web/1", None, ""), 1).is_err());
}

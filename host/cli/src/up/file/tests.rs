use super::*;

fn parse(text: &str) -> Result<Project> {
    Project::parse(Path::new("/srv/shop/nom.toml"), text)
}

fn error(text: &str) -> String {
    format!("{:#}", parse(text).expect_err(text))
}

#[test]
fn every_field_becomes_an_option() {
    let project = parse(
        r#"
        [machines.web]
        app = "nhttpd"
        arguments = ["-p", "81"]
        environment = { patience = "0", batching_delay = "20" }
        cpus = 2
        memory = "128M"
        preallocate = true
        network = "bridge"
        address = "10.110.111.9"
        ports = ["127.0.0.1:8080:81", "53:53/udp"]
        restart = "on-failure:3"
        provider = "localhost:7070"
        "#,
    );
    let project = project.expect("it is good");
    assert_eq!((project.name.as_str(), project.machines.len()), ("shop", 1));
    let (member, web) = &project.machines[0];
    assert_eq!(member, "web");
    assert_eq!(
        web.words(Path::new("/srv/shop")).join(" "),
        "--detach --restart=on-failure:3 --cpus=2 --memory=128M --network=bridge --address=10.110.111.9 \
         --provider=localhost:7070 --publish=127.0.0.1:8080:81 --publish=53:53/udp --env=batching_delay=20 \
         --env=patience=0 --preallocate nhttpd -- -p 81"
    );
}

#[test]
fn paths_count_from_the_file() {
    let project = parse("[machines.a]\napp = \"./own/app.toml\"\n").expect("it is good");
    let words = project.machines[0].1.words(Path::new("/srv/shop"));
    assert_eq!(words, ["--detach", "--restart=no", "/srv/shop/./own/app.toml"]);
}

#[test]
fn programs_of_linux_have_their_fields() {
    let words = |fields: &str| {
        let project = parse(&format!("[machines.a]\n{fields}\n")).expect(fields);
        project.machines[0].1.words(Path::new("/srv/shop"))[2..].join(" ")
    };
    for (fields, expected) in [
        (
            "app = '/usr/bin/redis-server'\nvolumes = ['data:/data', '/etc/redis:/etc/redis:ro']\n\
             include = ['more']",
            "--include=/srv/shop/more --volume=/srv/shop/data:/data --volume=/etc/redis:/etc/redis:ro \
             /usr/bin/redis-server",
        ),
        ("app = 'localhost:5000/x:tag'", "localhost:5000/x:tag"),
        (
            "app = 'redis:7'\nentrypoint = 'sh'\nuser = 'redis'\nworkdir = '/data'\nstop_signal = 'INT'\n\
             env_file = ['keys.env']",
            "--entrypoint=sh --user=redis --workdir=/data --stop-signal=INT --env-file=/srv/shop/keys.env \
             redis:7",
        ),
        ("app = 'redis:7'\ncontrol = 9999", "--control=9999 redis:7"),
        (
            "oci = 'redis.tar:7'\nutility = 'gold.toml'",
            "--oci=/srv/shop/redis.tar:7 --utility=/srv/shop/gold.toml",
        ),
        ("oci = 'layout'\napp = '/bin/sh'", "--oci=/srv/shop/layout /bin/sh"),
        ("app = '/bin/sh'\nroot = 'debian'", "--root=/srv/shop/debian /bin/sh"),
    ] {
        assert_eq!(words(fields), expected, "{fields}");
    }
}

#[test]
fn machines_come_behind_those_that_they_depend_on() {
    let text = "name = \"s\"\n[machines.a]\napp = \"x\"\ndepends_on = [\"c\", \"b\"]\n\
                [machines.b]\napp = \"x\"\n[machines.c]\napp = \"x\"\ndepends_on = [\"b\"]\n";
    let order: Vec<String> = parse(text).expect("good").machines.into_iter().map(|(name, _)| name).collect();
    assert_eq!(order, ["b", "c", "a"]);
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (text, expected) in [
        ("", "/srv/shop/nom.toml: no machines, expected a table `[machines.NAME]`"),
        ("name = \"a b\"\n[machines.a]\napp = \"x\"\n", "nom.toml:1: `a b`: expected a name"),
        ("[machines.a]\nap = \"x\"\n", "nom.toml:2: `machines.a.ap`: unknown field `ap`, expected one of"),
        ("[machine.a]\napp = \"x\"\n", "nom.toml:1: `machine`: unknown field `machine`"),
        ("\n[machines.a]\ncpus = 1\n", "nom.toml:2: `machines.a`: missing field `app`, or `oci`"),
        ("[machines.a]\napp = \"x\"\ncontrol = 0\n", "nom.toml:3: `machines.a.control`"),
        ("[machines.a]\napp = \"x\"\nvolumes = [\"x\"]\n", "`x`: expected DIRECTORY:/PATH"),
        (
            "[machines.a]\napp = \"x\"\nmemory = \"64X\"\n",
            "nom.toml:3: `machines.a.memory`: `64X`: expected a size",
        ),
        (
            "[machines.a]\napp = \"x\"\ncpus = \"2\"\n",
            "nom.toml:3: `machines.a.cpus`: invalid type: string \"2\"",
        ),
        ("[machines.a]\napp = \"x\"\nports = [\"80\"]\n", "nom.toml:3: `machines.a.ports`: `80`"),
        ("[machines.a]\napp = \"x\"\nnetwork = \"tun\"\n", "expected one of `user`, `tap`, `bridge`"),
        (
            "[machines.a]\napp = \"x\"\nrestart = \"yes\"\n",
            "nom.toml:3: `machines.a.restart`: `yes`: expected no, on-",
        ),
        ("[machines.a]\napp = \"x\"\naddress = \"10.1\"\n", "nom.toml:3: `machines.a.address`"),
        ("[machines.\"a b\"]\napp = \"x\"\n", "nom.toml:1: `a b`: expected a name"),
        (
            "[machines.a]\napp = \"x\"\ndepends_on = [\"b\"]\n",
            "nom.toml:3: `machines.a.depends_on`: no machine `b`, expected some of a",
        ),
        (
            "[machines.a]\napp = \"x\"\ndepends_on = [\"b\"]\n\
             [machines.b]\napp = \"x\"\ndepends_on = [\"a\"]\n",
            "goes in a circle among a, b",
        ),
        ("[machines.a\n", "nom.toml:1: "),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "`{text}` says: {error}");
    }
}

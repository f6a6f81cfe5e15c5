//! Debian's programs that both systems run as they are: one file each, with the same arguments and the same
//! configuration.

use crate::linux::save;
use crate::linux::serve::Server;
use crate::serve::guests::LINUX_APPLICATION;
use crate::serve::service::{self, Service};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// memcached by TCP and UDP, with one thread, as its machine has one processor.
pub const MEMCACHED: Service = Service {
    application: LINUX_APPLICATION,
    arguments: &["-u", "root", "-U", "11211", "-t", "1"],
    linux: Server { script: "exec /usr/bin/memcached -u root -U 11211 -t 1\n", ..service::MEMCACHED.linux },
    ..service::MEMCACHED
};

/// redis, which writes nothing to a disk.
const REDIS: Service = Service {
    name: "redis",
    application: LINUX_APPLICATION,
    arguments: &["/etc/redis.conf"],
    linux: Server {
        package: "redis-server",
        program: "usr/bin/redis-server",
        script: "exec /usr/bin/redis-server /etc/redis.conf\n",
        files: &[("etc/redis.conf", "save \"\"\nappendonly no\nprotected-mode no\ndir /tmp\n")],
        reads: &[],
    },
    port: 6379,
    greeting: b"PING\r\n",
};

/// What Debian's `redis-server` is a link to, which comes in a package of its own.
pub const REDIS_PROGRAM: Server =
    Server { package: "redis-tools", program: "usr/bin/redis-check-rdb", script: "", files: &[], reads: &[] };

/// nginx with one worker, a static page, and connections that are kept.
const NGINX: Service = Service {
    name: "nginx",
    application: LINUX_APPLICATION,
    arguments: &[],
    linux: Server {
        script: "exec /usr/sbin/nginx\n",
        files: &[
            (
                "etc/nginx/nginx.conf",
                "daemon off;\nuser root;\nworker_processes 1;\npid /run/nginx.pid;\nerror_log stderr;\n\
                 events { worker_connections 768; }\n\
                 http {\n    sendfile on;\n    tcp_nopush on;\n    open_file_cache max=100;\n    \
                 access_log off;\n    default_type text/html;\n    keepalive_requests 1000000000;\n    \
                 client_body_temp_path /tmp/a;\n    proxy_temp_path /tmp/b;\n    \
                 fastcgi_temp_path /tmp/c;\n    uwsgi_temp_path /tmp/d;\n    scgi_temp_path /tmp/e;\n    \
                 server { listen 80; root /www; }\n}\n",
            ),
            service::HTTP.linux.files[1],
        ],
        ..service::HTTP.linux
    },
    ..service::HTTP
};

/// Answers each request of HTTP with a line, by node's own library.
pub const NODE: Service = Service {
    name: "node",
    application: LINUX_APPLICATION,
    arguments: &["/srv/hello.js"],
    linux: Server {
        package: "nodejs",
        program: "usr/bin/node",
        script: "exec /usr/bin/node /srv/hello.js\n",
        files: &[(
            "srv/hello.js",
            "require('http').createServer((_, answer) => answer.end('hello\\n')).listen(80, '0.0.0.0');\n",
        )],
        reads: &["usr/share/nodejs"],
    },
    port: 80,
    greeting: b"GET / HTTP/1.0\r\n\r\n",
};

/// The same by Go's: a static program, which is compiled here.
const GO: Service = Service {
    name: "go",
    application: LINUX_APPLICATION,
    arguments: &[],
    linux: Server {
        package: "",
        program: "usr/local/bin/hello",
        script: "exec /usr/local/bin/hello\n",
        files: &[],
        reads: &[],
    },
    ..NODE
};
const GO_SOURCE: &str = "package main\n\nimport (\n\t\"io\"\n\t\"net/http\"\n)\n\nfunc main() {\n\t\
    http.HandleFunc(\"/\", func(answer http.ResponseWriter, _ *http.Request) {\n\t\t\
    io.WriteString(answer, \"hello\\n\")\n\t})\n\tpanic(http.ListenAndServe(\":80\", nil))\n}\n";

/// All of them.
pub const ALL: [&Service; 5] = [&MEMCACHED, &REDIS, &NGINX, &NODE, &GO];

/// Compiles what no package has to where packages are unpacked.
///
/// # Errors
/// If Go's compiler is missing, or complains.
pub fn compile(tree: &Path) -> Result<()> {
    let program = tree.join(GO.linux.program);
    if program.is_file() {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("main.go");
    save(&source, GO_SOURCE.as_bytes())?;
    let mut compiler = Command::new("go");
    compiler.args(["build", "-trimpath", "-o"]).args([&program, &source]).env("CGO_ENABLED", "0");
    let output = compiler.output().context("cannot run go")?;
    ensure!(output.status.success(), "go cannot compile: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
/// What is measured beside them: [`super::primitives`].
pub const PRIMITIVES: &str = "primitives";

/// The programs of these names, and whether primitives are among them; all if there are none.
///
/// # Errors
/// If there is nothing of a name.
pub fn named(names: &[String]) -> Result<(Vec<&'static Service>, bool)> {
    let known: Vec<&str> = ALL.iter().map(|service| service.name).chain([PRIMITIVES]).collect();
    for name in names {
        ensure!(known.contains(&name.as_str()), "no program `{name}`: there are {}", known.join(", "));
    }
    let is_named = |wanted: &str| names.is_empty() || names.iter().any(|name| name == wanted);
    let services = ALL.into_iter().filter(|service| is_named(service.name)).collect();
    Ok((services, is_named(PRIMITIVES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_systems_start_the_same_command() {
        for service in ALL {
            let words = [service.linux.program].into_iter().chain(service.arguments.iter().copied());
            let command = words.collect::<Vec<_>>().join(" ");
            assert_eq!(service.linux.script, format!("exec /{command}\n"));
        }
    }

    #[test]
    fn programs_are_chosen_by_name() {
        let (services, primitives) = named(&[]).unwrap();
        assert!(services.len() == ALL.len() && primitives);
        let (services, primitives) = named(&["redis".into()]).unwrap();
        assert!(services.len() == 1 && services[0].port == 6379 && !primitives);
        let error = named(&["apache".into()]).unwrap_err().to_string();
        assert_eq!(error, "no program `apache`: there are memcached, redis, nginx, node, go, primitives");
    }
}

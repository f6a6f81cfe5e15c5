//! Debian's programs that both systems run as they are: one file each, with the same arguments and the same
//! configuration.

use crate::linux::serve::Server;
use crate::serve::guests::LINUX_APPLICATION;
use crate::serve::service::{self, Service};
use anyhow::{Result, ensure};

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
    },
    port: 6379,
    greeting: b"PING\r\n",
};

/// What Debian's `redis-server` is a link to, which comes in a package of its own.
pub const REDIS_PROGRAM: Server =
    Server { package: "redis-tools", program: "usr/bin/redis-check-rdb", script: "", files: &[] };

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

/// All of them.
pub const ALL: [&Service; 3] = [&MEMCACHED, &REDIS, &NGINX];
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
        assert_eq!(error, "no program `apache`: there are memcached, redis, nginx, primitives");
    }
}

//! The services that are compared: how each system provides them, and what a client asks.

use super::load::Exchange;
use crate::linux::serve::Server;
use anyhow::{Result, ensure};

/// A service that both systems provide, each with its own program.
#[derive(Debug)]
pub struct Service {
    /// Its name in records.
    pub name: &'static str,
    /// nom's application.
    pub application: &'static str,
    /// Arguments of nom's application.
    pub arguments: &'static [&'static str],
    /// The distribution's server.
    pub linux: Server,
    /// Where it listens.
    pub port: u16,
    /// What any client may ask at any time to be answered at once; nothing if being connected is the answer.
    pub greeting: &'static [u8],
}

/// memcached, by TCP and UDP. Debian's starts four threads; here it has as many as the machine has
/// processors.
pub const MEMCACHED: Service = Service {
    name: "memcached",
    application: "memcached",
    arguments: &["-U", "11211"],
    linux: Server {
        package: "memcached",
        program: "usr/bin/memcached",
        script: "exec /usr/bin/memcached -u root -U 11211 -t $(/bin/busybox nproc)\n",
        files: &[],
        reads: &[],
    },
    port: 11211,
    greeting: b"version\r\n",
};

/// memcached by UDP, its datagrams answered by nom's packet API; beside the same memcached of Linux.
pub const PACKET_API: Service = Service {
    name: "packet-api",
    arguments: &["-U", "11211", "--packet-api"],
    application: MEMCACHED.application,
    linux: MEMCACHED.linux,
    port: MEMCACHED.port,
    greeting: MEMCACHED.greeting,
};

/// Static files by HTTP: nhttpd, and nginx as Debian configures it, but for the log of requests and the
/// limit of requests a connection, which have no counterpart, and with open files kept open, as nhttpd's are.
pub const HTTP: Service = Service {
    name: "http",
    application: "nhttpd",
    arguments: &[],
    linux: Server {
        package: "nginx",
        program: "usr/sbin/nginx",
        script: "exec /usr/sbin/nginx -g 'daemon off;'\n",
        files: &[
            (
                "etc/nginx/nginx.conf",
                "user root;\nworker_processes auto;\npid /run/nginx.pid;\nerror_log stderr;\n\
                 events { worker_connections 768; }\n\
                 http {\n    sendfile on;\n    tcp_nopush on;\n    \
                 open_file_cache max=100;\n    access_log off;\n    \
                 default_type text/html;\n    \
                 keepalive_requests 1000000000;\n    server { listen 80; root /www; }\n}\n",
            ),
            ("www/index.html", PAGE),
        ],
        reads: &[],
    },
    port: 80,
    greeting: b"GET / HTTP/1.0\r\n\r\n",
};

/// The receiving side of NetPIPE, which serves one client and ends; Linux starts it again.
pub const NETPIPE: Service = Service {
    name: "netpipe",
    application: "netpipe",
    arguments: &[],
    linux: Server {
        package: "netpipe-tcp",
        program: "usr/bin/NPtcp",
        script: "while :; do /usr/bin/NPtcp; done\n",
        files: &[],
        reads: &[],
    },
    port: 5002,
    greeting: b"",
};

/// The same with messages in both directions at once.
pub const NETPIPE_BOTH_WAYS: Service = Service {
    name: "netpipe-both-ways",
    arguments: &["-2"],
    linux: Server { script: "while :; do /usr/bin/NPtcp -2; done\n", ..NETPIPE.linux },
    ..NETPIPE
};

/// All services.
pub const ALL: [&Service; 5] = [&MEMCACHED, &PACKET_API, &HTTP, &NETPIPE, &NETPIPE_BOTH_WAYS];

/// The services of these names; all if there are none.
///
/// # Errors
/// If there is no service of a name.
pub fn named(names: &[String]) -> Result<Vec<&'static Service>> {
    for name in names {
        let known = ALL.map(|service| service.name);
        ensure!(known.contains(&name.as_str()), "no service `{name}`: there are {}", known.join(", "));
    }
    let is_named = |service: &&&Service| names.is_empty() || names.iter().any(|name| name == service.name);
    Ok(ALL.iter().filter(is_named).copied().collect())
}

/// The page that nhttpd brings along: nginx serves the same.
const PAGE: &str = include_str!("../../../../apps/nhttpd/site/index.html");

/// Values that the client stores and then asks for.
const KEYS: usize = 100;
const VALUE_BYTES: usize = 100;

/// Stores every value once.
pub fn sets() -> Vec<Exchange> {
    let set = |key: usize| Exchange {
        request: [format!("set key-{key:04} 0 0 {VALUE_BYTES}\r\n").as_bytes(), &value(key), b"\r\n"]
            .concat(),
        reply: b"STORED\r\n".to_vec(),
    };
    (0..KEYS).map(set).collect()
}

/// Asks for every value once.
pub fn gets() -> Vec<Exchange> {
    let get = |key: usize| Exchange {
        request: format!("get key-{key:04}\r\n").into(),
        reply: [format!("VALUE key-{key:04} 0 {VALUE_BYTES}\r\n").as_bytes(), &value(key), b"\r\nEND\r\n"]
            .concat(),
    };
    (0..KEYS).map(get).collect()
}

/// A value that no other key has.
fn value(key: usize) -> Vec<u8> {
    format!("{key:04}").into_bytes().repeat(VALUE_BYTES / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_chosen_by_name() {
        assert_eq!(named(&[]).unwrap().len(), ALL.len());
        assert_eq!(named(&["http".into()]).unwrap()[0].application, "nhttpd");
        let error = named(&["ftp".into()]).unwrap_err().to_string();
        assert_eq!(
            error,
            "no service `ftp`: there are memcached, packet-api, http, netpipe, netpipe-both-ways"
        );
    }

    #[test]
    fn a_get_returns_what_its_set_stored() {
        let (sets, gets) = (sets(), gets());
        assert_eq!(sets[7].request, [b"set key-0007 0 0 100\r\n", &b"0007".repeat(25)[..], b"\r\n"].concat());
        for (set, get) in sets.iter().zip(&gets) {
            let stored = set.request.split(|&byte| byte == b'\n').nth(1).unwrap();
            assert!(get.reply.windows(stored.len()).any(|bytes| bytes == stored));
        }
    }
}

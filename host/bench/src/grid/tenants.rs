//! The tenants, what they ask, and what the machine tells of them.

use crate::serve::load::{self, Exchange, Load, Served, Transport};
use anyhow::{Context, Result, anyhow, ensure};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Their names, each with its weight in hundredths.
pub const TENANTS: [(&str, f64); 3] = [("gold", 0.50), ("silver", 0.33), ("bronze", 0.17)];

/// Requests of each exchange of [`many_gets`].
pub const AT_ONCE: usize = 32;
/// Values of each tenant.
const KEYS: usize = 50;
const VALUE: [u8; 100] = [b'v'; 100];
/// For how long requests are not counted at first.
pub const WARM_UP: Duration = Duration::from_millis(700);
/// How long clients who left may have a connection, and how often that is looked at.
const LEAVING_MAX: Duration = Duration::from_secs(60);
const LEAVING_LOOK: Duration = Duration::from_millis(250);
/// The control port of the machines of this bench.
pub const CONTROL_PORT: u16 = 9999;

/// Stores a tenant's values.
pub fn sets(tenant: &str) -> Vec<Exchange> {
    let set = |key: usize| Exchange {
        request: [format!("set {tenant}:{key:04} 0 0 {}\r\n", VALUE.len()).as_bytes(), &VALUE, b"\r\n"]
            .concat(),
        reply: b"STORED\r\n".to_vec(),
    };
    (0..KEYS).map(set).collect()
}

/// Asks for them.
pub fn gets(tenant: &str) -> Vec<Exchange> {
    let get = |key: usize| Exchange {
        request: format!("get {tenant}:{key:04}\r\n").into(),
        reply: [format!("VALUE {tenant}:{key:04} 0 {}\r\n", VALUE.len()).as_bytes(), &VALUE, b"\r\nEND\r\n"]
            .concat(),
    };
    (0..KEYS).map(get).collect()
}

/// The same, so many of them at once: a client has little to do for what takes the server long.
pub fn many_gets(tenant: &str) -> Vec<Exchange> {
    let gets = gets(tenant);
    let together = |first: usize| {
        let mut all = Exchange { request: Vec::new(), reply: Vec::new() };
        for get in gets.iter().cycle().skip(first).take(AT_ONCE) {
            all.request.extend_from_slice(&get.request);
            all.reply.extend_from_slice(&get.reply);
        }
        all
    };
    (0..KEYS).map(together).collect()
}

/// Has each of some tenants ask over so many connections, what `asks` says, for `duration` behind the
/// warm-up, and does `work` meanwhile.
///
/// # Errors
/// If one is not answered, or wrongly, or the work fails.
pub fn ask<T: Send>(
    target: SocketAddr,
    connections: &[(&'static str, usize)],
    asks: fn(&str) -> Vec<Exchange>,
    duration: Duration,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<(Vec<Served>, T)> {
    // Behind a full server, hundreds of handshakes take their time.
    let start = Barrier::new(connections.len() + 1);
    let client = |(tenant, connections): (&'static str, usize)| {
        let exchanges = asks(tenant);
        let load = Load {
            target,
            transport: Transport::Tcp,
            connections,
            window: 1,
            exchanges: &exchanges,
            qemu: None,
            warm_up: WARM_UP,
            duration,
        };
        load::run_together(&load, &start).with_context(|| format!("{tenant}'s client"))
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = connections.iter().map(|own| scope.spawn(move || client(*own))).collect();
        start.wait();
        let done = work();
        let served =
            clients.into_iter().map(|client| client.join().map_err(|_| anyhow!("a client panicked"))?);
        Ok((served.collect::<Result<_>>()?, done?))
    })
}

/// What the machine tells of itself at one time.
#[derive(Clone, Debug)]
pub struct Told(BTreeMap<String, f64>);

impl Told {
    /// Asks its control port, which is `port`, where `target` is.
    ///
    /// # Errors
    /// If that does not answer.
    pub fn ask(target: SocketAddr, port: u16) -> Result<Told> {
        let mut control = TcpStream::connect((target.ip(), port)).context("the control port")?;
        control.set_read_timeout(Some(Duration::from_secs(10)))?;
        control.write_all(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        control.read_to_string(&mut text).context("the control port's answer")?;
        Ok(Told::read(&text))
    }

    /// What it tells once clients have warmed up, and so much later.
    ///
    /// # Errors
    /// As [`Told::ask`].
    pub fn look(target: SocketAddr, port: u16, duration: Duration) -> Result<(Told, Told)> {
        std::thread::sleep(WARM_UP);
        let before = Told::ask(target, port)?;
        std::thread::sleep(duration);
        Ok((before, Told::ask(target, port)?))
    }

    /// Waits until those who asked have gone: whose last segment was lost is there for some seconds.
    ///
    /// # Errors
    /// As [`Told::ask`]; if they do not go.
    pub fn wait_until_left(target: SocketAddr, port: u16) -> Result<()> {
        let begin = Instant::now();
        loop {
            let told = Told::ask(target, port)?;
            let clients = told.0.iter().filter(|(name, _)| name.starts_with("nom_activity_connections{"));
            let connections: f64 = clients.map(|(_, count)| count).sum();
            if connections == 0.0 {
                return Ok(());
            }
            ensure!(begin.elapsed() < LEAVING_MAX, "{connections} connections of clients who left stay");
            std::thread::sleep(LEAVING_LOOK);
        }
    }

    fn read(text: &str) -> Told {
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Told(text.lines().filter_map(value).collect())
    }

    /// How much more of a metric there is than in `earlier`.
    pub fn since(&self, earlier: &Told, name: &str) -> f64 {
        let of = |told: &Told| told.0.get(name).copied().unwrap_or_default();
        of(self) - of(earlier)
    }

    /// The same of a metric of an activity.
    pub fn of(&self, earlier: &Told, metric: &str, activity: &str) -> f64 {
        self.since(earlier, &format!("nom_activity_{metric}{{activity=\"{activity}\"}}"))
    }

    /// Nanoseconds of the server's cores since `earlier`.
    pub fn elapsed_ns(&self, earlier: &Told) -> f64 {
        self.since(earlier, "nom_loop_total{event=\"elapsed_ns\"}").max(1.0)
    }

    /// The part of the time since `earlier` in which the server had nothing to do.
    pub fn idle(&self, earlier: &Told) -> f64 {
        let event = |name: &str| self.since(earlier, &format!("nom_loop_total{{event=\"{name}\"}}"));
        (event("spinning_ns") + event("sleeping_ns")) / self.elapsed_ns(earlier)
    }

    /// The part of the time since `earlier` that is no activity's, and was neither spun nor slept.
    pub fn unaccounted(&self, earlier: &Told) -> f64 {
        let event = |name: &str| self.since(earlier, &format!("nom_loop_total{{event=\"{name}\"}}"));
        let is_time = |name: &&String| name.starts_with("nom_activity_core_nanoseconds_total{");
        let charged: f64 = self.0.keys().filter(is_time).map(|name| self.since(earlier, name)).sum();
        let elapsed = self.elapsed_ns(earlier);
        (elapsed - charged - event("spinning_ns") - event("sleeping_ns")).abs() / elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_tells_is_told_apart() {
        let text = |scale: u64| {
            Told::read(&format!(
                "# HELP x y\nnom_activity_core_nanoseconds_total{{activity=\"gold\"}} {}\n\
                 nom_activity_core_nanoseconds_total{{activity=\"others\"}} {}\n\
                 nom_loop_total{{event=\"elapsed_ns\"}} {}\nnom_loop_total{{event=\"spinning_ns\"}} {}\n",
                30 * scale,
                20 * scale,
                100 * scale,
                40 * scale
            ))
        };
        let (before, now) = (text(1), text(3));
        assert_eq!(now.of(&before, "core_nanoseconds_total", "gold"), 60.0);
        assert!((now.unaccounted(&before) - 0.1).abs() < 1e-9, "a tenth is nobody's");
        assert!((now.idle(&before) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_tenants_values_are_its_own() {
        let (sets, gets) = (sets("gold"), gets("gold"));
        assert!(sets[7].request.starts_with(b"set gold:0007 0 0 100\r\n"));
        assert!(gets[7].reply.starts_with(b"VALUE gold:0007 0 100\r\n"));
        let many = many_gets("gold");
        assert!(many[7].request.starts_with(b"get gold:0007\r\nget gold:0008\r\n"));
        assert_eq!(many[7].reply.len(), AT_ONCE * gets[7].reply.len());
    }
}

use super::*;
use crate::metered::Metered;
use crate::still::Still;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use nom_net::{Config, Stack};
use nom_port::nic::Offloads;
use nom_rt::EventLoop;
use nom_wire::Device;
use std::sync::Arc;

/// Wants another delay with each window, and has earned ten dollars for three.
struct Restless {
    windows: Rc<Cell<u64>>,
    last: Rc<Cell<Window>>,
}

impl Governor for Restless {
    fn observe(&mut self, window: &Window) -> Setting {
        self.windows.set(self.windows.get() + 1);
        self.last.set(*window);
        let batching_delay = Duration::from_micros(10 * self.windows.get());
        let clients_max = Some(window.clients / 2);
        Setting { batching_delay, clients_max, ..Setting::default() }
    }

    fn earned(&mut self, _: &mut dyn FnMut(nom_service::Activity, i64)) -> Option<Earned> {
        Some(Earned { revenue: 10_000_000_000, cost: 3_000_000_000 })
    }
}

/// A governed stack with a control port, at a time that tests tell.
struct Bench {
    stack: Stack<Metered<Device, Still>>,
    steered: Steered,
    reception: Reception,
    windows: Rc<Cell<u64>>,
    last: Rc<Cell<Window>>,
    now_ns: u64,
}

impl Bench {
    fn new() -> Bench {
        let nic = Metered::new(Device::new(1, Offloads::default()), Still);
        let mut stack = Stack::new(nic, Config::new([1; 4]));
        let core = EventLoop::new(0, Still, Still, Arc::new(Still));
        let mut steered = Steered::new(&mut stack, core.handle());
        let (windows, last) = (Rc::default(), Rc::default());
        steered.govern(Box::new(Restless { windows: Rc::clone(&windows), last: Rc::clone(&last) }));
        let reception = steered.control(9999);
        Bench { stack, steered, reception, windows, last, now_ns: 0 }
    }

    /// Steers at the end of the next window.
    fn pass_window(&mut self) {
        self.now_ns += self.steered.steering.window_ns;
        self.steer();
    }

    fn steer(&mut self) {
        self.steered.steer(&mut self.stack, 7, self.now_ns);
    }

    fn delay_us(&self) -> u128 {
        self.stack.delay().as_micros()
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> String {
        let len = body.len();
        let text = std::format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{body}");
        let (mut input, mut out) = (text.into_bytes(), Vec::new());
        let stream = self.reception.respond(&mut self.stack, &mut input, &mut out);
        assert_eq!((stream, input.len()), (Stream::Open, 0));
        String::from_utf8(out).expect("text")
    }
}

#[test]
fn who_holds_the_governor_has_the_working_point() {
    let mut bench = Bench::new();
    assert_eq!(bench.steered.clients_max(), None);
    bench.pass_window();
    assert_eq!((bench.delay_us(), bench.last.get().is_overridden), (10, false));
    assert_eq!((bench.last.get().clients, bench.steered.clients_max()), (7, Some(3)));
    assert!(bench.ask("PUT", "/governor", "off").ends_with("\r\n\r\noff\n"));
    assert!(bench.ask("PUT", "/batching-delay", "77").ends_with("\r\n\r\n77\n"));
    bench.steer();
    for windows in 2..4 {
        bench.pass_window();
        assert_eq!((bench.delay_us(), bench.windows.get()), (77, windows), "it only watches");
        assert!(bench.last.get().is_overridden);
    }
    bench.ask("PUT", "/governor", "on");
    bench.steer();
    assert_eq!(bench.delay_us(), 40, "it has its own point at once");
    bench.pass_window();
    assert_eq!((bench.delay_us(), bench.last.get().is_overridden), (50, false));
}

#[test]
fn what_it_earns_is_told() {
    let mut bench = Bench::new();
    bench.pass_window();
    let page = bench.ask("GET", "/metrics", "");
    for line in [
        "\nnom_batching_delay_seconds 0.000010000\n",
        "\nnom_cost_dollars_total 3.000000000\n",
        "\nnom_profit_dollars 7.000000000\n",
        "\nnom_cores 1\n",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(!page.contains("nom_activity"), "{page}");
}

#[test]
fn what_it_cannot_do_is_refused() {
    let mut bench = Bench::new();
    for (path, body, status) in [
        ("/cores", "1", "409 Conflict"),
        ("/grid", "input fair", "409 Conflict"),
        ("/batching-delay", "10001", "400 Bad Request"),
        ("/nothing", "", "404 Not Found"),
    ] {
        let answer = bench.ask("PUT", path, body);
        assert!(answer.starts_with(&std::format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    assert!(bench.ask("GET", "/cores", "").ends_with("\n1\n"));
}

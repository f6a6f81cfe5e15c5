//! A machine under test.

use nom_vmm::qmp::Monitor;
use nom_vmm::{ControlLine, Ending, Outcome, PluggedDevice, Session};
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take, on a slow and busy computer.
const PATIENCE: Duration = Duration::from_secs(120);

/// Lines of a log that a failing test shows, of its beginning and of its end.
const SHOWN_FIRST: usize = 40;
const SHOWN_LAST: usize = 120;
const SHOWN_ALL: usize = SHOWN_FIRST + SHOWN_LAST;

/// A running machine. It is killed when dropped, and shows what it wrote if the test fails.
pub struct Vm {
    session: Option<Session>,
    directory: TempDir,
    patience: Duration,
}

impl Vm {
    pub(crate) fn new(session: Session, directory: TempDir) -> Vm {
        Vm { session: Some(session), directory, patience: PATIENCE }
    }

    /// Lets every later wait take `patience` at most, in place of two minutes.
    pub fn patience(mut self, patience: Duration) -> Vm {
        self.patience = patience;
        self
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("only `finish` takes the session, and the machine with it")
    }

    /// Waits until `text` is on the console.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(&format!("`{text}` on the console"), |session| session.serial().contains(text));
    }

    /// Waits until the kernel has reported a line that holds all words of `line`, for example
    /// `exited app=hello`; returns it.
    pub fn wait_for_report(&mut self, line: &str) -> ControlLine {
        let Ok(wanted) = line.parse::<ControlLine>();
        self.wait_until(&format!("`{line}` on the control channel"), |session| {
            find(session.control(), &wanted).is_some()
        });
        find(self.session().control(), &wanted).cloned().expect("it was there just now")
    }

    fn wait_until(&mut self, what: &str, reached: impl Fn(&Session) -> bool) {
        let patience = self.patience;
        let found = self.session().wait_until(patience, reached).expect("the machine can be watched");
        assert!(found, "waited for {what}, but the machine ended or {patience:?} passed");
    }

    /// Lets the machine go on for a while.
    pub fn run_for(&mut self, time: Duration) {
        self.session().wait_until(time, |_| false).expect("the machine can be watched");
    }

    /// What is on the console so far.
    pub fn console(&mut self) -> String {
        self.session().serial()
    }

    /// Plugs a device into an empty slot. `properties` are pairs of name and value.
    pub fn plug(&mut self, slot: u32, driver: &str, id: &str, properties: &[(&str, &str)]) {
        let pairs = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let device = PluggedDevice {
            driver: driver.to_owned(),
            id: id.to_owned(),
            slot,
            properties: pairs.collect::<BTreeMap<_, _>>(),
        };
        self.session().machine().plug(&device).expect("the device is plugged in");
    }

    /// Asks the guest to let a device go, and waits until it has.
    pub fn unplug(&mut self, id: &str) {
        let patience = self.patience;
        self.session().machine().unplug(id, patience).expect("the device is let go");
    }

    /// Asks the machine to end, as `nom stop` does.
    pub fn press_power_button(&mut self) {
        self.session().machine().shut_down();
    }

    /// Process id of QEMU.
    pub fn process_id(&mut self) -> u32 {
        self.session().machine().process_id()
    }

    /// Directory with the machine's files: `qmp.sock` is its monitor.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Waits for the machine's end.
    pub fn finish(mut self) -> Life {
        let mut session = self.session.take().expect("`finish` comes once");
        let ended =
            session.wait_until(self.patience, Session::has_ended).expect("the machine can be watched");
        if !ended {
            let said = processors(self.directory()).unwrap_or_else(|error| format!("{error:#}"));
            eprintln!("---- processors ----\n{said}");
        }
        let outcome = session.finish(Duration::ZERO).expect("the machine can be watched");
        let life = Life(outcome);
        assert!(!life.timed_out, "the machine did not end within {:?}", self.patience);
        life
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        if let Some(session) = self.session.as_ref().filter(|_| std::thread::panicking()) {
            show(&session.serial(), session.control());
        }
    }
}

/// All that a machine did, from its start to its end. It shows itself if the test fails later on.
#[derive(Debug)]
pub struct Life(Outcome);

impl Life {
    /// The machine must have ended in order with this status.
    pub fn expect_status(self, status: u8) -> Life {
        self.expect_ending(&Ending::Halted(status))
    }

    /// The machine must have ended like this.
    pub fn expect_ending(self, ending: &Ending) -> Life {
        assert!(self.0.ending == *ending, "expected `{ending}`, the machine: {}", self.0.ending);
        self
    }

    /// This must be on the console.
    pub fn expect(self, text: &str) -> Life {
        assert!(self.0.serial.contains(text), "expected `{text}` on the console");
        self
    }

    /// This must not be on the console.
    pub fn expect_no(self, text: &str) -> Life {
        assert!(!self.0.serial.contains(text), "`{text}` must not be on the console");
        self
    }

    /// The first line of the kernel's reports that holds all words of `line`; it must be there.
    pub fn report(&self, line: &str) -> &ControlLine {
        let Ok(wanted) = line.parse();
        find(&self.0.control, &wanted).unwrap_or_else(|| panic!("expected `{line}` on the control channel"))
    }

    /// The rest of the first console line that has `label`, behind it and trimmed; it must be there.
    pub fn after(&self, label: &str) -> &str {
        let line = self.0.serial.lines().find_map(|line| Some(line.split_once(label)?.1.trim()));
        line.unwrap_or_else(|| panic!("expected a line with `{label}` on the console"))
    }

    /// The number behind `label` on the console.
    pub fn number(&self, label: &str) -> u64 {
        let text = self.after(label);
        let digits = text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().unwrap_or_else(|_| panic!("expected a number behind `{label}`, found `{text}`"))
    }
}

impl Deref for Life {
    type Target = Outcome;

    fn deref(&self) -> &Outcome {
        &self.0
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            show(&self.0.serial, &self.0.control);
            eprintln!("ended: {}", self.0.ending);
        }
    }
}

/// Where the processors of a machine that does not end are, and their interrupt controllers: looked at twice,
/// for what runs is elsewhere then. The kernel lies at a multiple of 2 MiB, at random: the rest of an
/// instruction pointer names what it runs.
fn processors(directory: &Path) -> anyhow::Result<String> {
    const KEPT: [&str; 7] = ["CPU#", "RIP=", "LVTT", "Timer", "ICR", "ISR", "IRR"];
    let mut monitor = Monitor::connect(directory, "qmp.sock")?;
    let mut ask = |command: &str| {
        let said = monitor.execute("human-monitor-command", json!({ "command-line": command }))?;
        anyhow::Ok(said.as_str().unwrap_or_default().to_owned())
    };
    let mut said = String::new();
    for _ in 0..2 {
        said += &ask("info registers -a")?;
    }
    for number in 0..said.matches("CPU#").count() / 2 {
        said += &ask(&format!("info lapic {number}"))?;
    }
    let kept = said.lines().filter(|line| KEPT.iter().any(|word| line.contains(word)));
    Ok(kept.collect::<Vec<_>>().join("\n"))
}

/// The first line with the same word and at least the fields of `wanted`.
fn find<'l>(lines: &'l [ControlLine], wanted: &ControlLine) -> Option<&'l ControlLine> {
    let has_all = |line: &&ControlLine| {
        line.word == wanted.word && wanted.fields.iter().all(|(key, value)| line.field(key) == Some(value))
    };
    lines.iter().find(has_all)
}

fn show(serial: &str, control: &[ControlLine]) {
    let control: Vec<String> = control.iter().map(ControlLine::to_string).collect();
    let console: Vec<&str> = serial.lines().collect();
    eprintln!("---- console ----\n{}", excerpt(&console));
    eprintln!("---- control channel ----\n{}\n----", excerpt(&control));
}

/// The lines, without the middle if they are many.
fn excerpt<L: AsRef<str>>(lines: &[L]) -> String {
    let join = |lines: &[L]| lines.iter().map(L::as_ref).collect::<Vec<_>>().join("\n");
    match lines.len() {
        0..=SHOWN_ALL => join(lines),
        count => format!(
            "{}\n.. {} lines ..\n{}",
            join(&lines[..SHOWN_FIRST]),
            count - SHOWN_FIRST - SHOWN_LAST,
            join(&lines[count - SHOWN_LAST..])
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_vmm::{Exit, control::parse_log};

    fn life(serial: &str) -> Life {
        Life(Outcome {
            ending: Ending::Halted(0),
            timed_out: false,
            serial: serial.to_owned(),
            control: parse_log("started app=a base=0x7000\nstarted app=b\nhalt status=0"),
            exit: Exit::default(),
        })
    }

    #[test]
    fn reports_are_found_by_some_of_their_words() {
        assert_eq!(life("").report("started app=b").field("base"), None);
        assert_eq!(life("").report("started").number("base"), Some(0x7000));
        assert!(std::panic::catch_unwind(|| drop(life("").report("started app=c").clone())).is_err());
    }

    #[test]
    fn long_logs_are_shown_without_their_middle() {
        let lines: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let shown = excerpt(&lines);
        assert!(shown.starts_with("0\n1\n") && shown.ends_with("998\n999"));
        assert!(shown.contains("39\n.. 840 lines ..\n880\n"), "{shown}");
        assert_eq!(excerpt(&lines[..2]), "0\n1");
    }

    #[test]
    fn numbers_are_read_behind_their_labels() {
        let life = life("share of a: 50%\nfree frames 1234 of 5000\n");
        assert_eq!((life.number("share of a:"), life.number("free frames")), (50, 1234));
        assert_eq!(life.after("free frames"), "1234 of 5000");
    }
}

//! A log of system calls, in strace's form: `nom strace`.
//!
//! Each line is a thread's identifier and a call with its arguments and its result. Who waits has the
//! beginning of its line written, so that the last line says where a program hangs; if another thread says
//! something meanwhile, that line ends in `<unfinished ...>` and is resumed later.

mod names;
mod shapes;
mod show;
#[cfg(test)]
mod tests;

use crate::call::Call;
use crate::process::{Exit, Process};
use crate::signals::{Info, Signal};
use crate::table;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::cell::RefCell;
use core::fmt;
use linux_raw_sys::general as abi;
use nom_fs::Errno;
use show::ShownCall;

/// Behind the last number of a call that can be chosen.
const NUMBERS: usize = 512;
/// Bytes of a string that are shown if nobody says otherwise, as strace has it.
const STRING_BYTES: usize = 32;

/// Where the lines of a trace go.
pub trait TraceSink {
    /// Takes a piece of text. What it cannot take is lost: a trace stops nobody.
    fn put(&mut self, text: &[u8]);
}

/// What is noted of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Which calls, by their numbers; none that is not known.
    chosen: [u64; NUMBERS / 64],
    /// Not their arguments, but name, result and nanoseconds, a line each with tabs between.
    counts: bool,
    /// How much of a string is shown, in bytes.
    most: usize,
}

impl TraceOptions {
    /// From variables of the environment: `calls`, numbers with commas between them, all if there are none;
    /// `style`, `lines` or `counts`; `string`, bytes of a string.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn read(
        calls: Option<&str>,
        style: Option<&str>,
        string: Option<&str>,
    ) -> Result<TraceOptions, String> {
        let mut options = TraceOptions { chosen: [u64::MAX; _], counts: false, most: STRING_BYTES };
        if let Some(calls) = calls {
            options.chosen = [0; _];
            for text in calls.split(',').filter(|text| !text.is_empty()) {
                let number = text.parse::<usize>().ok().filter(|number| *number < NUMBERS);
                let number =
                    number.ok_or_else(|| format!("calls `{calls}`: numbers of calls are expected"))?;
                options.chosen[number / 64] |= 1 << (number % 64);
            }
        }
        options.counts = match style {
            None | Some("lines") => false,
            Some("counts") => true,
            Some(style) => return Err(format!("style `{style}`: lines or counts is expected")),
        };
        if let Some(string) = string {
            let most = string.parse();
            options.most = most.map_err(|_| format!("string `{string}`: a number of bytes is expected"))?;
        }
        Ok(options)
    }

    fn has(&self, number: u64) -> bool {
        let number = usize::try_from(number).unwrap_or(NUMBERS);
        self.chosen.get(number / 64).is_none_or(|word| word & 1 << (number % 64) != 0)
    }
}

/// Notes calls.
pub struct Tracer {
    options: TraceOptions,
    lines: RefCell<Lines>,
    sink: RefCell<Box<dyn TraceSink>>,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Tracer({:?})", self.options)
    }
}

/// Lines of several threads, one after another.
#[derive(Debug, Default)]
struct Lines {
    /// What was not written yet.
    text: String,
    /// The thread whose line has no end.
    open: Option<u32>,
}

impl Lines {
    /// Ends the line of another thread.
    fn leave(&mut self) {
        if self.open.take().is_some() {
            self.text.push_str(" <unfinished ...>\n");
        }
    }

    fn begin(&mut self, thread: u32, text: &str) {
        self.leave();
        self.text.push_str(&format!("{thread} {text}"));
        self.open = Some(thread);
    }

    /// The end of a thread's line that began with the call of this name.
    fn end(&mut self, thread: u32, name: &str, text: &str) {
        if self.open != Some(thread) {
            self.leave();
            self.text.push_str(&format!("{thread} <... {name} resumed>"));
        }
        self.open = None;
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn whole(&mut self, thread: u32, text: &str) {
        self.leave();
        self.text.push_str(&format!("{thread} {text}\n"));
    }
}

impl Tracer {
    /// One whose lines go there.
    pub fn new(options: TraceOptions, sink: Box<dyn TraceSink>) -> Tracer {
        Tracer { options, lines: RefCell::default(), sink: RefCell::new(sink) }
    }

    /// Has a call answered, and notes it.
    #[cold]
    pub(crate) fn answer(&self, call: &Call<'_>, number: u64) -> Result<u64, Errno> {
        if !self.options.has(number) {
            return table::answer(call, number);
        }
        if self.options.counts {
            return self.count(call, number);
        }
        let memory = call.process().memory();
        let row = table::row(number);
        let shown = ShownCall {
            row,
            arguments: call.arguments,
            memory: &|address, bytes| memory.read(address, bytes).is_ok(),
            most: self.options.most,
        };
        let (name, thread) = (show::name(row, number), call.task().id);
        let (beginning, known) = shown.beginning();
        self.lines.borrow_mut().begin(thread, &format!("{name}({beginning}"));
        let result = table::answer(call, number);
        let text = match result {
            Ok(_) if is_last(number) => ") = ?".into(),
            Ok(value) => {
                let rest = shown.rest(known, value as i64);
                format!("{rest}) = {}", show::result(row, value))
            }
            Err(errno) => {
                let rest = shown.rest(known, -i64::from(errno.code()));
                format!("{rest}) = -1 {errno}")
            }
        };
        self.lines.borrow_mut().end(thread, &name, &text);
        self.flush();
        result
    }

    fn count(&self, call: &Call<'_>, number: u64) -> Result<u64, Errno> {
        let begun_ns = nom_sys::time::now_ns();
        let result = table::answer(call, number);
        let took_ns = nom_sys::time::now_ns() - begun_ns;
        let name = show::name(table::row(number), number);
        let error = result.err().map_or_else(String::new, |errno| format!("{errno}"));
        self.lines.borrow_mut().text.push_str(&format!("{name}\t{error}\t{took_ns}\n"));
        self.flush();
        result
    }

    /// Writes what was noted: before somebody waits, too.
    pub(crate) fn flush(&self) {
        let mut lines = self.lines.borrow_mut();
        if !lines.text.is_empty() {
            self.sink.borrow_mut().put(lines.text.as_bytes());
            lines.text.clear();
        }
    }

    /// Notes a signal that something is done about.
    pub(crate) fn signal(&self, thread: u32, info: &Info) {
        let mut text = String::from("--- ");
        show::signal(&mut text, info.signal.into());
        text.push_str(" {si_signo=");
        show::signal(&mut text, info.signal.into());
        // Where it comes from by itself: from a process if that is not positive, or from a child.
        let is_sent = info.code <= 0 || info.signal == Signal::CHLD.number();
        match is_sent {
            true => text.push_str(&format!(", si_code={}, si_pid={}}} ---", info.code, info.fields[0])),
            false => {
                let address = u64::from(info.fields[1]) << 32 | u64::from(info.fields[0]);
                text.push_str(&format!(", si_code={}, si_addr={address:#x}}} ---", info.code));
            }
        }
        self.note(thread, &text);
    }

    /// Notes that a process has ended.
    pub(crate) fn ended(&self, process: &Process, exit: Exit) {
        let mut text = String::from("+++ ");
        match exit {
            Exit::Status(status) => text.push_str(&format!("exited with {status}")),
            Exit::Signal(by) => {
                text.push_str("killed by ");
                show::signal(&mut text, by.number().into());
            }
        }
        text.push_str(" +++");
        self.note(process.id, &text);
    }

    fn note(&self, thread: u32, text: &str) {
        if !self.options.counts {
            self.lines.borrow_mut().whole(thread, text);
            self.flush();
        }
    }
}

/// Whether who makes this call is not there any more when it returns.
fn is_last(number: u64) -> bool {
    [abi::__NR_exit, abi::__NR_exit_group].iter().any(|last| u64::from(*last) == number)
}

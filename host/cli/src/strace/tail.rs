//! The trace as it comes: what a machine has written to the file of its trace is shown as strace shows it.

use super::missing::Missing;
use super::summary::Summary;
use super::{Shows, Trace};
use crate::attend::Audience;
use crate::farewell::Cause;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufWriter, Read, Stderr, Write};
use std::rc::Rc;

/// What is kept of a trace, to be told at its end.
enum Gathered {
    /// Nothing: each line is shown.
    Nothing,
    Counts(Summary),
    Missing(Missing),
}

/// An audience that also shows a trace.
pub struct Traced<A> {
    audience: A,
    file: File,
    shown: Shown<BufWriter<Box<dyn Write>>>,
    gathered: Gathered,
    /// Lives as long as the machine.
    _trace: Rc<Trace>,
}

impl<A: Audience> Traced<A> {
    /// One that shows this trace.
    ///
    /// # Errors
    /// If the file that the trace is to go to cannot be written.
    pub fn new(audience: A, trace: &Rc<Trace>) -> Result<Traced<A>> {
        let path = trace.directory.path().join(Trace::FILE);
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (out, is_file): (Box<dyn Write>, bool) = match &trace.output {
            Some(path) => {
                let out =
                    File::create(path).with_context(|| format!("-o {}: cannot write it", path.display()))?;
                (Box::new(out), true)
            }
            None => (Box::new(std::io::stderr()) as Box<dyn Write>, false),
        };
        let out = BufWriter::new(out);
        let gathered = match trace.shows {
            Shows::Lines => Gathered::Nothing,
            Shows::Counts => Gathered::Counts(Summary::default()),
            Shows::Missing => Gathered::Missing(Missing::default()),
        };
        Ok(Traced { audience, file, shown: Shown::new(out, is_file), gathered, _trace: trace.clone() })
    }

    fn follow(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).context("cannot read the trace")?;
        match &mut self.gathered {
            Gathered::Nothing => self.shown.take(&bytes).context("cannot write the trace")?,
            Gathered::Counts(summary) => summary.take(&bytes),
            Gathered::Missing(missing) => missing.take(&bytes),
        }
        Ok(())
    }
}

impl<A: Audience> Audience for Traced<A> {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.audience.serial(bytes)
    }

    fn look(&mut self) -> Result<Option<Cause>> {
        self.follow()?;
        self.audience.look()
    }

    fn remind(&mut self, text: &str) {
        self.audience.remind(text);
    }

    fn end(&mut self) {
        self.audience.end();
        let mut end = || -> Result<()> {
            self.follow()?;
            let told = match &self.gathered {
                Gathered::Nothing => String::new(),
                Gathered::Counts(summary) => summary.to_string(),
                Gathered::Missing(missing) => missing.report(|path| path.symlink_metadata().is_ok()),
            };
            self.shown.out.write_all(told.as_bytes())?;
            Ok(self.shown.out.flush()?)
        };
        if let Err(error) = end() {
            let _ = writeln!(Stderr::lock(&std::io::stderr()), "nom: {error:#}");
        }
    }
}

/// Lines as they are shown: in a file each with its thread, elsewhere only once there is more than one.
struct Shown<W> {
    out: W,
    is_file: bool,
    /// The first thread, and whether there are others.
    first: Option<Vec<u8>>,
    has_others: bool,
    /// The beginning of a line whose thread is not known yet.
    start: Vec<u8>,
    is_inside: bool,
}

impl<W: Write> Shown<W> {
    fn new(out: W, is_file: bool) -> Shown<W> {
        Shown { out, is_file, first: None, has_others: false, start: Vec::new(), is_inside: false }
    }

    fn take(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        for byte in bytes {
            if self.is_inside {
                self.out.write_all(&[*byte])?;
            } else if *byte == b' ' {
                self.begin()?;
            } else {
                self.start.push(*byte);
            }
            if *byte == b'\n' {
                self.is_inside = false;
            }
        }
        self.out.flush()
    }

    /// A line's thread is known.
    fn begin(&mut self) -> std::io::Result<()> {
        let thread = std::mem::take(&mut self.start);
        self.has_others |= self.first.as_ref().is_some_and(|first| *first != thread);
        self.is_inside = true;
        let number = String::from_utf8_lossy(&thread).into_owned();
        self.first.get_or_insert(thread);
        match (self.is_file, self.has_others) {
            (true, _) => write!(self.out, "{number} "),
            (false, true) => write!(self.out, "[pid {number:>5}] "),
            (false, false) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_once_there_are_several() {
        let pieces = ["1 read(0", ", \"\", 1) = 0\n1", "2 fork( <unfinished ...>\n1 x() = 0\n"];
        let shown = |is_file: bool| {
            let mut shown = Shown::new(Vec::new(), is_file);
            pieces.iter().for_each(|piece| shown.take(piece.as_bytes()).expect("memory"));
            String::from_utf8(shown.out).expect("text")
        };
        let expected = "read(0, \"\", 1) = 0\n[pid    12] fork( <unfinished ...>\n[pid     1] x() = 0\n";
        assert_eq!(shown(false), expected);
        assert_eq!(shown(true), pieces.concat());
    }
}

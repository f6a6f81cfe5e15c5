//! `nom run --watch`: what a machine serves, what that costs and earns, while it runs.
//!
//! ```text
//! provider --feed--> Update --Model::apply--> Model --view--> View --draw--> screen, or plain lines
//! ```

mod console;
mod draw;
mod feed;
mod history;
pub(crate) mod model;
mod screen;
mod solvency;
pub(crate) mod text;

use crate::attend::Audience;
use crate::farewell::Cause;
use anyhow::Result;
use model::{Model, Update};
use screen::Screen;
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Last lines of the console that are printed when a screen is left.
const LAST_WORDS: usize = 20;

/// Watches one machine.
pub struct Watch {
    model: Model,
    updates: Receiver<Update>,
    start: Instant,
    output: Output,
}

/// Where the view goes.
enum Output {
    /// A terminal, all of it.
    Screen(Screen),
    /// Standard output, a line for each second; the last second that has one.
    Lines(Option<u64>),
}

impl Watch {
    /// Begins to watch `machine`, of whose applications those `earning` are to report, by the provider at
    /// `base`, where the owner of `key` may read them.
    ///
    /// # Errors
    /// If the terminal refuses.
    pub fn new(machine: &str, earning: Vec<String>, base: &str, key: Option<&str>) -> Result<Watch> {
        let (sender, updates) = channel();
        feed::follow(base, key, &sender);
        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let output = if terminal { Output::Screen(Screen::open()?) } else { Output::Lines(None) };
        Ok(Watch { model: Model::new(machine, earning), updates, start: Instant::now(), output })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl Audience for Watch {
    fn serial(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let now = self.now();
        self.model.apply(Update::Console(bytes.to_vec()), now);
        match self.output {
            Output::Screen(_) => Ok(()),
            Output::Lines(_) => std::io::stdout().lock().write_all(bytes),
        }
    }

    fn look(&mut self) -> Result<Option<Cause>> {
        let now = self.now();
        while let Ok(update) = self.updates.try_recv() {
            self.model.apply(update, now);
        }
        match &mut self.output {
            Output::Screen(screen) => screen.show(&self.model, now),
            Output::Lines(last) => {
                if last.replace(now.as_secs()) != Some(now.as_secs()) {
                    let mut out = std::io::stdout().lock();
                    self.model.view(now).lines(now).iter().try_for_each(|line| writeln!(out, "{line}"))?;
                }
                Ok(None)
            }
        }
    }

    fn end(&mut self) {
        let lines = Output::Lines(None);
        if let Output::Screen(screen) = std::mem::replace(&mut self.output, lines) {
            drop(screen);
            let now = self.now();
            let mut last = self.model.console(LAST_WORDS);
            last.extend(self.model.view(now).lines(now));
            // A terminal that was closed takes nothing, and needs nothing.
            let _ = writeln!(std::io::stdout(), "{}", last.join("\n"));
        }
    }
}

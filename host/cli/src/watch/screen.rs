//! The terminal while a machine is watched.

use super::draw;
use super::model::Model;
use crate::farewell::Cause;
use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Between two pictures.
const PERIOD: Duration = Duration::from_millis(200);

/// The whole terminal; it is as before when this is dropped, or when a thread panics.
pub struct Screen {
    /// Never dropped: ratatui would panic to say that the terminal was closed.
    terminal: ManuallyDrop<DefaultTerminal>,
    keys: Receiver<Event>,
    due: Instant,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be steered.
    pub fn open() -> Result<Screen> {
        let terminal = ratatui::try_init().context("the terminal shows no full-screen view")?;
        let (sender, keys) = channel();
        // Apart, since crossterm reads without end from a terminal that was closed.
        std::thread::spawn(move || while event::read().is_ok_and(|event| sender.send(event).is_ok()) {});
        Ok(Screen { terminal: ManuallyDrop::new(terminal), keys, due: Instant::now() })
    }

    /// Shows the present state, if a picture is due, and heeds the keyboard.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn show(&mut self, model: &Model, now: Duration) -> Result<Option<Cause>> {
        let mut wish = None;
        for event in self.keys.try_iter() {
            match event {
                Event::Key(key) => wish = wish.or(asked(key)),
                Event::Resize(..) => self.due = Instant::now(),
                _ => {}
            }
        }
        if Instant::now() >= self.due {
            self.due = Instant::now() + PERIOD;
            let view = model.view(now);
            self.terminal.draw(|frame| draw::draw(frame, &view, |count| model.console(count)))?;
        }
        Ok(wish)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that was closed needs nothing.
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// What a key asks for.
fn asked(key: KeyEvent) -> Option<Cause> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        _ if key.kind == KeyEventKind::Release => None,
        KeyCode::Char('c') if control => Some(Cause::INTERRUPT),
        KeyCode::Char('q' | 'Q') if !control => Some(Cause::Quit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_keys_end_the_machine() {
        let key = |code, modifiers| asked(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Cause::Quit));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Cause::INTERRUPT));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Enter, KeyModifiers::NONE), None);
    }
}

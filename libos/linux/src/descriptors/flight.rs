//! Descriptors on their way: they were sent along with a message (unix(7), `SCM_RIGHTS`) that nobody has
//! received. Whoever sent them may have closed them since, so nobody else is charged for them.

use super::open::Description;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use nom_fs::Errno;

/// How many may be on their way of root's: Linux lets those be any number, but they are the library's memory.
pub(crate) const ROOTS_MAX: u64 = 1 << 16;

/// How many each user has on their way.
#[derive(Debug, Default)]
pub(crate) struct Flights(RefCell<BTreeMap<u32, u64>>);

/// Descriptors that go along with a message, counted as long as they are on their way.
#[derive(Debug)]
pub(crate) struct Flight {
    descriptors: Vec<Rc<Description>>,
    user: u32,
    flights: Rc<Flights>,
}

impl Flights {
    /// Sends some of a user, who may have `most` on their way already.
    ///
    /// # Errors
    /// `ETOOMANYREFS`.
    pub fn begin(
        self: &Rc<Flights>,
        user: u32,
        most: u64,
        descriptors: Vec<Rc<Description>>,
    ) -> Result<Rc<Flight>, Errno> {
        let mut flights = self.0.borrow_mut();
        let count = flights.get(&user).copied().unwrap_or(0);
        if count > most {
            return Err(Errno::ETOOMANYREFS);
        }
        flights.insert(user, count + descriptors.len() as u64);
        Ok(Rc::new(Flight { descriptors, user, flights: self.clone() }))
    }
}

impl Flight {
    /// The descriptors.
    pub fn descriptors(&self) -> &[Rc<Description>] {
        &self.descriptors
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = self.flights.0.borrow_mut();
        let count = flights.remove(&self.user).unwrap_or(0).saturating_sub(self.descriptors.len() as u64);
        if count > 0 {
            flights.insert(self.user, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Outgoing;
    use super::super::pipe::pipe;
    use super::*;
    use linux_raw_sys::general::O_RDONLY;

    #[test]
    fn a_user_has_no_more_descriptors_on_their_way_than_may_be() {
        const MOST: u64 = 600;
        let flights = Rc::<Flights>::default();
        let (reader, writer) = pipe();
        let passed = Description::of(pipe().0, O_RDONLY);
        let send = |user| {
            let flight = flights.begin(user, MOST, alloc::vec![passed.clone(); 253])?;
            writer.buffer().write_message(&Outgoing { attached: Some(&flight), ..Outgoing::plain(b"x") })
        };
        for _ in 0..3 {
            assert_eq!(send(1000), Ok(1));
        }
        assert_eq!(send(1000), Err(Errno::ETOOMANYREFS));
        assert_eq!(send(1001), Ok(1), "another user's are others");
        assert_eq!(Rc::strong_count(&passed), 1 + 4 * 253);
        let received = reader.buffer().read_message(&mut [0; 9]).expect("a byte");
        assert_eq!(received.attached.len(), 253);
        assert_eq!(send(1000), Ok(1), "what was received is not on its way");
        drop((reader, writer));
        drop(received);
        assert!(flights.0.borrow().is_empty(), "nor is what nobody can receive");
        assert_eq!(Rc::strong_count(&passed), 1);
    }
}

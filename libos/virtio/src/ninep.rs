//! The device by which a host lends a directory (9P transport; section 5 lists it as type 9, QEMU's
//! `virtio-9p-pci`): one queue, on which a request and the memory for its answer are lent together.
//!
//! One request is under way at a time, and its core looks for the answer until it is there: the host answers
//! most of them sooner than another thread could run and an interrupt come.

use crate::error::{Error, Result};
use crate::memory::Carver;
use crate::queue::{Descriptor, Layout, Queue};
use crate::transport::{self, Doorbell, Transport};
use core::fmt;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use nom_ninep::{MESSAGE_BYTES, NinepChannel, NoAnswer};
use nom_port::device::{Dma, PciFunction, Registers};

/// Type of the device, and its identifier where it is transitional.
const KIND: u16 = 9;
const TRANSITIONAL: u16 = 0x1009;
/// Entries of the queue: a request and its answer.
const ENTRIES: u16 = 2;
/// Looks for an answer before the device is asked whether it broke.
const LOOKS: u32 = 1 << 16;
/// Memory of a request or of an answer.
const WORDS: usize = MESSAGE_BYTES.div_ceil(size_of::<u64>());

/// A device that lends a directory.
pub struct NinepDevice<R: Registers> {
    transport: Transport<R>,
    queue: Queue<()>,
    doorbell: Doorbell,
    /// What is sent, and where the device reads it.
    request: (&'static [AtomicU64], u64),
    /// What is answered, and where the device writes it.
    answer: (&'static [AtomicU64], u64),
    is_broken: bool,
}

impl<R: Registers> fmt::Debug for NinepDevice<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("NinepDevice")
    }
}

impl<R: Registers> NinepDevice<R> {
    /// Brings up the device behind `function`, with memory of `world`.
    ///
    /// # Errors
    /// If it is no such device, lacks what a driver needs, or memory is exhausted.
    pub fn open<F: PciFunction<Registers = R>>(
        mut function: F,
        world: &mut impl Dma,
    ) -> Result<NinepDevice<R>> {
        let transport = Transport::open(&mut function, KIND, TRANSITIONAL)?;
        let features = transport.negotiate(transport::feature::EVENT_INDEX)?;
        if transport.queue_size_max(0)? < ENTRIES {
            return Err(Error::NoQueue(0));
        }
        let event_index = features & transport::feature::EVENT_INDEX != 0;
        let layout = Layout { size: ENTRIES, packed: false, event_index };
        let mut carver = |bytes| world.allocate(bytes).map(Carver::new).ok_or(Error::OutOfMemory);
        let (queue, areas) = Queue::new(layout, &mut carver(layout.bytes())?)?;
        let mut message = || carver(WORDS * size_of::<u64>())?.words(WORDS).ok_or(Error::OutOfMemory);
        let (request, answer) = (message()?, message()?);
        let doorbell = transport.enable_queue(0, ENTRIES, areas, None)?;
        transport.start();
        Ok(NinepDevice { transport, queue, doorbell, request, answer, is_broken: false })
    }

    /// Lends the request and the memory for its answer, and waits until they come back.
    fn lend(&mut self, request: usize, answer: usize) -> core::result::Result<usize, NoAnswer> {
        let chain = [
            Descriptor::readable(self.request.1, request as u32),
            Descriptor::writable(self.answer.1, answer as u32),
        ];
        self.queue.push(&chain, ()).map_err(|()| NoAnswer)?;
        if self.queue.publish() {
            self.transport.notify(self.doorbell);
        }
        let mut looks = 0_u32;
        loop {
            if let Some(((), written)) = self.queue.pop() {
                return Ok((written as usize).min(answer));
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) && (self.transport.is_broken() || self.queue.errors().overrun > 0)
            {
                return Err(NoAnswer);
            }
            core::hint::spin_loop();
        }
    }
}

impl<R: Registers> NinepChannel for NinepDevice<R> {
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> core::result::Result<usize, NoAnswer> {
        let most = answer.len().min(MESSAGE_BYTES);
        // What broke once answers nothing any more: an answer that comes late would be taken for another's.
        if self.is_broken || most == 0 || !(1..=MESSAGE_BYTES).contains(&request.len()) {
            return Err(NoAnswer);
        }
        for (word, bytes) in self.request.0.iter().zip(request.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Relaxed);
        }
        let count = self.lend(request.len(), most).inspect_err(|_| self.is_broken = true)?;
        for (bytes, word) in answer[..count].chunks_mut(size_of::<u64>()).zip(self.answer.0) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nom_virtio_fake::{FakeFunction, FakeMemory, FakeOptions, FakeRegisters};

    fn device(offered: u64, answer: fn(&[u8]) -> Option<Vec<u8>>) -> NinepDevice<FakeRegisters> {
        let mut memory = FakeMemory::new(1 << 20);
        let features = offered | transport::feature::VERSION_1;
        let options = FakeOptions { features, identifier: 0x1049_1af4, ..FakeOptions::default() };
        let function = FakeFunction::new(options, memory.clone());
        function.serve(answer);
        NinepDevice::open(function, &mut memory).expect("it is one")
    }

    #[test]
    fn a_request_comes_back_with_its_answer() {
        for offered in [0, transport::feature::EVENT_INDEX] {
            let mut device = device(offered, |request| Some(request.iter().rev().copied().collect()));
            for bytes in [1, 7, 8, 9, 4096, MESSAGE_BYTES - 1, MESSAGE_BYTES] {
                let request: Vec<u8> = (0..bytes).map(|index| (index * 7) as u8).collect();
                let mut answer = vec![0; MESSAGE_BYTES];
                let count = device.exchange(&request, &mut answer).expect("an answer");
                assert!(answer[..count].iter().eq(request.iter().rev()), "{bytes} bytes");
            }
            assert_eq!(device.exchange(&vec![0; MESSAGE_BYTES + 1], &mut [0; 8]), Err(NoAnswer));
            assert_eq!(device.exchange(&[], &mut [0; 8]), Err(NoAnswer));
            assert_eq!(device.exchange(&[1], &mut []), Err(NoAnswer));
            let mut short = [0; 8];
            assert_eq!(device.exchange(&[1; 100], &mut short), Ok(8), "no more than there is room for");
        }
    }

    #[test]
    fn a_device_that_breaks_answers_nothing_any_more() {
        let mut device = device(0, |request| (request != [13]).then(|| vec![1]));
        assert_eq!(device.exchange(&[1], &mut [0; 8]), Ok(1));
        assert_eq!(device.exchange(&[13], &mut [0; 8]), Err(NoAnswer));
        assert_eq!(device.exchange(&[1], &mut [0; 8]), Err(NoAnswer));
    }

    #[test]
    fn another_device_is_told_from_it() {
        let mut memory = FakeMemory::new(1 << 20);
        let function = FakeFunction::new(FakeOptions::default(), memory.clone());
        let error = NinepDevice::open(function, &mut memory).err();
        assert_eq!(error, Some(Error::OtherDevice(0x1041_1af4)));
    }
}

//! The device by which a host lends a directory (9P transport; section 5 lists it as type 9, QEMU's
//! `virtio-9p-pci`): one queue, on which a request and the memory for its answer are lent together.
//!
//! One request is under way at a time, and its core looks for the answer until it is there: the host answers
//! most of them sooner than another thread could run and an interrupt come.

use crate::error::Result;
use crate::polled::{LentWords, PolledDevice, lend};
use crate::queue::Descriptor;
use crate::transport::{self, Transport};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use nom_ninep::{MESSAGE_BYTES, NinepChannel, NoAnswer};
use nom_port::device::{Dma, PciFunction, Registers};

/// Type of the device, and its identifier where it is transitional.
const KIND: u16 = 9;
const TRANSITIONAL: u16 = 0x1009;
/// Entries of the queue: a request and its answer.
const ENTRIES: u16 = 2;
/// Memory of a request or of an answer.
const WORDS: usize = MESSAGE_BYTES.div_ceil(size_of::<u64>());

/// A device that lends a directory.
pub struct NinepDevice<R: Registers> {
    device: PolledDevice<R>,
    /// What is sent.
    request: LentWords,
    /// What is answered.
    answer: LentWords,
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
        let (request, answer) = (lend(world, WORDS)?, lend(world, WORDS)?);
        let device = PolledDevice::start(transport, features, ENTRIES, world)?;
        Ok(NinepDevice { device, request, answer })
    }
}

impl<R: Registers> NinepChannel for NinepDevice<R> {
    fn exchange(&mut self, request: &[u8], answer: &mut [u8]) -> core::result::Result<usize, NoAnswer> {
        let most = answer.len().min(MESSAGE_BYTES);
        if most == 0 || !(1..=MESSAGE_BYTES).contains(&request.len()) {
            return Err(NoAnswer);
        }
        for (word, bytes) in self.request.0.iter().zip(request.chunks(size_of::<u64>())) {
            let mut whole = [0; size_of::<u64>()];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Relaxed);
        }
        let chain = [
            Descriptor::readable(self.request.1, request.len() as u32),
            Descriptor::writable(self.answer.1, most as u32),
        ];
        let written = self.device.exchange(&chain).ok_or(NoAnswer)?;
        let count = (written as usize).min(most);
        for (bytes, word) in answer[..count].chunks_mut(size_of::<u64>()).zip(self.answer.0) {
            bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..bytes.len()]);
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
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

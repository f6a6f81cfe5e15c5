//! The meter of one machine, from before its start until all that it owes is entered.

use crate::credentials::Registration;
use crate::network::Attachment;
use anyhow::Result;
use nom_provider::meter::{Basis, Charge, Meter, Process, Terms};
use nom_vmm::qemu::ProcessIdentity;
use nom_vmm::{MachineConfig, namespace};
use std::path::Path;
use std::time::Duration;

/// How long records may take to be entered after the machine's end.
const PATIENCE: Duration = Duration::from_secs(10);
/// The machine's first network device, which is metered.
pub const NETDEV: &str = "network0";

/// A meter of a machine.
#[derive(Debug)]
pub struct Metering {
    meter: Option<Meter>,
    terms: Terms,
    registration: Option<Registration>,
}

impl Metering {
    /// Meters the first network device of a machine that is yet to be started, if it has one, and then what
    /// it holds. Whoever starts it gives QEMU the arguments that are returned.
    ///
    /// # Errors
    /// If the device cannot be watched, or the provider refuses the meter's key.
    pub fn open(
        charge: Charge,
        terms: Terms,
        device: Device<'_>,
        registration: Option<Registration>,
    ) -> Result<(Metering, Vec<String>)> {
        let (meter, arguments) = match device {
            Device::None => (Meter::without_network(charge)?, Vec::new()),
            Device::Of(Attachment::Namespace(namespace), _) => {
                (Meter::tap(namespace, namespace::DEVICE, charge)?, Vec::new())
            }
            Device::Of(Attachment::Bridge(port), _) => (Meter::device(port.device(), charge)?, Vec::new()),
            Device::Of(Attachment::User, directory) => {
                let (meter, tapped) = Meter::user(directory, NETDEV, charge)?;
                (meter, tapped.arguments())
            }
        };
        Ok((Metering { meter: Some(meter), terms, registration }, arguments))
    }

    /// The machine runs.
    pub fn begin(&self, monitor: ProcessIdentity) {
        if let Some(meter) = &self.meter {
            meter.hold(self.terms, Box::new(Process::new(monitor)));
        }
    }

    /// The machine has ended: enters what is left, and says what went wrong.
    pub fn conclude(mut self, say: impl Fn(&str)) {
        if let Some(meter) = self.meter.take() {
            let metered = meter.finish(PATIENCE);
            for record in metered.refused {
                say(&format!("{record}, and charged to nobody"));
            }
            if metered.lost > 0 {
                say(&format!("{} records of what it used were not entered in the ledger", metered.lost));
            }
            if let Some(why) = metered.energy_refused {
                say(&format!("energy has a price, and was not metered: {why}"));
            }
            if let Some(how) = metered.disagreement {
                say(&format!("it was charged for what was measured, since its word cannot be true: {how}"));
            }
        }
    }
}

impl Drop for Metering {
    fn drop(&mut self) {
        // First the meter, whose key ends then.
        drop(self.meter.take());
        if let Some(registration) = self.registration.take() {
            // A provider that is away ends the keys when the name is used again.
            let _ = registration.give_up();
        }
    }
}

/// What of a machine's network is counted.
#[derive(Clone, Copy, Debug)]
pub enum Device<'d> {
    /// It has none.
    None,
    /// Its first device, which is connected to that; there is room for two pipes in the directory.
    Of(&'d Attachment, &'d Path),
}

/// What a machine's configuration gives it.
pub fn terms(config: &MachineConfig, basis: Basis) -> Terms {
    Terms { cores: config.cores, memory: config.memory.bytes(), basis }
}

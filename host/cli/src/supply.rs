//! What a machine with prices has beside itself: its provider, its keys there, and its meter.

use crate::arguments::Run;
use crate::credentials::{self, Registration};
use crate::metering::{self, Device, Metering};
use crate::prices::Prices;
use crate::watch::Watch;
use anyhow::Result;
use nom_proto::account::MachineKeys;
use nom_vmm::MachineConfig;
use std::path::Path;

/// Prices, and all that comes with them.
pub struct Supply {
    /// The provider.
    pub prices: Prices,
    /// The machine's keys there.
    pub keys: MachineKeys,
    /// The machine was registered for this run, and no meter will give it up yet.
    registration: Option<Registration>,
}

impl Supply {
    /// Finds or starts the provider of the machine `name`, and gets keys there.
    ///
    /// # Errors
    /// If the provider cannot be reached, or refuses the machine.
    pub fn open(options: &Run, name: &str, directory: &Path) -> Result<Supply> {
        let prices = Prices::open(options)?;
        let (keys, registration) = prices.keys(options, name)?;
        let supply = Supply { prices, keys, registration };
        credentials::save(directory, &supply.keys.machine_key)?;
        Ok(supply)
    }

    /// Watches the machine `name`, of whose applications those `earning` are to report.
    ///
    /// # Errors
    /// If the terminal refuses.
    pub fn watch(&self, name: &str, earning: Vec<String>) -> Result<Watch> {
        Watch::new(name, earning, &self.prices.url(), Some(&self.keys.machine_key))
    }

    /// Meters the machine that is started next with `config`.
    ///
    /// # Errors
    /// If it cannot be metered.
    pub fn meter(
        &mut self,
        options: &Run,
        activity: &str,
        device: Device<'_>,
        config: &mut MachineConfig,
    ) -> Result<Metering> {
        let charge = self.prices.charge(&self.keys, activity);
        let terms = metering::terms(config, options.credentials.charge_by.into());
        let (metering, arguments) = Metering::open(charge, terms, device, self.registration.take())?;
        config.extra_arguments.extend(arguments);
        Ok(metering)
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            // A provider that is away ends the keys when the name is used again.
            let _ = registration.give_up();
        }
    }
}

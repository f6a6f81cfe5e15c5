//! All that was found out about one application.

use super::agreement::Agreement;
use super::analysis::{Account, Hindsight, System};
use super::contract::{Contract, Function, Slowness};
use super::oracle::{Method, Oracle};

/// All that was found out about one application.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Its name in records.
    pub application: &'static str,
    /// How slow this machine is.
    pub slowness: Slowness,
    /// How long a phase is.
    pub seconds: f64,
    /// Everybody who served.
    pub accounts: Vec<Account>,
    /// What fixed delays, and adapting by a function, brought by turns within one machine.
    pub turned: Vec<(Function, Vec<Account>)>,
    /// What adaptive applications said of themselves, beside what their clients said.
    pub agreements: Vec<Agreement>,
    /// How long it took from a price change to the new working point, in seconds of the guest's clock.
    pub reactions_s: Vec<f64>,
    /// Share of its processor that choosing the working point took, each time it was measured.
    pub governing_shares: Vec<f64>,
}

impl Findings {
    /// Who served as `system`.
    pub fn account(&self, system: System) -> Option<&Account> {
        self.accounts.iter().find(|account| account.system == system)
    }

    /// Those among whom what adapting by `function` earns is compared with what fixed delays do: by turns
    /// within one machine where that was done, else everybody's own runs.
    pub fn compared(&self, function: Function) -> (&[Account], bool) {
        let turned = self.turned.iter().find(|(by, accounts)| *by == function && !accounts.is_empty());
        turned.map_or((&self.accounts, false), |(_, accounts)| (accounts, true))
    }

    /// What a system earned under `function`, in dollars.
    pub fn profit(&self, system: System, function: Function) -> Option<f64> {
        self.account(system)?.profit(&self.contract(function)?, self.seconds)
    }

    /// What its runs earned each.
    pub fn profits(&self, system: System, function: Function) -> Vec<f64> {
        let of = |account: &Account| Some(account.profits(&self.contract(function)?, self.seconds));
        self.account(system).and_then(of).unwrap_or_default()
    }

    /// What a system earned in a phase under `function`, in dollars.
    pub fn phase_profit(&self, system: System, function: Function, phase: usize) -> Option<f64> {
        Some(self.seconds * self.account(system)?.rate(&self.contract(function)?, phase)?)
    }

    /// What the best fixed batching delays earn under `function`, luck kept out.
    pub fn oracle(&self, function: Function) -> Option<Oracle> {
        let (accounts, by_turns) = self.compared(function);
        let oracle = Oracle::of(accounts, &self.contract(function)?, self.seconds)?;
        Some(if by_turns { Oracle { method: Method::ByTurns, ..oracle } } else { oracle })
    }

    /// What is known afterwards of fixed batching delays under `function`, the luckiest included.
    pub fn hindsight(&self, function: Function) -> Option<Hindsight> {
        Hindsight::of(&self.accounts, &self.contract(function)?, self.seconds)
    }

    /// The contract under `function` on this machine.
    pub fn contract(&self, function: Function) -> Option<Contract> {
        Contract::new(function, self.slowness).ok()
    }
}

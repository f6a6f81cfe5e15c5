//! Who may do what: machines that a provider knows, and their keys.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What the owner of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Operator,
    /// Read everything, as Prometheus does.
    Auditor,
    /// Read what her machines report, used and owe.
    Tenant,
    /// Report the status of the machine of that name.
    Machine,
    /// Enter records of the machine of that name.
    Meter,
}

impl Role {
    /// All.
    pub const ALL: [Role; 5] = [Role::Operator, Role::Auditor, Role::Tenant, Role::Machine, Role::Meter];

    /// Its name in keys, in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Role::Operator => "operator",
            Role::Auditor => "auditor",
            Role::Tenant => "tenant",
            Role::Machine => "machine",
            Role::Meter => "meter",
        }
    }

    /// The role of that [name](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// A machine to register; its keys are made anew, and older ones of it end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewMachine {
    /// Its name, which reports and records have.
    pub name: String,
    /// Who pays for it; nobody else reads its records and reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Who registers it, such as `host/user`: a machine that another holder has registered, and not given up,
    /// is refused.
    #[serde(default)]
    pub holder: String,
}

/// A machine that is registered, with its keys, which are told this once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MachineKeys {
    /// Its name.
    pub name: String,
    /// For the machine itself, which reports.
    pub machine_key: String,
    /// For whoever meters it.
    pub meter_key: String,
}

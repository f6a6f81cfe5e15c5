//! What a meter sees of a machine that holds cores and memory.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What a machine held over the last stretch of time, by whom that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MeterReport {
    /// The machine.
    pub machine: String,
    /// Cores that its configuration gives it, as its monitor was told.
    pub cores_configured: u32,
    /// Cores that the machine says its applications hold; nothing if it does not say.
    pub cores_claimed: Option<f64>,
    /// Processor time of its virtual processors in the stretch, as this computer counts it, over the stretch.
    pub cores_busy: f64,
    /// Bytes of memory that its configuration gives it.
    pub memory_configured: u64,
    /// Bytes that the machine says its applications hold; nothing if it does not say.
    pub memory_claimed: Option<u64>,
    /// Stretches in which the machine's word and what was measured could not both be true.
    pub disagreements: u64,
    /// The last of them, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
    /// Why energy is not metered, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_refused: Option<String>,
    /// Records that the provider refused for what is in them: what they are for is charged to nobody.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_refused: u64,
    /// The first of them, with the reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_refused: Option<String>,
}

/// So that a provider that does not know the count yet takes the report of who has none.
fn is_zero(count: &u64) -> bool {
    *count == 0
}

//! What went wrong with a request.

use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Body of every answer that refuses a request (RFC 9457, problem details), with the field at fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// What kind of problem it is: the same words for all of a kind.
    pub title: String,
    /// Status of the answer.
    pub status: u16,
    /// What is wrong with this request.
    pub detail: String,
    /// The field at fault, as `prices[0].dollars`, or the header or parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was expected there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
}

impl Problem {
    /// Media type of a problem.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";
}

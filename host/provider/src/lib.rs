//! The provider: prices, the ledger of what was used and owed, and what machines report, over REST.
#![forbid(unsafe_code)]

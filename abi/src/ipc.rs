//! Shared-memory rings between two applications.

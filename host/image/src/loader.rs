//! The loader: plain bytes for [`LOADER_LOAD`], entered at the first.

use crate::error::{Error, Result};
use nom_abi::image::Payload;
use nom_abi::layout::{KERNEL_LOAD, LOADER_LOAD};
use std::path::Path;

/// The loader's bytes, behind which its [`Payload`] finds room and alignment.
pub(crate) fn parse(path: &Path, bytes: Vec<u8>) -> Result<Vec<u8>> {
    let room = (KERNEL_LOAD - LOADER_LOAD) as usize - size_of::<Payload>();
    if bytes.is_empty() || bytes.len() > room || !bytes.len().is_multiple_of(align_of::<u64>()) {
        return Err(Error::Loader { path: path.to_owned(), bytes: bytes.len(), room });
    }
    Ok(bytes)
}

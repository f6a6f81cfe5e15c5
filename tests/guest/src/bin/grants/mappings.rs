//! What is mapped.

use core::sync::atomic::Ordering::Relaxed;
use nom_app::memory::{Grant, Region};
use nom_app::{Error, PageSize, Protection, application, applications};
use nom_guest_tests::{Check, expect, expect_that};

/// The same memory at two addresses, of which one may only be read.
pub fn two_mappings() -> Check {
    let grant = Grant::new(PageSize::Small, 2)?;
    let (writer, reader) =
        (Region::reserve(grant.bytes(), PageSize::Small)?, Region::reserve(grant.bytes(), PageSize::Small)?);
    writer.map(0, &grant, Protection::ReadWrite)?;
    reader.map(0, &grant, Protection::Read)?;
    for (place, word) in writer.words().iter().enumerate() {
        word.store(place as u64 + 1, Relaxed);
    }
    expect_that(
        "both show the same",
        reader.words().iter().zip(1..).all(|(word, value)| word.load(Relaxed) == value),
    )?;
    writer.unmap(0, 4096)?;
    expect("a word at the other address", reader.words()[0].load(Relaxed), 1)?;
    expect("a word of the page that is left", writer.words()[512].load(Relaxed), 513)
}

/// Each protection may follow each other one.
pub fn protections() -> Check {
    let grant = Grant::new(PageSize::Small, 1)?;
    let region = Region::reserve(grant.bytes(), PageSize::Small)?;
    region.map(0, &grant, Protection::None)?;
    for protection in [
        Protection::ReadWrite,
        Protection::Read,
        Protection::ReadExecute,
        Protection::None,
        Protection::ReadWrite,
    ] {
        region.protect(0, 4096, protection)?;
    }
    region.words()[0].store(7, Relaxed);
    region.protect(0, 4096, Protection::Read)?;
    expect("the word", region.words()[0].load(Relaxed), 7)
}

/// Code is written, then made executable, then run; it cannot be both at a time.
pub fn code() -> Check {
    /// `mov eax, 42; ret`
    const CODE: u64 = u64::from_le_bytes([0xb8, 42, 0, 0, 0, 0xc3, 0, 0]);
    let grant = Grant::new(PageSize::Small, 1)?;
    let region = Region::reserve(grant.bytes(), PageSize::Small)?;
    region.map(0, &grant, Protection::ReadWrite)?;
    region.words()[0].store(CODE, Relaxed);
    region.protect(0, 4096, Protection::ReadExecute)?;
    // SAFETY: the page holds a whole function of this type, and may be executed.
    let answer = unsafe { core::mem::transmute::<u64, extern "C" fn() -> u32>(region.address()) }();
    expect("what it returns", answer, 42)
}

/// A large page goes as it came: whole.
pub fn large_pages() -> Check {
    let (grant, page) = (Grant::new(PageSize::Large, 3)?, PageSize::Large.bytes());
    let region = Region::reserve(grant.bytes(), PageSize::Large)?;
    region.map(0, &grant, Protection::ReadWrite)?;
    expect("unmapping a part of a page", region.unmap(0, 4096), Err(Error::NotMapped))?;
    expect(
        "protecting one and a half",
        region.protect(0, page * 3 / 2, Protection::Read),
        Err(Error::NotMapped),
    )?;
    region.words()[0].store(1, Relaxed);
    region.protect(page, page, Protection::Read)?;
    region.unmap(page, page)?;
    region.words()[(2 * page / 8) as usize].store(2, Relaxed);
    expect("a word of the first page", region.words()[0].load(Relaxed), 1)
}

/// Page tables are charged, and freed with the last page in them.
pub fn sparse() -> Check {
    let charged = || applications::usage(application()).frames.load(Relaxed);
    let grant = Grant::new(PageSize::Small, 1)?;
    let region = Region::reserve(64 << 30, PageSize::Huge)?;
    let before = charged();
    for gib in 0..64 {
        region.map(gib << 30, &grant, Protection::Read)?;
    }
    expect_that("tables are charged", charged() >= before + 128)?;
    expect("a release while mapped", release(&grant), Err(Error::StillMapped))?;
    for gib in 0..64 {
        region.unmap(gib << 30, 4096)?;
    }
    expect("frames charged", charged(), before)
}

fn release(grant: &Grant) -> Result<u64, Error> {
    // SAFETY: it is still mapped, so the kernel refuses.
    unsafe { nom_sys::raw::memory_release(grant.frame(), PageSize::Small as u64, 1) }
}

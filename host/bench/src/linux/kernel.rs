//! Linux's `bzImage` (Linux, `Documentation/arch/x86/boot.rst`): a setup part for real mode and a compressed
//! ELF file.

use anyhow::{Context, Result, bail, ensure};
use std::ops::Range;

/// Offsets in the setup header.
mod field {
    pub const SETUP_SECTORS: usize = 0x1f1;
    pub const BOOT_FLAG: usize = 0x1fe;
    pub const JUMP: usize = 0x200;
    pub const MAGIC: usize = 0x202;
    pub const VERSION: usize = 0x206;
    pub const PAYLOAD_OFFSET: usize = 0x248;
    pub const PAYLOAD_BYTES: usize = 0x24c;
}
/// The first version of the header that says where the payload is.
const VERSION_MIN: u16 = 0x0208;
const SECTOR_BYTES: usize = 512;

/// The parts of a `bzImage`, as offsets in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BzImage {
    /// The first instruction that runs after the firmware, in real mode.
    pub entry: usize,
    /// The first byte of the part for protected mode.
    pub setup_bytes: usize,
    /// The compressed kernel.
    pub payload: Range<usize>,
}

impl BzImage {
    /// Reads the setup header of `image`.
    pub fn parse(image: &[u8]) -> Result<BzImage> {
        ensure!(
            bytes_at(image, field::BOOT_FLAG)? == [0x55, 0xaa]
                && &bytes_at::<4>(image, field::MAGIC)? == b"HdrS",
            "not a bzImage: no setup header"
        );
        let version = u16::from_le_bytes(bytes_at(image, field::VERSION)?);
        ensure!(version >= VERSION_MIN, "boot protocol {version:#x} is older than {VERSION_MIN:#x}");
        let [opcode, distance] = bytes_at(image, field::JUMP)?;
        ensure!(opcode == 0xeb && distance < 0x80, "the setup part does not begin with a short jump forward");
        let sectors = match image[field::SETUP_SECTORS] {
            0 => 4,
            sectors => sectors as usize,
        };
        let setup_bytes = (1 + sectors) * SECTOR_BYTES;
        let start = setup_bytes + u32_at(image, field::PAYLOAD_OFFSET)?;
        let payload = start..start + u32_at(image, field::PAYLOAD_BYTES)?;
        ensure!(image.get(payload.clone()).is_some(), "the compressed kernel {payload:?} exceeds the file");
        Ok(BzImage { entry: field::JUMP + 2 + distance as usize, setup_bytes, payload })
    }
}

/// The ELF file in a `bzImage`.
///
/// # Errors
/// If the image is none, or is compressed with something else than LZ4, which is Debian's choice.
pub fn decompress(image: &[u8]) -> Result<Vec<u8>> {
    let payload = &image[BzImage::parse(image)?.payload];
    let Some((content, size)) = payload.split_last_chunk::<4>() else {
        bail!("the compressed kernel is empty")
    };
    let size = u32::from_le_bytes(*size) as usize;
    let kernel = match content {
        [0x02, 0x21, 0x4c, 0x18, blocks @ ..] => decompress_lz4(blocks)?,
        [a, b, c, d, ..] => {
            bail!("the kernel's compression is unknown: it begins {a:02x} {b:02x} {c:02x} {d:02x}")
        }
        _ => bail!("the compressed kernel is too short"),
    };
    ensure!(kernel.len() == size, "the kernel has {} bytes where {size} were promised", kernel.len());
    Ok(kernel)
}

/// LZ4's legacy frame, the one that Linux uses: blocks of 8 MiB behind their compressed length.
fn decompress_lz4(mut blocks: &[u8]) -> Result<Vec<u8>> {
    const BLOCK_BYTES: usize = 8 << 20;
    let mut kernel = Vec::new();
    while let Some((length, rest)) = blocks.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let (block, rest) = rest.split_at_checked(length).context("an LZ4 block exceeds the file")?;
        kernel.extend(lz4_flex::block::decompress(block, BLOCK_BYTES)?);
        blocks = rest;
    }
    Ok(kernel)
}

fn bytes_at<const N: usize>(image: &[u8], offset: usize) -> Result<[u8; N]> {
    let bytes = image.get(offset..offset + N).context("not a bzImage: the file is too short")?;
    Ok(bytes.try_into().expect("the range has N bytes"))
}

fn u32_at(image: &[u8], offset: usize) -> Result<usize> {
    Ok(u32::from_le_bytes(bytes_at(image, offset)?) as usize)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `b"nom"` in an LZ4 block: a token for three literals, and they.
    const BLOCK: [u8; 4] = [0x30, b'n', b'o', b'm'];

    /// A `bzImage` with one setup sector, its entry at 0x26c, and two blocks of payload.
    pub(crate) fn bzimage() -> Vec<u8> {
        let mut payload = vec![0x02, 0x21, 0x4c, 0x18];
        for _ in 0..2 {
            payload.extend((BLOCK.len() as u32).to_le_bytes());
            payload.extend(BLOCK);
        }
        payload.extend(6u32.to_le_bytes());
        let mut image = vec![0; 2 * SECTOR_BYTES + 16];
        image[field::SETUP_SECTORS] = 1;
        image[field::BOOT_FLAG..][..2].copy_from_slice(&[0x55, 0xaa]);
        image[field::JUMP..][..2].copy_from_slice(&[0xeb, 0x6a]);
        image[field::MAGIC..][..4].copy_from_slice(b"HdrS");
        image[field::VERSION..][..2].copy_from_slice(&0x020fu16.to_le_bytes());
        image[field::PAYLOAD_OFFSET..][..4].copy_from_slice(&16u32.to_le_bytes());
        image[field::PAYLOAD_BYTES..][..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend(payload);
        image
    }

    #[test]
    fn parts_are_where_the_header_says() {
        let parsed = BzImage::parse(&bzimage()).unwrap();
        assert_eq!(parsed, BzImage { entry: 0x26c, setup_bytes: 1024, payload: 1040..1064 });
    }

    #[test]
    fn payload_is_decompressed_block_by_block() {
        assert_eq!(decompress(&bzimage()).unwrap(), b"nomnom");
    }

    #[test]
    fn broken_images_are_refused_with_the_reason() {
        let broken = |offset: usize, bytes: &[u8]| {
            let mut image = bzimage();
            image[offset..][..bytes.len()].copy_from_slice(bytes);
            decompress(&image).unwrap_err().to_string()
        };
        let cases = [
            (broken(field::MAGIC, b"NONE"), "no setup header"),
            (broken(field::VERSION, &[0x07, 0x02]), "boot protocol 0x207"),
            (broken(field::JUMP, &[0xe9]), "short jump"),
            (broken(field::PAYLOAD_BYTES, &[0xff; 4]), "exceeds the file"),
            (broken(1040, &[0xfd, b'7']), "begins fd 37"),
            (broken(1044, &[0xff; 4]), "LZ4 block exceeds"),
            (broken(1060, &[7]), "6 bytes where 7"),
            (BzImage::parse(&[0; 600]).unwrap_err().to_string(), "no setup header"),
            (BzImage::parse(&[]).unwrap_err().to_string(), "too short"),
        ];
        for (error, expected) in cases {
            assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        }
    }
}

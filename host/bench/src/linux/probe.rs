//! Probes: kernels whose first instruction reads the time-stamp counter, reports it and ends QEMU.
//!
//! A probe is a real kernel image with its entry code replaced: same length, same headers, so the
//! firmware does for it exactly what it does for the original. What the probe reports is therefore the
//! counter's value at the original's first instruction.

use super::kernel::BzImage;
use anyhow::{Context, Result, ensure};
use object::LittleEndian;
use object::elf::{FileHeader64, NoteType};
use object::read::elf::{FileHeader, ProgramHeader};

/// How wide the processor's operands are where a probe is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Real mode, 16 bits: how a `bzImage` is entered.
    Real,
    /// Protected mode, 32 bits: how a PVH kernel is entered.
    Protected,
}

impl Mode {
    /// The instruction prefixes for operands of 16 and of 32 bits.
    fn prefixes(self) -> (&'static [u8], &'static [u8]) {
        match self {
            Mode::Real => (&[], &[0x66]),
            Mode::Protected => (&[0x66], &[]),
        }
    }
}

/// The probe's code: writes `probe tsc=0x..` to the control channel and ends the machine in order.
fn code(mode: Mode) -> Vec<u8> {
    let (narrow, wide) = mode.prefixes();
    // mov dx, port
    let port = |port: u8| [narrow, &[0xba, port, 0x00]].concat();
    // mov al, byte; out dx, al
    let text = |text: &[u8]| text.iter().flat_map(|&byte| [0xb0, byte, 0xee]).collect::<Vec<_>>();
    [
        &[0x0f, 0x31][..], //         rdtsc
        wide,
        &[0x89, 0xc6], //             mov esi, eax
        wide,
        &[0x89, 0xd3], //             mov ebx, edx
        &port(0xe9),
        &text(b"probe tsc=0x"),
        &digits(wide),
        wide,
        &[0x89, 0xf3], //             mov ebx, esi
        &digits(wide),
        &text(b"\nhalt status=0\n"),
        &port(0xf4),
        &[0xb0, 0x10, 0xee, 0xf4], // mov al, 0x10; out dx, al; hlt
    ]
    .concat()
}

/// Code that writes `ebx` to port `dx` in eight hexadecimal digits.
fn digits(wide: &[u8]) -> Vec<u8> {
    let body = [
        wide,
        &[0xc1, 0xc3, 0x04], //       1: rol ebx, 4
        &[0x88, 0xd8],       //          mov al, bl
        &[0x24, 0x0f],       //          and al, 15
        &[0x3c, 0x0a],       //          cmp al, 10
        &[0x1c, 0x69],       //          sbb al, 0x69
        &[0x2f],             //          das: 0 to 15 in al are now '0' to 'F'
        &[0xee],             //          out dx, al
    ]
    .concat();
    let back = (body.len() as u8 + 2).wrapping_neg();
    // mov ecx, 8; the body; loop 1b
    [wide, &[0xb9, 0x08, 0x00, 0x00, 0x00], &body, &[0xe2, back]].concat()
}

/// The ELF note that names a PVH kernel's entry (Xen, `include/public/elfnote.h`).
const PHYS32_ENTRY: NoteType = NoteType(18);

/// The probe made of a kernel `image`, a `bzImage` or an ELF file with a PVH entry.
pub fn from_kernel(image: &[u8]) -> Result<Vec<u8>> {
    let (entry, code) = match image {
        [0x7f, b'E', b'L', b'F', ..] => (pvh_entry(image)?, code(Mode::Protected)),
        _ => (BzImage::parse(image)?.entry, code(Mode::Real)),
    };
    let mut probe = image.to_vec();
    let place = probe.get_mut(entry..entry + code.len()).context("the kernel's entry exceeds its file")?;
    place.copy_from_slice(&code);
    Ok(probe)
}

/// Offset in the file of a PVH kernel's first instruction.
fn pvh_entry(image: &[u8]) -> Result<usize> {
    let header = FileHeader64::<LittleEndian>::parse(image).context("the kernel is not a 64-bit ELF file")?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, image)?;
    let entry = entry_note(segments, endian, image)?.context("the kernel has no PVH entry")?;
    for segment in segments {
        let start = segment.p_paddr(endian);
        let inside = entry.checked_sub(start).filter(|offset| *offset < segment.p_filesz(endian));
        if let (object::elf::PT_LOAD, Some(offset)) = (segment.p_type(endian), inside) {
            return Ok((segment.p_offset(endian) + offset) as usize);
        }
    }
    anyhow::bail!("the kernel's PVH entry {entry:#x} lies outside all of its segments")
}

type Segment = object::elf::ProgramHeader64<LittleEndian>;

fn entry_note(segments: &[Segment], endian: LittleEndian, image: &[u8]) -> Result<Option<u64>> {
    for segment in segments {
        let Some(mut notes) = segment.notes(endian, image)? else {
            continue;
        };
        while let Some(note) = notes.next()? {
            if (note.name(), note.n_type(endian)) == (b"Xen", PHYS32_ENTRY) {
                let mut word = [0; 8];
                ensure!((4..=8).contains(&note.desc().len()), "the PVH note has {} bytes", note.desc().len());
                word[..note.desc().len()].copy_from_slice(note.desc());
                return Ok(Some(u64::from_le_bytes(word)));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::kernel::tests::bzimage;

    const HEADER_BYTES: usize = 64;
    const SEGMENT_BYTES: usize = 56;
    const CODE: usize = 256;

    /// A PVH kernel of 512 bytes: one segment loaded whole at 1 MiB, the entry at `entry`.
    fn pvh(entry: u32) -> Vec<u8> {
        let mut image = vec![0x90; 512];
        image[..HEADER_BYTES + 2 * SEGMENT_BYTES].fill(0);
        let mut put = |offset: usize, bytes: &[u8]| image[offset..][..bytes.len()].copy_from_slice(bytes);
        put(0, &[0x7f, b'E', b'L', b'F', 2, 1, 1]);
        put(32, &[HEADER_BYTES as u8]);
        put(52, &[HEADER_BYTES as u8, 0, SEGMENT_BYTES as u8, 0, 2]);
        let note = HEADER_BYTES + 2 * SEGMENT_BYTES;
        for (at, kind, offset, bytes) in
            [(HEADER_BYTES, 1, 0, 512u64), (HEADER_BYTES + SEGMENT_BYTES, 4, note, 20)]
        {
            put(at, &[kind]);
            put(at + 8, &(offset as u64).to_le_bytes());
            put(at + 24, &(0x10_0000 + offset as u64).to_le_bytes());
            put(at + 32, &bytes.to_le_bytes());
            put(at + 48, &[4]);
        }
        put(note, &[4, 0, 0, 0, 4, 0, 0, 0, PHYS32_ENTRY.0 as u8, 0, 0, 0, b'X', b'e', b'n', 0]);
        put(note + 16, &entry.to_le_bytes());
        image
    }

    fn changed(before: &[u8], after: &[u8]) -> Vec<usize> {
        assert_eq!(before.len(), after.len(), "the firmware copies as much as for the original");
        (0..before.len()).filter(|&at| before[at] != after[at]).collect()
    }

    #[test]
    fn bzimage_probe_keeps_its_header_and_runs_where_the_jump_goes() {
        let (kernel, code) = (bzimage(), code(Mode::Real));
        let probe = from_kernel(&kernel).unwrap();
        assert_eq!(BzImage::parse(&probe).unwrap(), BzImage::parse(&kernel).unwrap());
        assert_eq!(probe[0x26c..][..code.len()], code);
        assert!(changed(&kernel, &probe).iter().all(|at| (0x26c..0x26c + code.len()).contains(at)));
    }

    #[test]
    fn pvh_probe_runs_where_the_note_says() {
        let (kernel, code) = (pvh(0x10_0000 + CODE as u32), code(Mode::Protected));
        let probe = from_kernel(&kernel).unwrap();
        assert_eq!(probe[CODE..][..code.len()], code);
        assert!(changed(&kernel, &probe).iter().all(|at| (CODE..CODE + code.len()).contains(at)));
    }

    #[test]
    fn both_codes_begin_with_the_counter_and_jump_back_to_the_digit() {
        for mode in [Mode::Real, Mode::Protected] {
            assert_eq!(code(mode)[..2], [0x0f, 0x31]);
            let (wide, digits) = (mode.prefixes().1, digits(mode.prefixes().1));
            let target = digits.len() as i64 + i64::from(*digits.last().unwrap() as i8);
            let rotate = [wide, &[0xc1, 0xc3, 0x04]].concat();
            assert_eq!(digits[target as usize..][..rotate.len()], rotate);
        }
    }

    #[test]
    fn kernels_without_a_usable_entry_are_refused() {
        let cases = [
            (from_kernel(b"MZ"), "too short"),
            (from_kernel(&[0x7f, b'E', b'L', b'F']), "not a 64-bit ELF"),
            (from_kernel(&pvh(0x10)), "0x10 lies outside"),
            (from_kernel(&pvh(0x10_0000 + 511)), "exceeds its file"),
        ];
        for (result, expected) in cases {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} does not say {expected:?}");
        }
        let mut without = pvh(0x10_0100);
        without[HEADER_BYTES + SEGMENT_BYTES] = 0;
        assert!(from_kernel(&without).unwrap_err().to_string().contains("no PVH entry"));
    }
}

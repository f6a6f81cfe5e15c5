//! The smallest bootable image: a PVH ELF file whose program writes given bytes to given ports and stops.
//!
//! It tells whether an accelerator really runs a guest, and stands in for the kernel in tests of this crate.

/// Port of the first serial line.
pub const SERIAL: u16 = 0x3f8;
/// Port of the control channel.
pub const CONTROL: u16 = 0xe9;
/// Port that ends QEMU with `value * 2 + 1`.
pub const EXIT: u16 = 0xf4;

/// Where the image is loaded.
const LOAD: u32 = 0x10_0000;
const ELF_HEADER: usize = 52;
const PROGRAM_HEADER: usize = 32;
/// Entry in 32-bit protected mode: XEN_ELFNOTE_PHYS32_ENTRY of the PVH boot protocol.
const PVH_NOTE: u32 = 18;

/// A program under construction.
#[derive(Clone, Debug, Default)]
pub struct ProbeImage {
    code: Vec<u8>,
}

impl ProbeImage {
    /// A program that halts at once.
    pub fn new() -> ProbeImage {
        ProbeImage::default()
    }

    /// Then writes `bytes` to `port`.
    pub fn output(mut self, port: u16, bytes: &[u8]) -> ProbeImage {
        for &byte in bytes {
            let [low, high] = port.to_le_bytes();
            // mov dx, port; mov al, byte; out dx, al
            self.code.extend([0x66, 0xba, low, high, 0xb0, byte, 0xee]);
        }
        self
    }

    /// The bootable file; after its last output the program halts for ever.
    pub fn build(mut self) -> Vec<u8> {
        // hlt; jmp to the hlt
        self.code.extend([0xf4, 0xeb, 0xfd]);
        let note = words(&[4, 4, PVH_NOTE, u32::from_le_bytes(*b"Xen\0"), LOAD]);
        let note_offset = (ELF_HEADER + 2 * PROGRAM_HEADER) as u32;
        let code_offset = note_offset + note.len() as u32;
        let mut file = elf_header();
        file.extend(program_header(1, code_offset, self.code.len() as u32));
        file.extend(program_header(4, note_offset, note.len() as u32));
        file.extend(note);
        file.extend(self.code);
        file
    }
}

/// Header of a 32-bit little-endian x86 executable with two program headers.
fn elf_header() -> Vec<u8> {
    let mut header = b"\x7fELF\x01\x01\x01".to_vec();
    header.resize(16, 0);
    header.extend(halves(&[2, 3]));
    header.extend(words(&[1, LOAD, ELF_HEADER as u32, 0, 0]));
    header.extend(halves(&[ELF_HEADER as u16, PROGRAM_HEADER as u16, 2, 40, 0, 0]));
    header
}

/// Program header of `bytes` at `offset`: loaded at [`LOAD`], readable and executable.
fn program_header(kind: u32, offset: u32, bytes: u32) -> Vec<u8> {
    words(&[kind, offset, LOAD, LOAD, bytes, bytes, 5, 4])
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn halves(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_sizes_they_claim() {
        assert_eq!(elf_header().len(), ELF_HEADER);
        assert_eq!(program_header(1, 0, 0).len(), PROGRAM_HEADER);
        let image = ProbeImage::new().output(EXIT, &[0x10]).build();
        assert_eq!(image.len(), ELF_HEADER + 2 * PROGRAM_HEADER + 20 + 7 + 3);
    }
}

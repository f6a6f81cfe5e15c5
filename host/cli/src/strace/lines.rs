//! Lines of a trace, which come in pieces.

/// What has come of a line that is not whole yet.
#[derive(Debug, Default)]
pub struct WholeLines(Vec<u8>);

impl WholeLines {
    /// Takes a piece: the lines that are whole with it.
    pub fn take(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let end = self.0.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.0.drain(..end).collect();
        String::from_utf8_lossy(&lines).into_owned()
    }
}

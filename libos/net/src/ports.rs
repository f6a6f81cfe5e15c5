//! A few port numbers. Servers have one or two, and a tree for them would be a hundredth of their image.

use alloc::vec::Vec;

/// Port numbers in order.
#[derive(Debug, Default)]
pub(crate) struct Ports(Vec<u16>);

impl Ports {
    /// Whether `port` is among them.
    pub fn contains(&self, port: u16) -> bool {
        self.0.binary_search(&port).is_ok()
    }

    /// Adds `port`, if it is not there.
    pub fn insert(&mut self, port: u16) {
        if let Err(at) = self.0.binary_search(&port) {
            self.0.insert(at, port);
        }
    }

    /// Takes `port` out, if it is there.
    pub fn remove(&mut self, port: u16) {
        if let Ok(at) = self.0.binary_search(&port) {
            self.0.remove(at);
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_set() {
        let mut ports = Ports::default();
        [80, 7, 80, 65_535].into_iter().for_each(|port| ports.insert(port));
        ports.remove(7);
        ports.remove(8);
        assert!(ports.contains(80) && ports.contains(65_535) && !ports.contains(7));
        ports.remove(80);
        assert!(!ports.contains(80));
        ports.clear();
        assert!(!ports.contains(65_535));
    }
}

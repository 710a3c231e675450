//! Numbers and short texts as one MessagePack array, which the script unpacks at once.

/// A flat array that grows.
#[derive(Default)]
pub(crate) struct MessagePack {
    bytes: Vec<u8>,
    items: u32,
}

impl MessagePack {
    pub(crate) fn number(&mut self, number: u64) {
        self.items += 1;
        // No number has a meaning beyond what a double holds exactly; a cost that is
        // larger is larger than any limit all the same.
        let number = number.min(1 << 52);
        match number {
            0..=0x7f => self.bytes.push(number as u8),
            0x80..=0xffff_ffff => {
                self.bytes.push(0xce);
                self.bytes.extend_from_slice(&(number as u32).to_be_bytes());
            }
            _ => {
                self.bytes.push(0xcf);
                self.bytes.extend_from_slice(&number.to_be_bytes());
            }
        }
    }

    pub(crate) fn numbers(&mut self, numbers: &[u64]) {
        numbers.iter().for_each(|number| self.number(*number));
    }

    /// Minus one, which stands for "none".
    pub(crate) fn none(&mut self) {
        self.items += 1;
        self.bytes.push(0xff);
    }

    /// A text of ours, at most 255 bytes.
    pub(crate) fn text(&mut self, text: &str) {
        self.items += 1;
        let length = text.len().min(255);
        self.bytes.extend_from_slice(&[0xd9, length as u8]);
        self.bytes.extend_from_slice(&text.as_bytes()[..length]);
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.items += other.items;
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// The whole array.
    pub(crate) fn finish(self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.bytes.len() + 5);
        whole.push(0xdd);
        whole.extend_from_slice(&self.items.to_be_bytes());
        whole.extend_from_slice(&self.bytes);
        whole
    }
}

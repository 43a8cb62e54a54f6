//! Which blocks of a command have succeeded.

/// The blocks of a command that have succeeded, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SucceededBlocks(pub u64);

impl SucceededBlocks {
    /// Has this block succeeded?
    pub fn has(self, block: usize) -> bool {
        self.0 >> block & 1 == 1
    }

    /// These, and this one.
    #[must_use]
    pub fn with(self, block: usize) -> Self {
        Self(self.0 | 1 << block)
    }
}

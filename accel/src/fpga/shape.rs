//! How numbers of a size go through an array.

/// Bits of a digit of the factor b.
pub(super) const DIGIT: u64 = 17;
/// Bits of a word of the factor a.
const WORD: u64 = 26;
/// Bits of a beat.
pub(super) const BEAT: u64 = 512;

/// Returns the beats of a number of so many bits.
pub(super) fn beats(bits: u64) -> u64 {
    bits.div_ceil(BEAT)
}

/// Returns the words of a number of so many bits, in an array.
fn words(bits: u64) -> u64 {
    bits.div_ceil(WORD)
}

/// The passes and words of products.
#[derive(Clone, Copy)]
pub(super) struct ProductShape {
    /// N: a product is divided by 2^N, or falls into two there.
    pub(super) radix: u64,
    pub(super) passes: u64,
    pub(super) words: u64,
}

impl ProductShape {
    /// Returns the shape of products over arrays of so many rows with N at least `radix`, whose
    /// numbers have at most `bits` bits, the 17 of a digit on top of them with some to spare.
    fn new(rows: u64, radix: u64, bits: u64) -> Self {
        let passes = (radix.div_ceil(DIGIT) + 1).div_ceil(rows);
        Self { radix: DIGIT * (rows * passes - 1), passes, words: words(bits + DIGIT + 1).max(2) }
    }

    /// Returns the shape of products modulo a number of `bits` bits of factors below 2M', and of a
    /// residue and any number of `factor` bits: T is below 2M' of both.
    pub(super) fn modular(rows: u64, bits: u64, factor: u64) -> Self {
        // M' has up to 17 bits more than m, 2M' one more.
        Self::new(rows, (bits + 20).max(factor), bits + 17)
    }

    /// Returns the shape of plain products of a factor of `bits` bits and one of `factor` bits, in
    /// which N is at least that too.
    pub(super) fn plain(rows: u64, bits: u64, factor: u64) -> Self {
        Self::new(rows, factor, bits)
    }

    /// Returns it with words enough for a third operand of so many bits.
    pub(super) fn with_third(self, bits: u64) -> Self {
        Self { words: self.words.max(words(bits + DIGIT)), ..self }
    }
}

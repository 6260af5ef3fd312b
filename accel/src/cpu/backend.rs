//! The trait of a kind of processor for arithmetic on big numbers: a few loops over limbs.
//!
//! A **group** is `LANES` numbers side by side, limb by limb: word `i` of a group holds limb `i` of
//! each. These loops take bare limbs and know no bounds: [`montgomery`](super::montgomery) alone
//! has the limbs of numbers, and gives what the loops leave its form. Everything above the trait is
//! written once for all.

use std::ops::Range;

use zeroize::Zeroize;

/// Bits that R has beyond m.
pub(super) const SLACK_BITS: u32 = 6;

/// Numbers in memory: item-major words, each item `each` words.
#[derive(Clone, Copy)]
pub(super) struct Items<'a> {
    pub(super) words: &'a [u64],
    pub(super) each: usize,
    /// Words from one item to the next.
    pub(super) stride: usize,
    /// Whether there is one item that stands for all.
    pub(super) shared: bool,
}

impl<'a> Items<'a> {
    pub(super) fn new(words: &'a [u64], each: usize) -> Self {
        Self { words, each, stride: each, shared: false }
    }

    pub(super) fn shared(words: &'a [u64]) -> Self {
        Self { words, each: words.len(), stride: 0, shared: true }
    }

    /// Returns some words of every item, as many as there are.
    pub(super) fn part(&self, part: Range<usize>) -> Self {
        let words = self.words.get(part.start..).unwrap_or(&[]);
        Self { words, each: part.end.min(self.each) - part.start, ..*self }
    }

    /// Returns item `index`, empty past the end: such lanes compute with zeros.
    pub(super) fn item(&self, index: usize) -> &'a [u64] {
        let at = if self.shared { 0 } else { index * self.stride };
        self.words.get(at..at + self.each).unwrap_or(&[])
    }
}

/// Room for results: item-major words, each item `each` words.
pub(super) struct Results<'a> {
    pub(super) words: &'a mut [u64],
    pub(super) each: usize,
    /// Whether they are digits modulo the root of a square, half of the words for each.
    pub(super) pairs: bool,
}

impl<'a> Results<'a> {
    pub(super) fn new(words: &'a mut [u64], each: usize) -> Self {
        Self { words, each, pairs: false }
    }

    /// Cuts into groups of at most `lanes` items, with the index of their first.
    pub(super) fn groups(self, lanes: usize) -> impl Iterator<Item = (usize, Self)> {
        let Self { words, each, pairs } = self;
        let groups = words.chunks_mut(each * lanes);
        groups.enumerate().map(move |(i, words)| (i * lanes, Self { words, each, pairs }))
    }

    /// Returns the number of groups.
    pub(super) fn count(&self, lanes: usize) -> usize {
        self.words.len().div_ceil(self.each * lanes)
    }
}

/// The two factors of a product.
pub(super) type FactorPair<'a, W> = (&'a [W], &'a [W]);

/// Eight words that share a cache line: what tables for all lanes are made of.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [u64; 8]);

impl zeroize::DefaultIsZeroes for Line {}

/// An odd modulus in limbs, the same in every lane.
pub(super) struct Limbs {
    pub(super) m: Vec<u64>,
    /// `-m⁻¹` modulo as many limbs as [`Backend::ROWS`], or m has if that is fewer, in limbs.
    pub(super) neg_inverse: Vec<u64>,
    /// The least multiple of m above 2R, in the backend's form for [`Backend::complement`].
    pub(super) bias: Vec<u64>,
}

impl Limbs {
    pub(super) fn len(&self) -> usize {
        self.m.len()
    }
}

impl Drop for Limbs {
    fn drop(&mut self) {
        self.m.zeroize();
        self.neg_inverse.zeroize();
        self.bias.zeroize();
    }
}

/// Loops over limbs. No method branches, indexes or divides by what a number is, so all are
/// constant-time. `acc` is room for twice the limbs of `m`.
pub(super) trait Backend: Copy + Send + Sync {
    /// One limb of each lane.
    type Word: Copy + Zeroize + Send + Sync;
    /// A digit of each lane, ready to select by.
    type Digits;

    /// Numbers in a group.
    const LANES: usize;
    /// Bits of a limb.
    const LIMB_BITS: u32;
    /// Multiply instructions of one product of limbs.
    const MULTIPLIES: u64;
    /// Rows that [`Backend::add_product`] adds at once.
    const ROWS: usize;
    /// Limbs from which on three products of half the length are quicker than one; 8 at least.
    const KARATSUBA: usize;
    /// The cost of picking a limb among sixteen entries, in multiply instructions.
    const PICK: f64;

    fn zero(self) -> Self::Word;

    /// Splits a multiple of m, of one limb more than m, into the form that
    /// [`Backend::complement`] wants.
    fn bias(multiple: &[u64]) -> Vec<u64>;

    /// `out = (T + Q·m) / R` lazily for `T = acc + Σ a·b`; `acc[..limbs]` becomes Q. Where there
    /// are products, only `acc[..= limbs]` counts and what is above may be stale.
    fn mul_redc<const P: usize>(
        self,
        m: &Limbs,
        out: &mut [Self::Word],
        acc: &mut [Self::Word],
        products: [FactorPair<'_, Self::Word>; P],
    );

    /// `acc = a²`, ready for a `mul_redc` without products.
    fn square(self, acc: &mut [Self::Word], a: &[Self::Word]);

    /// `acc += a·b` over the limbs of both, for `acc` that fits the limbs of the longer factor at
    /// first; otherwise only the limbs of `acc` are right. May leave limbs redundant, and negative.
    fn add_product(self, acc: &mut [Self::Word], a: &[Self::Word], b: &[Self::Word]);

    /// Carries what redundant limbs hold beyond a limb; what passes the end is lost.
    fn normalise(self, acc: &mut [Self::Word]);

    /// `out = 2a`.
    fn double(self, out: &mut [Self::Word], a: &[Self::Word]);

    /// Replaces `q < R`, in the first limbs of `acc`, by a number that is `−q mod m` in one limb
    /// more, ready for a `mul_redc`.
    fn complement(self, acc: &mut [Self::Word], m: &Limbs);

    /// `a += b` for `b` of at most as many limbs; normalised, what passes the end is lost.
    fn add_assign(self, a: &mut [Self::Word], b: &[Self::Word]);

    /// `a −= b` for `b` of at most as many limbs, which may be redundant; normalised, modulo
    /// `2^(LIMB_BITS · limbs)`.
    fn sub_assign(self, a: &mut [Self::Word], b: &[Self::Word]);

    /// `x −= m` where it is at least m; gives 1 in those lanes. For `m` of as many limbs as `x`.
    fn reduce_once(self, m: &[u64], x: &mut [Self::Word]) -> Self::Word;

    /// `x = −x` modulo `2^(LIMB_BITS · limbs)`.
    fn negate(self, x: &mut [Self::Word]);

    /// Picks for each lane the entry that its digit names of a table of its own: `[limb][entry]`
    /// groups.
    fn pick_own(self, out: &mut [Self::Word], table: &[Self::Word], digits: &Self::Digits);

    /// Picks for each lane of each group of `out`, a group for each of `digits`, the entry that its
    /// digit names of one table for all: `[limb][entry]`, at least sixteen entries.
    fn pick_shared(self, out: &mut [Self::Word], table: &[Line], digits: &[Self::Digits]);

    /// Converts items `first ..` to limbs, times `2^shift`; what does not fit is lost.
    fn load(self, out: &mut [Self::Word], items: &Items<'_>, first: usize, shift: u32);

    /// Converts normalised limbs to words `part` of as many items as there is room for.
    fn store(self, out: &mut Results<'_>, part: Range<usize>, x: &[Self::Word]);

    /// Loads the words of items `first ..`, one word of each lane in a [`Backend::Word`].
    fn load_words(self, out: &mut [Self::Word], items: &Items<'_>, first: usize);

    /// Returns bits `at .. at + bits` of what [`Backend::load_words`] gave, to pick among `2^width`
    /// entries.
    fn digits(self, words: &[Self::Word], at: usize, bits: usize, width: usize) -> Self::Digits;

    /// Issues multiply instructions as fast as they go, with no other work; gives how many.
    fn burst(self) -> u64;

    /// Returns the limb of one lane.
    fn lane(word: Self::Word, lane: usize) -> u64;

    /// Returns a word of `LANES` limbs.
    fn lanes_of(self, limbs: impl Fn(usize) -> u64) -> Self::Word;
}

//! What backends of vectors have in common: a lane holds a limb of one number, whatever the instructions.

/// Defines the loops over limbs that multiply nothing, of whatever is in scope: `Word` of `LANES` limbs of `BITS` bits,
/// and the operations on it that are named here.
macro_rules! limb_loops {
    ($features:literal) => {
        /// Carries every limb into the next; what passes the end is lost.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn normalise(out: &mut [Word], x: &[Word]) {
            let mut carry = zero();
            for (out, &x) in out.iter_mut().zip(x) {
                let sum = add(x, carry);
                *out = and(sum, all(MASK));
                carry = carry_of(sum);
            }
        }

        /// See [`Backend::double`].
        #[target_feature(enable = $features)]
        pub(super) fn double(out: &mut [Word], a: &[Word]) {
            let mut carry = zero();
            for (out, &x) in out.iter_mut().zip(a) {
                *out = and(or(left(x, 1), carry), all(MASK));
                carry = right(x, BITS as usize - 1);
            }
        }

        /// See [`Backend::complement`]. No limb borrows: those of the bias are large enough.
        #[target_feature(enable = $features)]
        pub(super) fn complement(acc: &mut [Word], m: &Limbs) {
            let limbs = m.len();
            for (x, &bias) in acc[..limbs].iter_mut().zip(&m.bias) {
                *x = sub(all(bias), *x);
            }
            acc[limbs] = all(m.bias[limbs]);
        }

        /// See [`Backend::add_assign`].
        #[target_feature(enable = $features)]
        pub(super) fn add_assign(a: &mut [Word], b: &[Word]) {
            let mut carry = zero();
            for (i, x) in a.iter_mut().enumerate() {
                let mut sum = add(*x, carry);
                if let Some(&b) = b.get(i) {
                    sum = add(sum, b);
                }
                *x = and(sum, all(MASK));
                carry = carry_of(sum);
            }
        }

        /// See [`Backend::sub_assign`].
        #[target_feature(enable = $features)]
        pub(super) fn sub_assign(a: &mut [Word], b: &[Word]) {
            let mut borrow = zero();
            for (i, x) in a.iter_mut().enumerate() {
                let mut difference = add(*x, borrow);
                if let Some(&b) = b.get(i) {
                    difference = sub(difference, b);
                }
                *x = and(difference, all(MASK));
                borrow = carry_of(difference);
            }
        }

        /// See [`Backend::reduce_once`]: the borrow of `x − m` selects which to keep.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn reduce_once(m: &[u64], x: &mut [Word]) -> Word {
            let mut borrow = zero();
            for (&x, &m) in x.iter().zip(m) {
                borrow = carry_of(add(sub(x, all(m)), borrow));
            }
            let large = not_negative(borrow);
            let mut borrow = zero();
            for (x, &m) in x.iter_mut().zip(m) {
                let difference = add(sub(*x, only_where(large, all(m))), borrow);
                *x = and(difference, all(MASK));
                borrow = carry_of(difference);
            }
            only_where(large, all(1))
        }

        /// See [`Backend::negate`].
        #[target_feature(enable = $features)]
        pub(super) fn negate(x: &mut [Word]) {
            let mut borrow = zero();
            for x in x {
                let difference = sub(borrow, *x);
                *x = and(difference, all(MASK));
                borrow = carry_of(difference);
            }
        }

        /// Returns words of an item from `at` on, zeros past its end.
        #[inline]
        #[target_feature(enable = $features)]
        fn words_of(item: &[u64], at: usize) -> Word {
            let rest = item.get(at..).unwrap_or(&[]);
            match rest.first_chunk::<LANES>() {
                Some(words) => group(words),
                None => {
                    let mut words = [0; LANES];
                    words[..rest.len()].copy_from_slice(rest);
                    group(&words)
                }
            }
        }

        /// See [`Backend::load_words`].
        #[target_feature(enable = $features)]
        pub(super) fn load_words(out: &mut [Word], items: &Items<'_>, first: usize) {
            let lanes: [&[u64]; LANES] = std::array::from_fn(|lane| items.item(first + lane));
            for (block, out) in out.chunks_mut(LANES).enumerate() {
                let mut rows = [zero(); LANES];
                let each = rows.iter_mut().zip(&lanes);
                each.for_each(|(row, item)| *row = words_of(item, LANES * block));
                out.copy_from_slice(&transpose(rows)[..out.len()]);
            }
        }

        /// See [`Backend::load`]: limb `l` is bits `BITS·l − shift ..` of the item, which lie in two words. A shift is
        /// at most 64.
        #[target_feature(enable = $features)]
        pub(super) fn load(out: &mut [Word], items: &Items<'_>, first: usize, shift: u32) {
            let lanes: [&[u64]; LANES] = std::array::from_fn(|lane| items.item(first + lane));
            // As many words as lanes, and the one before them.
            let mut window = zeroize::Zeroizing::new([zero(); LANES + 1]);
            let mut rest = out.iter_mut();
            // The first bit of the next limb, from the first word of the window.
            let mut at = 64 - shift as usize;
            // Past the last word there are zeros.
            for block in 0..=items.each.div_ceil(LANES) {
                let rows = std::array::from_fn(|lane| words_of(lanes[lane], LANES * block));
                window[1..].copy_from_slice(&transpose(rows));
                while at < LANES * 64 {
                    let Some(out) = rest.next() else { return };
                    *out = and(bits_from(&window[at / 64..], at % 64), all(MASK));
                    at += BITS as usize;
                }
                at -= LANES * 64;
                window[0] = window[LANES];
            }
            rest.for_each(|out| *out = zero());
        }

        /// Returns words `w` of normalised limbs: bits `64·w ..` lie in two or three.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn word(x: &[Word], w: usize) -> Word {
            let limb = |l: usize| x.get(l).copied().unwrap_or(zero());
            let (l, off) = (64 * w / BITS as usize, 64 * w % BITS as usize);
            let next = left(limb(l + 1), BITS as usize - off);
            // A shift by 64 or more gives zero.
            or(right(limb(l), off), or(next, left(limb(l + 2), 2 * BITS as usize - off)))
        }

        /// See [`Backend::store`].
        #[target_feature(enable = $features)]
        pub(super) fn store(out: &mut Results<'_>, part: Range<usize>, x: &[Word]) {
            for at in (0..part.len()).step_by(LANES) {
                let rows = transpose(std::array::from_fn(|j| word(x, at + j)));
                for (item, row) in out.words.chunks_mut(out.each).zip(rows) {
                    let item = &mut item[part.clone()][at..];
                    match item.first_chunk_mut::<LANES>() {
                        Some(all) => *all = words(row),
                        None => item.copy_from_slice(&words(row)[..item.len()]),
                    }
                }
            }
        }

        /// See [`Backend::digits`].
        #[target_feature(enable = $features)]
        pub(super) fn digits(words: &[Word], at: usize, bits: usize, width: usize) -> LaneDigits {
            let two = [words[at / 64], words.get(at / 64 + 1).copied().unwrap_or(zero())];
            LaneDigits::new(and(bits_from(&two, at % 64), all((1 << bits) - 1)), width)
        }

        /// Returns a word's worth of bits from some bit of the first of two words on.
        #[inline]
        #[target_feature(enable = $features)]
        pub(super) fn bits_from(words: &[Word], bit: usize) -> Word {
            or(right(words[0], bit), left(words[1], 64 - bit))
        }
    };
}

/// Makes a backend of such loops and of those in `rows` and `select`, by a macro `kernel` that calls them.
macro_rules! vector_backend {
    ($token:ident, PICK = $pick:expr) => {
        impl Backend for $token {
            type Word = Word;
            type Digits = LaneDigits;

            const LANES: usize = LANES;
            const LIMB_BITS: u32 = BITS;
            const MULTIPLIES: u64 = 2;
            const ROWS: usize = rows::ROWS;
            const KARATSUBA: usize = usize::MAX;
            const PICK: f64 = $pick;

            fn zero(self) -> Word {
                kernel!(limbs::zero())
            }

            /// Returns the limbs from which any limb can be subtracted: each has borrowed one from the
            /// next.
            fn bias(multiple: &[u64]) -> Vec<u64> {
                let top = multiple.len() - 1;
                let borrowed = |(i, &limb): (usize, &u64)| match i {
                    0 => limb + (1 << BITS),
                    i if i < top => limb + MASK,
                    _ => limb - 1,
                };
                multiple.iter().enumerate().map(borrowed).collect()
            }

            fn mul_redc<const P: usize>(
                self,
                m: &Limbs,
                out: &mut [Word],
                acc: &mut [Word],
                products: [FactorPair<'_, Word>; P],
            ) {
                kernel!(rows::mul_redc(m, out, acc, products));
            }

            fn square(self, acc: &mut [Word], a: &[Word]) {
                kernel!(rows::square(acc, a));
            }

            fn add_product(self, acc: &mut [Word], a: &[Word], b: &[Word]) {
                kernel!(rows::add_product(acc, a, b));
            }

            fn normalise(self, acc: &mut [Word]) {
                kernel!(limbs::add_assign(acc, &[]));
            }

            fn double(self, out: &mut [Word], a: &[Word]) {
                kernel!(limbs::double(out, a));
            }

            fn complement(self, acc: &mut [Word], m: &Limbs) {
                kernel!(limbs::complement(acc, m));
            }

            fn add_assign(self, a: &mut [Word], b: &[Word]) {
                kernel!(limbs::add_assign(a, b));
            }

            fn sub_assign(self, a: &mut [Word], b: &[Word]) {
                kernel!(limbs::sub_assign(a, b));
            }

            fn reduce_once(self, m: &[u64], x: &mut [Word]) -> Word {
                kernel!(limbs::reduce_once(m, x))
            }

            fn negate(self, x: &mut [Word]) {
                kernel!(limbs::negate(x));
            }

            fn pick_own(self, out: &mut [Word], table: &[Word], digits: &LaneDigits) {
                kernel!(select::pick_own(out, table, digits));
            }

            fn pick_shared(self, out: &mut [Word], table: &[Line], digits: &[LaneDigits]) {
                kernel!(select::pick_shared(out, table, digits));
            }

            fn load(self, out: &mut [Word], items: &Items<'_>, first: usize, shift: u32) {
                kernel!(limbs::load(out, items, first, shift));
            }

            fn store(self, out: &mut Results<'_>, part: Range<usize>, x: &[Word]) {
                kernel!(limbs::store(out, part, x));
            }

            fn load_words(self, out: &mut [Word], items: &Items<'_>, first: usize) {
                kernel!(limbs::load_words(out, items, first));
            }

            fn digits(self, words: &[Word], at: usize, bits: usize, width: usize) -> LaneDigits {
                kernel!(limbs::digits(words, at, bits, width))
            }

            fn burst(self) -> u64 {
                kernel!(rows::burst())
            }

            fn lane(word: Word, lane: usize) -> u64 {
                limbs::words(word)[lane]
            }

            fn lanes_of(self, limbs: impl Fn(usize) -> u64) -> Word {
                let limbs: [u64; LANES] = std::array::from_fn(limbs);
                kernel!(limbs::group(&limbs))
            }
        }
    };
}

pub(super) use {limb_loops, vector_backend};

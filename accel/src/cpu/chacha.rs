//! ChaCha with several blocks side by side, on processors with vectors. See [`streams`](crate::streams).

/// "expand 32-byte k".
pub(super) const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// Defines blocks of streams, and how draws are taken from them, of whatever is in scope: `Word`, a vector of `LANES`
/// words of 64 bits or twice as many of 32, and the operations on it that are named here.
macro_rules! chacha {
    ($features:literal) => {
        /// Returns as many blocks as a vector has numbers of 32 bits, from `block` on, a multiple of that, of the
        /// stream number `stream`: a vector for each of their numbers, the blocks in the order of `places`.
        #[inline]
        #[target_feature(enable = $features)]
        fn blocks<const ROUNDS: usize>(
            key: &[u64],
            stream: u64,
            block: u64,
            places: Word,
        ) -> [Word; 16] {
            let set = |x: u64| splat(x as u32 as i32);
            let mut start = [zero(); 16];
            for i in 0..4 {
                start[i] = set(u64::from(CONSTANTS[i]));
                start[4 + 2 * i] = set(key[i]);
                start[5 + 2 * i] = set(key[i] >> 32);
            }
            // The lower half does not pass its end within these blocks.
            start[12] = add(set(block), places);
            start[13] = set(block >> 32);
            start[14] = set(stream);
            start[15] = set(stream >> 32);
            let mut x = start;
            for _ in 0..ROUNDS / 2 {
                for i in 0..4 {
                    quarter_round(&mut x, [i, 4 + i, 8 + i, 12 + i]);
                }
                for i in 0..4 {
                    let diagonal = [4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4];
                    quarter_round(&mut x, [i, diagonal[0], diagonal[1], diagonal[2]]);
                }
            }
            for i in 0..16 {
                x[i] = add(x[i], start[i]);
            }
            // The key may be that of noise.
            start.fill(zero());
            optimization_barrier(&start);
            x
        }

        #[inline]
        #[target_feature(enable = $features)]
        fn quarter_round(x: &mut [Word; 16], [a, b, c, d]: [usize; 4]) {
            x[a] = add(x[a], x[b]);
            x[d] = rotate::<16>(xor(x[d], x[a]));
            x[c] = add(x[c], x[d]);
            x[b] = rotate::<12>(xor(x[b], x[c]));
            x[a] = add(x[a], x[b]);
            x[d] = rotate::<8>(xor(x[d], x[a]));
            x[c] = add(x[c], x[d]);
            x[b] = rotate::<7>(xor(x[b], x[c]));
        }

        /// See [`Rns::take_draws`](crate::cpu::rns::Rns::take_draws).
        #[target_feature(enable = $features)]
        pub(super) fn take_draws(
            out: &mut [u64],
            sum: &[u64; RUN],
            count: usize,
            primes: &[u64; beats::LANES],
        ) {
            let runs = out.as_chunks_mut::<BLOCKS>().0.iter_mut().zip(sum.as_chunks::<BLOCKS>().0);
            for ((out, sum), &q) in runs.zip(primes) {
                let out = out.as_chunks_mut::<LANES>().0.iter_mut();
                for (out, sum) in out.zip(sum.as_chunks::<LANES>().0) {
                    let mut x = add_words(group(out), group(sum));
                    for shift in (0..=count.ilog2()).rev() {
                        x = subtract_once(x, all(q << shift));
                    }
                    *out = words(x);
                }
            }
        }
    };
}

pub(super) use chacha;

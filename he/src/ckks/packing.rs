//! Residues as they travel: each in as many bits as its prime has, little-endian.

use ciphergram_accel::Ring;

use crate::{
    bytes::{Reader, Writer},
    error::FrameError,
};

/// Returns the bytes of a polynomial.
pub(super) fn packed_bytes(ring: &Ring) -> usize {
    ring.primes().iter().map(|&q| ring.degree() * bits(q) / 8).sum()
}

/// Returns the bits of a residue, at most fifty. Degrees are multiples of eight, so that those of a prime are whole
/// bytes.
fn bits(q: u64) -> usize {
    64 - q.leading_zeros() as usize
}

/// Appends a polynomial.
pub(super) fn pack(w: &mut Writer, ring: &Ring, words: &[u64]) {
    for (residues, &q) in words.chunks_exact(ring.degree()).zip(ring.primes()) {
        let (mut window, mut filled) = (0u128, 0);
        for &residue in residues {
            window |= u128::from(residue) << filled;
            filled += bits(q);
            if filled >= 64 {
                w.u64(window as u64);
                window >>= 64;
                filled -= 64;
            }
        }
        // Degrees of less than 64 may end within a word.
        w.bytes(&window.to_le_bytes()[..filled / 8]);
    }
}

/// Takes a polynomial off.
///
/// # Errors
/// Bytes are missing, or a residue is as large as its prime.
pub(super) fn unpack(r: &mut Reader<'_>, ring: &Ring) -> Result<Vec<u64>, FrameError> {
    // Before anything is allocated for it: it must be there.
    let mut bytes = r.bytes(packed_bytes(ring))?;
    let mut words = Vec::with_capacity(ring.len_words());
    for &q in ring.primes() {
        let bits = bits(q);
        let (own, rest) = bytes.split_at(ring.degree() * bits / 8);
        bytes = rest;
        let mut most = 0;
        let mut take = |bytes: &[u8], first: usize| {
            let residues: [u64; 8] = std::array::from_fn(|i| {
                let at = first + i * bits / 8;
                let word = bytes[at..].first_chunk().map_or(0, |&word| u64::from_le_bytes(word));
                word >> (i * bits % 8) & ((1 << bits) - 1)
            });
            most = residues.into_iter().fold(most, u64::max);
            words.extend_from_slice(&residues);
        };
        // Eight residues are whole bytes. Words that begin in the last of them end behind them.
        let last = own.len() - bits;
        (0..last).step_by(bits).for_each(|first| take(own, first));
        let mut padded = [0; 64 + 8];
        padded[..bits].copy_from_slice(&own[last..]);
        take(&padded, 0);
        if most >= q {
            return Err(FrameError::Malformed { what: "a residue as large as its prime" });
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckks::{Literal, Parameters};

    #[test]
    fn polynomials_return_and_what_is_not_reduced_is_refused() {
        let set =
            Parameters::without_security(Literal { slots: 8, levels: 3, special: 2 }).unwrap();
        let ring = set.whole();
        let mut words: Vec<u64> = ring
            .primes()
            .iter()
            .flat_map(|&q| (0..16u64).map(move |i| if i % 3 == 0 { q - 1 - i } else { i << 30 }))
            .collect();
        let write = |words: &[u64]| {
            let mut w = Writer::default();
            pack(&mut w, ring, words);
            w.0
        };
        let bytes = write(&words);
        assert_eq!(bytes.len(), packed_bytes(ring));
        assert_eq!(bytes.len(), 16 * (3 * 50 + 3 * 40) / 8);
        let mut r = Reader(&bytes);
        assert_eq!(unpack(&mut r, ring).unwrap(), words);
        assert!(r.0.is_empty());
        assert!(unpack(&mut Reader(&bytes[1..]), ring).is_err());
        words[37] = ring.primes()[2];
        assert!(unpack(&mut Reader(&write(&words)), ring).is_err());
    }
}

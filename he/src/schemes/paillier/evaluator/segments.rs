//! Sums of segments: histograms, sums along an axis, sums of everything.

use std::{borrow::Cow, collections::BTreeMap};

use ciphergram_accel::Operand;

use super::Evaluator;
use crate::{
    Error,
    schemes::paillier::{Ciphertexts, ciphertexts::check_indices, modulus::one, words::gather},
};

const OPERATION: &str = "segment_sum";

/// Sums that halve: pairs of items of one segment are added until one is left.
struct Halving {
    /// Items that are still to be added.
    pool: Vec<u64>,
    /// Their places in the pool, segment by segment.
    terms: Vec<Vec<usize>>,
}

impl Halving {
    /// Returns the items to add to one another, and keeps those that wait for the next time.
    fn next(&mut self, k: usize) -> [Vec<u64>; 2] {
        let pairs = self.terms.iter().flat_map(|terms| terms.as_chunks::<2>().0);
        let [left, right]: [Vec<_>; 2] =
            [0, 1].map(|side| pairs.clone().map(|p| p[side]).collect());
        let alone = self.terms.iter().flat_map(|terms| terms.as_chunks::<2>().1).copied();
        let alone: Vec<_> = alone.collect();
        // Sums come first, then those that were alone.
        let (mut sum, mut odd) = (0, left.len());
        for terms in &mut self.terms {
            let (pairs, rest) = (terms.len() / 2, terms.len() % 2);
            *terms = (sum..sum + pairs).chain(odd..odd + rest).collect();
            (sum, odd) = (sum + pairs, odd + rest);
        }
        let sides = [left, right].map(|side| gather(&self.pool, k, &side));
        self.pool = gather(&self.pool, k, &alone);
        sides
    }
}

impl Evaluator {
    /// Computes `y_s = Σ c[items[i]] mod n` over all i with `segments[i] = s`, for s from 0 to
    /// `count`: one product for each item that is added, and one for each segment if their sizes
    /// differ. An empty segment is the number 1, which decrypts to 0 and hides nothing.
    ///
    /// # Errors
    /// See [`Evaluator`]; lists of unequal lengths, an index beyond the ciphertexts, a segment
    /// beyond `count`.
    pub fn segment_sum(
        &self,
        c: &Ciphertexts,
        (items, segments): (&[usize], &[usize]),
        count: usize,
    ) -> Result<Ciphertexts, Error> {
        self.check(OPERATION, "segments", c.modulus(), [segments.len(), items.len()])?;
        check_indices(OPERATION, "items", items, c.count())?;
        check_indices(OPERATION, "segments", segments, count)?;
        let mut terms = vec![vec![]; count];
        items.iter().zip(segments).for_each(|(&item, &segment)| terms[segment].push(item));
        let sizes: Vec<_> = terms.iter().map(Vec::len).collect();
        let power = |of_one: i32, size: usize| match size {
            0 => 0,
            _ => (i64::from(of_one) - 1) * size as i64 + 1,
        };
        let longest = sizes.iter().copied().max().unwrap_or(0);
        let c = match power(c.power(), longest) < i64::from(i32::MIN) {
            true => Cow::Owned(self.corrected(c)?),
            false => Cow::Borrowed(c),
        };
        // They fit: no memory holds 2^31 ciphertexts.
        let powers: Vec<_> = sizes.iter().map(|&size| power(c.power(), size) as i32).collect();
        let k = self.modulus.ciphertext_words();
        let mut halving = Halving { pool: c.to_pairs(&*self.engine)?.into_owned(), terms };
        while halving.terms.iter().any(|terms| terms.len() > 1) {
            let [mut sums, others] = halving.next(k);
            let mut operands = [Operand::InOut(&mut sums), Operand::In(&others)];
            self.engine.run(&self.modulus.pairs().add_assign, &mut operands)?;
            sums.append(&mut halving.pool);
            halving.pool = sums;
        }
        let mut words = Vec::with_capacity(count * k);
        for terms in &halving.terms {
            match terms.first() {
                Some(&place) => words.extend_from_slice(&halving.pool[place * k..][..k]),
                None => words.extend_from_slice(&one(k)),
            }
        }
        self.levelled(words, &powers, c.scale())
    }

    /// Brings pairs of these powers to one power: all have it already, or a product each makes it 0.
    fn levelled(
        &self,
        mut words: Vec<u64>,
        powers: &[i32],
        scale: u32,
    ) -> Result<Ciphertexts, Error> {
        let first = powers.first().copied().unwrap_or(0);
        if powers.iter().all(|&power| power == first) {
            return Ok(Ciphertexts::pairs(&self.modulus, words, first).at_scale(scale));
        }
        let mut radices = BTreeMap::new();
        for &power in powers {
            let radix = self.modulus.pairs().radix_power(&*self.engine, 1i32.abs_diff(power))?;
            radices.insert(power, radix);
        }
        let factors: Vec<_> =
            powers.iter().flat_map(|power| radices[power].iter().copied()).collect();
        let mut operands = [Operand::InOut(&mut words), Operand::In(&factors)];
        self.engine.run(&self.modulus.pairs().add_assign, &mut operands)?;
        Ok(Ciphertexts::pairs(&self.modulus, words, 0).at_scale(scale))
    }
}

//! Big numbers by AVX2 and FMA: four side by side, limbs of 51 bits.
//!
//! These processors have no product of 64 bits in vectors. Two fused multiply-adds of doubles give both halves of one
//! of 51: see [`product`](rows::product). With the additions that takes seven instructions for four products of limbs,
//! where words take four for one of 64 bits: on a Zen 5 that is twice as fast. Limbs of 28 bits, whose products
//! `vpmuludq` has whole, are slower by a third.
//!
//! # Bound
//! A column takes, for each of at most 161 limbs, the halves of at most three products, the low one within ± 2^50 and
//! the high one from 0 to 2^51, beside what it starts with (below 2^54) and a carry: within
//! `± (161 · 3 · 1.5 · 2^51 + 2^54 + 2^12)`, which is within ± 2^61. A square adds as much as one product.

use std::ops::Range;

use super::{
    Avx2,
    limbs::{self, BITS, LANES, MASK, Word},
    rows,
    select::{self, LaneDigits},
};
use crate::cpu::{
    backend::{Backend, FactorPair, Items, Limbs, Line, Results},
    limb_loops::vector_backend,
};

// Three instructions for each four entries, of which any port takes two.
vector_backend!(Avx2, PICK = 4.0);

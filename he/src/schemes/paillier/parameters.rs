//! The cut of a stream into Paillier ciphertexts.

use crate::{
    error::faults::ParameterError,
    params::{
        geometry::{CHUNK_BYTES, Geometry},
        head::Head,
        scheme::Literal,
    },
};

/// Derives the geometry under a modulus of `modulus_bits` bits. Packed plaintexts stay below
/// 2^(modulus_bits − 1) < n.
///
/// # Errors
/// A chunk has no room for a value beside its head.
pub(crate) fn geometry(
    modulus_bits: u32,
    literal: Literal,
    field_bits: u32,
) -> Result<Geometry, ParameterError> {
    let unit_bytes = modulus_bits as usize / 4;
    let g = Geometry {
        field_bits,
        fields_per_slot: ((modulus_bits - 1) / field_bits) as usize,
        slots_per_chunk: CHUNK_BYTES / unit_bytes,
        head_fields: 0,
        head: Head::EMPTY,
        slots_per_unit: 1,
        unit_bytes,
        group_chunks: 1,
    };
    g.with_head(literal, 1, modulus_bits - 1)
}

//! The cut of a stream into Paillier ciphertexts.

use crate::params::geometry::{CHUNK_BYTES, Geometry, head_bits};

/// Derives the geometry under a modulus of `modulus_bits` bits. Packed plaintexts stay below
/// 2^(modulus_bits − 1) < n.
pub(crate) fn geometry(modulus_bits: u32, clients: u32, field_bits: u32) -> Geometry {
    let unit_bytes = modulus_bits as usize / 4;
    Geometry {
        field_bits,
        fields_per_slot: ((modulus_bits - 1) / field_bits) as usize,
        slots_per_chunk: CHUNK_BYTES / unit_bytes,
        head_fields: head_bits(clients).div_ceil(field_bits) as usize,
        slots_per_unit: 1,
        unit_bytes,
        mask_chunks: 0,
        value_chunks: 1,
    }
}

//! The register map of the card, written by `cargo xtask hdl registers` from `hdl/registers.toml`.

/// The number that a card answers with.
pub(super) const ID: u32 = 0x43474650;

/// The version of this map.
pub(super) const VERSION: u32 = 1;

/// 0x43474650, `CGFP`.
pub(super) const REGISTER_ID: u32 = 0x000;

/// The version of this map.
pub(super) const REGISTER_VERSION: u32 = 0x004;

/// Bits 7:0 arrays, 15:8 rows of each, 23:16 numbers in flight in each, 31:24 descriptors in
/// flight.
pub(super) const REGISTER_SIZES: u32 = 0x008;

/// Beats of card memory.
pub(super) const REGISTER_MEMORY: u32 = 0x00c;

/// Bit 0: reset, once memory is quiet; then registers that can be written read 0. Card memory
/// stays.
pub(super) const REGISTER_CONTROL: u32 = 0x010;

/// Bit 0: idle, the head is the tail and nothing is in flight.
pub(super) const REGISTER_STATUS: u32 = 0x014;

/// The beat that the ring of descriptors begins at.
pub(super) const REGISTER_RING: u32 = 0x020;

/// Descriptors that the ring holds.
pub(super) const REGISTER_ENTRIES: u32 = 0x028;

/// Descriptors that the host has written, modulo 2^32.
pub(super) const REGISTER_TAIL: u32 = 0x02c;

/// Descriptors that are done, all before them too, modulo 2^32. The interrupt rises when it reaches
/// the tail, and falls when a later tail is taken.
pub(super) const REGISTER_HEAD: u32 = 0x030;

/// The first descriptor of a status other than done since the reset: bits 7:0 the status, 31:8 its
/// number modulo 2^24; of `overrun` the tail that was refused.
pub(super) const REGISTER_FAULT: u32 = 0x034;

/// Cycles since the reset in which something was in flight.
pub(super) const REGISTER_CYCLES: u32 = 0x040;

/// Multiplier-cycles of these in which a multiplier had two factors.
pub(super) const REGISTER_BUSY: u32 = 0x048;

/// Numbers that `multiply` made.
pub(super) const REGISTER_PRODUCTS: u32 = 0x050;

/// Beats of card memory that were read or written.
pub(super) const REGISTER_BEATS: u32 = 0x058;

/// What to do.
pub(super) const FIELD_OPERATION: Field = Field { word: 0, low: 0, bits: 8 };

/// How.
pub(super) const FIELD_FLAGS: Field = Field { word: 0, low: 8, bits: 8 };

/// Items, from 1.
pub(super) const FIELD_COUNT: Field = Field { word: 1, low: 0, bits: 32 };

/// The first operand.
pub(super) const FIELD_A_AT: Field = Field { word: 2, low: 0, bits: 32 };

/// The second.
pub(super) const FIELD_B_AT: Field = Field { word: 3, low: 0, bits: 32 };

/// The third.
pub(super) const FIELD_C_AT: Field = Field { word: 4, low: 0, bits: 32 };

/// The modulus.
pub(super) const FIELD_M_AT: Field = Field { word: 5, low: 0, bits: 32 };

/// The result.
pub(super) const FIELD_D_AT: Field = Field { word: 6, low: 0, bits: 32 };

/// Beats from one item to the next; 0 where all share one.
pub(super) const FIELD_A_STRIDE: Field = Field { word: 7, low: 0, bits: 16 };

/// As above.
pub(super) const FIELD_B_STRIDE: Field = Field { word: 7, low: 16, bits: 16 };

/// As above.
pub(super) const FIELD_C_STRIDE: Field = Field { word: 8, low: 0, bits: 16 };

/// As above.
pub(super) const FIELD_M_STRIDE: Field = Field { word: 8, low: 16, bits: 16 };

/// As above.
pub(super) const FIELD_D_STRIDE: Field = Field { word: 9, low: 0, bits: 16 };

/// Beats of an item.
pub(super) const FIELD_A_LENGTH: Field = Field { word: 10, low: 0, bits: 8 };

/// As above.
pub(super) const FIELD_B_LENGTH: Field = Field { word: 10, low: 8, bits: 8 };

/// As above.
pub(super) const FIELD_C_LENGTH: Field = Field { word: 10, low: 16, bits: 8 };

/// As above.
pub(super) const FIELD_M_LENGTH: Field = Field { word: 10, low: 24, bits: 8 };

/// As above.
pub(super) const FIELD_D_LENGTH: Field = Field { word: 11, low: 0, bits: 8 };

/// Words of 26 bits that a number has in an array (multiply).
pub(super) const FIELD_WORDS: Field = Field { word: 11, low: 8, bits: 9 };

/// Passes of the ring: `rows · passes` digits of 17 bits of b.
pub(super) const FIELD_PASSES: Field = Field { word: 11, low: 24, bits: 8 };

/// Bits: that b is shifted up by (multiply), that the estimate leaves out (reduce), where the digit
/// begins (select).
pub(super) const FIELD_SHIFT: Field = Field { word: 12, low: 0, bits: 16 };

/// Bits of the digit (select): 0, 1, 2 or 4.
pub(super) const FIELD_WIDTH: Field = Field { word: 12, low: 16, bits: 8 };

/// Written by the card; 0 before.
pub(super) const FIELD_STATUS: Field = Field { word: 15, low: 0, bits: 32 };

/// There is a c.
pub(super) const FLAG_WITH_C: u32 = 1 << 0;

/// There is a modulus.
pub(super) const FLAG_WITH_M: u32 = 1 << 1;

/// Multiply: write T; reduce: write the quotient in place of the remainder.
pub(super) const FLAG_HIGH: u32 = 1 << 2;

/// Multiply: write Q; with `high` too, T above it: at once without a modulus, else from the next
/// beat on.
pub(super) const FLAG_LOW: u32 = 1 << 3;

/// Linear: subtract.
pub(super) const FLAG_MINUS: u32 = 1 << 4;

/// `a · b · 2^shift + c = 2^N · T − Q · M′`.
pub(super) const OPERATION_MULTIPLY: u32 = 1;

/// `a mod m`, or `⌊a / m⌋`, of a below `2^20 · m`.
pub(super) const OPERATION_REDUCE: u32 = 2;

/// `a + b · c`, or `a − b · c`, cut to the result; c below 2^24, 1 without `with_c`.
pub(super) const OPERATION_LINEAR: u32 = 3;

/// Entry `b >> shift mod 2^width` of the table a, all of which is read.
pub(super) const OPERATION_SELECT: u32 = 4;

/// `a + b` lane by lane, modulo the primes that the lanes of c have; c repeats.
pub(super) const OPERATION_ADD_BEATS: u32 = 5;

/// Zeros.
pub(super) const OPERATION_WIPE: u32 = 6;

/// Done.
pub(super) const STATUS_DONE: u32 = 1;

/// An operation that there is none of, or a bit set that has no meaning.
pub(super) const STATUS_UNKNOWN: u32 = 2;

/// No items.
pub(super) const STATUS_EMPTY: u32 = 3;

/// An operand is not in card memory.
pub(super) const STATUS_RANGE: u32 = 4;

/// Words, passes, lengths, a shift or a width that no unit takes, or no result to write.
pub(super) const STATUS_SIZE: u32 = 5;

/// A tail more than the ring's entries ahead of the head, or one that goes back, or a ring that is
/// not in card memory; the tail was not taken.
pub(super) const STATUS_OVERRUN: u32 = 6;

/// A field of a descriptor: its word, its lowest bit there, and its bits.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) word: usize,
    pub(super) low: u32,
    pub(super) bits: u32,
}

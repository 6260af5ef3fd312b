//! The head of a chunk: the number of contributors, their weights and their tags.

/// Bits of one of the numbers that a tag multiplies integers by.
pub const COEFFICIENT_BITS: u32 = 52;
/// Bits of a pad.
pub const PAD_BITS: u32 = 64;
/// The most slots of a head: 53 bits are in the smallest slot, and at least 43 of a tag in each that follows.
const MAX_SLOTS: usize = 4;

/// The layout of a head over the first slots of a chunk, counted in bits.
///
/// The first slot holds a count of contributors in its lowest bits, the sum of their weights above it, and
/// then as much of their tag as has room for the sum of all clients; further slots hold what is left of it,
/// lowest bits first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    count_bits: u32,
    weight_bits: u32,
    clients: u32,
    /// For each slot, the bits of one contributor's tag that are there.
    tag_bits: [u32; MAX_SLOTS],
    slots: usize,
}

/// A part of a tag in one slot of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TagPart {
    /// The slot.
    pub(crate) slot: usize,
    /// The lowest bit of the part in its slot.
    pub(crate) at: u32,
    /// The lowest bit of the part in the tag.
    pub(crate) shift: u32,
    /// Bits of the part in the tag of one contributor.
    pub(crate) bits: u32,
    /// Bits of the sum of such parts of all clients.
    pub(crate) sum_bits: u32,
}

impl Head {
    /// A head of nothing, before it is laid out.
    pub(crate) const EMPTY: Self =
        Self { count_bits: 0, weight_bits: 0, clients: 0, tag_bits: [0; MAX_SLOTS], slots: 0 };

    /// Lays out the head of chunks of `values` integers of `bits` bits in slots of `slot_bits`; nothing if it
    /// takes more slots than there can be, or the count and weights more than one.
    pub(crate) fn lay_out(clients: u32, bits: u32, values: usize, slot_bits: u32) -> Option<Self> {
        let count_bits = bit_length(u128::from(clients));
        let weight_bits = bit_length(u128::from(clients) * u128::from(u32::MAX));
        let most = |bits: u32| (1u128 << bits) - 1;
        let own = 1 + u128::from(u32::MAX) + values as u128 * (most(bits) - 1);
        let mut rest = most(COEFFICIENT_BITS) * own + most(PAD_BITS);
        let mut head =
            Self { count_bits, weight_bits, clients, tag_bits: [0; MAX_SLOTS], slots: 0 };
        let mut room = slot_bits.checked_sub(count_bits + weight_bits)?;
        for part in &mut head.tag_bits {
            head.slots += 1;
            // As many bits as the sum of all clients has room for.
            let fits = |&bits: &u32| sum_bits(clients, bits) <= room;
            *part = (1..=bit_length(rest)).rev().find(fits).unwrap_or(0);
            rest >>= *part;
            if rest == 0 {
                return Some(head);
            }
            room = slot_bits;
        }
        None
    }

    /// Returns the bits that count contributors; the sum of weights is above them.
    #[must_use]
    pub fn count_bits(&self) -> u32 {
        self.count_bits
    }

    /// Returns the bits of the sum of weights.
    #[must_use]
    pub fn weight_bits(&self) -> u32 {
        self.weight_bits
    }

    /// Returns the number of slots that it takes, the last one perhaps in part.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the bits of one contributor's tag.
    #[must_use]
    pub fn tag_bits(&self) -> u32 {
        self.tag_bits.iter().sum()
    }

    /// Returns the bits that the tags of all clients take in a sum.
    #[must_use]
    pub fn tag_sum_bits(&self) -> u32 {
        self.tag_parts().map(|part| part.sum_bits).sum()
    }

    /// Returns the bits that it takes of its slot `slot`.
    pub(crate) fn bits_of(&self, slot: usize) -> u32 {
        self.tag_parts().find(|part| part.slot == slot).map_or(0, |part| part.at + part.sum_bits)
    }

    /// Returns where the tag is.
    pub(crate) fn tag_parts(&self) -> impl Iterator<Item = TagPart> + '_ {
        let mut shift = 0;
        self.tag_bits[..self.slots].iter().enumerate().map(move |(slot, &bits)| {
            let at = if slot == 0 { self.count_bits + self.weight_bits } else { 0 };
            let sum_bits = sum_bits(self.clients, bits);
            shift += bits;
            TagPart { slot, at, shift: shift - bits, bits, sum_bits }
        })
    }
}

/// Returns the bits of the sum of `clients` numbers of `bits` bits, fewer than 118.
fn sum_bits(clients: u32, bits: u32) -> u32 {
    bit_length(u128::from(clients) * ((1 << bits) - 1))
}

/// Returns the bits that `x` takes.
pub(crate) fn bit_length(x: u128) -> u32 {
    128 - x.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_of_all_clients_has_room_and_no_bit_more() {
        for (clients, bits, values, slot_bits, slots) in [
            (64, 16, 392, 88, 2),
            (10, 16, 450, 180, 1),
            (1024, 16, 343, 182, 1),
            (1024, 24, 100, 53, 3),
            (1, 8, 1, 130, 1),
            (1, 8, 1, 42, 3),
        ] {
            let head = Head::lay_out(clients, bits, values, slot_bits).unwrap();
            assert_eq!(head.slots(), slots, "{clients} clients in slots of {slot_bits} bits");
            let largest = ((1u128 << 52) - 1)
                * (1 + u128::from(u32::MAX) + values as u128 * ((1 << bits) - 2))
                + u128::from(u64::MAX);
            assert_eq!(head.tag_bits(), 128 - largest.leading_zeros());
            let mut next = 0;
            for part in head.tag_parts() {
                assert_eq!(part.shift, next);
                next += part.bits;
                assert_eq!(part.at + part.sum_bits, head.bits_of(part.slot));
                assert!(part.at + part.sum_bits <= slot_bits);
                let most = u128::from(clients) * ((1 << part.bits) - 1);
                assert!(most < 1 << part.sum_bits);
            }
        }
        assert_eq!(Head::lay_out(1024, 16, 1, 52), None, "count and weights alone take 53 bits");
    }
}

//! The lookups that tell whether as many clients as the rank have a level.
//!
//! A ciphertext holds a number from 0 to 15, and a lookup turns a sum of ciphertexts into a fresh one: one
//! programmable bootstrap each. Up to 15 clients take one lookup, and so does the median of up to 31; more are counted
//! in groups.

use std::collections::VecDeque;

/// The largest number that a table is looked up for.
pub(super) const MOST: usize = 15;

/// A table that a lookup finds its result in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LookupTable {
    /// The number itself, or this one if it is above.
    Cut(usize),
    /// The remainder of a division by 4.
    Low,
    /// The quotient of one by 4, rounded down, after this was added.
    High(usize),
    /// 1 from this number on, else 0: the last lookup. It takes sums of up to 15 above this number, of at most 16.
    AtLeast(usize),
}

impl LookupTable {
    /// Returns the result for a number.
    pub(super) fn look_up(self, number: usize) -> usize {
        match self {
            Self::Cut(most) => number.min(most),
            Self::Low => number % 4,
            Self::High(added) => (number + added) / 4,
            Self::AtLeast(rank) => usize::from(number >= rank),
        }
    }
}

/// One lookup, for the sum of earlier values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lookup {
    /// Values by their index: those below the number of clients are the clients' bits, the others the results of
    /// lookups, in order.
    pub(super) inputs: Vec<usize>,
    pub(super) table: LookupTable,
}

/// A value that is to be counted, and the largest that it can be.
#[derive(Clone, Copy)]
struct CircuitValue {
    index: usize,
    most: usize,
}

/// Returns the lookups of one level among `clients`, of which the last tells whether `rank` or more have it.
///
/// Up to rank 7, groups of 15 are cut at the rank, and groups of these, until one lookup does. A higher rank counts
/// digits to the base 4: each group gives two, low digits are added among themselves and carry over to the high ones,
/// whose count is compared to the quotient of the rank.
pub(super) fn at_least(rank: usize, clients: usize) -> Vec<Lookup> {
    let bits = (0..clients).map(|index| CircuitValue { index, most: 1 }).collect();
    let mut counting = Counting { clients, lookups: vec![] };
    counting.compare(bits, rank);
    counting.lookups
}

struct Counting {
    clients: usize,
    lookups: Vec<Lookup>,
}

impl Counting {
    fn look_up(&mut self, values: &[CircuitValue], table: LookupTable) -> CircuitValue {
        let sum: usize = values.iter().map(|value| value.most).sum();
        let most = (0..=sum).map(|number| table.look_up(number)).max().unwrap_or(0);
        let index = self.clients + self.lookups.len();
        let inputs = values.iter().map(|value| value.index).collect();
        self.lookups.push(Lookup { inputs, table });
        CircuitValue { index, most }
    }

    fn compare(&mut self, mut values: VecDeque<CircuitValue>, rank: usize) {
        while !(rank <= MOST + 1 && sum(&values) <= rank + MOST) {
            if 2 * rank > MOST {
                return self.compare_digits(values, rank);
            }
            let group = take_group(&mut values);
            let cut = self.look_up(&group, LookupTable::Cut(rank));
            values.push_back(cut);
        }
        self.look_up(values.make_contiguous(), LookupTable::AtLeast(rank));
    }

    fn compare_digits(&mut self, mut low: VecDeque<CircuitValue>, rank: usize) {
        let mut high = VecDeque::new();
        while sum(&low) > MOST {
            let group = take_group(&mut low);
            low.push_back(self.look_up(&group, LookupTable::Low));
            high.push_back(self.look_up(&group, LookupTable::High(0)));
        }
        // low + 4 · high ≥ rank, where the rank's own low digit is taken from the low ones, and 4 lent to them if there
        // is one.
        let lent = rank.next_multiple_of(4) - rank;
        high.push_back(self.look_up(low.make_contiguous(), LookupTable::High(lent)));
        self.compare(high, rank.div_ceil(4));
    }
}

fn sum(values: &VecDeque<CircuitValue>) -> usize {
    values.iter().map(|value| value.most).sum()
}

/// Takes the first values, as many as are sure to add up to no more than a table has.
fn take_group(values: &mut VecDeque<CircuitValue>) -> Vec<CircuitValue> {
    let mut room = MOST;
    let mut group = vec![];
    while let Some(value) = values.pop_front_if(|value| value.most <= room) {
        room -= value.most;
        group.push(value);
    }
    group
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs lookups over the bits of `clients` of which `ones` are set, and checks that every sum is within its table.
    fn run(lookups: &[Lookup], clients: usize, ones: usize) -> usize {
        // Spread, so that groups differ.
        let mut values: Vec<usize> =
            (0..clients).map(|i| (i + 1) * ones / clients - i * ones / clients).collect();
        for Lookup { inputs, table } in lookups {
            let sum: usize = inputs.iter().map(|&index| values[index]).sum();
            match *table {
                LookupTable::AtLeast(rank) => assert!(rank <= MOST + 1 && sum <= rank + MOST),
                _ => assert!(sum <= MOST),
            }
            let result = table.look_up(sum);
            assert!(result <= MOST);
            values.push(result);
        }
        values.pop().unwrap()
    }

    #[test]
    fn every_count_is_compared_to_every_rank() {
        for clients in (1..=70).chain([100, 255, 256, 1024]) {
            for rank in (1..=clients).filter(|rank| clients <= 70 || rank % 37 < 3) {
                let lookups = at_least(rank, clients);
                assert!(
                    lookups.iter().all(|lookup| lookup.inputs.len() <= 31),
                    "the sum of a lookup's inputs is noisier than 31 of them"
                );
                for ones in 0..=clients {
                    let found = run(&lookups, clients, ones);
                    assert_eq!(found, usize::from(ones >= rank), "{ones} of {clients}, {rank}");
                }
            }
        }
    }

    /// Noise is that of 25 results of lookups at most, for which the parameters are made; clients' own have next to
    /// none.
    #[test]
    fn no_sum_is_of_too_many_results() {
        for clients in 1..=1024usize {
            for rank in [1, 2, 3, 7, 8, clients / 2, clients.div_ceil(2), clients] {
                for lookup in at_least(rank.max(1), clients) {
                    let results = lookup.inputs.iter().filter(|&&index| index >= clients).count();
                    assert!(results <= 25, "{results} results, rank {rank} of {clients}");
                }
            }
        }
    }

    #[test]
    fn few_clients_take_one_lookup() {
        let count = |rank, clients| at_least(rank, clients).len();
        assert_eq!([count(1, 1), count(2, 8), count(2, 15), count(15, 15), count(16, 31)], [1; 5]);
        assert_eq!([count(2, 17), count(2, 18), count(2, 32)], [1, 2, 3]);
        assert!(count(16, 32) <= 8, "{}", count(16, 32));
    }
}

//! The contributors of each value of a sum: not the same ones everywhere, if some were cut off on the way.

use std::{collections::BTreeMap, ops::Range};

use super::sum::Sum;
use crate::{ContributorSet, PublicKey, codec::Places};

/// The values of a sum that the same clients contributed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cohort {
    /// The clients' numbers, ascending.
    pub contributors: Vec<u16>,
    /// The number of chunks that carry these values.
    pub chunks: u32,
    /// The values, in runs: a tensor's place in the agreement, and flat indices in it.
    pub values: Vec<(usize, Range<usize>)>,
}

impl Sum {
    /// Returns the numbers of those who contributed to any chunk, ascending.
    #[must_use]
    pub fn contributed(&self) -> Vec<u16> {
        let anywhere = |index: &usize| self.sets.iter().any(|set| set.contains(*index));
        let indices = (0..self.contributors.len()).filter(anywhere);
        let mut numbers: Vec<u16> = indices.map(|index| self.contributors[index].number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Returns the cohorts of all values, that of the most chunks first: one, if every value is of the same clients.
    #[must_use]
    pub fn cohorts(&self, key: &PublicKey) -> Vec<Cohort> {
        let places = Places::new(&self.agreement, key.parameters());
        let chunks = key.parameters().chunks(places.fields);
        let mut found: BTreeMap<&ContributorSet, (u32, Vec<Range<usize>>)> = BTreeMap::new();
        for (set, chunk) in self.sets.iter().zip(0..chunks.count()) {
            let (count, runs) = found.entry(set).or_default();
            *count += 1;
            let values = chunks.values_of(chunk);
            match runs.last_mut() {
                Some(last) if last.end == values.start => last.end = values.end,
                _ => runs.push(values),
            }
        }
        let named = |(set, (chunks, runs)): (&ContributorSet, _)| Cohort {
            contributors: self.numbers(set),
            chunks,
            values: in_tensors(&places, runs),
        };
        let mut cohorts: Vec<Cohort> = found.into_iter().map(named).collect();
        cohorts.sort_by_key(|cohort| std::cmp::Reverse(cohort.chunks));
        cohorts
    }

    fn numbers(&self, set: &ContributorSet) -> Vec<u16> {
        let listed = |index: usize| self.contributors.get(index).map(|c| c.number);
        let mut numbers: Vec<u16> = set.iter().filter_map(listed).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Finds the values that runs of fields are of, in each tensor.
fn in_tensors(places: &Places, runs: Vec<Range<usize>>) -> Vec<(usize, Range<usize>)> {
    let mut parts = vec![];
    for run in runs {
        let first = places.tensors.partition_point(|place| place.end <= run.start);
        let overlapping = places.tensors.iter().enumerate().skip(first);
        for (tensor, place) in overlapping.take_while(|(_, place)| place.first < run.end) {
            let values = place.values_before(run.start)..place.values_before(run.end);
            if !values.is_empty() {
                parts.push((tensor, values));
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Agreement, Contributor, JobId, SealPermit, SecretKey, TensorSpec,
        params::{Literal, Scheme},
        tensors::Dtype,
    };

    fn sum_of(key: &SecretKey, shapes: &[u64], with: impl Fn(u32, usize) -> bool) -> Sum {
        let spec = |(i, &length): (usize, &u64)| TensorSpec {
            name: format!("t{i}"),
            dtype: Dtype::F32,
            shape: vec![length],
        };
        let specs: Vec<_> = shapes.iter().enumerate().map(spec).collect();
        let ranges = vec![1.0; specs.len()];
        let agreement = Agreement::new(specs, ranges, 1).unwrap();
        let chunks = key.public().parameters().chunks(agreement.values());
        let set = |chunk: u32| {
            let mut set = ContributorSet::none(3);
            (0..3).filter(|index| with(chunk, *index)).for_each(|index| set.insert(index));
            set
        };
        let seed = || SealPermit::draw().unwrap().seed();
        let contributor = |number: u16| Contributor { number, seed: seed() };
        Sum {
            contributors: [5, 2, 9].map(contributor).to_vec(),
            job: JobId([0; 16]),
            round: 0,
            agreement,
            sets: (0..chunks.count()).map(set).collect(),
            stream: vec![0; chunks.total_bytes()],
        }
    }

    #[test]
    fn every_value_is_in_one_cohort_and_runs_end_where_tensors_do() {
        let literal = Literal { scheme: Scheme::CkksSum, clients: 4, bits: 16 };
        let key = SecretKey::generate(literal).unwrap();
        let g = key.public().parameters().geometry();
        let (each, early_chunks) = (g.values_per_chunk() as u64, 50);
        let shapes = [each / 2, 0, 3 * each, 1, 700 * each];
        let all = sum_of(&key, &shapes, |_, _| true);
        let [whole] = &all.cohorts(key.public())[..] else { panic!("one cohort") };
        assert_eq!((&whole.contributors[..], all.contributed()), (&[2, 5, 9][..], vec![2, 5, 9]));
        let full = |t: usize| (t, 0..shapes[t] as usize);
        assert_eq!(whole.values, [0, 2, 3, 4].map(full));

        // Client 2 left early, client 9 is in nothing, and no chunk is of none.
        let mixed =
            sum_of(&key, &shapes, |chunk, index| index == 0 || index == 1 && chunk < early_chunks);
        let cohorts = mixed.cohorts(key.public());
        let of: Vec<_> = cohorts.iter().map(|cohort| &cohort.contributors[..]).collect();
        assert_eq!((of, mixed.contributed()), (vec![&[5][..], &[2, 5]], vec![2, 5]));
        assert!(cohorts[0].chunks > cohorts[1].chunks);
        let mut known: Vec<_> = shapes.iter().map(|&length| vec![0; length as usize]).collect();
        let runs = cohorts.iter().flat_map(|cohort| &cohort.values);
        runs.for_each(|(t, run)| known[*t][run.clone()].iter_mut().for_each(|n| *n += 1));
        assert!(known.iter().flatten().all(|count| *count == 1));
        let chunks = key.public().parameters().chunks(mixed.agreement.values());
        let early = (0..early_chunks).map(|chunk| chunks.values_of(chunk).len()).sum::<usize>();
        let counted: usize = cohorts[1].values.iter().map(|(_, run)| run.len()).sum();
        assert_eq!(counted, early);
    }

    #[test]
    fn the_parts_of_a_file_are_the_file() {
        let key =
            SecretKey::generate(Literal { scheme: Scheme::CkksSum, clients: 4, bits: 16 }).unwrap();
        let sum = sum_of(&key, &[3000], |chunk, index| index < 2 || chunk % 2 == 0);
        let (head, stream, digest) = sum.to_parts(key.public());
        let bytes = [&head[..], stream, &digest].concat();
        assert!(bytes == sum.to_bytes(key.public()));
        assert!(Sum::from_bytes(&bytes, key.public()).unwrap() == sum);
    }
}

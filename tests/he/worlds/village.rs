//! Clients and what they sealed, which several worlds share.

use ciphergram_he::{
    Agreement, Contribution, Quantised, SealPermit, Sealer,
    params::{Chunks, Scheme},
};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use crate::support::sums::{Key, agreement, engine, generate};

/// Clients that contribute; keys admit more.
pub(crate) const CLIENTS: u16 = 4;
/// Rounds that they contribute to.
const ROUNDS: [u64; 2] = [3, 4];
/// Ranges of the terms that they were given.
const RANGES: [f64; 2] = [1.0, 8.0];

/// Returns the keys of all worlds: two of `ckks-sum`, whose heads take one slot and two, and one under which a
/// client's file opens nothing.
pub(crate) fn keys() -> [Key; 3] {
    [
        generate(Scheme::CkksSum, 10, 16),
        generate(Scheme::CkksSum, 64, 16),
        generate(Scheme::Paillier2048, 6, 16),
    ]
}

/// What a client sealed.
pub(crate) struct Sealed {
    pub(crate) fields: Vec<u32>,
    pub(crate) weight: u32,
    pub(crate) contribution: Contribution<'static>,
}

/// Contributions of all clients to each round, under each terms.
pub(crate) struct Village<'a> {
    pub(crate) key: &'a Key,
    pub(crate) chunks: Chunks,
    pub(crate) agreements: [Agreement; 2],
    pub(crate) all: Vec<Sealed>,
}

impl<'a> Village<'a> {
    pub(crate) fn new(key: &'a Key, seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(!seed);
        let p = key.public().parameters();
        // Two chunks of values, the last one whole or a part.
        let each = p.geometry().values_per_chunk();
        let values = if seed.is_multiple_of(2) { 2 * each } else { each + 7 };
        let most = u64::from(2 * p.half_steps()) + 1;
        let agreements = RANGES.map(|range| {
            Agreement::new(agreement(values, 9).specs().to_vec(), vec![range], 9).unwrap()
        });
        let mut all = vec![];
        for agreement in &agreements {
            for round in ROUNDS {
                let terms = key.job.terms(round, agreement).unwrap();
                for client in 0..CLIENTS {
                    let fields: Vec<_> =
                        (0..values).map(|_| (rng.next_u64() % most) as u32).collect();
                    let weight = (rng.next_u64() % 9) as u32 + 1;
                    let update = Quantised::from_fields(fields.clone(), weight);
                    let (own, permit) = (key.secret.as_client(client), SealPermit::draw().unwrap());
                    let sealer = Sealer::new(own, engine(), update, permit, &terms).unwrap();
                    let contribution = sealer.into_contribution().unwrap();
                    all.push(Sealed { fields, weight, contribution });
                }
            }
        }
        Self { key, chunks: p.chunks(values), agreements, all }
    }

    /// Returns the place of the contribution of a client to a round under terms.
    pub(crate) fn place(&self, client: usize, round: usize, terms: usize) -> usize {
        (terms * ROUNDS.len() + round) * usize::from(CLIENTS) + client
    }
}

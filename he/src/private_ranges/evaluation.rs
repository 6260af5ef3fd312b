//! The evaluation key, and the bootstraps that it is for: the one file that calls `tfhe`.

use std::collections::BTreeMap;

use rand_core::Rng as _;
use rayon::prelude::*;
use tfhe::core_crypto::{
    commons::math::random::{CompressionSeed, Seed},
    fft_impl::fft64::math::fft::Fft,
    prelude::*,
};

use super::{
    EncryptedRanges, Proposal, RangesSecret,
    circuit::{self, Lookup, LookupTable, MOST},
    lwe::{self, DIMENSION, LEVEL_LOG2, PARAMETERS, UNIT_LOG2},
};
use crate::{
    Error, PublicKey,
    bytes::{Reader, to_bytes, to_words},
    error::{FrameError, WRONG_LENGTH},
    formats::frame::{self, Header, Kind},
    ids::KeyId,
    random,
};

const MODULUS: CiphertextModulus<u64> = CiphertextModulus::new_native();
const GLWE_SIZE: GlweSize = GlweSize(2);
const LARGE: LweDimension = LweDimension(DIMENSION);
const SMALL: LweDimension = LweDimension(PARAMETERS.lwe_dimension);
const DEGREE: PolynomialSize = PolynomialSize(PARAMETERS.polynomial_size);
const PBS_BASE: DecompositionBaseLog = DecompositionBaseLog(PARAMETERS.pbs_base_log);
const PBS_DIGITS: DecompositionLevelCount = DecompositionLevelCount(PARAMETERS.pbs_level);
const SWITCH_BASE: DecompositionBaseLog = DecompositionBaseLog(PARAMETERS.ks_base_log);
const SWITCH_DIGITS: DecompositionLevelCount = DecompositionLevelCount(PARAMETERS.ks_level);

/// Words of the bootstrapping key in the file, without masks: a polynomial for each digit of each of two rows, for
/// each word of the small secret.
const BOOTSTRAP_WORDS: usize =
    GLWE_SIZE.0 * PARAMETERS.pbs_level * PARAMETERS.polynomial_size * PARAMETERS.lwe_dimension;
/// Words of the switching key in the file, without masks: one for each digit of each word of the large secret.
const SWITCH_WORDS: usize = PARAMETERS.ks_level * DIMENSION;
/// Bytes that opening the key takes, beside its file: its words, with masks, and as transforms; and the switching key.
const OPEN_BYTES: usize =
    8 * (BOOTSTRAP_WORDS * (1 + 2 * GLWE_SIZE.0) + SWITCH_WORDS * (2 + PARAMETERS.lwe_dimension));

type BitCiphertext = LweCiphertextOwned<u64>;

/// The key that an aggregator finds ranks with: it opens nothing.
pub struct RangesEvaluationKey {
    id: KeyId,
    bootstrap: FourierLweBootstrapKeyOwned,
    switch: LweKeyswitchKeyOwned<u64>,
}

/// Seeds of `tfhe`'s generators, which it asks for where it cannot fail.
struct OwnSeeder(ciphergram_accel::random::StreamRng);

impl Seeder for OwnSeeder {
    fn seed(&mut self) -> Seed {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        Seed(u128::from_le_bytes(bytes))
    }

    fn is_available() -> bool {
        true
    }
}

fn t_uniform(log2: u32) -> DynamicDistribution<u64> {
    DynamicDistribution::new_t_uniform(log2)
}

fn mask_seed(bytes: &[u8; 16]) -> CompressionSeed {
    Seed(u128::from_le_bytes(*bytes)).into()
}

impl RangesEvaluationKey {
    /// Makes the file of the evaluation key of a secret, beside a key of sums. It holds seeds in place of masks.
    ///
    /// # Errors
    /// No randomness.
    pub fn generate(secret: &RangesSecret, key: &PublicKey) -> Result<Vec<u8>, Error> {
        let mut seeder = OwnSeeder(random::generator()?);
        let (small, large) = (secret.small(), secret.large());
        let small = LweSecretKey::from_container(&small[..]);
        let glwe = GlweSecretKey::from_container(&large[..], DEGREE);
        let large = LweSecretKey::from_container(&large[..]);
        let seeds = [*random::bytes::<16>()?, *random::bytes::<16>()?];
        let mut bootstrap = SeededLweBootstrapKeyOwned::new(
            0,
            GLWE_SIZE,
            DEGREE,
            PBS_BASE,
            PBS_DIGITS,
            SMALL,
            mask_seed(&seeds[0]),
            MODULUS,
        );
        let noise = t_uniform(PARAMETERS.glwe_noise_log2);
        par_generate_seeded_lwe_bootstrap_key(&small, &glwe, &mut bootstrap, noise, &mut seeder);
        let mut switch = SeededLweKeyswitchKeyOwned::new(
            0,
            SWITCH_BASE,
            SWITCH_DIGITS,
            LARGE,
            SMALL,
            mask_seed(&seeds[1]),
            MODULUS,
        );
        let noise = t_uniform(PARAMETERS.lwe_noise_log2);
        generate_seeded_lwe_keyswitch_key(&large, &small, &mut switch, noise, &mut seeder);
        let header = Header::of_sums(Kind::RangesKey, key, 0);
        Ok(frame::seal(&header, 8 * (BOOTSTRAP_WORDS + SWITCH_WORDS) + 64, |w| {
            w.bytes(&secret.id().0);
            w.u8(PARAMETERS.code);
            seeds.iter().for_each(|seed| w.bytes(seed));
            w.bytes(&to_bytes(bootstrap.as_ref()));
            w.bytes(&to_bytes(switch.as_ref()));
        }))
    }

    /// Opens a file made beside `key`: once in an aggregator's life, since it takes a second and 180 MB.
    ///
    /// # Errors
    /// Its form, kind, scheme, parameters or key are not as they should be; there is no memory for it.
    pub fn from_bytes(bytes: &[u8], key: &PublicKey) -> Result<Self, Error> {
        let mut r = Reader(frame::open(bytes, Kind::RangesKey, key)?.body);
        let id = KeyId(r.array()?);
        let code = r.u8()?;
        if code != PARAMETERS.code {
            return Err(FrameError::Unknown { what: "parameter set of bootstraps", code }.into());
        }
        let seeds = [r.array()?, r.array()?];
        if r.0.len() != 8 * (BOOTSTRAP_WORDS + SWITCH_WORDS) {
            return Err(WRONG_LENGTH.into());
        }
        // `tfhe` ends the process where it gets none.
        let mut room: Vec<u8> = vec![];
        let no_memory =
            |_| Error::Memory { what: "the evaluation key of ranges", bytes: OPEN_BYTES };
        room.try_reserve_exact(OPEN_BYTES).map_err(no_memory)?;
        drop(room);
        let words = to_words(r.bytes(8 * BOOTSTRAP_WORDS)?);
        let seeded = SeededLweBootstrapKey::from_container(
            words,
            GLWE_SIZE,
            DEGREE,
            PBS_BASE,
            PBS_DIGITS,
            mask_seed(&seeds[0]),
            MODULUS,
        );
        let standard = seeded.par_decompress_into_lwe_bootstrap_key();
        let mut bootstrap =
            FourierLweBootstrapKey::new(SMALL, GLWE_SIZE, DEGREE, PBS_BASE, PBS_DIGITS);
        par_convert_standard_lwe_bootstrap_key_to_fourier(&standard, &mut bootstrap);
        let words = to_words(r.bytes(8 * SWITCH_WORDS)?);
        let seeded = SeededLweKeyswitchKey::from_container(
            words,
            SWITCH_BASE,
            SWITCH_DIGITS,
            SMALL.to_lwe_size(),
            mask_seed(&seeds[1]),
            MODULUS,
        );
        Ok(Self { id, bootstrap, switch: seeded.decompress_into_lwe_keyswitch_key() })
    }

    /// Returns the name of the secret that it belongs to.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Finds for each row that is proposed, in `levels` levels, the one of its rank among all; `ranks` has one for each
    /// row. Runs on all cores, and calls `progress` with the number of levels found since its last call.
    ///
    /// # Panics
    /// If a proposal has more or fewer rows, or other levels.
    #[must_use]
    pub fn find(
        &self,
        proposals: &[&Proposal],
        ranks: &[usize],
        levels: u8,
        progress: &(dyn Fn(u32) + Sync),
    ) -> EncryptedRanges {
        let levels = usize::from(levels);
        let bits = ranks.len() * levels;
        assert!(proposals.iter().all(|p| p.bodies.len() == bits), "proposals of these rows");
        let mut circuits = BTreeMap::new();
        for &rank in ranks {
            circuits.entry(rank).or_insert_with(|| Circuit::new(rank, proposals.len()));
        }
        let row = |(row, rank): (usize, &usize)| {
            let circuit = &circuits[rank];
            let levels = (levels * row..levels * (row + 1)).into_par_iter().map(|bit| {
                let level = self.run(circuit, proposals, bit);
                progress(1);
                level
            });
            levels.reduce(zero, |mut sum, other| {
                add(&mut sum, &other);
                sum
            })
        };
        let found: Vec<_> = ranks.par_iter().enumerate().map(row).collect();
        let words = found.iter().flat_map(|ciphertext| lwe::round(ciphertext.as_ref())).collect();
        EncryptedRanges { words }
    }

    /// Runs the lookups of one bit of all proposals, and returns the result of the last: 1 at the place of levels,
    /// or 0.
    fn run(&self, circuit: &Circuit, proposals: &[&Proposal], bit: usize) -> BitCiphertext {
        let mut results: Vec<BitCiphertext> = vec![];
        for (lookup, table) in circuit.lookups.iter().zip(&circuit.tables) {
            let mut sum = zero();
            for &input in &lookup.inputs {
                match proposals.get(input) {
                    Some(Proposal { seed, bodies, .. }) => {
                        lwe::add_seeded(sum.as_mut(), seed.bytes(), bit, bodies[bit]);
                    }
                    None => add(&mut sum, &results[input - proposals.len()]),
                }
            }
            results.push(self.bootstrap(sum, lookup.table, table));
        }
        results.pop().unwrap_or_else(zero)
    }

    /// Looks a number up in a table.
    fn bootstrap(
        &self,
        mut input: BitCiphertext,
        table: LookupTable,
        accumulator: &GlweCiphertextOwned<u64>,
    ) -> BitCiphertext {
        let (before, after) = shifts(table);
        shift(&mut input, before);
        let mut switched = LweCiphertext::new(0, SMALL.to_lwe_size(), MODULUS);
        keyswitch_lwe_ciphertext(&self.switch, &input, &mut switched);
        let log2 = DEGREE.to_blind_rotation_input_modulus_log();
        let turns = lwe_ciphertext_centered_binary_modulus_switch::<u64, usize, _>(switched, log2);
        let mut turned = accumulator.clone();
        let fft = Fft::new(DEGREE);
        let mut buffers = ComputationBuffers::new();
        let room =
            blind_rotate_assign_mem_optimized_requirement::<u64>(GLWE_SIZE, DEGREE, fft.as_view());
        buffers.resize(room.unaligned_bytes_required());
        blind_rotate_assign_mem_optimized(
            &turns,
            &mut turned,
            &self.bootstrap,
            fft.as_view(),
            buffers.stack(),
        );
        let mut output = zero();
        extract_lwe_sample_from_glwe_ciphertext(&turned, &mut output, MonomialDegree(0));
        shift(&mut output, after);
        output
    }
}

/// The lookups of a rank, and the polynomials that they turn.
struct Circuit {
    lookups: Vec<Lookup>,
    tables: Vec<GlweCiphertextOwned<u64>>,
}

impl Circuit {
    fn new(rank: usize, proposals: usize) -> Self {
        let lookups = circuit::at_least(rank, proposals);
        let tables = lookups.iter().map(|lookup| accumulator(lookup.table)).collect();
        Self { lookups, tables }
    }
}

fn zero() -> BitCiphertext {
    LweCiphertext::new(0, LARGE.to_lwe_size(), MODULUS)
}

fn add(sum: &mut BitCiphertext, other: &BitCiphertext) {
    lwe_ciphertext_add_assign(sum, other);
}

fn shift(ciphertext: &mut BitCiphertext, by: u64) {
    lwe_ciphertext_plaintext_add_assign(ciphertext, Plaintext(by));
}

/// Returns the polynomial that a lookup turns: the table, each number as wide as its noise may be.
///
/// A turn by the degree negates, so that a table of numbers needs the uppermost bit clear; that of a comparison is of
/// the sign alone, and needs no more than half the numbers on either side.
fn accumulator(table: LookupTable) -> GlweCiphertextOwned<u64> {
    match table {
        LookupTable::AtLeast(_) => {
            let sign = vec![1 << (LEVEL_LOG2 - 1); PARAMETERS.polynomial_size];
            let sign = PlaintextList::from_container(sign);
            allocate_and_trivially_encrypt_new_glwe_ciphertext(GLWE_SIZE, &sign, MODULUS)
        }
        table => {
            let result = |number: u64| table.look_up(number as usize) as u64;
            let unit = 1 << UNIT_LOG2;
            generate_programmable_bootstrap_glwe_lut(
                DEGREE,
                GLWE_SIZE,
                MOST + 1,
                MODULUS,
                unit,
                result,
            )
        }
    }
}

/// Returns what is added before a lookup and after it: a comparison is that of a sign, whose halves are to be 0 and 1.
fn shifts(table: LookupTable) -> (u64, u64) {
    match table {
        LookupTable::AtLeast(rank) => {
            let threshold = ((2 * rank as u64) - 1) << (UNIT_LOG2 - 1);
            (threshold.wrapping_neg(), 1 << (LEVEL_LOG2 - 1))
        }
        LookupTable::Cut(_) | LookupTable::Low | LookupTable::High(_) => (0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scheme, SecretKey, params::Literal, private_ranges::Rank};

    /// Returns how many of the ciphertexts of bits open, under a secret, to a bit with little noise.
    fn bits(secret: &[u64], Proposal { seed, bodies, .. }: &Proposal) -> usize {
        let phase = |(index, &body): (usize, &u64)| {
            let mut ciphertext = zero();
            lwe::add_seeded(ciphertext.as_mut(), seed.bytes(), index, body);
            decrypt_lwe_ciphertext(&LweSecretKey::from_container(secret), &ciphertext).0
        };
        let is_bit = |phase: &u64| phase.wrapping_add(1 << 20) & !(1 << UNIT_LOG2) < 1 << 21;
        bodies.iter().enumerate().map(phase).filter(is_bit).count()
    }

    /// All that an aggregator holds: its key, proposals with their seeds, and what it found. The library's own
    /// decryption opens each under the clients' secret, and nothing under what there is of bits and seeds besides.
    #[test]
    fn what_an_aggregator_holds_opens_to_nothing_under_what_it_has() {
        let literal = Literal { scheme: Scheme::CkksSum, clients: 4, bits: 16 };
        let (key, secret) = (SecretKey::generate(literal).unwrap(), RangesSecret::draw().unwrap());
        let file = RangesEvaluationKey::generate(&secret, key.public()).unwrap();
        let evaluation = RangesEvaluationKey::from_bytes(&file, key.public()).unwrap();
        let proposals: Vec<_> =
            (0..3).map(|_| Proposal::new(&secret, 16, &[12, 16]).unwrap()).collect();
        let all: Vec<_> = proposals.iter().collect();
        let found = evaluation.find(&all, &[Rank::Median.among(3); 2], 16, &|_| {});
        assert_eq!(found.open(&secret), [12, 16]);
        assert_eq!(bits(&secret.large(), &proposals[0]), 32);
        // Words of files, and streams of seeds in them, as keys.
        let words = |from: &[u8]| -> Vec<u64> {
            let words = from.as_chunks().0.iter().cycle().take(DIMENSION);
            words.map(|word| u64::from_le_bytes(*word)).collect()
        };
        let mut seeds = vec![*proposals[0].seed.bytes(), [0; 32]];
        seeds.extend(file[48..].as_chunks::<32>().0.iter().take(8));
        let tries = seeds.iter().flat_map(|seed| {
            let derived = RangesSecret::of_seed(zeroize::Zeroizing::new(*seed));
            [derived.large().to_vec(), random::keystream(seed, DIMENSION).to_vec(), words(seed)]
        });
        let answer: Vec<u8> = found.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let tries = tries.chain([words(&file), words(&file[100..]), words(&answer)]);
        for mut key in tries {
            key.iter_mut().for_each(|word| *word &= 1);
            assert!(proposals.iter().all(|proposal| bits(&key, proposal) < 4));
            let answers = found.words.chunks(DIMENSION + 1);
            let opened: Vec<_> = answers.map(|answer| lwe::open_level(&key, answer)).collect();
            assert_ne!(opened, [12, 16]);
        }
    }
}

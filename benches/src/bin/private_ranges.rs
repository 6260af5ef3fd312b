//! What agreeing on private ranges costs, beside the bootstraps alone of the library that does it; and what sums would
//! cost if they were of that library's ciphertexts.
//!
//! `cargo run --release -p ciphergram-benches --features tfhe --bin private_ranges`

use std::{
    error::Error,
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use ciphergram_accel::{CpuEngine, Engine};
use ciphergram_he::{
    AgreedRanges, Agreement, Destination, Dtype, Job, Ledger, Limits, Member, RangesProposal,
    Scheme, SecretKey, Tensor, TensorSpec, Update, aggregate,
    codec::{Output, Policy},
    job::PrivateRanges,
    open_to,
    params::Literal,
    private_ranges::{MAX_LEVELS, RangesEvaluationKey, RangesSecret, Rank},
};
use rayon::prelude::*;
use tfhe::core_crypto::{fft_impl::fft64::math::fft::Fft, prelude::*};

const TENSORS: usize = 50;
/// Bootstraps of a run of them alone.
const ALONE: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let literal = Literal { scheme: Scheme::CkksSum, clients: 32, bits: 16 };
    let key = SecretKey::generate(literal)?.with_ranges_secret(RangesSecret::draw()?);
    let secret = key.ranges_secret().ok_or("no secret")?;
    let clock = Instant::now();
    let file = RangesEvaluationKey::generate(secret, key.public())?;
    let made = clock.elapsed();
    let clock = Instant::now();
    let evaluation = RangesEvaluationKey::from_bytes(&file, key.public())?;
    println!(
        "evaluation key: {:.1} MB, made in {:.1} s, opened in {:.1} s",
        file.len() as f64 / 1e6,
        made.as_secs_f64(),
        clock.elapsed().as_secs_f64()
    );
    let private = PrivateRanges::new(Rank::Largest(2), secret.id());
    let limits = Limits { private_ranges: Some(private), ..Limits::of_key(key.public()) };
    let job = Job::new(key.public(), limits)?;
    let update = update()?;
    let mut proposals = vec![];
    let mut took = vec![];
    for client in 0..32 {
        let clock = Instant::now();
        proposals.push(RangesProposal::new(key.as_client(client), &job, &update, Policy::Max)?);
        took.push(clock.elapsed());
    }
    let bytes = proposals[0].to_bytes(key.public()).len();
    println!(
        "proposal of {TENSORS} tensors in {MAX_LEVELS} levels: {bytes} bytes, {:?}",
        middle(took)
    );
    let alone = Bootstraps::new();
    for (clients, lookups) in [(8, 1), (32, 3)] {
        let before = alone.each();
        let clock = Instant::now();
        let agreed = AgreedRanges::find(&evaluation, &job, &proposals[..clients], &|_| {})?;
        let took = clock.elapsed();
        let each = (before + alone.each()) / 2;
        let count = TENSORS * usize::from(MAX_LEVELS) * lookups;
        let part = each.as_secs_f64() * count as f64 / took.as_secs_f64();
        println!(
            "{clients} clients: {:.1} s for {count} bootstraps, which alone take {:.1} ms each on {} threads: {part:.2} \
             of it; the answer has {} bytes",
            took.as_secs_f64(),
            each.as_secs_f64() * 1e3,
            rayon::current_num_threads(),
            agreed.to_bytes(key.public()).len()
        );
    }
    sums_of_ours(&key)?;
    sums_of_lwe();
    Ok(())
}

/// Values of a sum under `ckks-sum`, and under learning with errors, where each is a ciphertext.
const VALUES: (u64, usize) = (1_000_000, 2_000);
/// Contributions of a sum.
const SUMMED: u16 = 10;

/// Prints what a value of a sum costs: its upload, and the time to encrypt it, to add those of all, and to decrypt.
fn row(name: &str, bytes: f64, each: [f64; 3]) {
    let [encrypt, add, decrypt] = each.map(|seconds| seconds * 1e9);
    println!(
        "{name}: {bytes:.2} bytes a value, and on all cores {encrypt:.1} ns to encrypt it, {add:.1} ns to add {SUMMED}, \
         {decrypt:.1} ns to decrypt the sum"
    );
}

fn sums_of_ours(key: &SecretKey) -> Result<(), Box<dyn Error>> {
    let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
    let job = Job::new(key.public(), Limits { max_weight: 1, ..Limits::of_key(key.public()) })?;
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F32, shape: vec![VALUES.0] };
    let values: Vec<_> = (0..VALUES.0).map(|i| (i as f64 * 0.7).sin()).collect();
    let update = Update::new(vec![Tensor::from_values(spec, &values)?]);
    let agreement = Agreement::new(update.specs(), vec![1.0], 1)?;
    let (mut contributions, mut took) = (vec![], vec![]);
    for client in 0..SUMMED {
        let clock = Instant::now();
        let (ledger, engine) = (Ledger::in_memory(), engine.clone());
        let member = Member::new(key.as_client(client), &job, &ledger, engine);
        let own = member.seal(&update, 1, &agreement, Some(0))?.into_contribution()?;
        took.push(clock.elapsed());
        contributions.push((client, Ok(own)));
    }
    let bytes = contributions.iter().filter_map(|(_, c)| c.as_ref().ok()).map(|c| c.stream.len());
    let bytes = bytes.max().unwrap_or(0) as f64 / VALUES.0 as f64;
    let clock = Instant::now();
    let sum = aggregate(key.public(), &job, engine.clone(), contributions)?;
    let added = clock.elapsed();
    let clock = Instant::now();
    let mut mean = vec![0; VALUES.0 as usize * Dtype::F32.bytes()];
    let to = Destination::Memory(&mut [&mut mean]);
    open_to(key, &*engine, &sum, &job, Output::Mean, to)?;
    black_box(mean);
    let each = [middle(took), added, clock.elapsed()].map(|t| t.as_secs_f64() / VALUES.0 as f64);
    row("ckks-sum", bytes, each);
    Ok(())
}

fn sums_of_lwe() {
    let mut seeder = new_seeder();
    let seeder = seeder.as_mut();
    let mut secrets = SecretRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
    let secret = allocate_and_generate_new_binary_lwe_secret_key::<u64, _>(LARGE, &mut secrets);
    let (size, count) = (LARGE.to_lwe_size(), LweCiphertextCount(VALUES.1));
    let plain =
        PlaintextList::from_container((0..VALUES.1 as u64).map(|i| i << 40).collect::<Vec<_>>());
    let noise = DynamicDistribution::<u64>::new_t_uniform(17);
    let (mut contributions, mut took) = (vec![], vec![]);
    for _ in 0..SUMMED {
        let clock = Instant::now();
        let mut own = SeededLweCiphertextList::new(0, size, count, seeder.seed().into(), MODULUS);
        par_encrypt_seeded_lwe_ciphertext_list(&secret, &mut own, &plain, noise, seeder);
        took.push(clock.elapsed());
        contributions.push(own);
    }
    let clock = Instant::now();
    let mut sum = LweCiphertextList::new(0, size, count, MODULUS);
    for own in contributions {
        let own = own.par_decompress_into_lwe_ciphertext_list();
        let words = sum.as_mut().par_iter_mut().zip(own.as_ref());
        words.for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    let added = clock.elapsed();
    let clock = Instant::now();
    let mut opened = PlaintextList::new(0, PlaintextCount(VALUES.1));
    decrypt_lwe_ciphertext_list(&secret, &sum, &mut opened);
    black_box(opened);
    let each = [middle(took), added, clock.elapsed()].map(|t| t.as_secs_f64() / VALUES.1 as f64);
    row("learning with errors, tfhe", 8.0, each);
}

fn middle(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

fn update() -> Result<Update, Box<dyn Error>> {
    let tensor = |i: usize| {
        let spec = TensorSpec { name: format!("t{i:02}"), dtype: Dtype::F32, shape: vec![4] };
        let range = 2f64.powi(-(i as i32 % 30));
        Tensor::from_values(spec, &[range, -range, 0.0, range / 2.0])
    };
    Ok(Update::new((0..TENSORS).map(tensor).collect::<Result<_, _>>()?))
}

/// Bootstraps alone, by a key and a ciphertext of their own: those of `he/src/private_ranges`, of the same parameters.
struct Bootstraps {
    bootstrap: FourierLweBootstrapKeyOwned,
    switch: LweKeyswitchKeyOwned<u64>,
    input: LweCiphertextOwned<u64>,
    table: GlweCiphertextOwned<u64>,
}

const MODULUS: CiphertextModulus<u64> = CiphertextModulus::new_native();
const DEGREE: PolynomialSize = PolynomialSize(2048);
const SMALL: LweDimension = LweDimension(918);
const LARGE: LweDimension = LweDimension(2048);
const GLWE_SIZE: GlweSize = GlweSize(2);

impl Bootstraps {
    fn new() -> Self {
        let mut seeder = new_seeder();
        let seeder = seeder.as_mut();
        let mut secrets = SecretRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
        let mut rng =
            EncryptionRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed(), seeder);
        let small = allocate_and_generate_new_binary_lwe_secret_key::<u64, _>(SMALL, &mut secrets);
        let glwe = allocate_and_generate_new_binary_glwe_secret_key::<u64, _>(
            GLWE_SIZE.to_glwe_dimension(),
            DEGREE,
            &mut secrets,
        );
        let large = glwe.clone().into_lwe_secret_key();
        let (base, digits) = (DecompositionBaseLog(23), DecompositionLevelCount(1));
        let noise = |log2| DynamicDistribution::<u64>::new_t_uniform(log2);
        let standard = par_allocate_and_generate_new_lwe_bootstrap_key(
            &small,
            &glwe,
            base,
            digits,
            noise(17),
            MODULUS,
            &mut rng,
        );
        let mut bootstrap = FourierLweBootstrapKey::new(SMALL, GLWE_SIZE, DEGREE, base, digits);
        par_convert_standard_lwe_bootstrap_key_to_fourier(&standard, &mut bootstrap);
        let (base, digits) = (DecompositionBaseLog(4), DecompositionLevelCount(4));
        let switch = allocate_and_generate_new_lwe_keyswitch_key(
            &large,
            &small,
            base,
            digits,
            noise(45),
            MODULUS,
            &mut rng,
        );
        let message = Plaintext(3 << 59);
        let input =
            allocate_and_encrypt_new_lwe_ciphertext(&large, message, noise(17), MODULUS, &mut rng);
        let at_least = |count: u64| u64::from(count >= 2);
        let table = generate_programmable_bootstrap_glwe_lut(
            DEGREE,
            GLWE_SIZE,
            16,
            MODULUS,
            1 << 57,
            at_least,
        );
        Self { bootstrap, switch, input, table }
    }

    /// Returns the time of each, of many on all cores.
    fn each(&self) -> Duration {
        let clock = Instant::now();
        (0..ALONE).into_par_iter().for_each(|_| drop(black_box(self.run())));
        clock.elapsed() / ALONE as u32
    }

    fn run(&self) -> LweCiphertextOwned<u64> {
        let mut switched = LweCiphertext::new(0, SMALL.to_lwe_size(), MODULUS);
        keyswitch_lwe_ciphertext(&self.switch, &self.input, &mut switched);
        let log2 = DEGREE.to_blind_rotation_input_modulus_log();
        let turns = lwe_ciphertext_centered_binary_modulus_switch::<u64, usize, _>(switched, log2);
        let mut turned = self.table.clone();
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
        let mut output = LweCiphertext::new(0, LARGE.to_lwe_size(), MODULUS);
        extract_lwe_sample_from_glwe_ciphertext(&turned, &mut output, MonomialDegree(0));
        output
    }
}

//! How runs use a device: parts, memory, failures. What kernels compute the conformance suite
//! tests.

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::{pool::Purpose, shaders::Kernel, *};
use crate::{
    Builder, CpuEngine, conformance,
    device::{DeviceBatch, Runner as _},
    ring::largest_primes,
};

/// Returns an engine, or prints why this test does nothing.
pub(super) fn present() -> Option<GpuEngine> {
    GpuEngine::new().map_err(|why| println!("SKIPPED, {why}")).ok()
}

fn ring(degree: usize) -> Arc<Ring> {
    Arc::new(Ring::new(degree, &largest_primes(20, degree, 2)).unwrap())
}

/// Twice x, by way of `steps` sums.
fn sums(ring: &Arc<Ring>, steps: usize) -> Program {
    let mut b = Builder::new("sums");
    let x = b.coefficients("x", ring);
    let mut sum = b.add("2x", x, x);
    for _ in 1..steps {
        sum = b.sub("x", sum, x);
        sum = b.add("2x", sum, x);
    }
    b.output(sum);
    b.build()
}

/// Returns the words of `count` items, all below any prime here.
fn words(count: usize, ring: &Ring) -> Vec<u64> {
    (0..(count * ring.len_words()) as u64).map(|i| i % 1000 + 1).collect()
}

/// Twice x over `count` items, and whether that is what came out.
fn double(
    engine: &GpuEngine,
    ring: &Arc<Ring>,
    steps: usize,
    count: usize,
) -> Result<(), RunError> {
    let x = words(count, ring);
    let mut out = vec![0; x.len()];
    engine.run(&sums(ring, steps), &mut [Operand::SecretIn(&x), Operand::Out(&mut out)])?;
    assert!(std::iter::zip(out, x).all(|(out, x)| out == 2 * x), "{count} items");
    Ok(())
}

fn failed(why: DeviceFault) -> Result<(), RunError> {
    Err(RunError::Device { engine: "gpu", why })
}

/// Returns the items of a part of a program with one operand and one result.
fn part_size(engine: &GpuEngine, program: &Program, count: usize) -> Result<usize, DeviceFault> {
    let operands = &mut [Operand::SecretIn(&[]), Operand::Out(&mut [])];
    engine.part(program, &DeviceBatch::new(program, operands, count))
}

/// Every kind of operand: items, a constant, what all share, an accumulator, two results.
fn mixed(ring: &Arc<Ring>) -> Program {
    let key: Vec<u64> = words(1, ring);
    let mut b = Builder::new("mixed");
    let x = b.coefficients("x", ring);
    let sums = b.beat_sums("sums", ring, 2);
    let key = b.secret_key("key", ring, &key);
    let seed = b.secret_seed("seed");
    let index = b.index("index");
    let plain = b.intt("plain", key);
    let shifted = b.add("shifted", x, plain);
    let form = b.ntt("form", shifted);
    let product = b.poly_mul("product", form, key);
    let back = b.intt("back", product);
    let noise = b.noise("noise", ring, seed, index);
    let noisy = b.add("noisy", back, noise);
    let packed = b.pack("packed", noisy, 2);
    let after = b.add_beats("after", sums, packed);
    b.update(sums, after);
    b.output(back);
    b.output(noisy);
    b.build()
}

/// Returns the accumulator and both results of [`mixed`].
fn run_mixed(engine: &dyn Engine, ring: &Arc<Ring>, count: usize) -> [Vec<u64>; 3] {
    let mut random = ChaCha20Rng::seed_from_u64(31);
    let (x, seed) = (words(count, ring), [1, 2, 3, 4]);
    let mut sums = vec![0; count * 2 * 8];
    let index: Vec<u64> = (0..count).map(|_| random.next_u64() >> 32).collect();
    let [mut back, mut noisy] = [(); 2].map(|()| vec![0; x.len()]);
    let operands = &mut [
        Operand::SecretIn(&x),
        Operand::InOut(&mut sums),
        Operand::SecretIn(&seed),
        Operand::In(&index),
        Operand::Out(&mut back),
        Operand::Out(&mut noisy),
    ];
    // Twice: an accumulator takes both.
    (0..2).for_each(|_| engine.run(&mixed(ring), operands).unwrap());
    [sums, back, noisy]
}

#[test]
fn parts_of_any_size_give_the_same() {
    let ring = ring(16);
    let Some(engine) = present() else { return };
    for count in [0, 1, 2, 3, 4, 7, 10] {
        let expected = run_mixed(&CpuEngine::new(), &ring, count);
        // One item in a part, some, all.
        for bytes in [0, 30_000, 1 << 30] {
            engine.device.set_memory_bytes(bytes);
            let found = run_mixed(&engine, &ring, count);
            assert!(found == expected, "{count} items, {bytes} bytes");
        }
    }
    let sizes = [0, 30_000, 1 << 30].map(|bytes| {
        let (program, seed) = (mixed(&ring), [0; 4]);
        let operands = &mut [
            Operand::SecretIn(&[]),
            Operand::InOut(&mut []),
            Operand::SecretIn(&seed),
            Operand::In(&[]),
            Operand::Out(&mut []),
            Operand::Out(&mut []),
        ];
        engine.device.set_memory_bytes(bytes);
        engine.part(&program, &DeviceBatch::new(&program, operands, 10))
    });
    assert_eq!(sizes, [Ok(1), Ok(2), Ok(10)]);
}

#[test]
fn parts_are_as_large_as_memory_allows() {
    let Some(mut engine) = present() else { return };
    let ring = ring(16);
    let program = sums(&ring, 1);
    // The operand, the result, both on their ways, and a word that is not used.
    let bytes = |items: u64| 4 * 8 * 32 * items + 4;
    for (memory, items) in [
        (0, 1),
        // Half of it is for all parts that are at once on their way.
        (2 * 3 * bytes(3) - 1, 2),
        (2 * 3 * bytes(3), 3),
        (2 * bytes(10), 10),
        (1 << 30, 10),
    ] {
        engine = engine.with_memory(memory);
        assert_eq!(part_size(&engine, &program, 10), Ok(items), "{memory} bytes");
        assert_eq!(double(&engine, &ring, 1, 10), Ok(()));
    }
    // Large batches are cut though there is memory for all.
    engine = engine.with_memory(1 << 40);
    let items = part_size(&engine, &program, 10 << 20).unwrap() as u64;
    assert!((32 << 20..128 << 20).contains(&(2 * 8 * 32 * items)), "{items} items");
}

/// After a first run over a batch no buffer is made for others like it, and not too much is kept.
#[test]
fn memory_is_kept_between_runs() {
    let Some(engine) = present() else { return };
    let ring = ring(1024);
    let engine = engine.with_memory(1 << 20);
    let made = || engine.device.pool().made;
    assert_eq!(double(&engine, &ring, 3, 100), Ok(()));
    let (first, idle) = (made(), engine.device.pool().bytes());
    assert!(idle > 0 && idle <= 3 << 18, "{idle} bytes");
    for count in [100, 99, 100] {
        assert_eq!(double(&engine, &ring, 3, count), Ok(()));
    }
    assert_eq!((made(), engine.device.pool().bytes()), (first, idle));
    engine.device.set_memory_bytes(idle);
    assert_eq!(double(&engine, &ring, 3, 1), Ok(()));
    assert!(engine.device.pool().bytes() <= idle / 4 * 3);
}

/// Returns whether all but parameters is zero in these buffers.
fn are_clean(device: &GpuDevice, buffers: &[wgpu::Buffer]) -> bool {
    assert!(!buffers.is_empty());
    let is_zero = |buffer: &wgpu::Buffer| {
        buffer.map_async(wgpu::MapMode::Read, .., Result::unwrap);
        device.wait(None).unwrap();
        buffer.get_mapped_range(..).unwrap().iter().all(|&byte| byte == 0)
    };
    let secret = buffers.iter().filter(|buffer| buffer.usage() != Purpose::Params.usage());
    secret.into_iter().all(|buffer| {
        if buffer.usage() == Purpose::Down.usage() {
            // It goes only to the host.
            return is_zero(buffer);
        }
        if buffer.usage() == Purpose::Up.usage() {
            buffer.unmap();
        }
        let down = device.make(Purpose::Down, buffer.size()).unwrap();
        let mut encoder = device.device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &down, 0, buffer.size());
        device.queue.submit([encoder.finish()]);
        is_zero(&down)
    })
}

/// Returns whether idle buffers are clean.
fn is_clean(engine: &GpuEngine) -> bool {
    let idle = engine.device.pool().idle.clone();
    are_clean(&engine.device, &idle)
}

#[test]
fn memory_of_secrets_is_overwritten() {
    let ring = ring(16);
    let mut b = Builder::new("public");
    let (x, y) = (b.beats("x", &ring, 1), b.beats("y", &ring, 1));
    let sum = b.add_beats("sum", x, y);
    b.output(sum);
    let Some(engine) = present() else { return };
    let x = vec![1; 8];
    let mut out = vec![0; 8];
    let operands = &mut [Operand::In(&x), Operand::In(&x), Operand::Out(&mut out)];
    engine.run(&b.build(), operands).unwrap();
    assert!(!is_clean(&engine), "this test sees what is left");
    // Parts that use memory again, the last a smaller one.
    let Some(engine) = present() else { return };
    let engine = engine.with_memory(60_000);
    assert_eq!(double(&engine, &ring, 3, 31), Ok(()));
    assert!(is_clean(&engine));
    let Some(engine) = present() else { return };
    run_mixed(&engine, &ring, 5);
    assert!(is_clean(&engine));
    // A run that ends in the midst.
    engine.device.clear_pool();
    let engine = engine.with_memory(60_000);
    engine.device.pool().refused = (7, usize::MAX);
    assert_eq!(double(&engine, &ring, 3, 31), failed(DeviceFault::OutOfMemory));
    engine.device.pool().refused = (0, 0);
    let failed = engine.device.pool().failed.clone();
    assert!(failed.len() >= 7 && are_clean(&engine.device, &failed));
}

#[test]
fn what_lies_idle_goes_before_memory_lacks() {
    let Some(engine) = present() else { return };
    let ring = ring(16);
    let refuse = |buffers| engine.device.pool().refused = (0, buffers);
    assert_eq!(double(&engine, &ring, 1, 10), Ok(()));
    let idle = engine.device.pool().bytes();
    // One buffer too many, until what was kept for the batch before is gone.
    refuse(1);
    assert_eq!(double(&engine, &ring, 1, 100), Ok(()));
    let made = engine.device.pool().made;
    assert_eq!(double(&engine, &ring, 1, 10), Ok(()));
    assert!(engine.device.pool().made > made && idle > 0);
}

#[test]
fn parts_shrink_where_memory_lacks() {
    let Some(engine) = present() else { return };
    let ring = ring(16);
    let expected = run_mixed(&CpuEngine::new(), &ring, 9);
    run_mixed(&engine, &ring, 1);
    // Each part that is too large takes two attempts; 9, 5, 3, 2 and 1 items.
    for refused in [2, 4, 7, 8] {
        engine.device.clear_pool();
        engine.device.pool().refused = (0, refused);
        assert!(run_mixed(&engine, &ring, 9) == expected, "{refused} buffers");
    }
    // In the midst of a batch: parts before are done, and an accumulator has taken them once.
    let engine = engine.with_memory(30_000);
    for later in 1..12 {
        engine.device.clear_pool();
        engine.device.pool().refused = (later, 2);
        assert!(run_mixed(&engine, &ring, 9) == expected, "after {later} buffers");
    }
    engine.device.clear_pool();
    engine.device.pool().refused = (0, usize::MAX);
    assert_eq!(double(&engine, &ring, 1, 9), failed(DeviceFault::OutOfMemory));
    engine.device.pool().refused = (0, 0);
    assert_eq!(double(&engine, &ring, 1, 9), Ok(()));
}

/// A batch of one item that no binding holds.
#[test]
fn an_item_too_large_is_out_of_memory() {
    let Some(mut engine) = present() else { return };
    let device = Arc::get_mut(&mut engine.device).unwrap();
    device.limits.max_storage_buffer_binding_size = 1 << 16;
    let (small, large) = (ring(16), ring(8192));
    assert_eq!(double(&engine, &large, 1, 1), failed(DeviceFault::OutOfMemory));
    assert_eq!(part_size(&engine, &sums(&small, 1), 1 << 20), Ok(256));
    assert_eq!(double(&engine, &small, 1, 1000), Ok(()));
}

#[test]
fn a_lost_device_is_an_error_of_its_own() {
    let Some(engine) = present() else { return };
    let ring = ring(16);
    assert_eq!(double(&engine, &ring, 1, 10), Ok(()));
    engine.device.device.destroy();
    assert_eq!(double(&engine, &ring, 1, 10), failed(device::lost()));
}

#[test]
fn a_device_may_be_lost_in_the_midst() {
    let Some(engine) = present() else { return };
    let ring = ring(1024);
    let engine = engine.with_memory(1 << 20);
    let device = engine.device.device.clone();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            device.destroy();
        });
        (0..1000).map(|_| double(&engine, &ring, 5, 500)).find(Result::is_err)
    });
    assert_eq!(outcome, Some(failed(device::lost())));
}

#[test]
fn a_device_that_does_not_answer_is_given_up() {
    let Some(engine) = present() else { return };
    let ring = ring(1024);
    assert_eq!(double(&engine, &ring, 1, 1), Ok(()));
    let engine = engine.with_memory(64 << 20).with_patience(Duration::from_micros(1));
    assert_eq!(double(&engine, &ring, 20, 200), failed(DeviceFault::Timeout));
    // What it was given it ends, and then does what it should.
    let failed_run = std::mem::take(&mut engine.device.pool().failed);
    let engine = engine.with_patience(Duration::from_secs(300));
    assert_eq!(double(&engine, &ring, 2, 200), Ok(()));
    // What the host staged it overwrote when it got it.
    assert!(failed_run.len() >= 4 && are_clean(&engine.device, &failed_run));
    engine.device.set_patience(Duration::from_micros(1));
    assert_eq!(double(&engine, &ring, 20, 200), failed(DeviceFault::Timeout));
    drop(engine);
}

/// An engine that counts the products of all that it runs.
struct CountingEngine(GpuEngine);

impl Engine for CountingEngine {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn info(&self) -> Info {
        self.0.info()
    }

    fn supports(&self, step: &str) -> bool {
        self.0.supports(step)
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        self.0.run(program, operands)?;
        assert!(self.0.multiplies(program, operands).is_some(), "{}", program.name());
        Ok(())
    }
}

/// The suite has every kernel run, whatever lay in its memory, and whatever is recorded can be counted.
#[test]
fn the_suite_runs_every_kernel() {
    let Some(engine) = present() else { return };
    engine.device.pool().is_dirty = true;
    let engine = CountingEngine(engine);
    conformance::CASES.iter().for_each(|(_, case)| case(&engine));
    limit::run(&engine.0.device, 100, 5).unwrap();
    let unseen = |kernel: &&Kernel| !engine.0.device.has_run(**kernel);
    assert_eq!(Kernel::ALL.iter().find(unseen), None);
}

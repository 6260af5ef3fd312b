//! What kernels cost, counted in the SPIR-V that drivers get: the source of the rates that `shaders/README.md`
//! derives.

mod spirv;

use super::{
    multiplies,
    shaders::{Kernel, Shape},
};
use spirv::{Counts, Module};

/// An H200 by its maker's tables: multiprocessors; 32-bit products, instructions in all and bytes of workgroup memory
/// of each a cycle; cycles a second; bytes of memory a second. A product of 64 bits is taken for two.
const MULTIPROCESSORS: f64 = 132.0;
const PRODUCTS_A_CYCLE: f64 = 64.0;
const INSTRUCTIONS_A_CYCLE: f64 = 128.0;
const WORKGROUP_BYTES_A_CYCLE: f64 = 128.0;
const HERTZ: f64 = 1.98e9;
const MEMORY_BYTES: f64 = 4.8e12;

/// What is done with residues, and in which kernel.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// A product of numbers.
    Product,
    /// A product of pairs, and the square of one.
    PairProduct,
    PairSquare,
}

/// Limbs of a factor that a round takes.
const TAKEN: u32 = 2;

/// What a thread does in a round, which takes two limbs of one factor, and for them all `limbs` that the thread has.
fn round(work: Work, shape: Shape, limbs: u32) -> Counts {
    let (kernel, name) = match work {
        Work::Product => (Kernel::MontMul, "mont"),
        Work::PairProduct | Work::PairSquare => (Kernel::PairPow, "pair_mont"),
    };
    let module = Module::of(kernel, shape);
    let product = module.turn(name, "fold", limbs);
    match work {
        Work::Product | Work::PairProduct => product,
        // Which takes one sum of products less.
        Work::PairSquare => product.minus(module.function("accumulate", limbs)),
    }
}

/// How many a second such a card can do at most, by their products and by all their instructions.
fn derived(work: Work, shape: Shape) -> [f64; 2] {
    // Over pairs one more.
    let rounds = shape.total() / TAKEN + u32::from(work != Work::Product);
    let round = round(work, shape, shape.limbs);
    let each = [round.products(), round.instructions()];
    let a_cycle = [PRODUCTS_A_CYCLE, INSTRUCTIONS_A_CYCLE];
    [0, 1].map(|bound| (each[bound], a_cycle[bound])).map(|(each, a_cycle)| {
        let all = f64::from(each * rounds * shape.team);
        MULTIPROCESSORS * a_cycle * HERTZ / all
    })
}

/// Residues of a thread, and stages of a round.
const HELD: u32 = 8;
const ROUND: u32 = 3;

/// What a thread takes in a pass of a transform: for so many stages of its residues. Addresses, and what is the same for
/// a workgroup, are left out.
fn pass(kernel: Kernel, stages: u32, has_columns: bool, is_last: bool) -> Counts {
    let module = Module::of(kernel, Shape { team: 1, limbs: 1 });
    let of = |name| module.function(name, HELD);
    let accesses = |name| {
        let Counts { workgroup, storage, .. } = of(name);
        Counts { workgroup, storage, ..Counts::default() }
    };
    let rounds = stages.div_ceil(ROUND);
    let taken = |round| if round == 0 { 1 + (stages - 1) % ROUND } else { ROUND };
    let parts = (0..rounds).flat_map(|round| &["far", "middle", "near"][..taken(round) as usize]);
    let butterflies = of("butterfly").times(stages * HELD / 2);
    let all = parts.fold(butterflies, |all, &name| all.plus(accesses(name)));
    let all = all.plus(accesses("take").plus(accesses("put")).times(rounds - 1));
    // Residues side by side go through workgroup memory once more.
    let neighbours = Counts { workgroup: 2 * HELD, ..Counts::default() };
    let all = if has_columns { all } else { all.plus(neighbours) };
    all.plus(accesses("load")).plus(accesses("store")).plus(match (kernel, is_last) {
        (Kernel::Ntt, false) => Counts::default(),
        (Kernel::Intt, true) => of("times").times(HELD / 2).plus(of("least").times(HELD)),
        _ => of("reduced").times(HELD),
    })
}

/// What a thread takes in a transform of N = 2^log_degree of more than a tile, for HELD residues.
fn transform(kernel: Kernel, log_degree: u32) -> Counts {
    let is_inverse = kernel == Kernel::Intt;
    pass(kernel, log_degree - 10, true, is_inverse).plus(pass(kernel, 10, false, !is_inverse))
}

/// How many transforms a second such a card can do at most: by products, by all instructions, by workgroup memory, by
/// memory that each pass reads and writes, and by memory if it were read and written once.
fn derived_transforms(counts: Counts, log_degree: u32) -> [f64; 5] {
    let cycles = [
        f64::from(counts.products()) / PRODUCTS_A_CYCLE,
        f64::from(counts.instructions()) / INSTRUCTIONS_A_CYCLE,
        f64::from(8 * counts.workgroup) / WORKGROUP_BYTES_A_CYCLE,
    ];
    let threads = f64::from(1 << log_degree) / f64::from(HELD);
    let [products, instructions, workgroup] =
        cycles.map(|cycles| MULTIPROCESSORS * HERTZ / (cycles * threads));
    let once = MEMORY_BYTES / f64::from(16 << log_degree);
    [products, instructions, workgroup, once / 2.0, once]
}

/// A row of a transform: what a residue takes, and rates in millions a second.
fn row(kernel: Kernel, log_degree: u32) -> String {
    let counts = transform(kernel, log_degree);
    let each = |count: u32| f64::from(count) / f64::from(HELD);
    let taken = [counts.wide, counts.narrow, counts.other, counts.workgroup, counts.storage];
    let taken = taken.map(|count| format!("{:.1}", each(count))).join(", ");
    let rates = derived_transforms(counts, log_degree);
    let rates: Vec<_> = rates.map(|rate| format!("{:.1}", rate / 1e6)).to_vec();
    format!("| `{}`, {} | {taken} | {} |", kernel.name(), 1 << log_degree, rates.join(" | "))
}

/// Products of each limb that a thread has, for each that a round takes: two of a number, five of a pair, four of its
/// square; and for two of them one sum.
#[test]
fn a_limb_costs_products_and_half_as_many_sums() {
    let shape = Shape::of_words(64);
    for (work, each) in [(Work::Product, 2), (Work::PairProduct, 5), (Work::PairSquare, 4)] {
        let [fewer, more] = [2, 3].map(|limbs| round(work, shape, limbs));
        let of_limb = Counts { wide: TAKEN * each, other: each, ..Counts::default() };
        assert_eq!(more, fewer.plus(of_limb), "{fewer:?}");
        // The rest of a round: of each number the first digit of the quotient has one product.
        let rest = fewer.minus(of_limb.times(2));
        assert_eq!(rest.wide, if work == Work::Product { 1 } else { 2 }, "{rest:?}");
        assert!(rest.narrow + rest.other < of_limb.wide * shape.limbs, "{rest:?}");
    }
}

/// What `multiplies.rs` takes functions of rings for.
#[test]
fn functions_of_rings_have_the_products_that_are_counted() {
    let of = |kernel, name| {
        u64::from(Module::of(kernel, Shape { team: 1, limbs: 1 }).function(name, 1).wide)
    };
    assert_eq!(of(Kernel::PolyMul, "mul_high"), multiplies::MUL_HIGH);
    assert_eq!(of(Kernel::PolyMul, "mul_factor"), multiplies::MUL_FACTOR);
    assert_eq!(of(Kernel::Ntt, "reduced"), multiplies::REDUCED);
    assert_eq!(of(Kernel::Ntt, "times"), multiplies::TIMES);
    let product = 2 + 2 * multiplies::MUL_HIGH + multiplies::MUL_FACTOR;
    assert_eq!(of(Kernel::PolyMul, "product"), product);
}

/// Rows of the tables begin with bits and end with rates, in millions a second.
#[test]
fn derived_rates_are_those_that_are_told() {
    let readme = include_str!("../../../shaders/README.md");
    let mut others = vec![];
    let mut told = |start: String, shape: Shape, works: &[Work]| {
        let row = readme.lines().find(|line| line.starts_with(&start)).unwrap();
        let rates = works.iter().flat_map(|&work| derived(work, shape));
        let rates: Vec<_> = rates.map(|rate| format!("{:.0} |", rate / 1e6)).collect();
        let end = format!("| {}", rates.join(" "));
        if !row.ends_with(&end) {
            others.push(format!("{start}... {end}"));
        }
    };
    for bits in [1024, 2048, 3072, 4096, 6144, 8192] {
        told(format!("| {bits} | "), Shape::of_words(bits / 64), &[Work::Product]);
        let works = [Work::PairProduct, Work::PairSquare];
        told(format!("| {bits}, a square | "), Shape::of_words(bits / 128), &works);
    }
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn derived_rates_of_transforms_are_those_that_are_told() {
    let readme = include_str!("../../../shaders/README.md");
    let cases = [13, 15].map(|log_degree| [Kernel::Ntt, Kernel::Intt].map(|k| row(k, log_degree)));
    let is_told = |row: &&String| readme.lines().any(|line| line == *row);
    let others: Vec<_> = cases.iter().flatten().filter(|row| !is_told(row)).collect();
    assert!(others.is_empty(), "{others:#?}");
}

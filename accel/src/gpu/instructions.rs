//! What kernels cost, counted in the SPIR-V that drivers get: the source of the rates that `shaders/README.md`
//! derives. Loops over limbs are not unrolled there yet, so instructions are counted loop by loop.

use std::collections::HashMap;

use wgpu::naga;

use super::shaders::{Kernel, Prelude, Shape};

/// Instructions that compute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    /// Products of 64 bits, each of two numbers of 32, with the sums that take them in: one instruction each.
    wide: u32,
    /// Other products.
    narrow: u32,
    /// Sums, shifts, bits and selections; of 64 bits they are two.
    other: u32,
}

impl Counts {
    fn plus(self, more: Self) -> Self {
        Self {
            wide: self.wide + more.wide,
            narrow: self.narrow + more.narrow,
            other: self.other + more.other,
        }
    }

    fn times(self, factor: u32) -> Self {
        Self { wide: self.wide * factor, narrow: self.narrow * factor, other: self.other * factor }
    }
}

/// A kernel as its driver gets it.
fn spirv(kernel: Kernel, prelude: Prelude, shape: Shape) -> Vec<u32> {
    use naga::{back::spv, valid};
    let module = naga::front::wgsl::parse_str(&kernel.text(prelude, shape.limbs)).unwrap();
    let capabilities = valid::Capabilities::SHADER_INT64;
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), capabilities);
    let info = validator.validate(&module).unwrap();
    let constants = [("TEAM".to_owned(), f64::from(shape.team))].into_iter().collect();
    let (module, info) =
        naga::back::pipeline_constants::process_overrides(&module, &info, None, &constants)
            .unwrap();
    let options = spv::Options {
        flags: spv::WriterFlags::DEBUG,
        force_loop_bounding: false,
        bounds_check_policies: naga::proc::BoundsCheckPolicies::default(),
        ..spv::Options::default()
    };
    spv::write_vec(&module, &info, &options, None).unwrap()
}

/// The functions of a module, by name.
struct Module {
    /// For each function its body, then its loops.
    functions: HashMap<u32, Vec<Block>>,
    names: HashMap<String, u32>,
}

/// The body of a function, or of a loop.
#[derive(Default)]
struct Block {
    /// The block that this loop is in.
    parent: usize,
    /// What it computes itself, loops in it aside.
    own: Counts,
    /// Whom it calls.
    calls: Vec<u32>,
}

/// Opcodes of SPIR-V.
mod op {
    pub(super) const NAME: u32 = 5;
    pub(super) const TYPE_INT: u32 = 21;
    pub(super) const CONSTANT: u32 = 43;
    pub(super) const FUNCTION: u32 = 54;
    pub(super) const FUNCTION_CALL: u32 = 57;
    pub(super) const I_ADD: u32 = 128;
    pub(super) const I_SUB: u32 = 130;
    pub(super) const I_MUL: u32 = 132;
    pub(super) const SELECT: u32 = 169;
    pub(super) const SHIFTS_AND_BITS: std::ops::RangeInclusive<u32> = 194..=200;
    pub(super) const LOOP_MERGE: u32 = 246;
    pub(super) const LABEL: u32 = 248;
}

impl Module {
    fn read(words: &[u32]) -> Self {
        let mut module = Self { functions: HashMap::new(), names: HashMap::new() };
        let (mut wide_types, mut constants) = (vec![], vec![]);
        // Of the loops that an instruction is in, where they end, and their places among the blocks.
        let (mut function, mut loops) = (0, vec![]);
        let mut rest = &words[5..];
        while let [head, ..] = rest {
            let (code, length) = (head & 0xffff, (head >> 16) as usize);
            let (instruction, after) = rest.split_at(length);
            rest = after;
            if code == op::LABEL {
                loops.retain(|&(end, _)| end != instruction[1]);
            }
            let blocks = module.functions.entry(function).or_default();
            if blocks.is_empty() {
                blocks.push(Block::default());
            }
            let here = loops.last().map_or(0, |&(_, place)| place);
            if code == op::LOOP_MERGE {
                loops.push((instruction[1], blocks.len()));
                blocks.push(Block { parent: here, ..Block::default() });
            }
            let Block { own: counts, calls, .. } = &mut blocks[here];
            let is_wide = || wide_types.contains(&instruction[1]);
            match code {
                op::NAME => {
                    let text = instruction[2..].iter().flat_map(|word| word.to_le_bytes());
                    let text: Vec<u8> = text.take_while(|&byte| byte != 0).collect();
                    module.names.insert(String::from_utf8(text).unwrap(), instruction[1]);
                }
                op::TYPE_INT if instruction[2] == 64 => wide_types.push(instruction[1]),
                op::CONSTANT => constants.push(instruction[2]),
                op::FUNCTION => function = instruction[2],
                op::FUNCTION_CALL => calls.push(instruction[3]),
                op::I_MUL if is_wide() => counts.wide += 1,
                op::I_MUL => counts.narrow += 1,
                // What counts rounds and places is gone when loops are unrolled.
                op::I_ADD | op::I_SUB if constants.contains(&instruction[4]) => {}
                op::I_ADD | op::I_SUB | op::SELECT => counts.other += 1 + u32::from(is_wide()),
                code if op::SHIFTS_AND_BITS.contains(&code) => {
                    counts.other += 1 + u32::from(is_wide());
                }
                _ => {}
            }
        }
        module
    }

    /// What a block costs, with those that it calls, if the loops in it are over so many limbs.
    fn cost(&self, function: u32, block: usize, limbs: u32) -> Counts {
        let blocks = &self.functions[&function];
        let Block { own, calls, .. } = &blocks[block];
        // The sum of `acc + a · b` is part of the product.
        let own = Counts { other: own.other.saturating_sub(2 * own.wide), ..*own };
        let called = calls.iter().map(|&callee| self.cost(callee, 0, limbs));
        let inner = (1..blocks.len()).filter(|&inner| blocks[inner].parent == block);
        let inner = inner.map(|inner| self.cost(function, inner, limbs).times(limbs));
        called.chain(inner).fold(own, Counts::plus)
    }

    /// What a round of a Montgomery product costs: of the loop of a function that makes digits of quotients.
    fn round(&self, name: &str, limbs: u32) -> Counts {
        let (function, fold) = (self.names[name], self.names["fold"]);
        let block = self.functions[&function].iter().position(|block| block.calls.contains(&fold));
        self.cost(function, block.unwrap(), limbs)
    }
}

/// An H200 by its maker's tables: multiprocessors, 32-bit products and other 32-bit instructions of each a cycle,
/// cycles a second. A product of 64 bits takes the place of two.
const MULTIPROCESSORS: f64 = 132.0;
const PRODUCTS_A_CYCLE: f64 = 64.0;
const INSTRUCTIONS_A_CYCLE: f64 = 128.0;
const HERTZ: f64 = 1.98e9;

/// What is done with residues, and in which kernel.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// A product of numbers.
    Product,
    /// A product of pairs, and the square of one.
    PairProduct,
    PairSquare,
}

/// What a thread does in a round, which takes a limb of one factor, and for it all `limbs` that the thread has.
fn round(work: Work, shape: Shape, limbs: u32) -> Counts {
    let read = |kernel| Module::read(&spirv(kernel, Prelude::Native, shape));
    if work == Work::Product {
        return read(Kernel::MontMul).round("mont", limbs);
    }
    let module = read(Kernel::PairPow);
    let product = module.round("pair_mont", limbs);
    if work == Work::PairProduct {
        return product;
    }
    // Which takes one sum of products less.
    let left_out = module.cost(module.names["accumulate"], 0, limbs);
    Counts { wide: product.wide - left_out.wide, ..product }
}

/// How many a second such a card can do at most, by their products and by all their instructions.
fn derived(work: Work, shape: Shape) -> [f64; 2] {
    let rounds = shape.total() + u32::from(work != Work::Product);
    let round = round(work, shape, shape.limbs);
    let products = 2 * round.wide + round.narrow;
    let instructions = round.wide + round.narrow + round.other;
    [(products, PRODUCTS_A_CYCLE), (instructions, INSTRUCTIONS_A_CYCLE)].map(|(each, a_cycle)| {
        let all = f64::from(each * rounds * shape.team);
        MULTIPROCESSORS * a_cycle * HERTZ / all
    })
}

/// Products of each limb that a thread has: two of a number, five of a pair, four of its square.
#[test]
fn a_limb_costs_products_and_nothing_else() {
    let shape = Shape::of_words(64);
    for (work, wide) in [(Work::Product, 2), (Work::PairProduct, 5), (Work::PairSquare, 4)] {
        let [fewer, more] = [1, 2].map(|limbs| round(work, shape, limbs));
        assert_eq!(more, fewer.plus(Counts { wide, narrow: 0, other: 0 }));
        // The rest of a round, where the limbs of its quotients are one product too many.
        let numbers = if work == Work::Product { 1 } else { 2 };
        assert_eq!(fewer.wide - wide, numbers, "{fewer:?}");
        assert!(fewer.narrow + fewer.other < wide * shape.limbs, "{fewer:?}");
    }
}

/// Rows of the tables begin with bits and end with rates, in millions a second.
#[test]
fn derived_rates_are_those_that_are_told() {
    let readme = include_str!("../../../shaders/README.md");
    let told = |start: String, shape: Shape, works: &[Work]| {
        let row = readme.lines().find(|line| line.starts_with(&start)).unwrap();
        let rates = works.iter().flat_map(|&work| derived(work, shape));
        let rates: Vec<_> = rates.map(|rate| format!("{:.0} |", rate / 1e6)).collect();
        let end = format!("| {}", rates.join(" "));
        assert!(row.ends_with(&end), "{row} does not end with {end}");
    };
    for bits in [1024, 2048, 3072, 4096, 6144, 8192] {
        told(format!("| {bits} | "), Shape::of_words(bits / 64), &[Work::Product]);
        let works = [Work::PairProduct, Work::PairSquare];
        told(format!("| {bits}, a square | "), Shape::of_words(bits / 128), &works);
    }
}

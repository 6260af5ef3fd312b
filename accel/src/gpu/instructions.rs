//! What kernels cost, counted in the SPIR-V that drivers get: the source of the rates that `shaders/README.md`
//! derives. Loops over limbs are not unrolled there yet, so instructions are counted by the depth of loops they are in.

use std::collections::HashMap;

use wgpu::naga;

use super::shaders::{Kernel, Prelude, Shape};

/// Instructions that compute, in the innermost loops of a function, in those around them, and in none.
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
    /// For each function what it computes itself at each depth of loops, and whom it calls there.
    functions: HashMap<u32, Vec<(Counts, Vec<u32>)>>,
    names: HashMap<String, u32>,
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
        let (mut function, mut ends) = (0, vec![]);
        let mut rest = &words[5..];
        while let [head, ..] = rest {
            let (code, length) = (head & 0xffff, (head >> 16) as usize);
            let (instruction, after) = rest.split_at(length);
            rest = after;
            if code == op::LABEL {
                ends.retain(|&end| end != instruction[1]);
            }
            let here = module.functions.entry(function).or_default();
            here.resize_with(here.len().max(ends.len() + 1), Default::default);
            let (counts, calls) = &mut here[ends.len()];
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
                op::LOOP_MERGE => ends.push(instruction[1]),
                _ => {}
            }
        }
        module
    }

    /// What a function and those that it calls compute, at each depth of its own loops. A sum that takes in
    /// a product is part of it.
    fn costs(&self, name: &str) -> Vec<Counts> {
        self.costs_of(self.names[name])
    }

    fn costs_of(&self, function: u32) -> Vec<Counts> {
        let whole = |callee: &u32| {
            let all = self.costs_of(*callee).into_iter().fold(Counts::default(), Counts::plus);
            // The sum of `acc + a · b`.
            Counts { other: all.other.saturating_sub(2 * all.wide), ..all }
        };
        let depths = self.functions[&function].iter();
        depths.map(|(own, calls)| calls.iter().map(whole).fold(*own, Counts::plus)).collect()
    }
}

/// An H200 by its maker's tables: multiprocessors, 32-bit products and other 32-bit instructions of each a cycle,
/// cycles a second. A product of 64 bits takes the place of two.
const MULTIPROCESSORS: f64 = 132.0;
const PRODUCTS_A_CYCLE: f64 = 64.0;
const INSTRUCTIONS_A_CYCLE: f64 = 128.0;
const HERTZ: f64 = 1.98e9;

/// Montgomery products a second that such a card can do at most, by its products and by all instructions.
fn derived(shape: Shape) -> [f64; 2] {
    let costs = Module::read(&spirv(Kernel::MontMul, Prelude::Native, shape)).costs("mont");
    // A round takes a limb of one factor, and for it all limbs that a thread has of the other.
    let round = costs[1].plus(costs[2].times(shape.limbs));
    let products = 2 * round.wide + round.narrow;
    let instructions = round.wide + round.narrow + round.other;
    [(products, PRODUCTS_A_CYCLE), (instructions, INSTRUCTIONS_A_CYCLE)].map(|(each, a_cycle)| {
        let all = f64::from(each * shape.total() * shape.team);
        MULTIPROCESSORS * a_cycle * HERTZ / all
    })
}

#[test]
fn a_limb_costs_two_products_and_nothing_else() {
    let shape = Shape::of_words(64);
    let costs = Module::read(&spirv(Kernel::MontMul, Prelude::Native, shape)).costs("mont");
    assert_eq!(costs[2], Counts { wide: 2, narrow: 0, other: 0 });
    assert!(costs[1].wide == 1 && costs[1].narrow + costs[1].other < 2 * shape.limbs, "{costs:?}");
}

/// Rows of the table begin with bits and end with both rates, in millions a second.
#[test]
fn derived_rates_are_those_that_are_told() {
    let readme = include_str!("../../../shaders/README.md");
    for bits in [1024, 2048, 3072, 4096, 6144, 8192] {
        let row = readme.lines().find(|line| line.starts_with(&format!("| {bits} | "))).unwrap();
        let rates = derived(Shape::of_words(bits / 64)).map(|rate| format!("{:.0}", rate / 1e6));
        let end = format!("| {} | {} |", rates[0], rates[1]);
        assert!(row.ends_with(&end), "{row} does not end with {end}");
    }
}

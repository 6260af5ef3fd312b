//! What the functions of a kernel take, counted in the SPIR-V that drivers get. Loops are not unrolled there yet, so
//! instructions are counted loop by loop.

use std::collections::{HashMap, HashSet};

use wgpu::naga;

use crate::gpu::shaders::{Kernel, Prelude, Shape};

/// Instructions of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    /// Products of 64 bits, each of two numbers of 32, with the sums that take them in: one instruction each.
    pub(super) wide: u32,
    /// Other products.
    pub(super) narrow: u32,
    /// Sums, shifts, bits, comparisons and selections; of 64 bits they are two.
    pub(super) other: u32,
    /// Accesses to workgroup memory, of up to 64 bits, and to storage buffers.
    pub(super) workgroup: u32,
    pub(super) storage: u32,
}

impl Counts {
    pub(super) fn plus(self, more: Self) -> Self {
        self.with(more, |x, y| x + y)
    }

    /// What is left without a part of it.
    pub(super) fn minus(self, part: Self) -> Self {
        self.with(part, |x, y| x - y)
    }

    pub(super) fn times(self, factor: u32) -> Self {
        self.with(self, |x, _| x * factor)
    }

    fn with(self, other: Self, f: impl Fn(u32, u32) -> u32) -> Self {
        Self {
            wide: f(self.wide, other.wide),
            narrow: f(self.narrow, other.narrow),
            other: f(self.other, other.other),
            workgroup: f(self.workgroup, other.workgroup),
            storage: f(self.storage, other.storage),
        }
    }

    /// Those that products are issued with: a wide one takes the place of two.
    pub(super) fn products(self) -> u32 {
        2 * self.wide + self.narrow
    }

    pub(super) fn instructions(self) -> u32 {
        self.wide + self.narrow + self.other + self.workgroup + self.storage
    }
}

/// A kernel as its driver gets it.
fn spirv(kernel: Kernel, prelude: Prelude, shape: Shape) -> Vec<u32> {
    use naga::{back::spv, valid};
    let module = naga::front::wgsl::parse_str(&kernel.text(prelude, shape.limbs)).unwrap();
    let capabilities = valid::Capabilities::SHADER_INT64;
    let mut validator = valid::Validator::new(valid::ValidationFlags::all(), capabilities);
    let info = validator.validate(&module).unwrap();
    let mut constants = naga::back::PipelineConstants::default();
    if kernel.has_teams() {
        constants.insert("TEAM".to_owned(), f64::from(shape.team));
    }
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
#[derive(Default)]
pub(super) struct Module {
    /// For each function its body, then its loops.
    functions: HashMap<u32, Vec<Block>>,
    names: HashMap<String, u32>,
}

/// The body of a function, or of a loop.
#[derive(Default)]
struct Block {
    /// The block that this loop is in.
    parent: usize,
    /// What it takes itself, loops in it aside.
    own: Counts,
    /// Whom it calls.
    calls: Vec<u32>,
}

/// Opcodes of SPIR-V, and classes of memory.
mod op {
    use std::ops::RangeInclusive;

    pub(super) const NAME: u32 = 5;
    pub(super) const TYPE_INT: u32 = 21;
    pub(super) const TYPE_VECTOR: u32 = 23;
    pub(super) const TYPE_POINTER: u32 = 32;
    pub(super) const CONSTANT: u32 = 43;
    pub(super) const CONSTANT_COMPOSITE: u32 = 44;
    pub(super) const FUNCTION: u32 = 54;
    pub(super) const FUNCTION_CALL: u32 = 57;
    pub(super) const LOAD: u32 = 61;
    pub(super) const STORE: u32 = 62;
    pub(super) const ACCESS_CHAIN: u32 = 65;
    pub(super) const U_CONVERT: u32 = 113;
    pub(super) const I_ADD: u32 = 128;
    pub(super) const I_SUB: u32 = 130;
    pub(super) const I_MUL: u32 = 132;
    pub(super) const U_DIV: u32 = 134;
    pub(super) const U_MOD: u32 = 137;
    pub(super) const SELECT: u32 = 169;
    pub(super) const COMPARISONS: RangeInclusive<u32> = 170..=179;
    pub(super) const SHIFT_RIGHT: u32 = 194;
    pub(super) const SHIFT_LEFT: u32 = 196;
    pub(super) const OR: u32 = 197;
    pub(super) const AND: u32 = 199;
    pub(super) const SHIFTS_AND_BITS: RangeInclusive<u32> = 194..=200;
    pub(super) const LOOP_MERGE: u32 = 246;
    pub(super) const LABEL: u32 = 248;

    pub(super) const WORKGROUP: u32 = 4;
    pub(super) const STORAGE: u32 = 12;
}

/// Instructions that a quotient of two numbers of 32 bits takes, about.
const QUOTIENT: u32 = 20;

/// What is known of the values of a module, by their ids.
#[derive(Default)]
struct Values {
    /// Words of 32 bits of a type, and of a value.
    types: HashMap<u32, u32>,
    words: HashMap<u32, u32>,
    /// Constants, those of one number with their value.
    constants: HashMap<u32, Option<u64>>,
    /// Pointers' types, and pointers, with the class of what they are to.
    classes: HashMap<u32, u32>,
    /// Of 64 bits, with nothing in the upper half, or in the lower.
    low_halves: HashSet<u32>,
    high_halves: HashSet<u32>,
}

impl Values {
    fn words(&self, id: u32) -> u32 {
        self.words.get(&id).copied().unwrap_or(1)
    }

    fn is(&self, id: u32, value: u64) -> bool {
        self.constants.get(&id) == Some(&Some(value))
    }

    fn is_constant(&self, id: u32) -> bool {
        self.constants.contains_key(&id)
    }

    /// Takes in what an instruction defines.
    fn define(&mut self, code: u32, instruction: &[u32]) {
        let &[_, first, ref rest @ ..] = instruction else { return };
        match code {
            op::TYPE_INT => {
                self.types.insert(first, rest[0] / 32);
            }
            op::TYPE_VECTOR => {
                let each = self.types.get(&rest[0]).copied().unwrap_or(1);
                self.types.insert(first, each * rest[1]);
            }
            op::TYPE_POINTER => {
                self.classes.insert(first, rest[0]);
            }
            op::CONSTANT => {
                let value = rest[1..].iter().rev().fold(0, |x, &word| x << 32 | u64::from(word));
                self.constants.insert(rest[0], Some(value));
            }
            op::CONSTANT_COMPOSITE => {
                self.constants.insert(rest[0], None);
            }
            op::ACCESS_CHAIN => {
                let class = self.classes[&first];
                self.classes.insert(rest[0], class);
            }
            _ => {}
        }
        if let (Some(&words), Some(&id)) = (self.types.get(&first), rest.first()) {
            self.words.insert(id, words);
            let by_32 = rest.get(2).is_some_and(|&id| self.is(id, 32));
            let is_low = match code {
                op::U_CONVERT => true,
                op::AND => self.is(rest[2], u64::from(u32::MAX)),
                op::SHIFT_RIGHT => by_32,
                _ => false,
            };
            if words == 2 && is_low {
                self.low_halves.insert(id);
            }
            if words == 2 && code == op::SHIFT_LEFT && by_32 {
                self.high_halves.insert(id);
            }
        }
    }

    /// What an instruction takes.
    fn cost(&self, code: u32, instruction: &[u32]) -> Counts {
        let (mut counts, each) = (Counts::default(), |at: usize| self.words(instruction[at]));
        let class = |at: usize| self.classes.get(&instruction[at]).copied();
        let is_constant = |at: usize| self.is_constant(instruction[at]);
        match code {
            op::LOAD | op::STORE => match class(if code == op::LOAD { 3 } else { 1 }) {
                Some(op::WORKGROUP) => counts.workgroup = 1,
                Some(op::STORAGE) => counts.storage = 1,
                _ => {}
            },
            // What is times a constant is shifted and added.
            op::I_MUL if is_constant(3) || is_constant(4) => counts.other = each(2),
            op::I_MUL if each(2) == 2 => {
                let whole = [3, 4].map(|at| !self.low_halves.contains(&instruction[at]));
                (counts.wide, counts.narrow) = (1, whole.map(u32::from).iter().sum());
            }
            op::I_MUL => counts.narrow = each(2),
            op::U_DIV | op::U_MOD => counts.other = QUOTIENT,
            // What counts rounds and places is gone when loops are unrolled.
            op::I_ADD | op::I_SUB if is_constant(4) => {}
            code if op::COMPARISONS.contains(&code) && is_constant(4) => {}
            // Halves are registers.
            _ if self.low_halves.contains(&instruction[2]) => {}
            _ if self.high_halves.contains(&instruction[2]) => {}
            op::OR if [3, 4].iter().any(|&at| self.high_halves.contains(&instruction[at])) => {}
            op::I_ADD | op::I_SUB | op::SELECT => counts.other = each(2),
            code if op::SHIFTS_AND_BITS.contains(&code) => counts.other = each(2),
            code if op::COMPARISONS.contains(&code) => counts.other = each(3),
            _ => {}
        }
        counts
    }
}

impl Module {
    pub(super) fn of(kernel: Kernel, shape: Shape) -> Self {
        Self::read(&spirv(kernel, Prelude::Native, shape))
    }

    fn read(words: &[u32]) -> Self {
        let (mut module, mut values, mut names) =
            (Self::default(), Values::default(), HashMap::new());
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
            let Block { own, calls, .. } = &mut blocks[here];
            match code {
                op::NAME => {
                    let text = instruction[2..].iter().flat_map(|word| word.to_le_bytes());
                    let text: Vec<u8> = text.take_while(|&byte| byte != 0).collect();
                    names.insert(instruction[1], String::from_utf8(text).unwrap());
                }
                op::FUNCTION => {
                    function = instruction[2];
                    module.names.extend(names.remove(&function).map(|name| (name, function)));
                }
                op::FUNCTION_CALL => calls.push(instruction[3]),
                _ => {
                    values.define(code, instruction);
                    if function != 0 && length > 2 {
                        *own = own.plus(values.cost(code, instruction));
                    }
                }
            }
        }
        module
    }

    /// What a block takes, with those that it calls, if the loops in it have so many rounds.
    fn cost(&self, function: u32, block: usize, rounds: u32) -> Counts {
        let blocks = &self.functions[&function];
        let Block { own, calls, .. } = &blocks[block];
        // The sum of `acc + a · b` is part of the product.
        let own = Counts { other: own.other.saturating_sub(2 * own.wide), ..*own };
        let called = calls.iter().map(|&callee| self.cost(callee, 0, rounds));
        let inner = (1..blocks.len()).filter(|&inner| blocks[inner].parent == block);
        let inner = inner.map(|inner| self.cost(function, inner, rounds).times(rounds));
        called.chain(inner).fold(own, Counts::plus)
    }

    /// What a function takes, if its loops have so many rounds.
    pub(super) fn function(&self, name: &str, rounds: u32) -> Counts {
        self.cost(self.names[name], 0, rounds)
    }

    /// What a round takes of the loop of a function that itself calls another.
    pub(super) fn turn(&self, name: &str, called: &str, rounds: u32) -> Counts {
        let (function, callee) = (self.names[name], self.names[called]);
        let blocks = &self.functions[&function];
        let block = (1..blocks.len()).find(|&block| blocks[block].calls.contains(&callee));
        self.cost(function, block.unwrap(), rounds)
    }
}

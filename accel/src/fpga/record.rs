//! The work of the card on some items of a batch, as data: memory, numbers that go up, operations in
//! their order, numbers that come down. To record asks nothing of a card; `ring.rs` carries it out.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    card::Resident,
    descriptor::{Descriptor, Items, Operation},
    form::Form,
    layout::{Layout, Life},
    registers,
};
use crate::engine::DeviceFault;

/// Memory in a recording, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer(usize);

/// The memory of a [`Buffer`].
enum Memory {
    /// Beats that a run has for as long as a recording needs them. They hold anything at first.
    Own { beats: u64 },
    /// Memory that was there before the run and stays.
    Resident(Arc<Resident>),
}

/// Numbers that the host has.
pub(super) enum Words<'o> {
    Borrowed(&'o [u64]),
    Owned(Zeroizing<Vec<u64>>),
}

impl Words<'_> {
    pub(super) fn as_slice(&self) -> &[u64] {
        match self {
            Self::Borrowed(words) => words,
            Self::Owned(words) => words,
        }
    }
}

/// A number of each item, in beats: that of item i begins at `start + i · stride`.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    pub(super) buffer: Buffer,
    pub(super) start: u64,
    /// 0 where one number stands for all.
    pub(super) stride: u64,
    pub(super) length: u64,
}

impl Numbers {
    /// Returns the number that begins so many beats later in each item.
    pub(super) fn after(self, beats: u64) -> Self {
        Self { start: self.start + beats, ..self }
    }

    /// Returns numbers of another length at the same places.
    pub(super) fn of_length(self, length: u64) -> Self {
        Self { length, ..self }
    }

    /// Returns those of other items.
    pub(super) fn every(self, stride: u64) -> Self {
        Self { stride, ..self }
    }
}

/// One operation. See [`Descriptor`].
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) operation: Operation,
    pub(super) flags: u32,
    pub(super) count: u64,
    pub(super) a: Option<Numbers>,
    pub(super) b: Option<Numbers>,
    pub(super) c: Option<Numbers>,
    pub(super) m: Option<Numbers>,
    pub(super) d: Numbers,
    pub(super) words: u64,
    pub(super) passes: u64,
    pub(super) shift: u64,
    pub(super) width: u64,
}

impl Call {
    /// Returns an operation without operands, that writes `count` numbers.
    pub(super) fn new(operation: Operation, d: Numbers, count: u64) -> Self {
        Self {
            operation,
            flags: 0,
            count,
            a: None,
            b: None,
            c: None,
            m: None,
            d,
            words: 0,
            passes: 0,
            shift: 0,
            width: 0,
        }
    }

    fn operands(&self) -> impl Iterator<Item = Numbers> {
        [self.a, self.b, self.c, self.m, Some(self.d)].into_iter().flatten()
    }

    /// Returns whether a descriptor has fields for all of it.
    fn is_describable(&self) -> bool {
        let fits = |value: u64, field: registers::Field| value <= field.max().into();
        fits(self.count, registers::FIELD_COUNT)
            && fits(self.words, registers::FIELD_WORDS)
            && fits(self.passes, registers::FIELD_PASSES)
            && fits(self.shift, registers::FIELD_SHIFT)
            && self.operands().all(|numbers| {
                fits(numbers.stride, registers::FIELD_A_STRIDE)
                    && fits(numbers.length, registers::FIELD_A_LENGTH)
            })
    }

    /// Counts the multiplications of digits and words.
    fn multiplies(&self, rows: u64) -> u64 {
        match self.operation {
            Operation::Multiply => {
                let each = 1 + u64::from(self.flags & registers::FLAG_WITH_M != 0);
                self.count * self.passes * rows * self.words * each
            }
            _ => 0,
        }
    }
}

/// Operations after the last that uses a memory, up to which none other has it: about as many as a card has in flight.
const IN_FLIGHT: usize = 16;

/// Numbers that go up or come down.
pub(super) struct Transfer<T> {
    pub(super) buffer: Buffer,
    /// The first beat in the buffer.
    pub(super) start: u64,
    pub(super) form: Form,
    /// The numbers, or the operand whose items they are.
    pub(super) data: T,
}

/// Collects what is to be done with some items. See the [module](self) documentation.
#[derive(Default)]
pub(super) struct Recorder<'o> {
    memory: Vec<Memory>,
    constants: Vec<Transfer<Words<'o>>>,
    inputs: Vec<Transfer<usize>>,
    calls: Vec<Call>,
    outputs: Vec<Transfer<usize>>,
    is_too_large: bool,
}

/// The work on a number of items, wherever in a batch they are.
pub(super) struct Recording<'o> {
    memory: Vec<Memory>,
    /// Numbers that go up and are the same for all items.
    pub(super) constants: Vec<Transfer<Words<'o>>>,
    /// Which operands' items go up before any operation, and where.
    pub(super) inputs: Vec<Transfer<usize>>,
    calls: Vec<Call>,
    /// Which operands' items come down after all operations, and whence.
    pub(super) outputs: Vec<Transfer<usize>>,
    layout: Layout,
}

impl<'o> Recorder<'o> {
    fn add(&mut self, memory: Memory) -> Buffer {
        self.memory.push(memory);
        Buffer(self.memory.len() - 1)
    }

    /// Returns memory for `beats` beats, with anything in it.
    pub(super) fn buffer(&mut self, beats: u64) -> Buffer {
        self.add(Memory::Own { beats })
    }

    /// Returns room for `count` numbers of `length` beats, one after the other.
    pub(super) fn numbers(&mut self, count: u64, length: u64) -> Numbers {
        Numbers { buffer: self.buffer(count * length), start: 0, stride: length, length }
    }

    /// Returns memory that holds these numbers, which are the same for all items of a batch.
    pub(super) fn constant(&mut self, words: Words<'o>, form: Form) -> Buffer {
        let buffer = self.buffer(form.beats());
        self.constants.push(Transfer { buffer, start: 0, form, data: words });
        buffer
    }

    /// Returns one number that is the same for all items, in `length` beats.
    pub(super) fn number(&mut self, words: Zeroizing<Vec<u64>>, length: u64) -> Numbers {
        let mut padded = Zeroizing::new(vec![0; 8 * length as usize]);
        padded[..words.len()].copy_from_slice(&words);
        let buffer = self.constant(Words::Owned(padded), Form::number(8 * length as usize));
        Numbers { buffer, start: 0, stride: 0, length }
    }

    /// Fills memory with a number before any operation.
    pub(super) fn fill(&mut self, buffer: Buffer, start: u64, words: Words<'o>) {
        let form = Form::number(words.as_slice().len());
        self.constants.push(Transfer { buffer, start, form, data: words });
    }

    /// Returns memory that outlives the run.
    pub(super) fn resident(&mut self, resident: &Arc<Resident>) -> Buffer {
        let is_it =
            |memory: &Memory| matches!(memory, Memory::Resident(r) if Arc::ptr_eq(r, resident));
        match self.memory.iter().position(is_it) {
            Some(index) => Buffer(index),
            None => self.add(Memory::Resident(resident.clone())),
        }
    }

    /// Fills memory with the items of an operand before any operation.
    pub(super) fn input(&mut self, buffer: Buffer, form: Form, operand: usize) {
        self.inputs.push(Transfer { buffer, start: 0, form, data: operand });
    }

    /// Copies memory to the items of an operand after all operations.
    pub(super) fn output(&mut self, buffer: Buffer, form: Form, operand: usize) {
        self.outputs.push(Transfer { buffer, start: 0, form, data: operand });
    }

    /// Records an operation.
    pub(super) fn call(&mut self, call: Call) {
        if call.count > 0 {
            self.is_too_large |= !call.is_describable();
            self.calls.push(call);
        }
    }

    /// Returns what was recorded.
    ///
    /// # Errors
    /// A number of it is too large for a descriptor.
    pub(super) fn finish(self) -> Result<Recording<'o>, DeviceFault> {
        if self.is_too_large {
            let why = "a descriptor of the card has no room for numbers of such a size".into();
            return Err(DeviceFault::Failed { why });
        }
        let layout = Layout::new(&self.lives());
        let Self { memory, constants, inputs, calls, outputs, .. } = self;
        Ok(Recording { memory, constants, inputs, calls, outputs, layout })
    }

    /// Returns for each memory of a run's own when it holds something; `None` where nothing uses it.
    fn lives(&self) -> Vec<Option<Life>> {
        let mut lives: Vec<Option<Life>> = vec![None; self.memory.len()];
        let mut used = |buffer: Buffer, at: usize| {
            if let Memory::Own { beats } = self.memory[buffer.0] {
                let life = lives[buffer.0].get_or_insert(Life { first: at, last: at, beats });
                (life.first, life.last) = (life.first.min(at), life.last.max(at));
            }
        };
        let end = self.calls.len() + 1;
        for constant in &self.constants {
            // What went up once is there for the items after these as well.
            used(constant.buffer, 0);
            used(constant.buffer, end);
        }
        self.inputs.iter().for_each(|input| used(input.buffer, 0));
        for (index, call) in self.calls.iter().enumerate() {
            // Whoever had its memory next would wait for this one.
            let others = (index + 1 + IN_FLIGHT).min(end - 1);
            for numbers in call.operands() {
                used(numbers.buffer, index + 1);
                used(numbers.buffer, others);
            }
        }
        self.outputs.iter().for_each(|output| used(output.buffer, end));
        lives
    }
}

impl Recording<'_> {
    /// Returns the beats of memory that it takes.
    pub(super) fn beats(&self) -> u64 {
        self.layout.beats
    }

    /// Returns the beats of the items that go up and come down.
    pub(super) fn item_beats(&self) -> u64 {
        let items = self.inputs.iter().chain(&self.outputs);
        let beats = items.map(|item| match self.memory[item.buffer.0] {
            Memory::Own { beats } => beats,
            Memory::Resident(_) => 0,
        });
        beats.sum()
    }

    /// Returns the first beat of a memory, where that of the run begins at `base`. None if nothing
    /// uses it.
    pub(super) fn place(&self, buffer: Buffer, base: u64) -> Option<u64> {
        match &self.memory[buffer.0] {
            Memory::Own { .. } => self.layout.places[buffer.0].map(|place| base + place),
            Memory::Resident(resident) => Some(resident.start()),
        }
    }

    /// Returns its descriptors, in order, where the memory of the run begins at `base`.
    pub(super) fn descriptors(&self, base: u64) -> impl Iterator<Item = Descriptor> {
        let items = move |numbers: Numbers| {
            let place = self.place(numbers.buffer, base).unwrap_or(0);
            // Recorded is only what fits.
            Items {
                at: (place + numbers.start) as u32,
                stride: numbers.stride as u16,
                length: numbers.length as u8,
            }
        };
        let given = move |numbers: Option<Numbers>| numbers.map(items).unwrap_or_default();
        self.calls.iter().map(move |call| Descriptor {
            operation: call.operation,
            flags: call.flags,
            count: call.count as u32,
            a: given(call.a),
            b: given(call.b),
            c: given(call.c),
            m: given(call.m),
            d: items(call.d),
            words: call.words as u16,
            passes: call.passes as u8,
            shift: call.shift as u16,
            width: call.width as u8,
        })
    }

    /// Counts the multiplications of digits and words by arrays of so many rows.
    pub(super) fn multiplies(&self, rows: u64) -> u64 {
        self.calls.iter().map(|call| call.multiplies(rows)).sum()
    }
}

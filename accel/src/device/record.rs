//! The work of a device on some items of a batch, as data: memory, words that go up, commands in their order, words
//! that come down. To record asks nothing of a device.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::{engine::DeviceFault, program::Kind};

/// A kind of device that programs are recorded for. Sizes are in units of its memory.
pub(crate) trait DeviceKind {
    /// What it does at a time.
    type Command;
    /// Memory that outlives a run.
    type Resident;
    /// How an item lies in its memory.
    type Form: Copy;
    /// The places of a recording's memory.
    type Layout;

    /// Commands after the last that uses a memory, up to which none other has it.
    const IN_FLIGHT: usize;

    /// Returns the form of the items of a kind.
    fn form(kind: &Kind) -> Self::Form;

    /// Returns the units of an item.
    fn size(form: &Self::Form) -> u64;

    /// Returns the memory that a command uses.
    fn buffers(command: &Self::Command) -> impl Iterator<Item = Buffer>;

    /// Finds places for memory; what holds something at the same time lies apart.
    fn layout(lives: &[Option<Life>]) -> Self::Layout;

    /// Returns why it cannot take a command, if it cannot.
    fn refusal(_command: &Self::Command) -> Option<DeviceFault> {
        None
    }
}

/// Memory in a recording, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(pub(crate) usize);

/// The memory of a [`Buffer`].
pub(crate) enum Memory<R> {
    /// Units that a run has for as long as a recording needs them. They hold anything at first.
    Own { size: u64 },
    /// Memory that was there before the run and stays.
    Resident(Arc<R>),
}

/// When memory holds something, and its size.
#[derive(Clone, Copy)]
pub(crate) struct Life {
    /// The first command that uses it; 0 stands before all of them.
    pub(crate) first: usize,
    /// The last one.
    pub(crate) last: usize,
    pub(crate) size: u64,
}

/// Words that the host has.
pub(crate) enum HostWords<'o> {
    Borrowed(&'o [u64]),
    Owned(Zeroizing<Vec<u64>>),
}

impl HostWords<'_> {
    pub(crate) fn as_slice(&self) -> &[u64] {
        match self {
            Self::Borrowed(words) => words,
            Self::Owned(words) => words,
        }
    }
}

/// Words that go up or come down.
pub(crate) struct Transfer<F, T> {
    pub(crate) buffer: Buffer,
    /// The first unit in the buffer.
    pub(crate) start: u64,
    pub(crate) form: F,
    /// The words, or the operand whose items they are.
    pub(crate) data: T,
}

/// A value in device memory.
#[derive(Clone, Copy)]
pub(crate) struct DeviceValue<'k> {
    pub(crate) kind: &'k Kind,
    pub(crate) buffer: Buffer,
    /// Whether one item stands for all.
    pub(crate) shared: bool,
    /// The first of its items that a step is applied to.
    pub(crate) first: u64,
}

/// A step's result and its arguments, over `count` items.
#[derive(Clone, Copy)]
pub(crate) struct Applied<'s> {
    pub(crate) out: &'s DeviceValue<'s>,
    pub(crate) args: &'s [DeviceValue<'s>],
    pub(crate) count: u32,
}

/// Collects what is to be done with some items.
pub(crate) struct Recorder<'o, T: DeviceKind> {
    memory: Vec<Memory<T::Resident>>,
    constants: Vec<Transfer<T::Form, HostWords<'o>>>,
    inputs: Vec<Transfer<T::Form, usize>>,
    commands: Vec<T::Command>,
    outputs: Vec<Transfer<T::Form, usize>>,
    #[cfg(feature = "gpu")]
    spare: Option<Buffer>,
}

/// The work on a number of items, wherever in a batch they are.
pub(crate) struct Recording<'o, T: DeviceKind> {
    /// The memory of each buffer.
    pub(crate) memory: Vec<Memory<T::Resident>>,
    /// Words that go up and are the same for all items.
    pub(crate) constants: Vec<Transfer<T::Form, HostWords<'o>>>,
    /// Which operands' items go up before any command, and where.
    pub(crate) inputs: Vec<Transfer<T::Form, usize>>,
    pub(crate) commands: Vec<T::Command>,
    /// Which operands' items come down after all commands, and whence.
    pub(crate) outputs: Vec<Transfer<T::Form, usize>>,
    pub(crate) layout: T::Layout,
}

impl<T: DeviceKind> Default for Recorder<'_, T> {
    fn default() -> Self {
        Self {
            memory: vec![],
            constants: vec![],
            inputs: vec![],
            commands: vec![],
            outputs: vec![],
            #[cfg(feature = "gpu")]
            spare: None,
        }
    }
}

impl<'o, T: DeviceKind> Recorder<'o, T> {
    fn add(&mut self, memory: Memory<T::Resident>) -> Buffer {
        self.memory.push(memory);
        Buffer(self.memory.len() - 1)
    }

    /// Returns memory of `size` units or one, with anything in it.
    pub(crate) fn memory(&mut self, size: u64) -> Buffer {
        self.add(Memory::Own { size: size.max(1) })
    }

    /// Returns memory of one unit that nobody reads, for commands that have no use for an operand.
    #[cfg(feature = "gpu")]
    pub(crate) fn spare(&mut self) -> Buffer {
        let spare = self.spare.unwrap_or_else(|| self.memory(1));
        *self.spare.insert(spare)
    }

    /// Returns memory that holds an item, which is the same for all items of a batch.
    pub(crate) fn item(&mut self, words: HostWords<'o>, form: T::Form) -> Buffer {
        let buffer = self.memory(T::size(&form));
        self.put(buffer, 0, words, form);
        buffer
    }

    /// Fills memory from unit `start` on, before any command, with words that are the same for all items of a batch.
    pub(crate) fn put(&mut self, buffer: Buffer, start: u64, words: HostWords<'o>, form: T::Form) {
        if !words.as_slice().is_empty() {
            self.constants.push(Transfer { buffer, start, form, data: words });
        }
    }

    /// Returns memory that outlives the run.
    pub(crate) fn resident(&mut self, resident: &Arc<T::Resident>) -> Buffer {
        let is_it =
            |memory: &Memory<_>| matches!(memory, Memory::Resident(r) if Arc::ptr_eq(r, resident));
        match self.memory.iter().position(is_it) {
            Some(index) => Buffer(index),
            None => self.add(Memory::Resident(resident.clone())),
        }
    }

    /// Fills memory with the items of an operand before any command.
    pub(crate) fn input(&mut self, buffer: Buffer, form: T::Form, operand: usize) {
        self.inputs.push(Transfer { buffer, start: 0, form, data: operand });
    }

    /// Copies memory to the items of an operand after all commands.
    pub(crate) fn output(&mut self, buffer: Buffer, form: T::Form, operand: usize) {
        self.outputs.push(Transfer { buffer, start: 0, form, data: operand });
    }

    /// Records a command: it may read the results of those before.
    pub(crate) fn push(&mut self, command: T::Command) {
        self.commands.push(command);
    }

    /// Returns what was recorded.
    ///
    /// # Errors
    /// The device cannot take a command of it.
    pub(crate) fn finish(self) -> Result<Recording<'o, T>, DeviceFault> {
        if let Some(fault) = self.commands.iter().find_map(T::refusal) {
            return Err(fault);
        }
        let layout = T::layout(&self.lives());
        let Self { memory, constants, inputs, commands, outputs, .. } = self;
        Ok(Recording { memory, constants, inputs, commands, outputs, layout })
    }

    /// Returns for each memory of a run's own when it holds something; `None` where nothing uses it.
    fn lives(&self) -> Vec<Option<Life>> {
        let mut lives: Vec<Option<Life>> = vec![None; self.memory.len()];
        let mut used = |buffer: Buffer, at: usize| {
            if let Memory::Own { size } = self.memory[buffer.0] {
                let life = lives[buffer.0].get_or_insert(Life { first: at, last: at, size });
                (life.first, life.last) = (life.first.min(at), life.last.max(at));
            }
        };
        let end = self.commands.len() + 1;
        for constant in &self.constants {
            // What went up once is there for the items after these as well.
            used(constant.buffer, 0);
            used(constant.buffer, end);
        }
        self.inputs.iter().for_each(|input| used(input.buffer, 0));
        for (index, command) in self.commands.iter().enumerate() {
            for buffer in T::buffers(command) {
                used(buffer, index + 1);
                // Whoever had its memory next would wait for this one.
                used(buffer, (index + 1 + T::IN_FLIGHT).min(end - 1));
            }
        }
        self.outputs.iter().for_each(|output| used(output.buffer, end));
        lives
    }
}

impl<T: DeviceKind> Recording<'_, T> {
    /// Returns the units of a run's own memory; 0 of memory that stays.
    pub(crate) fn size(&self, buffer: Buffer) -> u64 {
        match self.memory[buffer.0] {
            Memory::Own { size } => size,
            Memory::Resident(_) => 0,
        }
    }

    /// Returns the units of the items that go up, and of those that come down.
    pub(crate) fn item_sizes(&self) -> [u64; 2] {
        [&self.inputs, &self.outputs]
            .map(|items| items.iter().map(|item| self.size(item.buffer)).sum())
    }
}

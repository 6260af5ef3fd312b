//! The work of a device on some items of a batch, as data: memory, words that go up, kernels in
//! their order, words that come down. To record asks nothing of a device; `execute.rs` carries it
//! out.

use std::sync::Arc;

use zeroize::Zeroizing;

use super::{
    layout::{Layout, Life},
    memory::Resident,
    shaders::{AsWords, GROUP, Kernel, Shape},
};

/// Memory in a recording, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Buffer(pub(super) usize);

/// The memory of a [`Buffer`].
pub(super) enum Memory {
    /// Words of 32 bits that a run has for as long as a recording needs them. They hold anything at
    /// first.
    Own { words: usize },
    /// Memory that was there before the run and stays.
    Resident(Arc<Resident>),
}

/// Words that the host has.
pub(crate) enum Words<'o> {
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

/// The buffers that kernels read and write, by binding.
pub(crate) struct Bindings {
    pub(crate) constants: Buffer,
    pub(crate) a: Buffer,
    pub(crate) b: Buffer,
    pub(crate) out: Buffer,
    /// The state of a kernel from one dispatch to the next, if it has one.
    pub(crate) state: Option<Buffer>,
}

/// One dispatch.
pub(super) struct Dispatch {
    pub(super) kernel: Kernel,
    /// How numbers are spread, of kernels over big numbers.
    pub(super) shape: Option<Shape>,
    pub(super) params: Vec<u32>,
    /// In the order of the bindings, after the parameters.
    pub(super) buffers: [Buffer; 5],
    /// Workgroups.
    pub(super) groups: u32,
}

/// A step of a device, one after the other: each may read the results of those before.
pub(super) enum Command {
    /// Sets all of a buffer to zero.
    Clear(Buffer),
    Dispatch(Dispatch),
}

/// Collects what is to be done with some items. See the [module](self) documentation.
#[derive(Default)]
pub(crate) struct Recorder<'o> {
    memory: Vec<Memory>,
    constants: Vec<(Buffer, Words<'o>)>,
    inputs: Vec<(Buffer, usize)>,
    commands: Vec<Command>,
    outputs: Vec<(Buffer, usize)>,
    nothing: Option<Buffer>,
}

/// The work on a number of items, wherever in a batch they are.
pub(super) struct Recording<'o> {
    /// The memory of each buffer.
    pub(super) memory: Vec<Memory>,
    /// Words that go up and are the same for all items.
    pub(super) constants: Vec<(Buffer, Words<'o>)>,
    /// Which operands' items go up before any command, and where.
    pub(super) inputs: Vec<(Buffer, usize)>,
    pub(super) commands: Vec<Command>,
    /// Which operands' items come down after all commands, and whence.
    pub(super) outputs: Vec<(Buffer, usize)>,
    /// Which buffers share memory.
    pub(super) layout: Layout,
}

impl<'o> Recorder<'o> {
    fn add(&mut self, memory: Memory) -> Buffer {
        self.memory.push(memory);
        Buffer(self.memory.len() - 1)
    }

    /// Returns memory for `words` words of 32 bits, with anything in it.
    pub(super) fn buffer(&mut self, words: usize) -> Buffer {
        self.add(Memory::Own { words: words.max(1) })
    }

    /// Returns memory for `words` words of 32 bits, zero when the next command comes.
    pub(super) fn zeros(&mut self, words: usize) -> Buffer {
        let buffer = self.buffer(words);
        self.commands.push(Command::Clear(buffer));
        buffer
    }

    /// Returns memory that holds `words`, which are the same for all items of a batch.
    pub(super) fn constant(&mut self, words: Words<'o>) -> Buffer {
        let buffer = self.buffer(2 * words.as_slice().len());
        self.fill(buffer, words);
        buffer
    }

    /// Fills a buffer before any command with words that are the same for all items of a batch.
    pub(super) fn fill(&mut self, buffer: Buffer, words: Words<'o>) {
        if !words.as_slice().is_empty() {
            self.constants.push((buffer, words));
        }
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

    /// Fills a buffer with the items of an operand before any command.
    pub(super) fn input(&mut self, buffer: Buffer, operand: usize) {
        self.inputs.push((buffer, operand));
    }

    /// Copies the first words of a buffer to the items of an operand after all commands.
    pub(super) fn output(&mut self, buffer: Buffer, operand: usize) {
        self.outputs.push((buffer, operand));
    }

    /// Runs a kernel over `count` numbers, in teams.
    pub(super) fn over_numbers(
        &mut self,
        kernel: Kernel,
        shape: Shape,
        count: u32,
        bindings: &Bindings,
        params: &impl AsWords,
    ) {
        let groups = count.div_ceil(GROUP / shape.team);
        self.dispatch(kernel, Some(shape), groups, bindings, params);
    }

    /// Runs a kernel over `count` of what it counts: see [`Kernel::group`].
    pub(super) fn over_words(
        &mut self,
        kernel: Kernel,
        count: u32,
        bindings: &Bindings,
        params: &impl AsWords,
    ) {
        let groups = count.div_ceil(kernel.group());
        self.dispatch(kernel, None, groups, bindings, params);
    }

    fn dispatch(
        &mut self,
        kernel: Kernel,
        shape: Option<Shape>,
        groups: u32,
        bindings: &Bindings,
        params: &impl AsWords,
    ) {
        let Bindings { constants, a, b, out, state } = *bindings;
        let state = state.unwrap_or_else(|| self.nothing());
        let buffers = [constants, a, b, out, state];
        let (read, written) = buffers.split_at(3);
        assert!(out != state && !written.iter().any(|b| read.contains(b)), "{}", kernel.name());
        let params = params.as_words();
        self.commands.push(Command::Dispatch(Dispatch { kernel, shape, params, buffers, groups }));
    }

    /// Returns a buffer for a binding that a kernel has no use for.
    fn nothing(&mut self) -> Buffer {
        let nothing = self.nothing.unwrap_or_else(|| self.buffer(1));
        *self.nothing.insert(nothing)
    }

    pub(super) fn finish(self) -> Recording<'o> {
        let layout = Layout::new(&self.lives());
        let Self { memory, constants, inputs, commands, outputs, .. } = self;
        Recording { memory, constants, inputs, commands, outputs, layout }
    }

    /// Returns for each buffer of a run's own when it holds something; `None` where nothing uses
    /// it.
    fn lives(&self) -> Vec<Option<Life>> {
        let mut lives: Vec<Option<Life>> = vec![None; self.memory.len()];
        let mut used = |buffer: Buffer, at: usize| {
            if let Memory::Own { words } = self.memory[buffer.0] {
                let bytes = 4 * words as u64;
                let life = lives[buffer.0].get_or_insert(Life { first: at, last: at, bytes });
                (life.first, life.last) = (life.first.min(at), life.last.max(at));
            }
        };
        let end = self.commands.len() + 1;
        for (buffer, _) in &self.constants {
            // What went up once is there for the items after these as well.
            used(*buffer, 0);
            used(*buffer, end);
        }
        self.inputs.iter().for_each(|&(buffer, _)| used(buffer, 0));
        for (index, command) in self.commands.iter().enumerate() {
            match command {
                Command::Clear(buffer) => used(*buffer, index + 1),
                Command::Dispatch(d) => d.buffers.iter().for_each(|&b| used(b, index + 1)),
            }
        }
        self.outputs.iter().for_each(|&(buffer, _)| used(buffer, end));
        lives
    }
}

impl Recording<'_> {
    /// Returns the dispatches, in order.
    pub(super) fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.commands.iter().filter_map(|command| match command {
            Command::Dispatch(dispatch) => Some(dispatch),
            Command::Clear(_) => None,
        })
    }

    /// Returns the bytes of a buffer that a kernel sees; 0 of memory that stays, which is as large
    /// as it is.
    pub(super) fn bytes(&self, buffer: Buffer) -> u64 {
        match self.memory[buffer.0] {
            Memory::Own { words } => 4 * words as u64,
            Memory::Resident(_) => 0,
        }
    }

    /// Returns the bytes of the constants that go up.
    pub(super) fn constant_bytes(&self) -> u64 {
        self.constants.iter().map(|(_, words)| 8 * words.as_slice().len() as u64).sum()
    }

    /// Returns the bytes of the items that go up, and of those that come down.
    pub(super) fn item_bytes(&self) -> [u64; 2] {
        [&self.inputs, &self.outputs]
            .map(|items| items.iter().map(|&(buffer, _)| self.bytes(buffer)).sum())
    }

    /// Returns the bytes of the largest buffer.
    pub(super) fn largest(&self) -> u64 {
        (0..self.memory.len()).map(|index| self.bytes(Buffer(index))).max().unwrap_or(0)
    }

    /// Returns the bytes of all memory that it takes, on the device and on both ways.
    pub(super) fn all_bytes(&self) -> u64 {
        let [up, down] = self.item_bytes();
        self.layout.sizes.iter().sum::<u64>() + self.constant_bytes() + up + down
    }

    /// Returns the most threads of a dispatch.
    pub(super) fn threads(&self) -> u64 {
        let threads = |d: &Dispatch| u64::from(d.groups) * u64::from(d.kernel.threads());
        self.dispatches().map(threads).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::shaders::WordParams;

    fn copy(recorder: &mut Recorder<'_>, a: Buffer, out: Buffer) {
        let bindings = Bindings { constants: a, a, b: a, out, state: None };
        recorder.over_words(Kernel::UnitPair, 1, &bindings, &WordParams::default());
    }

    /// A chain of values, each read by the next alone, lies in two places; constants keep theirs.
    #[test]
    fn memory_is_used_again() {
        let mut recorder = Recorder::default();
        let constant = recorder.constant(Words::Borrowed(&[7; 3]));
        let mut chain = vec![recorder.buffer(10)];
        recorder.input(chain[0], 0);
        for words in [20, 30, 5] {
            let next = recorder.buffer(words);
            copy(&mut recorder, chain[chain.len() - 1], next);
            chain.push(next);
        }
        let late = recorder.zeros(8);
        copy(&mut recorder, constant, late);
        let unused = recorder.buffer(1000);
        recorder.output(chain[3], 1);
        let recording = recorder.finish();
        let place = |buffer: Buffer| recording.layout.places[buffer.0];
        assert_eq!((place(chain[2]), place(unused)), (place(chain[0]), None));
        assert_eq!(place(chain[3]), place(chain[1]));
        // The output is still there when `late` is made, and the constant is for ever.
        assert_eq!(place(late), place(chain[0]));
        // 3 · 8 bytes of the constant, the chain, and one word at the binding without a use.
        let mut sizes = recording.layout.sizes.clone();
        sizes.sort_unstable();
        assert_eq!(sizes, [4, 24, 80, 120]);
    }
}

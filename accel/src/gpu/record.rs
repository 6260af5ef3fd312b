//! Recordings for adapters: kernels over buffers of words of 32 bits. `execute.rs` carries them out.

use super::{
    device::GpuDevice,
    layout::GpuLayout,
    memory::ResidentBuffer,
    shaders::{
        GROUP, Kernel, OverNumbers, OverRings, OverWords, Params, RingParams, Shape, WORDS_GROUP,
        WordParams,
    },
};
use crate::{
    device::{self, Buffer, DeviceKind, DeviceValue, HostWords, Life},
    program::Kind,
};

pub(crate) type GpuRecorder<'o> = device::Recorder<'o, GpuDevice>;
pub(crate) type GpuRecording<'o> = device::Recording<'o, GpuDevice>;

/// Words of 64 bits as they lie on the host.
#[derive(Clone, Copy)]
pub(crate) struct HostForm {
    words: usize,
}

impl DeviceKind for GpuDevice {
    type Command = Command;
    type Resident = ResidentBuffer;
    type Form = HostForm;
    type Layout = GpuLayout;

    const IN_FLIGHT: usize = 0;

    fn form(kind: &Kind) -> HostForm {
        HostForm { words: kind.words() }
    }

    fn size(form: &HostForm) -> u64 {
        2 * form.words as u64
    }

    fn buffers(command: &Command) -> impl Iterator<Item = Buffer> {
        let buffers = match command {
            Command::Clear(buffer) => std::slice::from_ref(buffer),
            Command::Dispatch(dispatch) => &dispatch.buffers,
        };
        buffers.iter().copied()
    }

    fn layout(lives: &[Option<Life>]) -> GpuLayout {
        GpuLayout::new(lives)
    }
}

impl DeviceValue<'_> {
    /// Returns the words of 32 bits of an item.
    pub(super) fn words(&self) -> u32 {
        2 * self.kind.words() as u32
    }

    /// Returns the words of 32 bits from one item to the next.
    pub(super) fn stride(&self) -> u32 {
        if self.shared { 0 } else { self.words() }
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

/// A kernel and its parameters.
pub(crate) enum KernelWork {
    Numbers {
        kernel: OverNumbers,
        /// How numbers are spread.
        shape: Shape,
        params: Params,
    },
    Words {
        kernel: OverWords,
        params: WordParams,
    },
    Rings {
        kernel: OverRings,
        params: RingParams,
    },
}

impl KernelWork {
    /// Returns the kernel, and how numbers are spread if it is over them.
    pub(super) fn kernel(&self) -> (Kernel, Option<Shape>) {
        match *self {
            Self::Numbers { kernel, shape, .. } => (kernel.into(), Some(shape)),
            Self::Words { kernel, .. } => (kernel.into(), None),
            Self::Rings { kernel, .. } => (kernel.into(), None),
        }
    }

    /// Returns the parameters as words.
    pub(super) fn params(&self) -> Vec<u32> {
        match self {
            Self::Numbers { params, .. } => params.as_words(),
            Self::Words { params, .. } => params.as_words(),
            Self::Rings { params, .. } => params.as_words(),
        }
    }
}

/// One dispatch.
pub(crate) struct Dispatch {
    pub(super) work: KernelWork,
    /// In the order of the bindings, after the parameters.
    pub(super) buffers: [Buffer; 5],
    /// Workgroups.
    pub(super) groups: u32,
}

/// A step of a device, one after the other: each may read the results of those before.
pub(crate) enum Command {
    /// Sets all of a buffer to zero.
    Clear(Buffer),
    Dispatch(Dispatch),
}

impl<'o> GpuRecorder<'o> {
    /// Returns memory for `words` words of 32 bits, with anything in it.
    pub(super) fn buffer(&mut self, words: usize) -> Buffer {
        self.memory(words as u64)
    }

    /// Returns memory for `words` words of 32 bits, zero when the next command comes.
    pub(super) fn zeros(&mut self, words: usize) -> Buffer {
        let buffer = self.buffer(words);
        self.push(Command::Clear(buffer));
        buffer
    }

    /// Returns memory that holds `words`, which are the same for all items of a batch.
    pub(super) fn constant(&mut self, words: HostWords<'o>) -> Buffer {
        let form = HostForm { words: words.as_slice().len() };
        self.item(words, form)
    }

    /// Fills a buffer before any command with words that are the same for all items of a batch.
    pub(super) fn fill(&mut self, buffer: Buffer, words: HostWords<'o>) {
        let form = HostForm { words: words.as_slice().len() };
        self.put(buffer, 0, words, form);
    }

    /// Runs a kernel over `count` numbers, in teams.
    pub(super) fn over_numbers(
        &mut self,
        kernel: OverNumbers,
        shape: Shape,
        count: u32,
        bindings: &Bindings,
        params: Params,
    ) {
        let groups = count.div_ceil(GROUP / shape.team);
        self.dispatch(KernelWork::Numbers { kernel, shape, params }, groups, bindings);
    }

    /// Runs a kernel over `count` words.
    pub(super) fn over_words(
        &mut self,
        kernel: OverWords,
        count: u32,
        bindings: &Bindings,
        params: WordParams,
    ) {
        self.dispatch(KernelWork::Words { kernel, params }, count.div_ceil(WORDS_GROUP), bindings);
    }

    /// Runs a kernel over `count` of what it counts: see [`OverRings::group`].
    pub(super) fn over_rings(
        &mut self,
        kernel: OverRings,
        count: u32,
        bindings: &Bindings,
        params: RingParams,
    ) {
        self.dispatch(
            KernelWork::Rings { kernel, params },
            count.div_ceil(kernel.group()),
            bindings,
        );
    }

    fn dispatch(&mut self, work: KernelWork, groups: u32, bindings: &Bindings) {
        let Bindings { constants, a, b, out, state } = *bindings;
        let state = state.unwrap_or_else(|| self.spare());
        let buffers = [constants, a, b, out, state];
        let (read, written) = buffers.split_at(3);
        let is_apart = out != state && !written.iter().any(|b| read.contains(b));
        assert!(is_apart, "a kernel reads what it does not write");
        self.push(Command::Dispatch(Dispatch { work, buffers, groups }));
    }
}

impl Command {
    pub(super) fn dispatch(&self) -> Option<&Dispatch> {
        match self {
            Self::Dispatch(dispatch) => Some(dispatch),
            Self::Clear(_) => None,
        }
    }
}

impl GpuRecording<'_> {
    /// Returns the dispatches, in order.
    pub(super) fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.commands.iter().filter_map(Command::dispatch)
    }

    /// Returns the bytes of a buffer that a kernel sees; 0 of memory that stays, which is as large
    /// as it is.
    pub(super) fn bytes(&self, buffer: Buffer) -> u64 {
        4 * self.size(buffer)
    }

    /// Returns the bytes of the constants that go up.
    pub(super) fn constant_bytes(&self) -> u64 {
        self.constants.iter().map(|constant| 4 * GpuDevice::size(&constant.form)).sum()
    }

    /// Returns the bytes of the items that go up, and of those that come down.
    pub(super) fn item_bytes(&self) -> [u64; 2] {
        self.item_sizes().map(|words| 4 * words)
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
        let threads = |d: &Dispatch| u64::from(d.groups) * u64::from(d.work.kernel().0.threads());
        self.dispatches().map(threads).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(recorder: &mut GpuRecorder<'_>, a: Buffer, out: Buffer) {
        let bindings = Bindings { constants: a, a, b: a, out, state: None };
        recorder.over_words(OverWords::UnitPair, 1, &bindings, WordParams::default());
    }

    /// A chain of values, each read by the next alone, lies in two places; constants keep theirs.
    #[test]
    fn memory_is_used_again() {
        let mut recorder = GpuRecorder::default();
        let constant = recorder.constant(HostWords::Borrowed(&[7; 3]));
        let mut chain = vec![recorder.buffer(10)];
        recorder.input(chain[0], HostForm { words: 5 }, 0);
        for words in [20, 30, 5] {
            let next = recorder.buffer(words);
            copy(&mut recorder, chain[chain.len() - 1], next);
            chain.push(next);
        }
        let late = recorder.zeros(8);
        copy(&mut recorder, constant, late);
        let unused = recorder.buffer(1000);
        recorder.output(chain[3], HostForm { words: 2 }, 1);
        let Ok(recording) = recorder.finish() else { panic!("nothing is refused") };
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

//! Recordings for the card: operations over numbers in beats. `ring.rs` carries them out.

use zeroize::Zeroizing;

use super::{
    card::{CardDevice, ResidentBeats},
    descriptor::{CardOperation, Descriptor, OperandItems},
    form::BeatForm,
    layout::CardLayout,
    registers,
};
use crate::{
    device::{self, Applied, Buffer, DeviceKind, DeviceValue, HostWords, Life, Memory},
    engine::DeviceFault,
    program::Kind,
};

pub(crate) type CardRecorder<'o> = device::Recorder<'o, CardDevice>;
pub(crate) type CardRecording<'o> = device::Recording<'o, CardDevice>;

impl DeviceKind for CardDevice {
    type Command = Call;
    type Resident = ResidentBeats;
    type Form = BeatForm;
    type Layout = CardLayout;

    /// About as many as a card has in flight.
    const IN_FLIGHT: usize = 16;

    fn form(kind: &Kind) -> BeatForm {
        BeatForm::of(kind)
    }

    fn size(form: &BeatForm) -> u64 {
        form.beats()
    }

    fn buffers(call: &Call) -> impl Iterator<Item = Buffer> {
        call.operands().map(|numbers| numbers.buffer)
    }

    fn layout(lives: &[Option<Life>]) -> CardLayout {
        CardLayout::new(lives)
    }

    fn refusal(call: &Call) -> Option<DeviceFault> {
        let why = "a descriptor of the card has no room for numbers of such a size";
        (!call.is_describable()).then(|| DeviceFault::Failed { why: why.into() })
    }
}

impl Applied<'_> {
    pub(super) fn items(&self) -> u64 {
        self.count.into()
    }
}

impl DeviceValue<'_> {
    /// Returns a number of each item.
    pub(super) fn number(&self, index: usize) -> CardNumbers {
        let form = BeatForm::of(self.kind);
        let length = form.length();
        let stride = if self.shared { 0 } else { form.beats() };
        let start = self.first * stride + index as u64 * length;
        CardNumbers { buffer: self.buffer, start, stride, length }
    }
}

/// A number of each item, in beats: that of item i begins at `start + i · stride`.
#[derive(Clone, Copy)]
pub(crate) struct CardNumbers {
    pub(super) buffer: Buffer,
    pub(super) start: u64,
    /// 0 where one number stands for all.
    pub(super) stride: u64,
    pub(super) length: u64,
}

impl CardNumbers {
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
pub(crate) struct Call {
    pub(super) operation: CardOperation,
    pub(super) flags: u32,
    pub(super) count: u64,
    pub(super) a: Option<CardNumbers>,
    pub(super) b: Option<CardNumbers>,
    pub(super) c: Option<CardNumbers>,
    pub(super) m: Option<CardNumbers>,
    pub(super) d: CardNumbers,
    pub(super) words: u64,
    pub(super) passes: u64,
    pub(super) shift: u64,
    pub(super) width: u64,
}

impl Call {
    /// Returns an operation without operands, that writes `count` numbers.
    pub(super) fn new(operation: CardOperation, d: CardNumbers, count: u64) -> Self {
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

    fn operands(&self) -> impl Iterator<Item = CardNumbers> {
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
            CardOperation::Multiply => {
                let each = 1 + u64::from(self.flags & registers::FLAG_WITH_M != 0);
                self.count * self.passes * rows * self.words * each
            }
            _ => 0,
        }
    }
}

impl<'o> CardRecorder<'o> {
    /// Returns room for `count` numbers of `length` beats, one after the other.
    pub(super) fn numbers(&mut self, count: u64, length: u64) -> CardNumbers {
        CardNumbers { buffer: self.memory(count * length), start: 0, stride: length, length }
    }

    /// Returns one number that is the same for all items, in `length` beats.
    pub(super) fn number(&mut self, words: Zeroizing<Vec<u64>>, length: u64) -> CardNumbers {
        let mut padded = Zeroizing::new(vec![0; 8 * length as usize]);
        padded[..words.len()].copy_from_slice(&words);
        let buffer = self.item(HostWords::Owned(padded), BeatForm::number(8 * length as usize));
        CardNumbers { buffer, start: 0, stride: 0, length }
    }

    /// Fills memory with a number before any operation.
    pub(super) fn fill(&mut self, buffer: Buffer, start: u64, words: HostWords<'o>) {
        let form = BeatForm::number(words.as_slice().len());
        self.put(buffer, start, words, form);
    }

    /// Records an operation.
    pub(super) fn call(&mut self, call: Call) {
        if call.count > 0 {
            self.push(call);
        }
    }
}

impl CardRecording<'_> {
    /// Returns the beats of memory that it takes.
    pub(super) fn beats(&self) -> u64 {
        self.layout.beats
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
        let items = move |numbers: CardNumbers| {
            let place = self.place(numbers.buffer, base).unwrap_or(0);
            // Recorded is only what fits.
            OperandItems {
                at: (place + numbers.start) as u32,
                stride: numbers.stride as u16,
                length: numbers.length as u8,
            }
        };
        let given = move |numbers: Option<CardNumbers>| numbers.map(items).unwrap_or_default();
        self.commands.iter().map(move |call| Descriptor {
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
        self.commands.iter().map(|call| call.multiplies(rows)).sum()
    }
}

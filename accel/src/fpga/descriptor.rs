//! Descriptors: what the card is told to do, one beat each.

use super::registers::{self, Field};

/// Words of 32 bits of a descriptor.
pub(crate) const WORDS: usize = 16;

impl Field {
    /// Returns its largest value.
    pub(crate) const fn max(self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// Returns its value.
    pub(crate) fn get(self, words: &[u32; WORDS]) -> u32 {
        words[self.word] >> self.low & self.max()
    }

    /// Sets it where it is zero, to a value that it can hold.
    fn set(self, words: &mut [u32; WORDS], value: u32) {
        debug_assert!(value <= self.max(), "a field holds its value");
        words[self.word] |= (value & self.max()) << self.low;
    }
}

/// An operation of the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardOperation {
    Multiply,
    Reduce,
    Linear,
    Select,
    AddBeats,
    Wipe,
}

impl CardOperation {
    /// Returns its code.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Multiply => registers::OPERATION_MULTIPLY,
            Self::Reduce => registers::OPERATION_REDUCE,
            Self::Linear => registers::OPERATION_LINEAR,
            Self::Select => registers::OPERATION_SELECT,
            Self::AddBeats => registers::OPERATION_ADD_BEATS,
            Self::Wipe => registers::OPERATION_WIPE,
        }
    }
}

/// The items of an operand: item i begins at beat `at + i · stride` and has `length` beats. All are
/// 0 where there is no such operand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OperandItems {
    pub(crate) at: u32,
    pub(crate) stride: u16,
    pub(crate) length: u8,
}

/// One operation over `count` items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) operation: CardOperation,
    pub(crate) flags: u32,
    pub(crate) count: u32,
    pub(crate) a: OperandItems,
    pub(crate) b: OperandItems,
    pub(crate) c: OperandItems,
    pub(crate) m: OperandItems,
    pub(crate) d: OperandItems,
    /// Words of 26 bits, at most 511.
    pub(crate) words: u16,
    pub(crate) passes: u8,
    pub(crate) shift: u16,
    pub(crate) width: u8,
}

impl Descriptor {
    /// Returns it as the card reads it, its status 0.
    pub(crate) fn to_words(self) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        let mut set = |field: Field, value: u32| field.set(&mut words, value);
        set(registers::FIELD_OPERATION, self.operation.code());
        set(registers::FIELD_FLAGS, self.flags);
        set(registers::FIELD_COUNT, self.count);
        for (items, at, stride, length) in [
            (self.a, registers::FIELD_A_AT, registers::FIELD_A_STRIDE, registers::FIELD_A_LENGTH),
            (self.b, registers::FIELD_B_AT, registers::FIELD_B_STRIDE, registers::FIELD_B_LENGTH),
            (self.c, registers::FIELD_C_AT, registers::FIELD_C_STRIDE, registers::FIELD_C_LENGTH),
            (self.m, registers::FIELD_M_AT, registers::FIELD_M_STRIDE, registers::FIELD_M_LENGTH),
            (self.d, registers::FIELD_D_AT, registers::FIELD_D_STRIDE, registers::FIELD_D_LENGTH),
        ] {
            set(at, items.at);
            set(stride, items.stride.into());
            set(length, items.length.into());
        }
        set(registers::FIELD_WORDS, self.words.into());
        set(registers::FIELD_PASSES, self.passes.into());
        set(registers::FIELD_SHIFT, self.shift.into());
        set(registers::FIELD_WIDTH, self.width.into());
        words
    }
}

/// Tells of a descriptor that the card wrote this status to: its operation and the status.
pub(crate) fn fault(words: &[u32; WORDS]) -> String {
    let operation = match registers::FIELD_OPERATION.get(words) {
        registers::OPERATION_MULTIPLY => "multiply",
        registers::OPERATION_REDUCE => "reduce",
        registers::OPERATION_LINEAR => "linear",
        registers::OPERATION_SELECT => "select",
        registers::OPERATION_ADD_BEATS => "add_beats",
        registers::OPERATION_WIPE => "wipe",
        code => return format!("the card answers an operation {code}, which nobody asked for"),
    };
    let status = match registers::FIELD_STATUS.get(words) {
        registers::STATUS_DONE => "done",
        registers::STATUS_UNKNOWN => "unknown",
        registers::STATUS_EMPTY => "empty",
        registers::STATUS_RANGE => "range",
        registers::STATUS_SIZE => "size",
        registers::STATUS_OVERRUN => "overrun",
        code => return format!("the card answers {operation} with status {code}"),
    };
    format!("the card answers {operation} with status {status}")
}

/// All fields.
#[cfg(test)]
pub(super) const FIELDS: [Field; 23] = [
    registers::FIELD_OPERATION,
    registers::FIELD_FLAGS,
    registers::FIELD_COUNT,
    registers::FIELD_A_AT,
    registers::FIELD_B_AT,
    registers::FIELD_C_AT,
    registers::FIELD_M_AT,
    registers::FIELD_D_AT,
    registers::FIELD_A_STRIDE,
    registers::FIELD_B_STRIDE,
    registers::FIELD_C_STRIDE,
    registers::FIELD_M_STRIDE,
    registers::FIELD_D_STRIDE,
    registers::FIELD_A_LENGTH,
    registers::FIELD_B_LENGTH,
    registers::FIELD_C_LENGTH,
    registers::FIELD_M_LENGTH,
    registers::FIELD_D_LENGTH,
    registers::FIELD_WORDS,
    registers::FIELD_PASSES,
    registers::FIELD_SHIFT,
    registers::FIELD_WIDTH,
    registers::FIELD_STATUS,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// No two fields have a bit in common, and all are within the beat.
    #[test]
    fn fields_are_apart() {
        let mut seen = [0u32; WORDS];
        for field in FIELDS {
            let mask = field.max() << field.low;
            assert!(field.bits + field.low <= 32 && seen[field.word] & mask == 0);
            seen[field.word] |= mask;
        }
    }

    #[test]
    fn words_hold_what_fields_say() {
        let items =
            |n: u8| OperandItems { at: u32::from(n) << 24, stride: u16::from(n) << 8, length: n };
        let descriptor = Descriptor {
            operation: CardOperation::Select,
            flags: 3,
            count: 7,
            a: items(1),
            b: items(2),
            c: items(3),
            m: items(4),
            d: items(5),
            words: 511,
            passes: 6,
            shift: 0xabcd,
            width: 4,
        };
        let expected = [
            0x0304,
            7,
            1 << 24,
            2 << 24,
            3 << 24,
            4 << 24,
            5 << 24,
            0x0200_0100,
            0x0400_0300,
            0x500,
            0x0403_0201,
            0x0601_ff05,
            0x0004_abcd,
            0,
            0,
            0,
        ];
        assert_eq!(descriptor.to_words(), expected);
        let mut words = expected;
        words[15] = registers::STATUS_RANGE;
        assert_eq!(fault(&words), "the card answers select with status range");
        words[15] = 99;
        assert_eq!(fault(&words), "the card answers select with status 99");
    }
}

//! What a descriptor's status is, and what each operation writes.

use std::collections::HashSet;

use num_bigint::BigUint;

use super::ModelCard;
use crate::{
    beats,
    fpga::{
        descriptor::{FIELDS, WORDS},
        form::BEAT,
        registers::{self, Field},
    },
};

/// Items of a descriptor's operand.
#[derive(Clone, Copy)]
struct ModelOperand {
    at: u64,
    stride: u64,
    length: u64,
}

impl ModelOperand {
    fn of(words: &[u32; WORDS], [at, stride, length]: [Field; 3]) -> Self {
        let [at, stride, length] = [at, stride, length].map(|field| field.get(words).into());
        Self { at, stride, length }
    }

    fn begin(&self, item: u64) -> u64 {
        self.at + item * self.stride
    }
}

fn a(words: &[u32; WORDS]) -> ModelOperand {
    ModelOperand::of(
        words,
        [registers::FIELD_A_AT, registers::FIELD_A_STRIDE, registers::FIELD_A_LENGTH],
    )
}

fn b(words: &[u32; WORDS]) -> ModelOperand {
    ModelOperand::of(
        words,
        [registers::FIELD_B_AT, registers::FIELD_B_STRIDE, registers::FIELD_B_LENGTH],
    )
}

fn c(words: &[u32; WORDS]) -> ModelOperand {
    ModelOperand::of(
        words,
        [registers::FIELD_C_AT, registers::FIELD_C_STRIDE, registers::FIELD_C_LENGTH],
    )
}

fn m(words: &[u32; WORDS]) -> ModelOperand {
    ModelOperand::of(
        words,
        [registers::FIELD_M_AT, registers::FIELD_M_STRIDE, registers::FIELD_M_LENGTH],
    )
}

fn d(words: &[u32; WORDS]) -> ModelOperand {
    ModelOperand::of(
        words,
        [registers::FIELD_D_AT, registers::FIELD_D_STRIDE, registers::FIELD_D_LENGTH],
    )
}

impl ModelCard {
    /// Returns the operands that a descriptor reads, and their beats in all of an item.
    fn read(words: &[u32; WORDS]) -> Vec<(ModelOperand, u64)> {
        let flags = registers::FIELD_FLAGS.get(words);
        let mut read = vec![];
        let mut add = |operand: ModelOperand| read.push((operand, operand.length));
        let is_optional = |bit: u32| flags & bit != 0;
        match registers::FIELD_OPERATION.get(words) {
            registers::OPERATION_MULTIPLY => {
                add(a(words));
                add(b(words));
                is_optional(registers::FLAG_WITH_C).then(|| add(c(words)));
                is_optional(registers::FLAG_WITH_M).then(|| add(m(words)));
            }
            registers::OPERATION_REDUCE => [a(words), m(words)].into_iter().for_each(add),
            registers::OPERATION_LINEAR => {
                [a(words), b(words)].into_iter().for_each(&mut add);
                is_optional(registers::FLAG_WITH_C).then(|| add(c(words)));
            }
            registers::OPERATION_SELECT => {
                let width = registers::FIELD_WIDTH.get(words);
                let table = a(words);
                read.push((table, table.length << width));
                read.push((b(words), b(words).length));
            }
            registers::OPERATION_ADD_BEATS => {
                [a(words), b(words), c(words)].into_iter().for_each(add)
            }
            _ => {}
        }
        read
    }

    /// Returns what a descriptor's status will be.
    pub(super) fn status(&self, words: &[u32; WORDS]) -> u32 {
        let flags = match registers::FIELD_OPERATION.get(words) {
            registers::OPERATION_MULTIPLY => {
                registers::FLAG_WITH_C
                    | registers::FLAG_WITH_M
                    | registers::FLAG_HIGH
                    | registers::FLAG_LOW
            }
            registers::OPERATION_REDUCE => registers::FLAG_HIGH,
            registers::OPERATION_LINEAR => registers::FLAG_WITH_C | registers::FLAG_MINUS,
            registers::OPERATION_SELECT
            | registers::OPERATION_ADD_BEATS
            | registers::OPERATION_WIPE => 0,
            _ => return registers::STATUS_UNKNOWN,
        };
        let mut spare = [u32::MAX; WORDS];
        FIELDS.iter().for_each(|field| spare[field.word] &= !(field.max() << field.low));
        // Fields that only some operations have.
        let operation = registers::FIELD_OPERATION.get(words);
        let has = |some: &[u32], fields: &[Field]| {
            some.contains(&operation) || fields.iter().all(|field| field.get(words) == 0)
        };
        let (multiply, select) = (registers::OPERATION_MULTIPLY, registers::OPERATION_SELECT);
        let is_meant = has(&[multiply], &[registers::FIELD_WORDS, registers::FIELD_PASSES])
            && has(&[multiply, select, registers::OPERATION_REDUCE], &[registers::FIELD_SHIFT])
            && has(&[select], &[registers::FIELD_WIDTH])
            && registers::FIELD_STATUS.get(words) == 0;
        let is_spare = std::iter::zip(words, spare).any(|(word, spare)| word & spare != 0);
        if is_spare || !is_meant || registers::FIELD_FLAGS.get(words) & !flags != 0 {
            return registers::STATUS_UNKNOWN;
        }
        let count = u64::from(registers::FIELD_COUNT.get(words));
        if count == 0 {
            return registers::STATUS_EMPTY;
        }
        if !self.is_sized(words) {
            return registers::STATUS_SIZE;
        }
        let d = d(words);
        let is_within = |&(operand, length): &(ModelOperand, u64)| {
            operand.begin(count - 1) + length <= (self.memory.len() / BEAT) as u64
        };
        let within = Self::read(words).iter().chain(&[(d, d.length)]).all(is_within);
        if within { registers::STATUS_DONE } else { registers::STATUS_RANGE }
    }

    /// Returns whether units take numbers of these sizes.
    fn is_sized(&self, words: &[u32; WORDS]) -> bool {
        let [a, b, c, m, d] = [a, b, c, m, d].map(|of| of(words).length);
        let fits = |length: u64| (1..=32).contains(&length);
        let flags = registers::FIELD_FLAGS.get(words);
        let (shift, width) =
            (u64::from(registers::FIELD_SHIFT.get(words)), registers::FIELD_WIDTH.get(words));
        let number = registers::FIELD_WORDS.get(words);
        let is_set = |bit: u32| flags & bit != 0;
        match registers::FIELD_OPERATION.get(words) {
            registers::OPERATION_MULTIPLY => {
                (2..=self.most_words).contains(&number)
                    && registers::FIELD_PASSES.get(words) >= 1
                    && (is_set(registers::FLAG_HIGH) || is_set(registers::FLAG_LOW))
                    && [a, b, d].into_iter().all(fits)
                    && (fits(c) || !is_set(registers::FLAG_WITH_C))
                    && (fits(m) || !is_set(registers::FLAG_WITH_M))
            }
            registers::OPERATION_REDUCE => {
                [a, m, d].into_iter().all(fits) && m <= a && shift < 512 * a
            }
            registers::OPERATION_LINEAR => {
                [a, b, d].into_iter().all(fits) && (c == 1 || !is_set(registers::FLAG_WITH_C))
            }
            registers::OPERATION_SELECT => {
                let is_even = width == 0 || shift.is_multiple_of(width.into());
                let is_width = matches!(width, 0 | 1 | 2 | 4);
                [a, b, d].into_iter().all(fits) && shift < 512 * b && is_width && is_even
            }
            registers::OPERATION_ADD_BEATS => a > 0 && a == b && a == d && fits(c),
            _ => d > 0,
        }
    }

    fn bytes(&self, beat: u64, length: u64) -> &[u8] {
        &self.memory[beat as usize * BEAT..][..length as usize * BEAT]
    }

    fn number(&self, operand: ModelOperand, item: u64) -> BigUint {
        BigUint::from_bytes_le(self.bytes(operand.begin(item), operand.length))
    }

    /// Writes a number, cut to the result.
    fn put(&mut self, operand: ModelOperand, item: u64, x: &BigUint) {
        let length = operand.length as usize * BEAT;
        let to = &mut self.memory[operand.begin(item) as usize * BEAT..][..length];
        let bytes = x.to_bytes_le();
        to.fill(0);
        let used = bytes.len().min(length);
        to[..used].copy_from_slice(&bytes[..used]);
    }

    pub(super) fn carry_out(&mut self, words: &[u32; WORDS]) {
        let (count, d) = (u64::from(registers::FIELD_COUNT.get(words)), d(words));
        let mut read = HashSet::new();
        for (operand, length) in Self::read(words) {
            for item in 0..if operand.stride == 0 { 1 } else { count } {
                read.extend(operand.begin(item)..operand.begin(item) + length);
            }
        }
        let mut written = (0..count).flat_map(|item| d.begin(item)..d.begin(item) + d.length);
        assert!(written.all(|beat| !read.contains(&beat)), "no result lies where an operand does");
        for item in 0..count {
            match registers::FIELD_OPERATION.get(words) {
                registers::OPERATION_MULTIPLY => self.multiply(words, item),
                registers::OPERATION_REDUCE => self.reduce(words, item),
                registers::OPERATION_LINEAR => self.linear(words, item),
                registers::OPERATION_SELECT => self.select(words, item),
                registers::OPERATION_ADD_BEATS => self.add_beats(words, item),
                _ => self.put(d, item, &BigUint::ZERO),
            }
        }
    }

    /// `a · b · 2^shift + c = 2^N · T − Q · M′`, row by row.
    fn multiply(&mut self, words: &[u32; WORDS], item: u64) {
        let flags = registers::FIELD_FLAGS.get(words);
        let [has_c, has_m, high, low] = [
            registers::FLAG_WITH_C,
            registers::FLAG_WITH_M,
            registers::FLAG_HIGH,
            registers::FLAG_LOW,
        ]
        .map(|bit| flags & bit != 0);
        let given = |is: bool, operand: ModelOperand| match is {
            true => self.number(operand, item),
            false => BigUint::ZERO,
        };
        let (x, y) = (self.number(a(words), item), self.number(b(words), item));
        let (third, folded) = (given(has_c, c(words)), given(has_m, m(words)));
        let digits = u64::from(self.rows * registers::FIELD_PASSES.get(words));
        let most = u64::from(26 * registers::FIELD_WORDS.get(words));
        let shifted =
            (&y << registers::FIELD_SHIFT.get(words)) % (BigUint::from(1u8) << (17 * digits));
        assert!(x.bits() <= most && folded.bits() <= most, "numbers pass in words");
        let digit = |x: &BigUint| (x.iter_u32_digits().next().unwrap_or(0)) & 0x1_ffff;
        let mut t = &third << 17u32;
        let (mut quotient, mut rest) = (BigUint::ZERO, shifted.clone());
        for row in 0..digits {
            assert!(t.bits() <= most + 1, "{} bits of t, {most} of words", t.bits());
            let q = digit(&t);
            if row > 0 {
                quotient |= BigUint::from(q) << (17 * (row - 1));
            } else {
                assert_eq!(q, 0);
            }
            t = (t >> 17u32) + &x * digit(&rest) + &folded * q;
            rest >>= 17u32;
        }
        assert!(t.bits() <= most + 1, "{} bits of T, {most} of words", t.bits());
        let radix = 17 * (digits - 1);
        let sum = &x * &shifted + &third + &quotient * (&folded << 17u32);
        assert_eq!(sum, (&t << radix) + &quotient, "the formula");
        if has_m {
            // Of a and b below 2M' each, or below m: so that results can be factors again.
            let modulus = (&folded << 17u32) - 1u8;
            let times = if has_c { 3u8 } else { 2 };
            assert!(x < &modulus * 2u8 && t < modulus * times, "a chain goes on");
        }
        self.products += 1;
        self.busy += digits * u64::from(registers::FIELD_WORDS.get(words)) * (1 + u64::from(has_m));
        let result = d(words);
        let parts = if has_m { radix.div_ceil(512) * 512 } else { radix };
        let number = match (high, low) {
            (true, true) => (t << parts) | quotient,
            (true, false) => t,
            _ => return self.put(result, item, &quotient),
        };
        assert!(number.bits() <= 512 * result.length, "T fits");
        self.put(result, item, &number);
    }

    fn reduce(&mut self, words: &[u32; WORDS], item: u64) {
        let (x, m) = (self.number(a(words), item), self.number(m(words), item));
        assert!(m >= BigUint::from(3u8) && x < &m << 20u32, "below 2^20 · m");
        assert_eq!(u64::from(registers::FIELD_SHIFT.get(words)), m.bits().saturating_sub(22));
        let high = registers::FIELD_FLAGS.get(words) & registers::FLAG_HIGH != 0;
        let result = if high { x / m } else { x % m };
        assert!(result.bits() <= 512 * d(words).length, "it fits");
        self.put(d(words), item, &result);
    }

    fn linear(&mut self, words: &[u32; WORDS], item: u64) {
        let flags = registers::FIELD_FLAGS.get(words);
        let (x, y) = (self.number(a(words), item), self.number(b(words), item));
        let factor = match flags & registers::FLAG_WITH_C {
            0 => BigUint::from(1u8),
            _ => self.number(c(words), item),
        };
        assert!(factor.bits() <= 24, "c is below 2^24");
        let result =
            if flags & registers::FLAG_MINUS == 0 { &x + y * factor } else { &x - y * factor };
        assert!(result.bits() <= 512 * d(words).length, "it fits");
        self.put(d(words), item, &result);
    }

    fn select(&mut self, words: &[u32; WORDS], item: u64) {
        let (table, width) = (a(words), registers::FIELD_WIDTH.get(words));
        let mut entry = 0;
        if width > 0 {
            let digit = self.number(b(words), item) >> registers::FIELD_SHIFT.get(words);
            entry = u64::from(digit.iter_u32_digits().next().unwrap_or(0)) & ((1 << width) - 1);
        }
        let found = table.begin(item) + entry * table.length;
        let bytes = self.bytes(found, table.length).to_vec();
        self.put(d(words), item, &BigUint::from_bytes_le(&bytes));
    }

    fn add_beats(&mut self, words: &[u32; WORDS], item: u64) {
        let (primes, result) = (c(words), d(words));
        let beat = |operand: ModelOperand, beat: u64| -> Vec<u64> {
            let bytes = self.bytes(operand.begin(item) + beat, 1);
            bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
        };
        let mut all = vec![];
        for index in 0..result.length {
            let [x, y] = [a(words), b(words)].map(|operand| beat(operand, index));
            let primes = beat(primes, index % primes.length);
            let mut sum = vec![0; beats::WORDS];
            for lane in 0..beats::LANES {
                let [x, y, q] = [&x, &y, &primes].map(|words| beats::lane(words, lane));
                assert!(x < q && y < q, "lanes are residues");
                beats::set_lane(&mut sum, lane, (x + y) % q);
            }
            all.extend(sum.iter().flat_map(|word| word.to_le_bytes()));
        }
        self.put(result, item, &BigUint::from_bytes_le(&all));
    }
}

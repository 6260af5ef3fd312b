//! The ring of descriptors of a card.

use std::{
    ops::Range,
    thread,
    time::{Duration, Instant},
};

use zeroize::Zeroizing;

use super::{
    descriptor::{self, CardOperation, Descriptor, OperandItems, WORDS},
    form::{BEAT, BeatForm},
    link::{Link, LinkError},
    memory::Free,
    registers,
};
use crate::engine::DeviceFault;

/// Beats that the host lays out at once, on their way up or down.
const CHUNK: usize = 1 << 14;

/// Beats of an item that is overwritten.
const RUN: u64 = 128;

/// The longest that a reset takes: what is on the bus ends in some microseconds.
const RESET: Duration = Duration::from_secs(1);

/// A card, for one thread at a time.
pub(super) struct Card {
    pub(super) link: Box<dyn Link>,
    pub(super) patience: Duration,
    pub(super) free: Free,
    /// Beats of memory.
    pub(super) beats: u64,
    /// Descriptors that the ring holds, from beat 0 on: a power of two.
    pub(super) entries: u32,
    /// Descriptors written since the reset, modulo 2^32.
    pub(super) tail: u32,
    /// Why it is of no use any more, if it is not.
    pub(super) lost: Option<DeviceFault>,
}

/// Returns what overwrites these beats.
pub(super) fn wipes(beats: &Range<u64>) -> Vec<Descriptor> {
    let none = OperandItems::default();
    let wipe = |at: u64, length: u64, count: u64| Descriptor {
        operation: CardOperation::Wipe,
        flags: 0,
        count: count as u32,
        a: none,
        b: none,
        c: none,
        m: none,
        d: OperandItems { at: at as u32, stride: length as u16, length: length as u8 },
        words: 0,
        passes: 0,
        shift: 0,
        width: 0,
    };
    // In runs that a descriptor can tell of, and the rest.
    let (count, rest) = ((beats.end - beats.start) / RUN, (beats.end - beats.start) % RUN);
    let wipes = [wipe(beats.start, RUN, count), wipe(beats.end - rest, rest, u64::from(rest > 0))];
    wipes.into_iter().filter(|wipe| wipe.count > 0).collect()
}

/// Returns the parts of `count` items that are laid out at once, where each has so many beats.
fn chunks(count: usize, beats: u64) -> impl Iterator<Item = Range<usize>> {
    let step = (CHUNK / beats.max(1) as usize).max(1);
    (0..count).step_by(step).map(move |first| first..count.min(first + step))
}

impl Card {
    /// Does something with a card that is of use, and notes where it is of none from then on.
    pub(super) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, LinkError>,
    ) -> Result<T, DeviceFault> {
        if let Some(why) = &self.lost {
            return Err(why.clone());
        }
        work(self).map_err(|why| {
            let is_lasting = !matches!(why, LinkError::Refused { .. });
            let fault = why.fault();
            if is_lasting {
                self.lost = Some(fault.clone());
                // What it still can do. It may hang, but its memory need not; nothing that is kept
                // there is of use any more.
                let _ = self.reset();
                let _ = self.zero(0..self.beats);
            }
            fault
        })
    }

    /// Resets the card, which ends what is on its way first: then the ring has no entries.
    fn reset(&mut self) -> Result<(), LinkError> {
        self.link.reset()?;
        let begin = Instant::now();
        while self.link.read(registers::REGISTER_ENTRIES)? != 0 {
            if begin.elapsed() > RESET {
                return Err(LinkError::Timeout);
            }
            thread::yield_now();
        }
        Ok(())
    }

    /// Begins with an empty ring.
    pub(super) fn restart(&mut self) -> Result<(), LinkError> {
        self.reset()?;
        self.tail = 0;
        self.link.write(registers::REGISTER_RING, 0)?;
        self.link.write(registers::REGISTER_RING + 4, 0)?;
        self.link.write(registers::REGISTER_ENTRIES, self.entries)
    }

    /// Lays numbers out and copies them to the card.
    pub(super) fn upload(
        &mut self,
        beat: u64,
        form: BeatForm,
        words: &[u64],
    ) -> Result<(), LinkError> {
        let (each, beats) = (form.words * form.numbers, form.beats());
        for items in chunks(words.len() / each.max(1), beats) {
            let mut bytes = Zeroizing::new(vec![0; items.len() * beats as usize * BEAT]);
            form.spread(&words[items.start * each..items.end * each], &mut bytes);
            self.link.upload(beat + items.start as u64 * beats, &bytes)?;
        }
        Ok(())
    }

    /// Copies numbers from the card.
    pub(super) fn download(
        &mut self,
        beat: u64,
        form: BeatForm,
        words: &mut [u64],
    ) -> Result<(), LinkError> {
        let (each, beats) = (form.words * form.numbers, form.beats());
        for items in chunks(words.len() / each.max(1), beats) {
            let mut bytes = Zeroizing::new(vec![0; items.len() * beats as usize * BEAT]);
            self.link.download(beat + items.start as u64 * beats, &mut bytes)?;
            form.gather(&bytes, &mut words[items.start * each..items.end * each]);
        }
        Ok(())
    }

    /// Writes descriptors to the ring as there is room, waits for all, and looks at their statuses.
    /// What is to be done meanwhile is done once the card is at work.
    pub(super) fn issue(
        &mut self,
        descriptors: &[Descriptor],
        meanwhile: impl FnOnce(&mut Self) -> Result<(), LinkError>,
    ) -> Result<(), LinkError> {
        let entries = self.entries as usize;
        let first = self.tail;
        let number = |index: usize| first.wrapping_add(index as u32);
        let (mut written, mut checked) = (0, 0);
        let mut meanwhile = Some(meanwhile);
        while checked < descriptors.len() {
            // As far as the ring's end, so that it is one copy.
            let slot = (self.tail % self.entries) as usize;
            let room = (entries - (written - checked)).min(entries - slot);
            let more = &descriptors[written..descriptors.len().min(written + room)];
            if !more.is_empty() {
                let words = more.iter().flat_map(|descriptor| descriptor.to_words());
                let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
                self.link.upload(slot as u64, &bytes)?;
                written += more.len();
                self.tail = number(written);
                self.link.write(registers::REGISTER_TAIL, self.tail)?;
            }
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile(self)?;
            }
            let all = written == descriptors.len();
            let done = if all { written } else { written.min(checked + entries / 2) };
            self.link.wait(number(done), self.patience)?;
            let ring = self.ring(number(checked), done - checked)?;
            let is_bad = |words: &&[u32; WORDS]| {
                registers::FIELD_STATUS.get(words) != registers::STATUS_DONE
            };
            if let Some(words) = ring.iter().find(is_bad) {
                // What is on its way is of no use, but it has to end.
                self.link.wait(number(written), self.patience)?;
                return Err(LinkError::Refused { why: descriptor::fault(words) });
            }
            checked = done;
        }
        meanwhile.map_or(Ok(()), |meanwhile| meanwhile(self))
    }

    /// Returns `count` descriptors of the ring from number `first` on.
    fn ring(&mut self, first: u32, count: usize) -> Result<Vec<[u32; WORDS]>, LinkError> {
        let slot = (first % self.entries) as usize;
        let mut bytes = vec![0; count * BEAT];
        let (before, after) = bytes.split_at_mut((self.entries as usize - slot).min(count) * BEAT);
        self.link.download(slot as u64, before)?;
        if !after.is_empty() {
            self.link.download(0, after)?;
        }
        let words = |beat: &[u8; BEAT]| {
            let halves = beat.as_chunks().0;
            std::array::from_fn(|index| u32::from_le_bytes(halves[index]))
        };
        Ok(bytes.as_chunks().0.iter().map(words).collect())
    }

    /// Overwrites what a run used, and its descriptors.
    pub(super) fn clean(&mut self, used: &Range<u64>, has_failed: bool) -> Result<(), LinkError> {
        if has_failed {
            self.restart()?;
        }
        if !used.is_empty() {
            self.issue(&wipes(used), |_| Ok(()))?;
        }
        self.zero(0..self.entries.into())
    }

    /// Overwrites beats from here.
    pub(super) fn zero(&mut self, beats: Range<u64>) -> Result<(), LinkError> {
        let zeros = vec![0; (beats.end - beats.start).min(CHUNK as u64) as usize * BEAT];
        for first in beats.clone().step_by(CHUNK) {
            let count = (beats.end - first).min(CHUNK as u64) as usize;
            self.link.upload(first, &zeros[..count * BEAT])?;
        }
        Ok(())
    }
}

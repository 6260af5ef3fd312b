//! An allocator that counts the memory of each owner.

#![allow(unsafe_code, reason = "an allocator is unsafe to write; this one passes on and counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The owner of an allocation.
#[derive(Clone, Copy, PartialEq)]
#[repr(usize)]
pub(crate) enum Owner {
    /// Nobody who is measured.
    Other,
    /// The application's: hellos while they are joined, the terms, the accumulator.
    Application,
    /// Everything else that is measured.
    Rest,
}

/// Allocations of at least this many bytes are tables: bits, chunks.
const LARGE: usize = 128 << 10;

/// Bytes held; of the rest, large allocations apart.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) application: usize,
    pub(crate) tables: usize,
    pub(crate) small: usize,
}

impl Held {
    const NONE: Self = Self { application: 0, tables: 0, small: 0 };

    pub(crate) fn all(self) -> usize {
        self.application + self.tables + self.small
    }

    fn place(&mut self, owner: usize, bytes: usize) -> Option<&mut usize> {
        match owner {
            1 => Some(&mut self.application),
            2 if bytes >= LARGE => Some(&mut self.tables),
            2 => Some(&mut self.small),
            _ => None,
        }
    }
}

thread_local! {
    static OWNER: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<Held> = const { Cell::new(Held::NONE) };
    static PEAK: Cell<Held> = const { Cell::new(Held::NONE) };
}

/// Returns the bytes held now that are measured in this thread.
pub(crate) fn held() -> Held {
    HELD.get()
}

/// Returns the bytes held at the peak.
pub(crate) fn peak() -> Held {
    PEAK.get()
}

/// Runs `work`, whose allocations are an owner's.
pub(crate) fn owned<T>(owner: Owner, work: impl FnOnce() -> T) -> T {
    let before = OWNER.replace(owner as usize);
    let result = work();
    OWNER.set(before);
    result
}

/// The system's allocator, with headroom before each allocation for its owner. Memory that another
/// thread frees is not counted: a measured owner has one thread.
pub(crate) struct Counting;

fn with_headroom(shape: Layout) -> (Layout, usize) {
    let headroom = shape.align().max(16);
    (Layout::from_size_align(shape.size() + headroom, headroom).expect("small enough"), headroom)
}

fn count(owner: usize, bytes: usize, more: bool) {
    let mut held = HELD.get();
    let Some(place) = held.place(owner, bytes) else { return };
    *place = if more { *place + bytes } else { place.saturating_sub(bytes) };
    HELD.set(held);
    if held.all() > PEAK.get().all() {
        PEAK.set(held);
    }
}

// SAFETY: what is given out is the system's, past headroom of a multiple of the alignment.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, shape: Layout) -> *mut u8 {
        let (whole, headroom) = with_headroom(shape);
        // SAFETY: the size is not 0, and the headroom holds a number.
        unsafe {
            let start = System.alloc(whole);
            if start.is_null() { start } else { mark(start, headroom, shape) }
        }
    }
    unsafe fn alloc_zeroed(&self, shape: Layout) -> *mut u8 {
        let (whole, headroom) = with_headroom(shape);
        // SAFETY: as above.
        unsafe {
            let start = System.alloc_zeroed(whole);
            if start.is_null() { start } else { mark(start, headroom, shape) }
        }
    }
    unsafe fn dealloc(&self, at: *mut u8, shape: Layout) {
        let (whole, headroom) = with_headroom(shape);
        // SAFETY: it was given out above, with the same shape.
        unsafe {
            let start = at.sub(headroom);
            count(start.cast::<usize>().read(), shape.size(), false);
            System.dealloc(start, whole);
        }
    }
}

/// # Safety
/// There is headroom for a number.
unsafe fn mark(start: *mut u8, headroom: usize, shape: Layout) -> *mut u8 {
    let owner = OWNER.try_with(Cell::get).unwrap_or(Owner::Other as usize);
    // SAFETY: the caller says so, and headroom is within the allocation.
    unsafe {
        start.cast::<usize>().write(owner);
        count(owner, shape.size(), true);
        start.add(headroom)
    }
}

//! Requests to valgrind: instructions that do nothing, which it looks for and answers. Elsewhere than under
//! valgrind, and where they are not written for the processor, the answer is 0.
//!
//! # Source
//! `valgrind.h` and `memcheck.h` of valgrind 3.19.

#![allow(unsafe_code, reason = "a request is a sequence of instructions")]

use crate::timing::secrets::{Memory, memory_of};

/// The number of errors so far: of any tool of valgrind.
const COUNT_ERRORS: usize = 0x1201;
/// "MC" in the upper half, and then in order: no access, undefined, defined.
const MAKE_MEM_UNDEFINED: usize = 0x4d43_0001;
const MAKE_MEM_DEFINED: usize = 0x4d43_0002;

/// Returns whether this process runs under valgrind's memcheck.
#[must_use]
pub fn is_memcheck() -> bool {
    // What is defined stays so; other tools of valgrind do not answer.
    on_memory(MAKE_MEM_DEFINED, &memory_of(&[0u8])) != 0
}

/// Returns how often memcheck saw a jump or an address that depends on memory that is not defined.
#[must_use]
pub fn error_count() -> usize {
    request([COUNT_ERRORS, 0, 0, 0, 0, 0])
}

/// Marks memory undefined: bytes keep their value, but memcheck follows them.
pub fn mark_undefined(memory: &Memory) {
    on_memory(MAKE_MEM_UNDEFINED, memory);
}

fn on_memory(code: usize, memory: &Memory) -> usize {
    let (start, end) = (memory.start.expose_provenance(), memory.end.expose_provenance());
    request([code, start, end - start, 0, 0, 0])
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn request(words: [usize; 6]) -> usize {
    let mut answer = 0;
    // SAFETY: the rotations come to 128 bits, so all registers are as before but for the answer's. Valgrind
    // reads `words`, and changes no byte of memory but only what it keeps beside it.
    unsafe {
        std::arch::asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") answer,
            options(nostack),
        );
    }
    answer
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn request(_: [usize; 6]) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests run without valgrind.
    #[test]
    fn nobody_answers_elsewhere() {
        let secret = [7u64; 3];
        mark_undefined(&memory_of(&secret));
        assert_eq!((is_memcheck(), error_count(), secret), (false, 0, [7; 3]));
    }
}

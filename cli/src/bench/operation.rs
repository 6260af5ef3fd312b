//! The operations that can be measured, and their definitions.

use std::fmt;

/// An operation on batches under Paillier's scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Encrypt,
    EncryptOwner,
    Decrypt,
    Add,
    AddPlain,
    MulPlain,
    Sum,
    Matvec,
    ModExp,
    ModMul,
    Correct,
}

/// Schemes. In `--ops` each stands for all its operations.
pub(crate) const PAILLIER: &str = "paillier";
pub(crate) const CKKS_SUM: &str = "ckks-sum";
/// No scheme: steps by themselves.
pub(crate) const KERNELS: &str = "kernels";

/// Ciphertexts of the vector of a matrix product.
pub(crate) const MATRIX_COLUMNS: usize = 256;
/// Ciphertexts that a matrix product makes, for each thread.
pub(crate) const MATRIX_ROWS: usize = 64;
/// Bits of an entry of the matrix, with its sign.
pub(crate) const MATRIX_BITS: u32 = 16;

impl Operation {
    /// All operations, in the order in which they are measured.
    pub(crate) const ALL: [Self; 11] = [
        Self::Encrypt,
        Self::EncryptOwner,
        Self::Decrypt,
        Self::Add,
        Self::AddPlain,
        Self::MulPlain,
        Self::Sum,
        Self::Matvec,
        Self::ModExp,
        Self::ModMul,
        Self::Correct,
    ];

    /// Returns the name on the command line and in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::EncryptOwner => "encrypt_owner",
            Self::Decrypt => "decrypt",
            Self::Add => "add",
            Self::AddPlain => "add_plain",
            Self::MulPlain => "mul_plain",
            Self::Sum => "sum",
            Self::Matvec => "matvec",
            Self::ModExp => "mod_exp",
            Self::ModMul => "mod_mul",
            Self::Correct => "correct",
        }
    }

    /// Returns the definition of a single operation.
    fn definition(self) -> &'static str {
        match self {
            Self::Encrypt => {
                "a full plaintext with the public key alone, and a fresh mask of n/2 bits"
            }
            Self::EncryptOwner => "a full plaintext with the secret key: masks modulo p² and q²",
            Self::Decrypt => "from the words of a ciphertext to the words of its plaintext",
            Self::Add => "two ciphertexts, in the form that additions leave in memory",
            Self::AddPlain => "a ciphertext and a full plaintext, likewise",
            Self::MulPlain => "a ciphertext by a secret random unsigned scalar of 64 bits",
            Self::Sum => "the sum of a batch of 16,384 ciphertexts, divided by their number",
            Self::Matvec => {
                "64 rows of secret random signed 16-bit entries by a vector of 256 ciphertexts, \
                 divided by the number of entries"
            }
            Self::ModExp => "modulo n², a public random exponent of all the bits of n for each",
            Self::ModMul => "modulo n², from ordinary numbers to an ordinary number",
            Self::Correct => {
                "from the form in memory to an ordinary ciphertext, before it is stored or sent"
            }
        }
    }

    /// Returns a step of its programs that some engines have not.
    pub(crate) fn rare_step(self) -> Option<&'static str> {
        // Entries have signs.
        (self == Self::Matvec).then_some("invert")
    }

    /// Returns whether each ciphertext carries a packed plaintext.
    pub(crate) fn carries_values(self) -> bool {
        matches!(
            self,
            Self::Encrypt | Self::EncryptOwner | Self::Decrypt | Self::Add | Self::AddPlain
        )
    }

    /// Returns the operations of one batch for each thread: enough to fill lanes and to share what
    /// a batch shares, and few enough that cheap ones stay in a cache.
    pub(crate) fn batch(self, bits: u32) -> usize {
        match self {
            Self::Encrypt | Self::EncryptOwner | Self::MulPlain => 512,
            Self::Decrypt => {
                if bits <= 2048 {
                    192
                } else {
                    64
                }
            }
            Self::Add | Self::AddPlain | Self::ModMul | Self::Correct => 1024,
            Self::Sum => 16_384,
            Self::Matvec => MATRIX_ROWS * MATRIX_COLUMNS,
            Self::ModExp => 32,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An operation under `ckks-sum`, on whole updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumOperation {
    Quantise,
    Encrypt,
    Aggregate,
    Decrypt,
}

impl SumOperation {
    /// All operations, in the order in which they are measured.
    pub(crate) const ALL: [Self; 4] =
        [Self::Quantise, Self::Encrypt, Self::Aggregate, Self::Decrypt];

    /// Returns a step of its programs that some engines have not.
    pub(crate) fn rare_step(self) -> &'static str {
        // Whatever is measured, the mean of a round is checked.
        "ntt"
    }

    /// Returns the name in reports, beside that of the scheme.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quantise => "quantise",
            Self::Encrypt => "encrypt",
            Self::Aggregate => "aggregate",
            Self::Decrypt => "decrypt",
        }
    }

    /// Returns the definition of a single operation.
    fn definition(self) -> &'static str {
        match self {
            Self::Quantise => "1,000,000 float32 to integers, the first part of encrypt",
            Self::Encrypt => "1,000,000 float32 to the bytes of a contribution",
            Self::Aggregate => "the bytes of 10 contributions to those of their sum",
            Self::Decrypt => "the bytes of a sum to the mean in float32",
        }
    }
}

impl fmt::Display for SumOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{CKKS_SUM}/{}", self.name())
    }
}

/// A step of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    MontMul,
    Ntt,
    PolyAdd,
    Copy,
}

/// A step of programs by itself, over data that are where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelOperation {
    /// The name in reports, beside that of the group.
    pub(crate) name: &'static str,
    pub(crate) kernel: Kernel,
    /// Bits of a modulus, or the degree of a ring.
    pub(crate) size: usize,
    /// The definition of a single operation.
    definition: &'static str,
}

impl KernelOperation {
    /// All operations, in the order in which they are measured.
    pub(crate) const ALL: [Self; 7] = [
        Self::mont_mul(2048),
        Self::mont_mul(4096),
        Self::mont_mul(6144),
        Self {
            name: "ntt_8192",
            kernel: Kernel::Ntt,
            size: 8192,
            definition: "a transform or its inverse modulo one prime, N = 8192",
        },
        Self {
            name: "ntt_32768",
            kernel: Kernel::Ntt,
            size: 32_768,
            definition: "the same, N = 32,768",
        },
        Self {
            name: "poly_add",
            kernel: Kernel::PolyAdd,
            size: 8192,
            definition: "a sum of polynomials modulo two primes, N = 8192: memory's rate",
        },
        Self {
            name: "copy",
            kernel: Kernel::Copy,
            size: 8192,
            definition: "a MiB there and a MiB back, with the sums of a program of one step",
        },
    ];

    const fn mont_mul(bits: usize) -> Self {
        let definition = "a Montgomery product of 2048, 4096 and 6144 bits";
        Self { name: "mont_mul", kernel: Kernel::MontMul, size: bits, definition }
    }

    /// Returns a step of its programs that some engines have not.
    pub(crate) fn rare_step(self) -> Option<&'static str> {
        (self.kernel != Kernel::MontMul).then_some("ntt")
    }

    /// Returns the bits of a modulus, or of the primes of a ring.
    pub(crate) fn bits(self) -> u32 {
        if self.kernel == Kernel::MontMul { self.size as u32 } else { 50 }
    }
}

impl fmt::Display for KernelOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{KERNELS}/{}", self.name)
    }
}

/// The operations that `--ops` asks for, each once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Operations {
    pub(crate) paillier: Vec<Operation>,
    pub(crate) sums: Vec<SumOperation>,
    pub(crate) kernels: Vec<KernelOperation>,
}

impl Operations {
    /// Reads names with commas between. The name of a scheme is all its operations; names without
    /// one are Paillier's.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut found = Self::default();
        for name in text.split(',') {
            let paillier = |o: &Operation| name == PAILLIER || name == o.name();
            let sums = |o: &SumOperation| name == CKKS_SUM || name == o.to_string();
            let kernels = |o: &KernelOperation| name == KERNELS || name == o.to_string();
            let known = add(&mut found.paillier, &Operation::ALL, paillier)
                | add(&mut found.sums, &SumOperation::ALL, sums)
                | add(&mut found.kernels, &KernelOperation::ALL, kernels);
            if !known {
                let names = Operation::ALL.map(Operation::name).join(", ");
                let sums = SumOperation::ALL.map(|o| o.to_string()).join(", ");
                let mut kernels = KernelOperation::ALL.map(|o| o.to_string()).to_vec();
                kernels.dedup();
                return Err(format!(
                    "no operation {name:?}; there are {PAILLIER} (all of {names}), {CKKS_SUM} \
                     (all of {sums}) and {KERNELS} (all of {})",
                    kernels.join(", ")
                ));
            }
        }
        Ok(found)
    }
}

/// Adds those that are named and not there yet, and returns whether any is named.
fn add<T: Copy + PartialEq>(found: &mut Vec<T>, all: &[T], is_named: impl Fn(&T) -> bool) -> bool {
    let named = || all.iter().copied().filter(|o| is_named(o));
    for operation in named() {
        if !found.contains(&operation) {
            found.push(operation);
        }
    }
    named().next().is_some()
}

/// The column of definitions in a line of the help.
const DEFINITIONS: usize = 22;

/// Returns the definitions of all operations, for `--help`.
pub(crate) fn help() -> String {
    let paillier = Operation::ALL.iter().map(|o| (o.to_string(), o.definition()));
    let sums = SumOperation::ALL.iter().map(|o| (o.to_string(), o.definition()));
    let mut text = String::from("Operations:\n");
    let mut kernels: Vec<_> =
        KernelOperation::ALL.iter().map(|o| (o.to_string(), o.definition)).collect();
    kernels.dedup();
    for (name, definition) in paillier.chain(sums).chain(kernels) {
        let (mut line, mut column) = (format!("  {name:<18}  "), DEFINITIONS);
        for word in definition.split(' ') {
            if column + word.chars().count() >= 100 {
                line += &format!("\n{:DEFINITIONS$}", "");
                column = DEFINITIONS;
            }
            line += &format!("{word} ");
            column += word.chars().count() + 1;
        }
        text += &format!("{}\n", line.trim_end());
    }
    text += "\nTimes are by the clock, of whole batches divided by their operations. Percentages are of the\n\
             multiply instructions that the threads, or a device, could have issued meanwhile. A name without a\n\
             scheme is Paillier's. See benches/README.md.";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_once_each_in_the_order_given() {
        let read = Operations::parse;
        let (all, sums) = (Operation::ALL.to_vec(), SumOperation::ALL.to_vec());
        let of = |paillier: &[_], sums: &[_]| {
            Ok(Operations { paillier: paillier.to_vec(), sums: sums.to_vec(), kernels: vec![] })
        };
        assert_eq!(read("paillier"), of(&all, &[]));
        assert_eq!(read("ckks-sum"), of(&[], &sums));
        assert_eq!(read("ckks-sum,paillier"), of(&all, &sums));
        assert_eq!(read("mod_mul,add,mod_mul"), of(&[Operation::ModMul, Operation::Add], &[]));
        assert_eq!(
            read("ckks-sum/decrypt,encrypt,ckks-sum/decrypt"),
            of(&[Operation::Encrypt], &[SumOperation::Decrypt])
        );
        assert_eq!(read("kernels").unwrap().kernels, KernelOperation::ALL);
        assert_eq!(read("kernels/mont_mul").unwrap().kernels.len(), 3);
        assert_eq!(read("add,paillier").unwrap().paillier.len(), Operation::ALL.len());
        for bad in ["", "ad", "Add", "add,", "add sum", "decrypt,ckks", "aggregate", "ckks-sum/"] {
            assert!(read(bad).unwrap_err().starts_with("no operation \""), "{bad}");
        }
    }

    #[test]
    fn help_defines_every_operation_in_narrow_lines() {
        let text = help();
        assert!(Operation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(SumOperation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(KernelOperation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

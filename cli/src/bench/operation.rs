//! The operations that can be measured, and their definitions.

use std::fmt;

use ciphergram_he::ckks::Preset;

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
/// Levelled schemes, each of which is called by its preset.
pub(crate) const CKKS: &str = "ckks";
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

/// An operation on encrypted vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LevelledOperation {
    Multiply,
    Rotate,
    RotateEight,
    Encrypt,
    EncryptOwner,
    Decrypt,
    Screen,
}

impl LevelledOperation {
    /// All operations, in the order in which they are measured.
    pub(crate) const ALL: [Self; 7] = [
        Self::Multiply,
        Self::Rotate,
        Self::RotateEight,
        Self::Encrypt,
        Self::EncryptOwner,
        Self::Decrypt,
        Self::Screen,
    ];

    /// Returns the name in reports, beside that of the preset.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Multiply => "multiply",
            Self::Rotate => "rotate",
            Self::RotateEight => "rotate_eight",
            Self::Encrypt => "encrypt",
            Self::EncryptOwner => "encrypt_owner",
            Self::Decrypt => "decrypt",
            Self::Screen => "screen",
        }
    }

    /// Returns the definition of a single operation.
    fn definition(self) -> &'static str {
        match self {
            Self::Multiply => "two fresh ciphertexts, relinearised and rescaled",
            Self::Rotate => "a fresh ciphertext by one slot",
            Self::RotateEight => "the same by one to eight slots, which share its digits",
            Self::Encrypt => "numbers for all slots, encoded and encrypted with the public key",
            Self::EncryptOwner => "the same with the secret key: half of it is a seed",
            Self::Decrypt => "a fresh ciphertext to the numbers of all slots",
            Self::Screen => {
                "the bytes of a client's 1,000,000 values to its norm and its product with a \
                 reference, divided by the clients of a round of 10"
            }
        }
    }
}

/// An operation on encrypted vectors under a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Levelled {
    pub(crate) preset: Preset,
    pub(crate) operation: LevelledOperation,
}

impl Levelled {
    /// Returns all operations of all presets.
    fn all() -> Vec<Self> {
        let of = |preset| LevelledOperation::ALL.map(|operation| Self { preset, operation });
        Preset::ALL.into_iter().flat_map(of).collect()
    }

    /// Returns whether it is among what is called by no preset. Screening takes one level.
    fn is_usual(self) -> bool {
        match self.preset {
            Preset::Slots4096Levels1 => true,
            Preset::Slots8192Levels7 => self.operation != LevelledOperation::Screen,
            Preset::Slots4096Levels2 | Preset::Slots16384Levels14 => false,
        }
    }

    /// Returns whether a word of `--ops` asks for it.
    fn is_named(self, name: &str) -> bool {
        let of = |scheme: &str| {
            let rest = name.strip_prefix(scheme);
            rest.is_some_and(|rest| {
                rest.is_empty() || rest.strip_prefix('/') == Some(self.operation.name())
            })
        };
        self.is_usual() && of(CKKS) || of(self.preset.name())
    }
}

impl fmt::Display for Levelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.preset, self.operation.name())
    }
}

/// A step of programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    MontMul,
    Ntt,
    Automorphism,
    BaseExtend,
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
    pub(crate) const ALL: [Self; 11] = [
        Self::mont_mul(2048),
        Self::mont_mul(4096),
        Self::mont_mul(6144),
        Self::ntt("ntt_4096", 4096, "a transform or its inverse modulo one prime, N = 4096"),
        Self::ntt("ntt_8192", 8192, "the same, N = 8192"),
        Self::ntt("ntt_16384", 16_384, "the same, N = 16,384"),
        Self::ntt("ntt_32768", 32_768, "the same, N = 32,768"),
        Self {
            name: "automorphism",
            kernel: Kernel::Automorphism,
            size: 8192,
            definition: "X to X^5 in NTT form modulo one prime, N = 8192",
        },
        Self {
            name: "base_extend",
            kernel: Kernel::BaseExtend,
            size: 8192,
            definition: "integers modulo two primes to residues of eight others, N = 8192",
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

    const fn ntt(name: &'static str, degree: usize, definition: &'static str) -> Self {
        Self { name, kernel: Kernel::Ntt, size: degree, definition }
    }

    /// Returns the transform of a degree, which other work is told in, under whatever name.
    pub(crate) const fn transform(degree: usize) -> Self {
        Self::ntt("ntt", degree, "")
    }

    /// Returns a step of its programs that some engines have not.
    pub(crate) fn rare_step(self) -> Option<&'static str> {
        match self.kernel {
            Kernel::MontMul => None,
            Kernel::Automorphism => Some("automorphism"),
            Kernel::BaseExtend => Some("base_extend"),
            Kernel::Ntt | Kernel::PolyAdd | Kernel::Copy => Some("ntt"),
        }
    }

    /// Returns whether its time is told in transforms as well.
    pub(crate) fn is_of_a_transform(self) -> bool {
        matches!(self.kernel, Kernel::Automorphism | Kernel::BaseExtend)
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
    pub(crate) levelled: Vec<Levelled>,
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
            let levelled = |o: &Levelled| o.is_named(name);
            let kernels = |o: &KernelOperation| name == KERNELS || name == o.to_string();
            let known = add(&mut found.paillier, &Operation::ALL, paillier)
                | add(&mut found.sums, &SumOperation::ALL, sums)
                | add(&mut found.levelled, &Levelled::all(), levelled)
                | add(&mut found.kernels, &KernelOperation::ALL, kernels);
            if !known {
                let names = Operation::ALL.map(Operation::name).join(", ");
                let sums = SumOperation::ALL.map(|o| o.to_string()).join(", ");
                let mut kernels = KernelOperation::ALL.map(|o| o.to_string()).to_vec();
                kernels.dedup();
                let levelled = levelled_names().join(", ");
                let presets = Preset::ALL.map(Preset::name).join(", ");
                return Err(format!(
                    "no operation {name:?}; there are {PAILLIER} (all of {names}), {CKKS_SUM} \
                     (all of {sums}), {CKKS} (all of {levelled}; in place of {CKKS} also \
                     {presets}) and {KERNELS} (all of {})",
                    kernels.join(", ")
                ));
            }
        }
        Ok(found)
    }
}

/// Returns the names of operations on encrypted vectors under the usual presets.
fn levelled_names() -> [String; LevelledOperation::ALL.len()] {
    LevelledOperation::ALL.map(|o| format!("{CKKS}/{}", o.name()))
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
const DEFINITIONS: usize = 24;

/// Returns the definitions of all operations, for `--help`.
pub(crate) fn help() -> String {
    let paillier = Operation::ALL.iter().map(|o| (o.to_string(), o.definition()));
    let sums = SumOperation::ALL.iter().map(|o| (o.to_string(), o.definition()));
    let mut text = String::from("Operations:\n");
    let mut kernels: Vec<_> =
        KernelOperation::ALL.iter().map(|o| (o.to_string(), o.definition)).collect();
    kernels.dedup();
    let definitions = LevelledOperation::ALL.map(LevelledOperation::definition);
    let levelled = levelled_names().into_iter().zip(definitions);
    for (name, definition) in paillier.chain(sums).chain(levelled).chain(kernels) {
        let (mut line, mut column) = (format!("  {name:<20}  "), DEFINITIONS);
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
             multiply instructions that the threads, or a device, could have issued meanwhile; of products and\n\
             rotations under ckks, of their transforms. A name without a scheme is Paillier's; ckks is short for\n\
             ckks-4096x1 and ckks-8192x7, and other presets go by their names. See benches/README.md.";
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
            let (paillier, sums) = (paillier.to_vec(), sums.to_vec());
            Ok(Operations { paillier, sums, ..Operations::default() })
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
        for bad in ["", "ad", "Add", "add,", "add sum", "aggregate", "ckks-sum/"] {
            assert!(read(bad).unwrap_err().starts_with("no operation \""), "{bad}");
        }
    }

    #[test]
    fn levelled_operations_go_by_their_presets() {
        let read = |text| {
            let found = Operations::parse(text).map(|all| all.levelled);
            found.map(|all| all.iter().map(Levelled::to_string).collect::<Vec<_>>())
        };
        let all = read("ckks").unwrap();
        assert_eq!(all.len(), 2 * LevelledOperation::ALL.len() - 1);
        assert!(all[..7].iter().all(|name| name.starts_with("ckks-4096x1/")));
        assert_eq!(all.last().unwrap(), "ckks-8192x7/decrypt");
        let products = ["ckks-4096x1/multiply", "ckks-8192x7/multiply"].map(String::from);
        assert_eq!(read("ckks/multiply,ckks-4096x1/multiply"), Ok(products.to_vec()));
        assert_eq!(read("ckks-16384x14").unwrap().len(), LevelledOperation::ALL.len());
        assert_eq!(read("ckks-8192x7/screen").unwrap(), ["ckks-8192x7/screen"]);
        assert_eq!(read("ckks-sum,paillier"), Ok(vec![]));
        for bad in ["ckks/", "ckks/ad", "ckks-", "ckks-4096x1/", "ckks-4096x12", "ckksé"] {
            assert!(read(bad).unwrap_err().contains("ckks/rotate_eight"), "{bad}");
        }
    }

    #[test]
    fn help_defines_every_operation_in_narrow_lines() {
        let text = help();
        assert!(Operation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(SumOperation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(levelled_names().iter().all(|name| text.contains(&format!("\n  {name} "))));
        assert!(KernelOperation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

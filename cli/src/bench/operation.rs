//! The operations that can be measured, and what exactly each is.

use std::fmt;

/// An operation on batches.
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

/// The name that stands for all operations of Paillier's scheme.
const PAILLIER: &str = "paillier";

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

    /// The name on the command line and in reports.
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

    /// What a single operation is.
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

    /// Whether it carries a packed plaintext in each ciphertext.
    pub(crate) fn carries_values(self) -> bool {
        matches!(
            self,
            Self::Encrypt | Self::EncryptOwner | Self::Decrypt | Self::Add | Self::AddPlain
        )
    }

    /// Operations of one batch, for each thread: enough to fill lanes and to share what a batch
    /// shares, and few enough that cheap ones stay in a cache.
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

/// What `--ops` asks for, each once.
#[derive(Clone)]
pub(crate) struct Operations(pub(crate) Vec<Operation>);

impl Operations {
    /// Reads names with commas between; `paillier` is all of them.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut found = vec![];
        for name in text.split(',') {
            let is_named = |o: &Operation| name == PAILLIER || name == o.name();
            if !Operation::ALL.iter().any(is_named) {
                let names = Operation::ALL.map(Operation::name).join(", ");
                return Err(format!("no operation {name:?}; there are {PAILLIER} (all), {names}"));
            }
            for operation in Operation::ALL.into_iter().filter(is_named) {
                if !found.contains(&operation) {
                    found.push(operation);
                }
            }
        }
        Ok(Self(found))
    }
}

/// The definitions of all operations, for `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from("Operations:\n");
    for operation in Operation::ALL {
        let (mut line, mut column) = (format!("  {:<13} ", operation.name()), 16);
        for word in operation.definition().split(' ') {
            if column + word.chars().count() >= 100 {
                line += &format!("\n{:16}", "");
                column = 16;
            }
            line += &format!("{word} ");
            column += word.chars().count() + 1;
        }
        text += &format!("{}\n", line.trim_end());
    }
    text += "\nTimes are by the clock, of whole batches divided by their operations. Percentages are of the\n\
             multiply instructions that the threads could have issued meanwhile. See benches/README.md.";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_once_each_in_the_order_given() {
        let read = |text| Operations::parse(text).map(|found| found.0);
        assert_eq!(read("paillier"), Ok(Operation::ALL.to_vec()));
        assert_eq!(read("mod_mul,add,mod_mul"), Ok(vec![Operation::ModMul, Operation::Add]));
        assert_eq!(read("add,paillier").unwrap().len(), Operation::ALL.len());
        for bad in ["", "ad", "Add", "add,", "add sum", "decrypt,ckks"] {
            assert!(read(bad).unwrap_err().starts_with("no operation \""), "{bad}");
        }
    }

    #[test]
    fn help_defines_every_operation_in_narrow_lines() {
        let text = help();
        assert!(Operation::ALL.iter().all(|o| text.contains(&format!("\n  {o} "))));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}

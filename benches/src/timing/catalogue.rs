//! All tests, by name.

use ciphergram_accel::random::StreamRng;
use ciphergram_he::{Error, ckks::Operation};

use super::{
    controls, decryption,
    measure::MIN_SAMPLES,
    powers::{self, Exponent},
    subject::{Setup, Subject},
    sums, vectors,
};

/// The finding that a test must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: the operation takes constant time.
    Quiet,
    /// A leak that is there by design.
    Leak,
    /// A leak that is there by design, which time need not show and [memcheck](crate::memcheck) must.
    Hidden,
    /// Nothing: the classes are the same.
    Same,
}

/// Makes the subject of a test.
type Make = for<'a> fn(&'a Setup, &mut StreamRng) -> Result<Box<dyn Subject + 'a>, Error>;

/// One comparison of two classes.
pub struct Test {
    /// Its name, for `--only`.
    pub name: &'static str,
    /// The classes, in a line.
    pub about: &'static str,
    /// The finding that it must come to.
    pub expect: Expect,
    /// The samples that it takes for a hundred that are asked for: fewer where times are steady or a leak is
    /// large, more where they are not, so that all resolve [`RESOLUTION`](super::RESOLUTION).
    pub percent: usize,
    /// Makes what is timed.
    pub make: Make,
}

impl Test {
    const fn quiet(name: &'static str, about: &'static str, make: Make) -> Self {
        Self { name, about, expect: Expect::Quiet, percent: 100, make }
    }

    const fn taking(self, percent: usize) -> Self {
        Self { percent, ..self }
    }

    /// Returns the samples that it takes where `asked` are asked for.
    #[must_use]
    pub fn samples(&self, asked: usize) -> usize {
        (asked * self.percent / 100).max(MIN_SAMPLES)
    }
}

/// Every test, controls first. In each, class A stands before "against".
pub const ALL: &[Test] = &[
    Test {
        name: "control-compare",
        about: "a comparison that returns early: equal buffers against random ones",
        expect: Expect::Leak,
        percent: 100,
        make: |_, rng| Ok(controls::compare(rng)),
    },
    Test {
        name: "control-branch",
        about: "powers that branch on each bit: exponents 0 against uniform ones",
        expect: Expect::Leak,
        percent: 100,
        make: |_, _| Ok(controls::branch()),
    },
    Test {
        name: "control-table",
        about: "a table of 64 MiB: entry 0 against uniform ones",
        expect: Expect::Leak,
        percent: 100,
        make: |_, _| Ok(controls::cold_table()),
    },
    Test {
        name: "control-cached",
        about: "a table of 2 KiB, just read: entry 0 against uniform ones",
        expect: Expect::Hidden,
        percent: 100,
        make: |_, _| Ok(controls::cached_table()),
    },
    Test {
        name: "control-public",
        about: "public exponents: 960 bits against 1024",
        expect: Expect::Leak,
        percent: 10,
        make: |setup, rng| Ok(powers::public_pow(setup, rng)),
    },
    Test {
        name: "control-same",
        about: "secret exponents: uniform against uniform",
        expect: Expect::Same,
        percent: 100,
        make: |setup, rng| Ok(powers::pow(setup, Exponent::Uniform, rng)),
    },
    Test::quiet(
        "decrypt-fixed",
        "decryption: one ciphertext against uniform ones",
        |setup, rng| Ok(decryption::fixed(setup, rng)),
    )
    .taking(30),
    Test::quiet("decrypt-unit", "decryption: the ciphertext 1 against uniform ones", |setup, _| {
        Ok(decryption::unit(setup))
    })
    .taking(30),
    Test::quiet(
        "decrypt-zero",
        "decryption: encryptions of zero against those of uniform plaintexts",
        decryption::zero,
    )
    .taking(30),
    Test::quiet(
        "decrypt-prime",
        "a leg of decryption: a prime of 1021 ones against one of 7",
        |setup, rng| Ok(decryption::prime(setup, rng)),
    )
    .taking(30),
    Test::quiet("pow-zeros", "pow: exponents 0 against uniform ones", |setup, rng| {
        Ok(powers::pow(setup, Exponent::Zeros, rng))
    }),
    Test::quiet("pow-sparse", "pow: exponents of 8 ones against uniform ones", |setup, rng| {
        Ok(powers::pow(setup, Exponent::Sparse, rng))
    }),
    Test::quiet("pow-ones", "pow: exponents 2^1024 - 1 against uniform ones", |setup, rng| {
        Ok(powers::pow(setup, Exponent::Ones, rng))
    }),
    Test::quiet("fixed-zeros", "pow_fixed_base: as pow-zeros", |setup, rng| {
        Ok(powers::pow_fixed_base(setup, Exponent::Zeros, rng))
    })
    .taking(400),
    Test::quiet("fixed-sparse", "pow_fixed_base: as pow-sparse", |setup, rng| {
        Ok(powers::pow_fixed_base(setup, Exponent::Sparse, rng))
    })
    .taking(400),
    Test::quiet("fixed-ones", "pow_fixed_base: as pow-ones", |setup, rng| {
        Ok(powers::pow_fixed_base(setup, Exponent::Ones, rng))
    })
    .taking(400),
    Test::quiet(
        "sum-message",
        "ckks-sum encryption: messages 0 against uniform ones",
        |setup, rng| sums::encrypt(setup, "message", rng),
    ),
    Test::quiet(
        "sum-noise",
        "ckks-sum encryption: noise keys 0 against uniform ones",
        |setup, rng| sums::encrypt(setup, "noise_key", rng),
    ),
    Test::quiet(
        "sum-decrypt",
        "ckks-sum decryption: sums of 0 against those of uniform messages",
        sums::decrypt,
    ),
    Test::quiet(
        "sum-key",
        "ckks-sum, products with the key: 0 against uniform ones",
        |setup, rng| Ok(sums::key(setup, rng)),
    ),
    Test::quiet(
        "ckks-message",
        "ckks-4096x1, encryption with the secret: messages 0 against uniform ones",
        |setup, rng| vectors::of_zeros(setup, Operation::EncryptSecret, "message", rng),
    ),
    Test::quiet(
        "ckks-noise",
        "ckks-4096x1, encryption with the secret: noise keys 0 against uniform ones",
        |setup, rng| vectors::of_zeros(setup, Operation::EncryptSecret, "noise_key", rng),
    ),
    Test::quiet(
        "ckks-public",
        "ckks-4096x1, encryption by the public key: keys of u 0 against uniform ones",
        |setup, rng| vectors::of_zeros(setup, Operation::Encrypt, "u_key", rng),
    ),
    Test::quiet(
        "ckks-decrypt",
        "ckks-4096x1, decryption: what comes out 0 against uniform",
        vectors::decrypt,
    ),
    Test::quiet(
        "ckks-key",
        "ckks-4096x1, a digit of an evaluation key: noise keys 0 against uniform ones",
        |setup, rng| vectors::of_zeros(setup, Operation::SwitchingKey, "noise_key", rng),
    ),
    Test::quiet("ckks-encode", "ckks-4096x1, encoding: one batch against fresh ones", |_, rng| {
        Ok(vectors::encode(rng))
    }),
    Test::quiet("ckks-decode", "ckks-4096x1, decoding: one batch against fresh ones", |_, rng| {
        Ok(vectors::decode(rng))
    }),
    Test::quiet(
        "seal",
        "ckks-sum, packing and encryption: fields 0 against uniform ones",
        |setup, _| sums::seal(setup),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::subject::Class;

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = ALL.iter().map(|test| test.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn controls_take_fewer_samples_but_enough() {
        let test = ALL.iter().find(|test| test.name == "control-public").unwrap();
        assert_eq!((test.samples(100_000), test.samples(2_000)), (10_000, MIN_SAMPLES));
    }

    #[test]
    fn every_subject_runs_with_both_classes() {
        let (setup, mut rng) = (Setup::new().unwrap(), StreamRng::from_seed(&[2; 32]));
        for test in ALL {
            let mut subject = (test.make)(&setup, &mut rng).unwrap();
            for class in [Class::A, Class::B] {
                subject.prepare(class, &mut rng).unwrap();
                subject.run().unwrap_or_else(|why| panic!("{}: {why}", test.name));
            }
        }
    }
}

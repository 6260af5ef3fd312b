//! The portable CPU engine: 64-bit limbs, `u128` products, every core.
//!
//! A whole program runs over one item before the next, so intermediates stay in cache; `rayon`
//! spreads items over cores. Steps over secrets take no branch, no table index and no division that
//! depends on them (for primes of 32 bits or more; smaller ones are for tests of the transform).

mod bignum;
mod montgomery;
mod ntt;
mod poly;
mod power;
mod sampling;

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{
    engine::{Engine, Operand, RunError, check_support},
    interpret::{self, Arg, Blocks, Kernels},
    program::{FixedBase, Kind, Program, Step},
    ring::Ring,
};
use ntt::Tables;
use power::PowerTable;

/// The CPU engine. See the [module](self) documentation.
///
/// It keeps what it derives from long-lived constants, the powers of a fixed base and the twiddle
/// factors of a ring, for as long as the constant itself lives.
#[derive(Default)]
pub struct CpuEngine {
    powers: Derived<FixedBase, PowerTable>,
    twiddles: Derived<Ring, Tables>,
}

impl CpuEngine {
    /// An engine with no tables yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn describe(&self) -> String {
        format!("portable 64-bit arithmetic on {} threads", rayon::current_num_threads())
    }

    fn supports(&self, _step: &str) -> bool {
        true
    }

    fn run(&self, program: &Program, operands: &mut [Operand<'_>]) -> Result<(), RunError> {
        check_support(self, program)?;
        interpret::run(self, program, operands, true)
    }
}

impl Kernels for CpuEngine {
    fn blocks(&self, _program: &Program) -> Blocks {
        Blocks { unit: 1, units: 1 }
    }

    fn step(&self, step: &Step, out_kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let args: Vec<_> = args.iter().map(|arg| (arg.kind, arg.item(0))).collect();
        match (step, out_kind) {
            (Step::PowFixedBase { base }, _) => {
                let table = self.powers.get(base, PowerTable::new);
                table.pow(base.modulus(), out, args[0].1);
            }
            (Step::Ntt | Step::Intt, Kind::Polys { ring, .. }) => {
                let tables = self.twiddles.get(ring, Tables::new);
                out.copy_from_slice(args[0].1);
                if matches!(step, Step::Ntt) { tables.forward(out) } else { tables.inverse(out) }
            }
            (Step::CrtJoin { crt }, _) => bignum::crt_join(crt, out, args[0].1, args[1].1),
            (_, Kind::Residues { modulus, .. }) => bignum::step(step, modulus, out, &args),
            _ => poly::step(step, out_kind, out, &args),
        }
    }
}

/// Values derived from constants, found by the constant's identity. Those of constants that are gone
/// go when the next one is derived.
struct Derived<K, V>(Mutex<Vec<(Weak<K>, Arc<V>)>>);

impl<K, V> Default for Derived<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K, V> Derived<K, V> {
    fn get(&self, key: &Arc<K>, derive: impl FnOnce(&K) -> V) -> Arc<V> {
        // A panic while deriving leaves the list as it was, so a poisoned lock is still sound.
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = list.iter().find(|(weak, _)| weak.as_ptr() == Arc::as_ptr(key)) {
            return value.clone();
        }
        list.retain(|(weak, _)| weak.strong_count() > 0);
        let value = Arc::new(derive(key));
        list.push((Arc::downgrade(key), value.clone()));
        value
    }
}

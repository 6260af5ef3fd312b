//! The steps over big residues, for blocks of items.

mod digits;
mod invert;
mod products;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{
    backend::{Backend, Items, Results},
    montgomery::Montgomery,
    power::{self, ExponentBatch, PowerTable},
    tally::Tally,
};
use crate::{
    derived::Derived,
    interpret::{self, Arg},
    modulus::Modulus,
    program::{FixedBase, Kind, PairOp, Program, ResidueOp, ResidueStep},
};

/// The arithmetic of one kind of processor, and what it derives from long-lived constants.
pub(super) struct Steps<B: Backend> {
    backend: B,
    moduli: Derived<Modulus, Montgomery<B>>,
    tables: Derived<FixedBase, PowerTable>,
}

/// Returns the items of an argument.
fn items<'a>(arg: &Arg<'a>) -> Items<'a> {
    let (words, each) = (arg.words(), arg.kind.words());
    Items { words, each, stride: each, shared: arg.is_shared() }
}

impl<B: Backend> Steps<B> {
    pub(super) fn new(backend: B) -> Self {
        Self { backend, moduli: Derived::default(), tables: Derived::default() }
    }

    fn modulus(&self, m: &Arc<Modulus>) -> Arc<Montgomery<B>> {
        self.moduli.get(m, |m| Montgomery::new(self.backend, m))
    }

    fn table(&self, base: &Arc<FixedBase>) -> Arc<PowerTable> {
        self.tables.get(base, |base| PowerTable::new(&self.modulus(base.modulus()), base))
    }

    /// Lets go of what was derived from constants that nobody has any more.
    pub(super) fn sweep(&self) {
        self.moduli.sweep();
        self.tables.sweep();
    }

    /// Derives the tables of a program's constants, before its parts need them at once.
    pub(super) fn prepare(&self, program: &Program) {
        for step in program.steps() {
            if let Some(base) = step.fixed_base() {
                self.table(base);
            }
        }
    }

    /// Returns the multiply instructions a second of one thread: the best of some bursts.
    pub(super) fn multiply_rate(&self) -> f64 {
        let burst = || {
            let start = std::time::Instant::now();
            self.backend.burst() as f64 / start.elapsed().as_secs_f64()
        };
        (0..8).map(|_| burst()).fold(0.0, f64::max)
    }

    /// Returns the multiply instructions that a program issues over `count` items on one thread: on
    /// several, what a part does once is done more often.
    pub(super) fn multiplies(program: &Program, count: usize, block: usize) -> u64 {
        let total = AtomicU64::new(0);
        let steps = Steps::new(Tally::<B>::new(&total));
        steps.prepare(program);
        let of_block = |items: usize| {
            total.store(0, Relaxed);
            interpret::walk(program, items, |step, kind, out, args| {
                steps.run(step, kind, out, args);
            });
            total.load(Relaxed)
        };
        let parts = [(count / block, block), (1, count % block)];
        let needed = parts.into_iter().filter(|&(times, items)| times > 0 && items > 0);
        needed.map(|(times, items)| times as u64 * of_block(items)).sum()
    }

    /// Runs any step.
    pub(super) fn run(&self, step: &ResidueStep, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let mut out = Results::new(out, kind.words());
        match step {
            ResidueStep::Residue { op, modulus } => self.residue(op, modulus, out, args),
            ResidueStep::Pair { op, square, .. } => {
                out.pairs = true;
                let a = items(&args[0]);
                match op {
                    PairOp::Split => digits::split(&self.modulus(square), out, &a),
                    PairOp::Mul => {
                        products::pair_mul(&self.modulus(square), out, &a, &items(&args[1]));
                    }
                    PairOp::OnePlusMn => digits::one_plus_mn_pair(out, &a),
                    PairOp::PowFixedBase { base } => {
                        self.table(base).pow(&self.modulus(square), out, &a);
                    }
                }
            }
            ResidueStep::CrtJoin { crt } => {
                let (p, q) = (&*self.modulus(crt.p()), &*self.modulus(crt.q()));
                digits::crt_join([p, q], crt, out, &items(&args[0]), &items(&args[1]));
            }
        }
    }

    fn residue(&self, op: &ResidueOp, modulus: &Arc<Modulus>, out: Results<'_>, args: &[Arg<'_>]) {
        let (m, a) = (&*self.modulus(modulus), items(&args[0]));
        let powers = |bits: u32, secret: bool| ExponentBatch {
            items: items(&args[1]),
            bits: bits as usize,
            public: !secret,
        };
        match op {
            ResidueOp::Mul => products::mul(m, out, &a, &items(&args[1])),
            ResidueOp::MontMul => products::mont_mul(m, out, &a, &items(&args[1])),
            ResidueOp::Product => products::product(m, out, &a),
            ResidueOp::Join { .. } => digits::join(m, out, &a),
            ResidueOp::OnePlusMn { n } => digits::one_plus_mn(&self.modulus(n), out, &a),
            ResidueOp::Reduce => digits::reduce(m, out, &a),
            ResidueOp::LQuotient => digits::l_quotient(m, out, &a),
            ResidueOp::Invert => invert::invert(modulus, m, out, &a),
            ResidueOp::Choose => choose(out, &a, &items(&args[1]), &items(&args[2])),
            &ResidueOp::Pow { secret, bits } => power::pow(m, out, &a, &powers(bits, secret)),
            &ResidueOp::Dot { secret, bits } => {
                let bases = Items::new(a.words, out.each);
                power::dot(m, out, &bases, &powers(bits, secret));
            }
            ResidueOp::PowFixedBase { base } => self.table(base).pow(m, out, &a),
        }
    }
}

/// `a` where the bit is 1, else `b`. Constant time.
fn choose(out: Results<'_>, bits: &Items<'_>, a: &Items<'_>, b: &Items<'_>) {
    for (index, out) in out.groups(1) {
        let bit = bits.item(index).first().map_or(0, |&bit| bit);
        let mask = std::hint::black_box(bit.wrapping_neg());
        let words = a.item(index).iter().zip(b.item(index));
        out.words.iter_mut().zip(words).for_each(|(o, (&a, &b))| *o = (a & mask) | (b & !mask));
    }
}

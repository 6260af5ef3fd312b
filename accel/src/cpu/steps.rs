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
    power::{self, PowerTable, Powers},
    tally::Tally,
};
use crate::{
    derived::Derived,
    interpret::{self, Arg},
    modulus::Modulus,
    program::{FixedBase, Kind, Program, Step},
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

    /// Derives the tables of a program's constants, before its parts need them at once.
    pub(super) fn prepare(&self, program: &Program) {
        self.moduli.sweep();
        self.tables.sweep();
        for step in program.steps() {
            if let Step::PowFixedBase { base } = step {
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
                if step.is_of_residues() {
                    steps.run(step, kind, out, args);
                }
            });
            total.load(Relaxed)
        };
        let parts = [(count / block, block), (1, count % block)];
        let needed = parts.into_iter().filter(|&(times, items)| times > 0 && items > 0);
        needed.map(|(times, items)| times as u64 * of_block(items)).sum()
    }

    /// Runs any step over residues.
    pub(super) fn run(&self, step: &Step, kind: &Kind, out: &mut [u64], args: &[Arg<'_>]) {
        let a = items(&args[0]);
        let mut out = Results::new(out, kind.words());
        if let Step::CrtJoin { crt } = step {
            let (p, q) = (&*self.modulus(crt.p()), &*self.modulus(crt.q()));
            return digits::crt_join([p, q], crt, out, &a, &items(&args[1]));
        }
        let (Kind::Residues { modulus, .. } | Kind::Pairs { modulus }) = kind else {
            unreachable!("{} makes residues", step.name())
        };
        out.pairs = matches!(kind, Kind::Pairs { .. });
        let m = &*self.modulus(modulus);
        match step {
            Step::Mul => products::mul(m, out, &a, &items(&args[1])),
            Step::MontMul => products::mont_mul(m, out, &a, &items(&args[1])),
            Step::PairMul => products::pair_mul(m, out, &a, &items(&args[1])),
            Step::Product => products::product(m, out, &a),
            Step::Split => digits::split(m, out, &a),
            Step::Join => digits::join(m, out, &a),
            Step::OnePlusMn { .. } if out.pairs => digits::one_plus_mn_pair(out, &a),
            Step::OnePlusMn { n } => digits::one_plus_mn(&self.modulus(n), out, &a),
            Step::Reduce => digits::reduce(m, out, &a),
            Step::LQuotient => digits::l_quotient(m, out, &a),
            Step::Invert => invert::invert(modulus, m, out, &a),
            Step::Choose => choose(out, &a, &items(&args[1]), &items(&args[2])),
            Step::Pow { secret } => power::pow(m, out, &a, &powers(&args[1], *secret)),
            Step::Dot { secret } => {
                let bases = Items::new(a.words, out.each);
                power::dot(m, out, &bases, &powers(&args[1], *secret));
            }
            Step::PowFixedBase { base } => self.table(base).pow(m, out, &a),
            _ => unreachable!("{} makes no residues here", step.name()),
        }
    }
}

/// Returns a batch of exponents.
fn powers<'a>(arg: &Arg<'a>, secret: bool) -> Powers<'a> {
    let Kind::Exponents { bits, .. } = arg.kind else { unreachable!("powers take exponents") };
    Powers { items: items(arg), bits: *bits as usize, public: !secret }
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

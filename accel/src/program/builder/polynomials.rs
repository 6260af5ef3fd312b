//! Polynomials and beats.

use std::sync::Arc;

use super::{Beat, Builder, Coeff, Integer, Lanes, Ntt, Seed, Var};
use crate::{
    exponents::{Public, Secret},
    polys::Domain,
    program::{
        BaseExtension, Constant, Kind, LaneOp, LaneStep, LimbOp, LimbStep, RingOp, RingStep,
        ScaleFactors, Spread, Step,
    },
    ring::{MAX_PRIMES, Ring},
};

/// The most products of [`Builder::mul_sum`].
pub const MAX_TERMS: usize = 16;

impl Builder {
    /// Adds one secret polynomial in NTT form that the whole batch shares, such as a key.
    pub fn secret_key(&mut self, name: &str, ring: &Arc<Ring>, words: &[u64]) -> Var<Ntt> {
        self.constant(name, Kind::Polys { ring: ring.clone(), ntt: true }, words, true)
    }

    /// Adds one secret polynomial in NTT form that the whole batch shares, and other programs too.
    pub fn shared_secret(&mut self, name: &str, ring: &Arc<Ring>, secret: &Constant) -> Var<Ntt> {
        self.shared_constant(name, Kind::Polys { ring: ring.clone(), ntt: true }, secret, true)
    }

    /// Adds one public polynomial in NTT form that the whole batch shares, and other programs too.
    pub fn evaluation_key(&mut self, name: &str, ring: &Arc<Ring>, key: &Constant) -> Var<Ntt> {
        self.shared_constant(name, Kind::Polys { ring: ring.clone(), ntt: true }, key, false)
    }

    /// Adds a public input of one polynomial each, in coefficient or in NTT form: part of a
    /// ciphertext.
    pub fn polys<D: Domain>(&mut self, name: &str, ring: &Arc<Ring>) -> Var<D> {
        let kind = Kind::Polys { ring: ring.clone(), ntt: D::NTT };
        self.input(name, kind, Spread::Each, false)
    }

    /// Adds a secret input of one polynomial each in coefficient form.
    pub fn coefficients(&mut self, name: &str, ring: &Arc<Ring>) -> Var<Coeff> {
        let kind = Kind::Polys { ring: ring.clone(), ntt: false };
        self.input(name, kind, Spread::Each, true)
    }

    /// Adds `count` public seeds that the whole batch shares.
    pub fn seeds(&mut self, name: &str, count: usize) -> Var<Seed<Public>> {
        self.input(name, Kind::Seeds { count }, Spread::Shared, false)
    }

    /// Adds one secret seed that the whole batch shares.
    pub fn secret_seed(&mut self, name: &str) -> Var<Seed<Secret>> {
        self.input(name, Kind::Seeds { count: 1 }, Spread::Shared, true)
    }

    /// Adds a public input of `count` beats each.
    pub fn beats(&mut self, name: &str, ring: &Arc<Ring>, count: usize) -> Var<Beat> {
        self.input(name, Kind::Beats { ring: ring.clone(), count }, Spread::Each, false)
    }

    /// Adds an accumulator of `count` beats each: see [`Builder::update`].
    pub fn beat_sums(&mut self, name: &str, ring: &Arc<Ring>, count: usize) -> Var<Beat> {
        self.input(name, Kind::Beats { ring: ring.clone(), count }, Spread::Update, false)
    }

    /// Adds a public input of sums of the lanes of `count` beats each.
    pub fn lanes(&mut self, name: &str, ring: &Arc<Ring>, count: usize) -> Var<Lanes> {
        self.input(name, Kind::Lanes { ring: ring.clone(), count }, Spread::Each, false)
    }

    /// Adds an accumulator of sums of the lanes of `count` beats each: see [`Builder::update`].
    pub fn lane_sums(&mut self, name: &str, ring: &Arc<Ring>, count: usize) -> Var<Lanes> {
        self.input(name, Kind::Lanes { ring: ring.clone(), count }, Spread::Update, false)
    }

    /// Adds a step that treats each prime of the ring of its result apart.
    fn limb<T>(
        &mut self,
        name: &str,
        (ring, ntt): (Arc<Ring>, bool),
        op: LimbOp,
        operands: &[usize],
    ) -> Var<T> {
        let kind = Kind::Polys { ring: ring.clone(), ntt };
        self.step(name, kind, Step::Limb(LimbStep { op, ring, ntt }), operands)
    }

    /// Adds a step over whole polynomials of a ring.
    fn whole<T>(
        &mut self,
        name: &str,
        kind: Kind,
        ring: &Arc<Ring>,
        op: RingOp,
        operands: &[usize],
    ) -> Var<T> {
        self.step(name, kind, Step::Ring(RingStep { op, ring: ring.clone() }), operands)
    }

    /// Adds a step over lanes of so many beats of a ring.
    fn lane<T>(
        &mut self,
        name: &str,
        kind: Kind,
        (ring, count): (Arc<Ring>, usize),
        op: LaneOp,
        operands: &[usize],
    ) -> Var<T> {
        self.step(name, kind, Step::Lane(LaneStep { op, ring, count }), operands)
    }

    /// Returns the ring of beats or of sums of their lanes, and how many beats there are.
    fn of_lanes<T>(&self, var: Var<T>) -> (Arc<Ring>, usize) {
        self.of_kind(var, |kind| match kind {
            Kind::Beats { ring, count } | Kind::Lanes { ring, count } => {
                Some((ring.clone(), *count))
            }
            _ => None,
        })
    }

    /// Adds a transform to NTT form.
    pub fn ntt(&mut self, name: &str, a: Var<Coeff>) -> Var<Ntt> {
        self.limb(name, (self.ring(a), true), LimbOp::Ntt, &[a.index])
    }

    /// Adds a transform from NTT form.
    pub fn intt(&mut self, name: &str, a: Var<Ntt>) -> Var<Coeff> {
        self.limb(name, (self.ring(a), false), LimbOp::Intt, &[a.index])
    }

    fn poly_pair<D: Domain>(&mut self, name: &str, op: LimbOp, a: Var<D>, b: Var<D>) -> Var<D> {
        let ring = self.ring(a);
        assert!(Arc::ptr_eq(&ring, &self.ring(b)), "{name}: one ring");
        self.limb(name, (ring, D::NTT), op, &[a.index, b.index])
    }

    /// Adds `a + b`, both in the same form.
    pub fn add<D: Domain>(&mut self, name: &str, a: Var<D>, b: Var<D>) -> Var<D> {
        self.poly_pair(name, LimbOp::Add, a, b)
    }

    /// Adds `a − b`, both in the same form.
    pub fn sub<D: Domain>(&mut self, name: &str, a: Var<D>, b: Var<D>) -> Var<D> {
        self.poly_pair(name, LimbOp::Sub, a, b)
    }

    /// Adds `a · b`: pointwise in NTT form.
    pub fn poly_mul(&mut self, name: &str, a: Var<Ntt>, b: Var<Ntt>) -> Var<Ntt> {
        self.poly_pair(name, LimbOp::Mul, a, b)
    }

    /// Adds `a(X^element)`: coefficient `i` becomes that of `X^(i · element)`, where `X^N = −1`.
    /// The form stays: in NTT form values change places.
    ///
    /// # Panics
    /// If `element`, a Galois element, is even or not below 2N.
    pub fn automorphism<D: Domain>(&mut self, name: &str, a: Var<D>, element: u32) -> Var<D> {
        let ring = self.ring(a);
        let order = 2 * ring.degree();
        let fits = element % 2 == 1 && (element as usize) < order;
        assert!(fits, "{name}: a Galois element is odd and below {order}");
        self.limb(name, (ring, D::NTT), LimbOp::Automorphism { element }, &[a.index])
    }

    /// Adds the sum over `seeds` of uniform polynomials, each the one that `(seed, index)` names.
    ///
    /// # Source
    /// ChaCha8 (nothing here is secret) with the seed as key, `index` as 64-bit stream number and a block counter of 64
    /// bits. A block is a [beat](crate::beats): ten lanes of 51 bits in eight little-endian `u64`, the last two bits
    /// unused. Residue `p = N·limb + coefficient` has a lane of its own, wherever it is in a polynomial: with
    /// `p = 160·run + 16·k + j` and `j` below 16, lane k of block `16·run + j`. It is the low `bits(q)` bits of the
    /// lane if these are below q; else the first 128 bits of block `2^32 + p`, mod q.
    ///
    /// So a residue is uniform to within `2^-78`, and engines compute each alone. The second draw has chance
    /// `1 − q / 2^bits(q)`: for the four largest primes of 50 bits at degree 8192, below 2^-29. Without it a residue
    /// would be that far from uniform; 128 bits for each would take 2.5 times the stream. Public: variable time.
    pub fn uniform(
        &mut self,
        name: &str,
        ring: &Arc<Ring>,
        seeds: Var<Seed<Public>>,
        index: Var<Integer>,
    ) -> Var<Ntt> {
        let kind = Kind::Polys { ring: ring.clone(), ntt: true };
        self.whole(name, kind, ring, RingOp::Uniform, &[seeds.index, index.index])
    }

    /// Adds the noise polynomial that `(key, index)` names: each coefficient the difference of the
    /// numbers of ones in bits 0–20 and 21–41 of a `u64` of the ChaCha20 stream `index` under the
    /// key. So it lies in −21 ..= 21 with variance 10.5.
    pub fn noise(
        &mut self,
        name: &str,
        ring: &Arc<Ring>,
        key: Var<Seed<Secret>>,
        index: Var<Integer>,
    ) -> Var<Coeff> {
        let kind = Kind::Polys { ring: ring.clone(), ntt: false };
        self.whole(name, kind, ring, RingOp::Noise, &[key.index, index.index])
    }

    /// Adds the ternary polynomial that `(key, index)` names: each coefficient is `⌊3w / 2^64⌋ − 1`
    /// for a `u64` w of the ChaCha20 stream `index` under the key. Of the 2^64 words one more gives
    /// −1 than gives 0 or 1, so each chance is a third to within 2^-64.
    pub fn ternary(
        &mut self,
        name: &str,
        ring: &Arc<Ring>,
        key: Var<Seed<Secret>>,
        index: Var<Integer>,
    ) -> Var<Coeff> {
        let kind = Kind::Polys { ring: ring.clone(), ntt: false };
        self.whole(name, kind, ring, RingOp::Ternary, &[key.index, index.index])
    }

    /// Adds a polynomial of integers, one to a coefficient; each is taken mod Q. They lie word by
    /// word: word `w` of integer `i` at `w · N + i`.
    pub fn lift(&mut self, name: &str, ring: &Arc<Ring>, x: Var<Integer>) -> Var<Coeff> {
        self.lift_integers(name, ring, x, false)
    }

    /// Adds a polynomial of integers in two's complement, laid out as for [`lift`](Self::lift).
    pub fn lift_signed(&mut self, name: &str, ring: &Arc<Ring>, x: Var<Integer>) -> Var<Coeff> {
        self.lift_integers(name, ring, x, true)
    }

    fn lift_integers(
        &mut self,
        name: &str,
        ring: &Arc<Ring>,
        x: Var<Integer>,
        signed: bool,
    ) -> Var<Coeff> {
        let words = self.kind(x).words();
        assert_eq!(words % ring.degree(), 0, "{name}: the same words for each coefficient");
        let words_each = words / ring.degree();
        assert!((1..=MAX_PRIMES).contains(&words_each), "{name}: one to {MAX_PRIMES} words each");
        if words_each == 1 {
            return self.limb(name, (ring.clone(), false), LimbOp::Lift { signed }, &[x.index]);
        }
        let kind = Kind::Polys { ring: ring.clone(), ntt: false };
        self.whole(name, kind, ring, RingOp::Lift { words_each, signed }, &[x.index])
    }

    /// Adds the integer in `[0, Q)` of each coefficient, of as many words as the ring has primes,
    /// laid out as for [`lift`](Self::lift).
    pub fn compose(&mut self, name: &str, a: Var<Coeff>) -> Var<Integer> {
        let ring = self.ring(a);
        let kind = Kind::Integers { words: ring.len_words() };
        self.whole(name, kind, &ring, RingOp::Compose, &[a.index])
    }

    /// Adds each coefficient, as the integer in (−Q/2, Q/2) that it stands for, modulo the primes
    /// of `to`. Exact: no multiple of Q is added. The rings may share primes.
    ///
    /// # Panics
    /// If the rings have not the same degree.
    pub fn base_extend(&mut self, name: &str, a: Var<Coeff>, to: &Arc<Ring>) -> Var<Coeff> {
        let from = self.ring(a);
        assert_eq!(from.degree(), to.degree(), "{name}: rings of one degree");
        let extension = Arc::new(BaseExtension::new(&from, to));
        let kind = Kind::Polys { ring: to.clone(), ntt: false };
        self.whole(name, kind, &from, RingOp::BaseExtend { to: to.clone(), extension }, &[a.index])
    }

    /// Adds the residues of the primes of `to`, a run of those of the ring of `a`, in the form that
    /// `a` has.
    ///
    /// # Panics
    /// If `to` is no such ring.
    pub fn limbs<D: Domain>(&mut self, name: &str, a: Var<D>, to: &Arc<Ring>) -> Var<D> {
        let from = self.ring(a);
        let mut runs = from.primes().windows(to.primes().len());
        let first = runs.position(|run| run == to.primes());
        let Some(first) = first.filter(|_| from.degree() == to.degree()) else {
            panic!("{name}: a run of the primes of a ring");
        };
        self.limb(name, (to.clone(), D::NTT), LimbOp::Limbs { first }, &[a.index])
    }

    /// Adds the polynomial over `to` that has the residues of `a` and of `b`, in the form that both
    /// have. The primes of `to` are those of both rings, in any order.
    ///
    /// # Panics
    /// If `to` has other primes, or the rings share one.
    pub fn join_limbs<D: Domain>(
        &mut self,
        name: &str,
        (a, b): (Var<D>, Var<D>),
        to: &Arc<Ring>,
    ) -> Var<D> {
        let (first, second) = (self.ring(a), self.ring(b));
        let [p, q, all] = [&first, &second, to].map(|ring| ring.primes());
        let is_whole = all.len() == p.len() + q.len()
            && all.iter().all(|prime| p.contains(prime) != q.contains(prime))
            && [first.degree(), second.degree()] == [to.degree(); 2];
        assert!(is_whole, "{name}: the primes of both rings");
        self.limb(name, (to.clone(), D::NTT), LimbOp::JoinLimbs, &[a.index, b.index])
    }

    /// Adds `a · f_j mod q_j`, a constant for each prime, in the form that `a` has.
    ///
    /// # Panics
    /// If `factors` are not as many as primes, or not below them.
    pub fn scale<D: Domain>(&mut self, name: &str, a: Var<D>, factors: &[u64]) -> Var<D> {
        let ring = self.ring(a);
        let is_reduced = factors.len() == ring.primes().len()
            && factors.iter().zip(ring.primes()).all(|(f, q)| f < q);
        assert!(is_reduced, "{name}: a residue for each prime");
        let op = LimbOp::Scale { factors: Arc::new(ScaleFactors(factors.to_vec())) };
        self.limb(name, (ring, D::NTT), op, &[a.index])
    }

    /// Adds the sum of the products of pairs, with one reduction.
    ///
    /// # Panics
    /// If there are none, more than [`MAX_TERMS`], or they are not of one ring.
    pub fn mul_sum(&mut self, name: &str, pairs: &[(Var<Ntt>, Var<Ntt>)]) -> Var<Ntt> {
        assert!((1..=MAX_TERMS).contains(&pairs.len()), "{name}: one to {MAX_TERMS} products");
        let operands = pairs.iter().map(|pair| pair.0).chain(pairs.iter().map(|pair| pair.1));
        let ring = self.ring(pairs[0].0);
        let is_one = operands.clone().all(|var| Arc::ptr_eq(&ring, &self.ring(var)));
        assert!(is_one, "{name}: one ring");
        let operands: Vec<_> = operands.map(|var| var.index).collect();
        self.limb(name, (ring, true), LimbOp::MulSum, &operands)
    }

    /// Adds the first coefficients of a polynomial, as `count` beats; lanes past its end are zero.
    pub fn pack(&mut self, name: &str, a: Var<Coeff>, count: usize) -> Var<Beat> {
        let ring = self.ring(a);
        let kind = Kind::Beats { ring: ring.clone(), count };
        self.whole(name, kind, &ring, RingOp::Pack, &[a.index])
    }

    /// Adds the polynomial in beats; coefficients that they do not hold are zero, lanes past its
    /// end go.
    pub fn unpack(&mut self, name: &str, a: Var<Beat>) -> Var<Coeff> {
        let ring = self.ring(a);
        let kind = Kind::Polys { ring: ring.clone(), ntt: false };
        self.whole(name, kind, &ring, RingOp::Unpack, &[a.index])
    }

    /// Adds, lane by lane, `a + b mod q`.
    pub fn add_beats(&mut self, name: &str, a: Var<Beat>, b: Var<Beat>) -> Var<Beat> {
        let (kind, lanes) = (self.kind(a), self.of_lanes(a));
        assert!(kind.is_same(&self.kind(b)), "{name}: equal shapes of one ring");
        self.lane(name, kind, lanes, LaneOp::AddBeats, &[a.index, b.index])
    }

    /// Adds, lane by lane, `sums + a`, not reduced, and counts the lanes of `a` that are no residues: see
    /// [`beats::add_lanes`](crate::beats::add_lanes). A word has room for
    /// [`MAX_ADDITIONS`](crate::beats::MAX_ADDITIONS) of residues.
    ///
    /// # Panics
    /// If shapes or rings differ.
    pub fn add_lanes(&mut self, name: &str, sums: Var<Lanes>, a: Var<Beat>) -> Var<Lanes> {
        let ((ring, count), (of, beats)) = (self.of_lanes(sums), self.of_lanes(a));
        assert!(Arc::ptr_eq(&ring, &of) && count == beats, "{name}: equal shapes of one ring");
        let kind = self.kind(sums);
        self.lane(name, kind, (ring, count), LaneOp::AddLanes, &[sums.index, a.index])
    }

    /// Adds, lane by lane, `sums mod q`, in beats.
    pub fn reduce_lanes(&mut self, name: &str, sums: Var<Lanes>) -> Var<Beat> {
        let (ring, count) = self.of_lanes(sums);
        let kind = Kind::Beats { ring: ring.clone(), count };
        self.lane(name, kind, (ring, count), LaneOp::ReduceLanes, &[sums.index])
    }

    /// Adds the first lane of `a` that is not below its prime, counted from lane 0 of its first
    /// beat, or the number of its lanes where all are; a beat with one of its two spare bits set
    /// counts as one whose last lane is bad. See
    /// [`beats::first_bad_lane`](crate::beats::first_bad_lane).
    ///
    /// # Panics
    /// If `a` is secret: the check takes variable time.
    pub fn first_bad_lane(&mut self, name: &str, a: Var<Beat>) -> Var<Integer> {
        assert!(!self.program.values[a.index].secret, "{name}: the check takes variable time");
        let lanes = self.of_lanes(a);
        self.lane(name, Kind::Integers { words: 1 }, lanes, LaneOp::FirstBadLane, &[a.index])
    }
}

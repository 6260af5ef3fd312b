//! Presets, rings and scales of the levelled scheme.

use std::{fmt, str::FromStr, sync::Arc};

use ciphergram_accel::{Ring, ring::largest_primes};

use super::CkksError;
use crate::{bytes::Writer, params::security::security_limit};

/// Bits of the first prime and of the special ones.
const WIDE_BITS: u32 = 50;
/// Bits of the primes that levels are rescaled by, and of scales.
const SCALE_BITS: u32 = 40;

/// Parameters with a name: slots × levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preset {
    /// 4,096 slots, one level: N = 8192, primes of 50 + 40 bits, a special one of 50.
    Slots4096Levels1,
    /// 4,096 slots, two levels: N = 8192, primes of 50 + 2·40 bits, a special one of 50.
    Slots4096Levels2,
    /// 8,192 slots, seven levels: N = 16384, primes of 50 + 7·40 bits, two special ones of 50.
    Slots8192Levels7,
    /// 16,384 slots, fourteen levels: N = 32768, primes of 50 + 14·40 bits, five special ones of 50.
    Slots16384Levels14,
}

impl Preset {
    /// Every preset, the smallest first.
    pub const ALL: [Self; 4] = [
        Self::Slots4096Levels1,
        Self::Slots4096Levels2,
        Self::Slots8192Levels7,
        Self::Slots16384Levels14,
    ];

    /// Returns the name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Slots4096Levels1 => "ckks-4096x1",
            Self::Slots4096Levels2 => "ckks-4096x2",
            Self::Slots8192Levels7 => "ckks-8192x7",
            Self::Slots16384Levels14 => "ckks-16384x14",
        }
    }

    /// Returns what it stands for.
    #[must_use]
    pub fn literal(self) -> Literal {
        let (slots, levels, special) = match self {
            Self::Slots4096Levels1 => (4096, 1, 1),
            Self::Slots4096Levels2 => (4096, 2, 1),
            Self::Slots8192Levels7 => (8192, 7, 2),
            Self::Slots16384Levels14 => (16384, 14, 5),
        };
        Literal { slots, levels, special }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = CkksError;

    fn from_str(name: &str) -> Result<Self, CkksError> {
        let known = Self::ALL.into_iter().find(|preset| preset.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(|preset| preset.name()).join(", ");
            CkksError::Parameters { why: format!("no preset {name:?}; there are {names}") }
        })
    }
}

/// Sizes that parameters are made of. They may be anything: [`Parameters::new`] checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literal {
    /// Numbers of a vector: half of the ring degree N.
    pub slots: usize,
    /// Products in a row that a fresh ciphertext has room for.
    pub levels: usize,
    /// Special primes, that switching keys is rounded by: a digit of a key has as many primes.
    pub special: usize,
}

/// The rings and the scale of one level, on which ciphertexts have `level + 1` primes.
#[derive(Debug)]
pub(super) struct Level {
    /// The primes of a ciphertext, `q_0` to `q_level`.
    pub(super) q: Arc<Ring>,
    /// Special primes, then those of a ciphertext: the first primes of a key.
    pub(super) all: Arc<Ring>,
    /// The primes of each digit that what a key switches is cut into, and all others.
    pub(super) digits: Vec<Digit>,
    /// The prime that the level is rescaled by; none on level 0.
    pub(super) last: Option<Last>,
    /// The scale: slots are multiplied by it.
    pub(super) scale: f64,
}

/// A digit of a key: a run of primes of a level.
#[derive(Debug)]
pub(super) struct Digit {
    pub(super) own: Arc<Ring>,
    pub(super) others: Arc<Ring>,
}

/// The last prime of a level.
#[derive(Debug)]
pub(super) struct Last {
    /// That prime alone.
    pub(super) prime: Arc<Ring>,
    /// Special primes, then that prime: what a product is rounded by at once.
    pub(super) with_special: Arc<Ring>,
}

/// A checked set: rings of all levels, within the security table.
#[derive(Debug)]
pub struct Parameters {
    literal: Literal,
    special: Arc<Ring>,
    levels: Vec<Level>,
}

impl Parameters {
    /// Checks sizes and makes the rings.
    ///
    /// # Errors
    /// [`CkksError::Parameters`].
    pub fn new(literal: Literal) -> Result<Self, CkksError> {
        let set = Self::without_security(literal)?;
        let (degree, log_q) = (2 * literal.slots, set.log_qp());
        let limit = set.security_limit();
        if log_q > f64::from(limit) {
            let log_q = log_q.ceil();
            let why = format!(
                "a modulus of {log_q} bits at N = {degree} is not 128-bit secure, at most {limit} are; take fewer \
                 levels or more slots"
            );
            return Err(CkksError::Parameters { why });
        }
        Ok(set)
    }

    /// Makes the rings of a preset, which is known to be secure.
    #[must_use]
    pub fn preset(preset: Preset) -> Self {
        match Self::new(preset.literal()) {
            Ok(set) => set,
            Err(why) => unreachable!("{preset}: {why}"),
        }
    }

    /// Makes the rings without the security table: of small degrees, for tests.
    ///
    /// # Errors
    /// [`CkksError::Parameters`].
    pub(super) fn without_security(literal: Literal) -> Result<Self, CkksError> {
        let Literal { slots, levels, special } = literal;
        let sizes = || {
            let why = format!(
                "{slots} slots, {levels} levels and {special} special primes make no set; slots are a power of two, \
                 and there are at most 24 primes, one of them special"
            );
            CkksError::Parameters { why }
        };
        let degree = 2 * slots;
        let fits = degree.is_power_of_two() && (16..=65_536).contains(&degree);
        if !fits
            || special == 0
            || levels == 0
            || special + levels + 1 > ciphergram_accel::ring::MAX_PRIMES
        {
            return Err(sizes());
        }
        let wide = largest_primes(WIDE_BITS, degree, special + 1);
        let (scaling, scales) = scaling_primes(degree, levels).ok_or_else(sizes)?;
        let (first, special_primes) = wide.split_first().ok_or_else(sizes)?;
        let primes: Vec<u64> =
            special_primes.iter().chain([first]).chain(&scaling).copied().collect();
        let whole = Ring::new(degree, &primes).map_err(|_| sizes())?;
        let part = |first, count| Arc::new(whole.limbs(first, count));
        let special_ring = part(0, special);
        let levels = scales
            .into_iter()
            .enumerate()
            .map(|(level, scale)| {
                let q = part(special, level + 1);
                let all = part(0, special + level + 1);
                let digits = (0..=level)
                    .step_by(special)
                    .map(|first| {
                        let own = part(special + first, special.min(level + 1 - first));
                        let others = without(&all, &own);
                        Digit { own, others }
                    })
                    .collect();
                let last = (level > 0).then(|| {
                    let prime = part(special + level, 1);
                    let with_special = Arc::new(joined(&special_ring, &prime));
                    Last { prime, with_special }
                });
                Level { q, all, digits, last, scale }
            })
            .collect();
        Ok(Self { literal, special: special_ring, levels })
    }

    /// Returns the sizes.
    #[must_use]
    pub fn literal(&self) -> Literal {
        self.literal
    }

    /// Returns the preset that these are.
    ///
    /// # Errors
    /// [`CkksError::NoPreset`].
    pub fn named(&self) -> Result<Preset, CkksError> {
        let known = Preset::ALL.into_iter().find(|preset| preset.literal() == self.literal);
        known.ok_or(CkksError::NoPreset)
    }

    /// Returns the id that frames carry: eight bytes of a hash over everything that must agree.
    #[must_use]
    pub fn id(&self) -> [u8; 8] {
        let mut w = Writer::default();
        w.bytes(b"ciphergram levelled parameters 1");
        let Literal { slots, levels, special } = self.literal;
        [slots, levels, special].into_iter().for_each(|size| w.u32(size as u32));
        self.whole().primes().iter().for_each(|&q| w.u64(q));
        self.levels.iter().for_each(|level| w.u64(level.scale.to_bits()));
        let mut id = [0; 8];
        id.copy_from_slice(&blake3::hash(&w.0).as_bytes()[..8]);
        id
    }

    /// Returns the numbers of a vector.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.literal.slots
    }

    /// Returns the ring degree N.
    #[must_use]
    pub fn degree(&self) -> usize {
        2 * self.literal.slots
    }

    /// Returns the level of a fresh ciphertext: products in a row that there is room for.
    #[must_use]
    pub fn top_level(&self) -> usize {
        self.literal.levels
    }

    /// Returns the scale of ciphertexts on a level: slots are multiplied by it.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn scale(&self, level: usize) -> f64 {
        self.levels[level].scale
    }

    /// Returns the primes of a ciphertext on a level, as a ring.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn ring(&self, level: usize) -> &Arc<Ring> {
        &self.levels[level].q
    }

    /// Returns `log₂(Q·P)` of all primes, which the security table bounds.
    #[must_use]
    pub fn log_qp(&self) -> f64 {
        self.whole().primes().iter().map(|&q| (q as f64).log2()).sum()
    }

    /// Returns the most bits that [`log_qp`](Self::log_qp) may be at 128-bit security.
    #[must_use]
    pub fn security_limit(&self) -> u32 {
        security_limit(self.degree())
    }

    /// Returns the special primes.
    #[must_use]
    pub fn special_primes(&self) -> &[u64] {
        self.special.primes()
    }

    /// Returns the digits that what a key switches is cut into on a level.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn digits(&self, level: usize) -> usize {
        self.levels[level].digits.len()
    }

    /// Returns the ring of the special primes.
    pub(super) fn special(&self) -> &Arc<Ring> {
        &self.special
    }

    /// Returns the rings of a level.
    pub(super) fn level(&self, level: usize) -> &Level {
        &self.levels[level]
    }

    /// Returns the ring of all primes, which keys are over.
    pub(super) fn whole(&self) -> &Arc<Ring> {
        &self.level(self.top_level()).all
    }
}

/// Returns a prime for each level from 1 on, and the scale of each level.
///
/// A product on level l has the scale `Δ_l²`, and `Δ_l² / q_l` once it is rescaled: that is the
/// scale of the level below, exactly. From the top level on each takes of the primes left the one
/// that leads back closest to the scale of the top, so that scales do not drift apart.
fn scaling_primes(degree: usize, levels: usize) -> Option<(Vec<u64>, Vec<f64>)> {
    let mut left = largest_primes(SCALE_BITS, degree, levels);
    let target = *left.get(levels / 2).or(left.last()).unwrap_or(&(1 << SCALE_BITS)) as f64;
    let (mut primes, mut scales) = (vec![], vec![target]);
    let mut scale = target;
    for _ in 0..levels {
        let wanted = scale * scale / target;
        let off = |q: u64| (q as f64 - wanted).abs();
        let place = (0..left.len()).min_by(|&a, &b| off(left[a]).total_cmp(&off(left[b])))?;
        let q = left.swap_remove(place);
        scale = scale * scale / q as f64;
        primes.push(q);
        scales.push(scale);
    }
    primes.reverse();
    scales.reverse();
    Some((primes, scales))
}

/// Returns the ring of both rings' primes, which are distinct.
fn joined(a: &Ring, b: &Ring) -> Ring {
    match a.join(b) {
        Ok(ring) => ring,
        Err(_) => unreachable!("the primes of a set are distinct"),
    }
}

/// Returns the ring of the primes of `all` that are before and behind a run of them.
fn without(all: &Ring, run: &Ring) -> Arc<Ring> {
    let count = all.primes().len();
    let first = all.primes().iter().position(|q| run.primes().first() == Some(q)).unwrap_or(count);
    let behind = first + run.primes().len();
    let before = all.limbs(0, first);
    Arc::new(if behind < count {
        joined(&before, &all.limbs(behind, count - behind))
    } else {
        before
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_secure_and_scales_stay() {
        for preset in Preset::ALL {
            let set = Parameters::preset(preset);
            assert!(set.log_qp() <= f64::from(security_limit(set.degree())));
            assert_eq!(preset.to_string().parse(), Ok(preset));
            let primes = set.whole().primes();
            assert_eq!(primes.len(), set.literal().special + set.top_level() + 1);
            for level in 0..=set.top_level() {
                assert!((set.scale(level).log2() - 40.0).abs() < 1e-3, "{preset} {level}");
                assert_eq!(set.ring(level).primes().len(), level + 1);
                let digits = &set.level(level).digits;
                let own: usize = digits.iter().map(|digit| digit.own.primes().len()).sum();
                assert_eq!(own, level + 1);
                let whole = set.level(level).all.primes().len();
                assert!(digits.iter().all(|digit| {
                    digit.own.primes().len() + digit.others.primes().len() == whole
                }));
            }
        }
    }

    #[test]
    fn what_is_no_set_is_refused() {
        let refused = |slots, levels, special| {
            let refused = Parameters::new(Literal { slots, levels, special }).err();
            refused.map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(4096, 3, 1).contains("at most 214 are"));
        for (slots, levels, special) in [(4095, 1, 1), (4096, 1, 0), (16384, 23, 1)] {
            assert!(refused(slots, levels, special).contains("make no set"));
        }
        assert!("ckks-1x1".parse::<Preset>().is_err());
    }
}

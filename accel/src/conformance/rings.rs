//! Cases over rings: polynomials and beats.

use super::*;

/// Tries both transforms, which are inverse to each other at the real degree.
pub fn transforms(engine: &dyn Engine) {
    let mut random = Operands::new(4);
    for (degree, bits, limbs) in
        [(16, 10, 1), (32, 20, 3), (64, 31, 2), (128, 50, 4), (256, 50, 2), (512, 50, 2)]
    {
        let ring = ring(degree, bits, limbs);
        let mut b = Builder::new("ntt");
        let a = b.coefficients("a", &ring);
        let t = b.ntt("t", a);
        b.output(t);
        let a = random.polys(&ring, 2);
        agree(engine, &b.build(), &[&a], a.len());
        let mut b = Builder::new("intt");
        let a = b.coefficients("a", &ring);
        let t = b.ntt("t", a);
        let square = b.poly_mul("t²", t, t);
        let back = b.intt("back", square);
        b.output(back);
        let a = random.polys(&ring, 2);
        agree(engine, &b.build(), &[&a], a.len());
    }
    let ring = ring(4096, 50, 2);
    let mut b = Builder::new("there and back");
    let a = b.coefficients("a", &ring);
    let t = b.ntt("t", a);
    let back = b.intt("back", t);
    b.output(back);
    let a = random.polys(&ring, 3);
    let mut out = vec![0; a.len()];
    if ran(engine, &b.build(), &mut [Operand::SecretIn(&a), Operand::Out(&mut out)]) {
        assert!(a == out, "inverse transform on {}", engine.name());
    }
}

/// Tries sums, differences and products of polynomials, and integers in and out of RNS.
pub fn polynomials(engine: &dyn Engine) {
    let mut random = Operands::new(5);
    for (degree, bits, limbs) in [
        (16, 20, 1),
        (16, 20, 8),
        (64, 50, 2),
        (32, 50, 3),
        (64, 49, 4),
        (32, 50, 8),
        (4096, 50, 2),
    ] {
        let ring = ring(degree, bits, limbs);
        let mut b = Builder::new("add sub");
        let (x, y) = (b.coefficients("x", &ring), b.coefficients("y", &ring));
        let sum = b.add("x + y", x, y);
        let difference = b.sub("x − y", x, sum);
        let both = b.add("sum", difference, x);
        let integers = b.compose("integers", both);
        let lifted = b.lift("lifted", &ring, integers);
        b.output(lifted);
        let (x, y) = (random.polys(&ring, 2), random.polys(&ring, 2));
        agree(engine, &b.build(), &[&x, &y], x.len());

        let mut b = Builder::new("lift compose");
        let x = b.integers("x", degree * limbs);
        let lifted = b.lift("lifted", &ring, x);
        let integers = b.compose("integers", lifted);
        b.output(integers);
        let x = random.words(degree * limbs * 3);
        agree(engine, &b.build(), &[&x], x.len());
    }
    let ring = ring(64, 50, 4);
    let key = random.poly(&ring);
    let mut b = Builder::new("mul by a key");
    let x = b.coefficients("x", &ring);
    let s = b.secret_key("s", &ring, &key);
    let t = b.ntt("t", x);
    let product = b.poly_mul("t·s", t, s);
    b.output(product);
    let x = random.polys(&ring, 3);
    agree(engine, &b.build(), &[&x], x.len());
}

/// Automorphisms of both forms, of what the batch shares, one after the other, and beside
/// transforms.
pub fn automorphisms(engine: &dyn Engine) {
    let mut random = Operands::new(12);
    for (degree, bits, limbs) in [(16, 20, 1), (32, 50, 8), (64, 31, 3), (256, 50, 2)] {
        let ring = ring(degree, bits, limbs);
        let order = 2 * degree as u32;
        for (g, h) in [(1, order - 1), (3, 5), (order - 1, order - 1), (order / 2 + 1, 3)] {
            let mut b = Builder::new("automorphism");
            let a = b.coefficients("a", &ring);
            let turned = b.automorphism("turned", a, g);
            b.output(turned);
            let a = [random.polys(&ring, 2), random.bounds(&ring)].concat();
            agree(engine, &b.build(), &[&a], a.len());

            let mut b = Builder::new("automorphism of values");
            let x = b.coefficients("x", &ring);
            let s = b.secret_key("s", &ring, &random.poly(&ring));
            let t = b.ntt("t", x);
            let (turned, key) = (b.automorphism("turned", t, h), b.automorphism("key", s, g));
            let product = b.poly_mul("product", turned, key);
            b.output(product);
            agree(engine, &b.build(), &[&a], a.len());

            // Of all that should be the same the difference.
            let mut b = Builder::new("automorphisms agree");
            let x = b.coefficients("x", &ring);
            let by_g = b.automorphism("x^g", x, g);
            let t = b.ntt("t", x);
            let values = b.automorphism("t^g", t, g);
            let back = b.intt("back", values);
            let by_values = b.sub("x^g − back", by_g, back);
            let in_turn = b.automorphism("(x^g)^h", by_g, h);
            let at_once = b.automorphism("x^gh", x, g * h % order);
            let by_turns = b.sub("(x^g)^h − x^gh", in_turn, at_once);
            b.output(by_values);
            b.output(by_turns);
            let (mut values, mut turns) = (vec![1; a.len()], vec![1; a.len()]);
            let operands =
                &mut [Operand::SecretIn(&a), Operand::Out(&mut values), Operand::Out(&mut turns)];
            if ran(engine, &b.build(), operands) {
                let differ = values.iter().chain(&turns).any(|&x| x != 0);
                assert!(!differ, "{g} and {h} of {order} on {}", engine.name());
            }
        }
    }
}

/// Tries integers out of RNS and back, over any number of primes.
pub fn compositions(engine: &dyn Engine) {
    let mut random = Operands::new(9);
    let shapes = [(16, 12, 3), (16, 20, 2), (16, 33, 5), (64, 50, 2)];
    let limbs = (1..=9).chain([12, 13, 16, 17, 24]).map(|limbs| (16, 50, limbs));
    for (degree, bits, limbs) in shapes.into_iter().chain(limbs) {
        let ring = ring(degree, bits, limbs);
        let mut b = Builder::new("compose");
        let a = b.coefficients("a", &ring);
        let integers = b.compose("integers", a);
        b.output(integers);
        let mut a = random.polys(&ring, 3);
        // Of the last item every coefficient is Q − 1, then 0.
        let last = 2 * ring.len_words();
        for (limb, &q) in a[last..].chunks_mut(degree).zip(ring.primes()) {
            limb.fill(q - 1);
        }
        a.extend(vec![0; ring.len_words()]);
        // So small that sums of fractions may fall short of a whole number.
        a.extend(vec![1; ring.len_words()]);
        agree(engine, &b.build(), &[&a], a.len());

        let mut b = Builder::new("lift compose");
        let x = b.integers("x", ring.len_words());
        let lifted = b.lift("lifted", &ring, x);
        let integers = b.compose("integers", lifted);
        b.output(integers);
        let mut x = random.words(ring.len_words() * 3);
        x[..ring.len_words()].fill(u64::MAX);
        agree(engine, &b.build(), &[&x], x.len());
    }
}

/// Tries centred integers from any primes to any others, some of which may be the same.
pub fn extensions(engine: &dyn Engine) {
    let mut random = Operands::new(13);
    let (large, small) = (largest_primes(50, 16, 24), largest_primes(12, 16, 3));
    for (from, to) in [
        (&large[..1], &large[1..3]),
        (&small[..1], &small[..]),
        (&small[..1], &large[..]),
        (&large[..], &small[..1]),
        (&large[..3], &large[2..7]),
        (&small[..], &large[..2]),
        (&large[..5], &large[..2]),
        (&large[..8], &large[..]),
        (&large[..11], &large[8..16]),
        (&large[..24], &large[..2]),
    ] {
        let (from, to) = (ring_over(16, from), ring_over(16, to));
        let mut b = Builder::new("base_extend");
        let a = b.coefficients("a", &from);
        let extended = b.base_extend("extended", a, &to);
        b.output(extended);
        let program = b.build();
        for count in [0, 1, 5] {
            let mut a = random.polys(&from, count);
            a.extend(random.bounds(&from));
            agree(engine, &program, &[&a], (count + 1) * to.len_words());
        }
    }
    // To more primes, then back, and on to one of them.
    let (degree, primes) = (1024, largest_primes(50, 1024, 5));
    let [few, more, other] =
        [&primes[1..3], &primes[..], &primes[3..4]].map(|primes| ring_over(degree, primes));
    let mut b = Builder::new("there and back");
    let x = b.coefficients("x", &few);
    let there = b.base_extend("there", x, &more);
    let back = b.base_extend("back", there, &few);
    let nothing = b.sub("nothing", back, x);
    b.output(nothing);
    let rest = b.base_extend("rest", there, &other);
    b.output(rest);
    let mut x = random.polys(&few, 2);
    x.extend(random.bounds(&few));
    let program = b.build();
    let run = |engine: &dyn Engine| {
        let (mut nothing, mut rest) = (vec![1; x.len()], vec![0; 3 * other.len_words()]);
        let operands =
            &mut [Operand::SecretIn(&x), Operand::Out(&mut nothing), Operand::Out(&mut rest)];
        let ran = ran(engine, &program, operands);
        ran.then(|| {
            assert!(nothing.iter().all(|&x| x == 0), "there and back on {}", engine.name());
            rest
        })
    };
    if let Some(rest) = run(engine) {
        assert!(Some(rest) == run(&ReferenceEngine), "there and on, on {}", engine.name());
    }
}

/// Tries uniform polynomials over several seeds, noise and ternary polynomials, at the real
/// degrees, where draws are often or now and then rejected, and where a run of draws is of many
/// primes.
pub fn sampling(engine: &dyn Engine) {
    let mut random = Operands::new(6);
    for (degree, bits, limbs, counts) in [
        (16, 20, 1, &[1, 3, 17, 33][..]),
        (16, 50, 8, &[1, 3, 17, 33]),
        (32, 50, 7, &[1, 3, 17, 33]),
        (128, 16, 2, &[1, 3, 17, 33]),
        (1024, 22, 3, &[1, 3, 17, 33]),
        (256, 50, 2, &[1, 3, 17, 33]),
        (4096, 50, 2, &[1, 3, 17, 33]),
        (8192, 50, 4, &[1, 3, 17, 33]),
        // Some draws of each prime are rejected, and there are more than some drivers take at once.
        (32768, 40, 16, &[2]),
    ] {
        let ring = ring(degree, bits, limbs);
        for &count in counts {
            let mut b = Builder::new("uniform");
            let (seeds, index) = (b.seeds("seeds", count), b.index("index"));
            let a = b.uniform("a", &ring, seeds, index);
            b.output(a);
            let seeds = random.words(4 * count);
            let out_words = 3 * ring.len_words();
            agree(engine, &b.build(), &[&seeds, &[0, 1, u64::MAX]], out_words);
        }
        let mut b = Builder::new("noise");
        let (key, index) = (b.secret_seed("key"), b.index("index"));
        let e = b.noise("e", &ring, key, index);
        b.output(e);
        let key = random.words(4);
        agree(engine, &b.build(), &[&key, &[5, 0]], 2 * ring.len_words());
        let mut b = Builder::new("ternary");
        let (key, index) = (b.secret_seed("key"), b.index("index"));
        let u = b.ternary("u", &ring, key, index);
        b.output(u);
        let key = random.words(4);
        agree(engine, &b.build(), &[&key, &[5, 0]], 2 * ring.len_words());
    }
}

/// Tries beats: packing, unpacking, sums in place, and their range.
pub fn packing(engine: &dyn Engine) {
    let mut random = Operands::new(7);
    for (degree, limbs, count) in [
        (64, 2, 1),
        (64, 2, 12),
        (64, 3, 3),
        (64, 4, 2),
        (64, 4, 24),
        (64, 8, 44),
        (64, 7, 2),
        (64, 8, 1),
        (4096, 2, 800),
        // With lanes past the end of the polynomial: some, a beat of them, and many.
        (64, 3, 21),
        (64, 2, 14),
        (4096, 2, 820),
        (1024, 4, 440),
    ] {
        let ring = ring(degree, 50, limbs);
        let mut b = Builder::new("pack");
        let a = b.coefficients("a", &ring);
        let packed = b.pack("packed", a, count);
        b.output(packed);
        let a = random.polys(&ring, 2);
        agree(engine, &b.build(), &[&a], 2 * count * beats::WORDS);

        let mut b = Builder::new("unpack");
        let a = b.beats("a", &ring, count);
        let poly = b.unpack("poly", a);
        b.output(poly);
        let a = random.beats(&ring, count);
        agree(engine, &b.build(), &[&a], ring.len_words());

        let mut b = Builder::new("sum in place");
        let acc = b.beat_sums("acc", &ring, count);
        let x = b.beats("x", &ring, count);
        let sum = b.add_beats("sum", acc, x);
        b.update(acc, sum);
        let program = b.build();
        // Three items, each from the first prime on.
        let mut items = || (0..3).flat_map(|_| random.beats(&ring, count)).collect::<Vec<_>>();
        let (start, x) = (items(), items());
        let run = |engine: &dyn Engine| {
            let mut acc = start.clone();
            let ran = ran(engine, &program, &mut [Operand::InOut(&mut acc), Operand::In(&x)]);
            ran.then_some(acc)
        };
        if let Some(acc) = run(engine) {
            assert_eq!(Some(acc), run(&ReferenceEngine), "sum in place on {}", engine.name());
        }
        out_of_range(engine, &ring, &random.beats(&ring, count));
        lane_sums(engine, &ring, count, &mut random);
    }
}

/// Lanes that are residues and lanes of any bits, added where the sums lie, which begin anywhere, and reduced.
fn lane_sums(engine: &dyn Engine, ring: &Arc<Ring>, count: usize, random: &mut Operands) {
    let mut b = Builder::new("sums of lanes in place");
    let (sums, x) = (b.lane_sums("sums", ring, count), b.beats("x", ring, count));
    let next = b.add_lanes("next", sums, x);
    b.update(sums, next);
    let add = b.build();
    let mut b = Builder::new("reduce");
    let sums = b.lanes("sums", ring, count);
    let reduced = b.reduce_lanes("reduced", sums);
    b.output(reduced);
    let reduce = b.build();
    let each = beats::lane_words(count);
    let start = random.words(3 * each);
    let good: Vec<u64> = (0..3).flat_map(|_| random.beats(ring, count)).collect();
    for x in [good, random.words(3 * count * beats::WORDS)] {
        let mut sums = start.clone();
        if !ran(engine, &add, &mut [Operand::InOut(&mut sums), Operand::In(&x)]) {
            continue;
        }
        let mut defined = start.clone();
        let items = || x.chunks(count * beats::WORDS);
        let pairs = defined.chunks_mut(each).zip(items());
        pairs.for_each(|(sums, x)| beats::add_lanes(sums, x, ring.primes()));
        assert_eq!(sums, defined, "sums of lanes on {}", engine.name());
        agree(engine, &reduce, &[&sums], 3 * count * beats::WORDS);
        let pairs = defined.chunks_mut(each).zip(items());
        pairs.for_each(|(sums, x)| beats::take_lanes(sums, x, ring.primes()));
        assert_eq!(start, defined, "what was added is taken back");
    }
}

/// Each lane just out of range, and each bit that is in no lane, wherever it stands.
fn out_of_range(engine: &dyn Engine, ring: &Arc<Ring>, beats: &[u64]) {
    let count = beats.len() / beats::WORDS;
    let none = count * beats::LANES;
    let mut b = Builder::new("range");
    let x = b.beats("x", ring, count);
    let lane = b.first_bad_lane("lane", x);
    b.output(lane);
    let program = b.build();
    // Between two items that are as they should be.
    let check = |words: &[u64], expected: usize| {
        let items = [beats, words, beats].concat();
        let mut out = [u64::MAX; 3];
        if ran(engine, &program, &mut [Operand::In(&items), Operand::Out(&mut out)]) {
            let expected = [none, expected, none].map(|lane| lane as u64);
            assert_eq!(out, expected, "range on {}", engine.name());
            let defined = beats::first_bad_lane(words, ring.primes()).unwrap_or(none);
            assert_eq!(out[1], defined as u64, "range on {}", engine.name());
        }
    };
    check(beats, none);
    for b in (0..count).filter(|b| b % 37 < 4 || count - b < 4) {
        for lane in 0..beats::LANES {
            let mut words = beats.to_vec();
            let beat = &mut words[b * beats::WORDS..][..beats::WORDS];
            let q = ring.primes()[(b * beats::LANES + lane) % ring.primes().len()];
            let mut lanes: [u64; beats::LANES] = std::array::from_fn(|i| beats::lane(beat, i));
            lanes[lane] = q;
            beat.fill(0);
            lanes.iter().enumerate().for_each(|(i, &value)| beats::set_lane(beat, i, value));
            check(&words, b * beats::LANES + lane);
            // A spare bit of the same beat goes before its lanes, one of a later beat after them.
            words[b * beats::WORDS + beats::WORDS - 1] |= 1 << 63;
            check(&words, b * beats::LANES + beats::LANES - 1);
            if let Some(later) = words.get_mut((b + 2) * beats::WORDS - 1) {
                *later |= 1 << 62;
                check(&words, b * beats::LANES + beats::LANES - 1);
            }
        }
        for bit in [62, 63] {
            let mut words = beats.to_vec();
            words[b * beats::WORDS + beats::WORDS - 1] |= 1 << bit;
            check(&words, b * beats::LANES + beats::LANES - 1);
        }
    }
}

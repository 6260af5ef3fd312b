//! Moduli that no key has: the smallest, and those whose multiples M′ are the least and the most.

use std::thread;

use super::*;

/// Runs a program over one operand or more and returns its result, of so many words.
fn result(engine: &dyn Engine, program: &Program, inputs: &[&[u64]], words: usize) -> Vec<u64> {
    let mut out = vec![0; words];
    let mut operands: Vec<_> = inputs.iter().map(|words| Operand::SecretIn(words)).collect();
    operands.push(Operand::Out(&mut out));
    engine.run(program, &mut operands).unwrap();
    out
}

fn agree(engine: &dyn Engine, program: &Program, inputs: &[&[u64]], words: usize) {
    let expected = result(&ReferenceEngine, program, inputs, words);
    assert_eq!(result(engine, program, inputs, words), expected, "{program}");
}

/// All pairs of these residues, side by side.
fn pairs_of(residues: &[u64]) -> [Vec<u64>; 2] {
    let both = || residues.iter().flat_map(|&x| residues.iter().map(move |&y| (x, y)));
    [both().map(|(x, _)| x).collect(), both().map(|(_, y)| y).collect()]
}

#[test]
fn moduli_of_any_size_agree() {
    for rows in [2, 8] {
        let engine = Twin::new(rows, 1 << 12).engine();
        // With k = 1, and with k as large as it can be.
        for m in [3, 5, 7, 0x1_ffff, 0x2_0001, 0x3f_ffff, 0x40_0001, u64::MAX, (1 << 63) + 1] {
            let modulus = Arc::new(Modulus::new("m", &[m]).unwrap());
            let [x, y] = pairs_of(&[0, 1, 2, m / 2, m - 2, m - 1]);
            let mut b = Builder::new("products");
            let (u, v) = (b.secret_residues("u", &modulus), b.secret_residues("v", &modulus));
            let e = b.exponents::<Secret>("e", 3);
            let (uv, montgomery) = (b.mul("uv", u, v), b.mont_mul("montgomery", u, v));
            let (both, power) = (b.mul("both", uv, montgomery), b.pow("power", v, e));
            let all = b.mul("all", both, power);
            b.output(all);
            let e: Vec<u64> = (0..x.len() as u64).map(|i| i % 8).collect();
            agree(&engine, &b.build(), &[&x, &y, &e], x.len());
        }
    }
}

#[test]
fn squares_of_any_size_agree() {
    for rows in [2, 8] {
        let engine = Twin::new(rows, 1 << 12).engine();
        for s in [3, 5, 0x1_ffff, 0x2_0001, u64::from(u32::MAX), u64::MAX] {
            let root = Arc::new(Modulus::new("s", &[s]).unwrap());
            let square = Arc::new(Modulus::square("s²", &root).unwrap());
            let words = square.len_words();
            let mut b = Builder::new("pairs");
            let (u, v) = (b.pairs("u", &square), b.pairs("v", &square));
            let product = b.pair_mul("product", u, v);
            let joined = b.join("joined", product);
            let split = b.split("split", joined);
            let again = b.pair_mul("again", split, split);
            let (more, small) = (b.join("more", again), b.reduce("small", joined, &root));
            let (x, n) = (b.integers("x", 1), b.integers("n", 1));
            let plain = b.one_plus_mn("plain", x, &root, &square);
            let pair = b.one_plus_mn_pair("pair", n, &square);
            let (pair, quotient) = (b.join("pair joined", pair), b.l_quotient("l", plain, &root));
            let last = b.mul("last", pair, more);
            [last, small, quotient].into_iter().for_each(|value| b.output(value));
            let program = b.build();
            let [x, y] = pairs_of(&[0, 1, s / 2, s - 2, s - 1]);
            let u: Vec<u64> = x.iter().zip(&y).flat_map(|(&x, &y)| [x, y]).collect();
            let v: Vec<u64> = u.iter().rev().copied().collect();
            let run = |engine: &dyn Engine| {
                let sizes = [words * x.len(), x.len(), x.len()];
                let [mut last, mut small, mut quotient] = sizes.map(|words| vec![0; words]);
                let operands = &mut [
                    Operand::In(&u),
                    Operand::In(&v),
                    Operand::In(&x),
                    Operand::In(&y),
                    Operand::Out(&mut last),
                    Operand::Out(&mut small),
                    Operand::Out(&mut quotient),
                ];
                engine.run(&program, operands).unwrap();
                [last, small, quotient]
            };
            assert_eq!(run(&engine), run(&ReferenceEngine), "{s:#x}, {rows} rows");
        }
    }
}

#[test]
fn threads_share_a_card() {
    let engine = Twin::new(8, 1 << 10).engine();
    let moduli = [modulus(3), modulus(9)];
    let expected = moduli.each_ref().map(|m| run(&CpuEngine::new(), m, &[0xabcd], 7).unwrap());
    thread::scope(|scope| {
        for turn in 0..8 {
            let (engine, m, expected) = (&engine, &moduli[turn % 2], &expected[turn % 2]);
            scope.spawn(move || assert!(run(engine, m, &[0xabcd], 7).unwrap() == *expected));
        }
    });
    drop(moduli);
    assert_eq!(engine.sweep(), Ok(()));
    assert_eq!(engine.device.room(), (1 << 10) - 128, "all but the ring");
}

/// Multiplier-cycles of products over arrays of eight rows; README.md of `hdl` has them.
#[test]
fn products_take_few_multiplier_cycles() {
    let engine = Twin::new(8, 1 << 17).engine();
    let of = |bits: usize, pairs: bool| {
        let words = vec![u64::MAX; bits / 64];
        let root = Arc::new(Modulus::new("m", &words).unwrap());
        let mut b = Builder::new("product");
        let (program, each) = if pairs {
            let square = Arc::new(Modulus::square("m²", &root).unwrap());
            let (u, v) = (b.pairs("u", &square), b.pairs("v", &square));
            let product = b.pair_mul("product", u, v);
            b.output(product);
            (b.build(), 2 * words.len())
        } else {
            let (u, v) = (b.residues("u", &root), b.residues("v", &root));
            let product = b.mont_mul("product", u, v);
            b.output(product);
            (b.build(), words.len())
        };
        let (x, mut out) = (vec![1; each], vec![0; each]);
        let operands = &[Operand::In(&x), Operand::In(&x), Operand::Out(&mut out)];
        engine.multiplies(&program, operands).unwrap()
    };
    let counts = [of(2048, false), of(4096, false), of(2048, true)];
    println!(
        "2048 bits, 4096 bits, pairs modulo a square of 4096 bits: {counts:?} multiplier-cycles"
    );
    assert!(counts[0] <= 21_500 && counts[1] <= 80_000 && counts[2] <= 66_000, "{counts:?}");
}

/// What a card that the environment names does with memory, and what it counts.
#[test]
fn a_card_that_is_there_is_left_clean() {
    let engine = match FpgaEngine::new() {
        Ok(engine) => engine,
        Err(why) => return println!("SKIPPED, {why}"),
    };
    let m = modulus(20);
    let expected = run(&CpuEngine::new(), &m, &[0x1234_5678], 9);
    assert_eq!(run(&engine, &m, &[0x1234_5678], 9), expected);
    let before = engine.cycles().unwrap();
    assert_eq!(run(&engine, &m, &[0x1234_5678], 9), expected);
    let more = engine.cycles().unwrap().since(before).unwrap();
    let words = vec![0; 9 * 20];
    let (e, mut out) = ([0; 9], words.clone());
    let operands = &[
        Operand::SecretIn(&words),
        Operand::In(&words),
        Operand::SecretIn(&e),
        Operand::Out(&mut out),
    ];
    let multiplies = engine.multiplies(&program(&m, 64), operands);
    println!("{more:?}; {multiplies:?} multiplies");
    assert_eq!(multiplies, Some(more.busy));
    drop(m);
    assert_eq!(engine.sweep(), Ok(()));
    let dirty = engine.device.with_link(|link| {
        let mut bytes = vec![0; 1 << 20];
        let beats = engine.device.sizes.beats as usize * BEAT;
        (0..beats).step_by(bytes.len()).any(|at| {
            let part = &mut bytes[..(1 << 20).min(beats - at)];
            link.download((at / BEAT) as u64, part).unwrap();
            part.iter().any(|&byte| byte != 0)
        })
    });
    assert!(!dirty);
}

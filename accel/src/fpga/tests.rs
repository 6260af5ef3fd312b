//! How runs use a card: parts, memory, secrets, failures. What steps compute the conformance suite
//! tests.

mod moduli;

use std::sync::Arc;

use super::{
    descriptor::{CardOperation, Descriptor, OperandItems, WORDS},
    form::BEAT,
    link::LinkError,
    registers,
    twins::Twin,
    *,
};
use crate::{
    Builder, CpuEngine, Public, ReferenceEngine, Scheduler, Secret, engine::OperandMismatch,
    ring::largest_primes,
};

fn modulus(words: usize) -> Arc<Modulus> {
    let words: Vec<u64> =
        (0..words as u64).map(|i| (i << 17 | 5) * 0x9e37_79b9_7f4a_7c15).collect();
    Arc::new(Modulus::new("m", &words).unwrap())
}

/// `x^e · y` modulo m for secrets x and e.
fn program(m: &Arc<Modulus>, bits: u32) -> Program {
    let mut b = Builder::new("program");
    let (x, y) = (b.secret_residues("x", m), b.residues("y", m));
    let e = b.exponents::<Secret>("e", bits);
    let power = b.pow("power", x, e);
    let product = b.mul("product", power, y);
    b.output(product);
    b.build()
}

/// Runs [`program`] over `count` items with this exponent.
fn run(
    engine: &dyn Engine,
    m: &Arc<Modulus>,
    exponent: &[u64],
    count: usize,
) -> Result<Vec<u64>, RunError> {
    let words = m.len_words();
    let number = |seed: usize| -> Vec<u64> {
        (0..count * words)
            .map(|i| if i % words + 1 == words { 7 } else { (i + seed) as u64 })
            .collect()
    };
    let (x, y, e) = (number(1), number(100), exponent.repeat(count));
    let mut out = vec![0; count * words];
    let operands = &mut [
        Operand::SecretIn(&x),
        Operand::In(&y),
        Operand::SecretIn(&e),
        Operand::Out(&mut out),
    ];
    engine.run(&program(m, 64 * exponent.len() as u32), operands)?;
    Ok(out)
}

fn failed<T>(why: DeviceFault) -> Result<T, RunError> {
    Err(RunError::Device { engine: "fpga", why })
}

/// Returns how many beats of memory hold something that was written and not overwritten.
fn written(twin: &Twin) -> usize {
    let card = twin.card();
    let beats = card.memory.chunks(BEAT);
    beats.filter(|beat| ![0, 0xa5].contains(&beat[0]) || beat.iter().any(|b| *b != beat[0])).count()
}

#[test]
fn parts_of_any_size_give_the_same() {
    let m = modulus(9);
    let expected = run(&CpuEngine::new(), &m, &[0x1234_5678_9abc_def0], 23).unwrap();
    let (mut sizes, mut places) = (vec![], vec![]);
    for beats in [40, 200, 400, 1000, 1 << 14] {
        let twin = Twin::new(8, beats);
        // So many that no part has shares.
        twin.card().arrays = 16;
        let engine = twin.engine();
        match run(&engine, &m, &[0x1234_5678_9abc_def0], 23) {
            Ok(found) => assert!(found == expected, "{beats} beats"),
            outcome => assert_eq!(outcome, failed(DeviceFault::OutOfMemory)),
        }
        let card = twin.card();
        let products = card.log.iter().filter(|words| registers::FIELD_PASSES.get(words) > 0);
        let reduce = |words: &&[u32; WORDS]| {
            registers::FIELD_OPERATION.get(words) == registers::OPERATION_REDUCE
        };
        let last = card.log.iter().filter(reduce).map(|words| registers::FIELD_D_AT.get(words));
        // Of each part the power and the product.
        places.push(last.collect::<std::collections::HashSet<_>>().len() / 2);
        sizes.push(products.map(|words| registers::FIELD_COUNT.get(words)).max().unwrap_or(0));
    }
    assert!(sizes.is_sorted() && sizes[0] == 0 && sizes[4] == 23, "{sizes:?}");
    assert!(sizes.iter().any(|&size| size > 0 && size < 23), "{sizes:?}");
    // Parts take turns in two places where there is room, with rests in others.
    assert!(places[0] == 0 && places[4] == 1 && places.contains(&2), "{places:?}");
}

#[test]
fn secrets_are_overwritten() {
    let twin = Twin::new(8, 1 << 13);
    let engine = twin.engine();
    let (m, root) = (modulus(5), modulus(8));
    run(&engine, &m, &[3], 4).unwrap();
    // The constants of m: it, M″, 2^N, 2^(2N) and 1.
    assert_eq!(written(&twin), 5);
    run(&engine, &m, &[3], 4).unwrap();
    assert_eq!(written(&twin), 5);
    let square = Arc::new(Modulus::square("m²", &root).unwrap());
    let base = Arc::new(FixedBase::new("base", square.clone(), &[9; 16], 130));
    let mut b = Builder::new("constants");
    let (x, e) = (b.pairs("x", &square), b.exponents::<Secret>("e", 130));
    let power = b.pow_fixed_base_pair("power", &base, e);
    let product = b.pair_mul("product", x, power);
    b.output(product);
    let program = b.build();
    let (x, e, mut out) = ([5; 16], [u64::MAX, 7, 3], [0; 16]);
    let operands = &mut [Operand::In(&x), Operand::SecretIn(&e), Operand::Out(&mut out)];
    engine.run(&program, operands).unwrap();
    let with_tables = written(&twin);
    assert!(with_tables > 1000, "{with_tables} beats");
    drop((program, base, square));
    run(&engine, &m, &[3], 4).unwrap();
    let without = written(&twin);
    assert!(without < 20, "{without} beats");
    drop(m);
    assert_eq!(engine.sweep(), Ok(()));
    assert!(written(&twin) < without);
    drop(engine);
    assert_eq!(written(&twin), 0);
    let held = root.len_words();
    assert_eq!(held, 8, "a constant that outlives the engine");
}

#[test]
fn descriptors_do_not_depend_on_exponents() {
    let m = modulus(3);
    let all = [[0, 0], [1, 0], [u64::MAX, u64::MAX], [0x0123_4567_89ab_cdef, 42]];
    let logs = all.map(|exponent| {
        let twin = Twin::new(4, 1 << 13);
        let expected = run(&ReferenceEngine, &m, &exponent, 3);
        assert_eq!(run(&twin.engine(), &m, &exponent, 3), expected);
        let card = twin.card();
        assert!(card.log.len() > 200);
        card.log.clone()
    });
    assert!(logs.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn multiplies_are_those_of_the_card() {
    let twin = Twin::new(6, 700);
    let engine = twin.engine();
    let (m, x, e) = (modulus(4), [7; 40], [9; 10]);
    let program = program(&m, 64);
    let mut out = [0; 40];
    let operands = &mut [
        Operand::SecretIn(&x),
        Operand::In(&x),
        Operand::SecretIn(&e),
        Operand::Out(&mut out),
    ];
    let expected = engine.multiplies(&program, operands).unwrap();
    let busy = |engine: &FpgaEngine| engine.cycles().unwrap().busy;
    let before = busy(&engine);
    engine.run(&program, operands).unwrap();
    assert_eq!(busy(&engine) - before, expected);
    assert_eq!(engine.multiplies(&program, &operands[..3]), None);
    assert_eq!(engine.multiply_rate(), None);
}

/// A product of plain numbers that a card does.
fn good() -> Descriptor {
    let items = |at: u32| OperandItems { at, stride: 1, length: 1 };
    let none = OperandItems::default();
    Descriptor {
        operation: CardOperation::Multiply,
        flags: registers::FLAG_HIGH | registers::FLAG_LOW,
        count: 2,
        a: items(20),
        b: items(22),
        c: none,
        m: none,
        d: OperandItems { at: 24, stride: 2, length: 2 },
        words: 21,
        passes: 8,
        shift: 0,
        width: 0,
    }
}

#[test]
fn bad_descriptors_have_their_status() {
    let base = good();
    let select = Descriptor {
        operation: CardOperation::Select,
        flags: 0,
        words: 0,
        passes: 0,
        d: OperandItems { at: 44, length: 1, ..base.d },
        ..base
    };
    let sum = Descriptor {
        operation: CardOperation::AddBeats,
        c: OperandItems { at: 30, ..base.a },
        ..select
    };
    let length = |items: OperandItems, length: u8| OperandItems { length, ..items };
    let at = |items: OperandItems, at: u32| OperandItems { at, ..items };
    let set = |word: usize, bits: u32| {
        let mut words = base.to_words();
        words[word] |= bits;
        words
    };
    let operation = |code: u32| {
        let mut words = base.to_words();
        words[0] = words[0] & !0xff | code;
        words
    };
    for (words, expected) in [
        (base.to_words(), registers::STATUS_DONE),
        (operation(0), registers::STATUS_UNKNOWN),
        (operation(7), registers::STATUS_UNKNOWN),
        (set(0, 1 << 12), registers::STATUS_UNKNOWN),
        (set(0, registers::FLAG_MINUS << 8), registers::STATUS_UNKNOWN),
        (set(0, 1 << 16), registers::STATUS_UNKNOWN),
        (set(9, 1 << 16), registers::STATUS_UNKNOWN),
        (set(13, 1), registers::STATUS_UNKNOWN),
        (
            Descriptor { flags: registers::FLAG_HIGH, ..select }.to_words(),
            registers::STATUS_UNKNOWN,
        ),
        (Descriptor { count: 0, ..base }.to_words(), registers::STATUS_EMPTY),
        (Descriptor { a: at(base.a, 63), ..base }.to_words(), registers::STATUS_RANGE),
        (Descriptor { d: at(base.d, 61), ..base }.to_words(), registers::STATUS_RANGE),
        (Descriptor { b: length(base.b, 33), ..base }.to_words(), registers::STATUS_SIZE),
        (Descriptor { count: u32::MAX, ..base }.to_words(), registers::STATUS_RANGE),
        (
            Descriptor { flags: base.flags | registers::FLAG_WITH_C, ..base }.to_words(),
            registers::STATUS_SIZE,
        ),
        (Descriptor { words: 0, ..base }.to_words(), registers::STATUS_SIZE),
        (Descriptor { passes: 0, ..base }.to_words(), registers::STATUS_SIZE),
        (Descriptor { flags: 0, ..base }.to_words(), registers::STATUS_SIZE),
        (Descriptor { words: 1, ..base }.to_words(), registers::STATUS_SIZE),
        (Descriptor { width: 1, ..base }.to_words(), registers::STATUS_UNKNOWN),
        (Descriptor { words: 2, ..select }.to_words(), registers::STATUS_UNKNOWN),
        (Descriptor { shift: 2, ..sum }.to_words(), registers::STATUS_UNKNOWN),
        (set(15, 1), registers::STATUS_UNKNOWN),
        (Descriptor { width: 4, ..select }.to_words(), registers::STATUS_DONE),
        (Descriptor { width: 3, ..select }.to_words(), registers::STATUS_SIZE),
        (Descriptor { width: 2, shift: 511, ..select }.to_words(), registers::STATUS_SIZE),
        (Descriptor { shift: 512, ..select }.to_words(), registers::STATUS_SIZE),
        (sum.to_words(), registers::STATUS_DONE),
        (Descriptor { b: length(sum.b, 2), ..sum }.to_words(), registers::STATUS_SIZE),
        (Descriptor { c: OperandItems::default(), ..sum }.to_words(), registers::STATUS_SIZE),
    ] {
        let mut twin = Twin::new(8, 64);
        // Lanes that are 0 are residues of whatever primes there are.
        twin.upload(20, &[0; 4 * BEAT]).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (register, value) in [(registers::REGISTER_RING, 2), (registers::REGISTER_ENTRIES, 4)] {
            twin.write(register, value).unwrap();
        }
        twin.upload(2, &bytes).unwrap();
        twin.write(registers::REGISTER_TAIL, 1).unwrap();
        twin.wait(1, Duration::ZERO).unwrap();
        let mut beat = [0; BEAT];
        twin.download(2, &mut beat).unwrap();
        assert_eq!(beat[..60], bytes[..60]);
        assert_eq!(beat[60..], expected.to_le_bytes(), "{words:x?}");
        let fault = twin.read(registers::REGISTER_FAULT).unwrap();
        assert_eq!(fault, if expected == registers::STATUS_DONE { 0 } else { expected });
        assert_eq!(twin.read(registers::REGISTER_STATUS), Ok(1));
    }
    assert_eq!(WORDS * 4, BEAT);
}

#[test]
fn a_status_other_than_done_is_an_error() {
    let twin = Twin::new(8, 1 << 12);
    let engine = twin.engine();
    let m = modulus(6);
    let expected = run(&CpuEngine::new(), &m, &[77], 3);
    assert_eq!(run(&engine, &m, &[77], 3), expected);
    let there = written(&twin);
    twin.card().most_words = 10;
    let why = "the card answers multiply with status size".into();
    assert_eq!(run(&engine, &m, &[77], 3), failed(DeviceFault::Failed { why }));
    assert_eq!(written(&twin), there, "what went wrong is overwritten too");
    twin.card().most_words = 500;
    assert_eq!(run(&engine, &m, &[77], 3), expected, "the card goes on");
}

#[test]
fn a_lost_card_stays_lost() {
    let lost = LinkError::lost("it burns");
    let burnt = DeviceFault::Lost { why: "it burns".into() };
    for (why, fault) in [(lost, burnt), (LinkError::Timeout, DeviceFault::Timeout)] {
        let twin = Twin::new(8, 1 << 12);
        let engine = twin.engine();
        let m = modulus(6);
        run(&engine, &m, &[77], 3).unwrap();
        assert!(written(&twin) > 0, "constants");
        twin.card().breaks = Some((20, why));
        assert_eq!(run(&engine, &m, &[77], 3), failed(fault.clone()));
        let done = twin.card().log.len();
        assert_eq!(written(&twin), 0, "what can be is overwritten");
        twin.card().breaks = None;
        assert_eq!(run(&engine, &m, &[77], 3), failed(fault.clone()));
        assert_eq!(twin.card().log.len(), done, "nothing more is asked of it");
        assert_eq!(twin.card().resets, 2);
        assert_eq!(engine.info().details.len(), 3);
    }
}

#[test]
fn what_a_board_held_before_is_overwritten_when_it_is_opened() {
    for is_emulated in [true, false] {
        let twin = Twin::new(8, 1 << 12);
        twin.card().is_emulated = is_emulated;
        twin.card().memory[BEAT * 4000..].fill(0x77);
        let engine = twin.engine();
        assert_eq!(written(&twin) > 0, is_emulated);
        drop(engine);
    }
}

#[test]
fn the_cpu_goes_on_where_a_card_is_lost() {
    let twin = Twin::new(8, 1 << 12);
    let (card, cpu) = (Arc::new(twin.engine()), Arc::new(CpuEngine::new()));
    let scheduler = Scheduler::preferring(card, cpu.clone(), |_| ());
    let m = modulus(6);
    twin.card().breaks = Some((20, LinkError::lost("it burns")));
    for _ in 0..2 {
        assert_eq!(run(&scheduler, &m, &[77], 3), run(&*cpu, &m, &[77], 3));
        assert_eq!(twin.card().log.len(), 20);
    }
}

#[test]
fn what_is_no_such_card_is_refused() {
    let twin = Twin::new(8, 1 << 10);
    twin.card().version = 9;
    let why = FpgaEngine::over(Box::new(twin)).err().unwrap().to_string();
    assert_eq!(why, "no card with id 0x43474650 and version 1: id 0x43474650, version 9");
    for twin in [Twin::new(1, 1 << 10), Twin::new(8, 3)] {
        assert!(matches!(FpgaEngine::over(Box::new(twin)), Err(FpgaError::TooSmall { .. })));
    }
    let named = |name: &str| FpgaEngine::open(name).err().unwrap().to_string();
    assert_eq!([named(""), named("none")], ["CIPHERGRAM_FPGA names no card"; 2]);
    let why = named("xdma:/dev/no such card");
    assert!(why.starts_with("the card is lost: /dev/no such card_user: "), "{why}");
    let why = named("/no/such/program");
    assert!(why.starts_with("the card is lost: /no/such/program: "), "{why}");
}

#[test]
fn sums_of_beats_of_any_number_agree() {
    let twin = Twin::new(8, 1 << 13);
    let engine = twin.engine();
    for (limbs, beats, count) in [(1, 300, 3), (3, 9, 30), (3, 7, 5), (7, 700, 2), (4, 513, 1)] {
        let ring = Arc::new(Ring::new(64, &largest_primes(40, 64, limbs)).unwrap());
        let mut b = Builder::new("sums");
        let (x, y) = (b.beats("x", &ring, beats), b.beats("y", &ring, beats));
        let sum = b.add_beats("sum", x, y);
        b.output(sum);
        let program = b.build();
        let mut words = vec![0; beats * count * crate::beats::WORDS];
        for beat in words.chunks_mut(crate::beats::WORDS) {
            let lanes = 0..crate::beats::LANES;
            lanes.for_each(|lane| crate::beats::set_lane(beat, lane, (1 << 39) + lane as u64));
        }
        let run = |engine: &dyn Engine| {
            let mut out = vec![0; words.len()];
            let operands = &mut [Operand::In(&words), Operand::In(&words), Operand::Out(&mut out)];
            engine.run(&program, operands).unwrap();
            out
        };
        assert!(run(&engine) == run(&CpuEngine::new()), "{limbs} limbs, {beats} beats");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let engine = Twin::new(8, 1 << 10).engine();
    let m = modulus(1);
    let mut b = Builder::new("pow");
    let (x, e) = (b.residues("x", &m), b.exponents::<Public>("e", 64));
    let power = b.pow("power", x, e);
    b.output(power);
    let (x, mut out) = ([1], [0]);
    let operands = &mut [Operand::In(&x), Operand::SecretIn(&x), Operand::Out(&mut out)];
    let why = OperandMismatch::SecretAsPublic;
    let (program, operand) = ("pow".to_string(), "e".to_string());
    assert_eq!(engine.run(&b.build(), operands), Err(RunError::Operand { program, operand, why }));
    let info = engine.info();
    assert_eq!(info.description, "a card by its definition, 2 arrays of 8 rows");
    assert!(info.is_device && info.is_emulated && info.full_batch == 1);
}

#[test]
fn shares_of_a_part_wait_for_none_before_them() {
    let twin = Twin::new(8, 1 << 14);
    let engine = twin.engine();
    let (m, exponent) = (modulus(9), [0x1234_5678_9abc_def0]);
    let expected = run(&CpuEngine::new(), &m, &exponent, 23).unwrap();
    assert_eq!(run(&engine, &m, &exponent, 23).unwrap(), expected);
    let card = twin.card();
    let field = |words: &[u32; WORDS], field: registers::Field| field.get(words);
    let last: Vec<_> = card
        .log
        .iter()
        .filter(|words| field(words, registers::FIELD_OPERATION) == registers::OPERATION_REDUCE)
        .collect();
    // The power and the product of each share.
    assert_eq!(last.len(), 8);
    let count = |words: &&[u32; WORDS]| field(words, registers::FIELD_COUNT);
    assert_eq!(last.iter().take(4).map(count).collect::<Vec<_>>(), [5, 6, 6, 6]);
    // A share of the product reads nothing from where those before it did: none waits for another.
    let places = last.iter().skip(4).map(|words| field(words, registers::FIELD_A_AT));
    let places: std::collections::HashSet<_> = places.collect();
    assert_eq!(places.len(), 4, "{places:?}");
}

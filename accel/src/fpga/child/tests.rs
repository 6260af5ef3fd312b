//! Programs that stand in for a card, and such that do not.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::*;
use crate::{
    Builder, CpuEngine, Engine, Modulus, Operand, RunError,
    engine::DeviceFault,
    fpga::{FpgaEngine, FpgaError, registers, twins::Twin},
};
use std::sync::Arc;

/// A shell script, for as long as this lives.
struct Script(PathBuf);

impl Script {
    fn new(lines: &str) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("card-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn start(&self, patience: Duration) -> Result<Child, LinkError> {
        // Another test may fork while the script is open for writing.
        loop {
            match Child::start(self.path(), patience) {
                Err(LinkError::Lost { why }) if why.contains("busy") => thread::yield_now(),
                outcome => return outcome,
            }
        }
    }

    /// Returns why there is no card behind it.
    fn fails(&self, patience: Duration) -> String {
        match self.start(patience) {
            Err(LinkError::Lost { why }) => why[self.path().len() + 2..].into(),
            _ => panic!("it is no card"),
        }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn programs_that_are_no_card_are_lost() {
    assert_eq!(Script::new("exit 3").fails(LONG), "it has ended");
    let why = Script::new("echo 'hello world, I am a simulator'; exec cat > /dev/null").fails(LONG);
    assert_eq!(why, "a reply of status 1819043176 and 1870078063 bytes");
    let other =
        r"printf '\000\000\000\000\022\000\000\000ciphergram card 2\n'; exec cat > /dev/null";
    let why = Script::new(other).fails(LONG);
    assert_eq!(why, r#"it says "ciphergram card 2\n", not "ciphergram card 1\n""#);
    let refuses = r"printf '\001\000\000\000\002\000\000\000no'; exec cat > /dev/null";
    let refused = Script::new(refuses);
    let why =
        LinkError::Refused { why: format!("{}: it refuses Hello at 0x0: \"no\"", refused.path()) };
    assert_eq!(refused.start(LONG).err(), Some(why));
    let large = r"printf '\000\000\000\000\000\000\000\377'; exec cat > /dev/null";
    assert_eq!(Script::new(large).fails(LONG), "a reply of status 0 and 4278190080 bytes");
}

#[test]
fn a_program_that_stalls_is_killed() {
    let why = Script::new("exec sleep 600").fails(Duration::from_millis(100));
    assert_eq!(why, "it does not answer");
    // After the first reply, in the middle of what it is told.
    let hello = r"printf '\000\000\000\000\022\000\000\000ciphergram card 1\n'; exec sleep 600";
    let script = Script::new(hello);
    let mut child = script.start(LONG).unwrap();
    child.patience = Duration::from_millis(100);
    let lost = child.upload(0, &[0; 1 << 20]);
    assert!(matches!(&lost, Err(LinkError::Lost { why }) if why.ends_with("it does not answer")));
    assert!(child.process.wait().is_ok_and(|status| !status.success()));
    assert_eq!(child.read(0), lost.map(|()| 0), "it stays lost");
}

/// Answers requests as a card does, until they end or there were as many as `CARD_LASTS`.
#[test]
fn a_card_as_a_program() {
    let Ok(lasts) = std::env::var("CARD_LASTS") else { return };
    let (mut input, mut output) = (std::io::stdin(), File::create("/dev/fd/3").unwrap());
    let mut twin = Twin::new(8, 1 << 12);
    for _ in 0..lasts.parse::<usize>().unwrap() {
        let mut head = [0; 16];
        if input.read_exact(&mut head).is_err() {
            return;
        }
        let number = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut payload = vec![0; number(4) as usize];
        input.read_exact(&mut payload).unwrap();
        let long = || u64::from_le_bytes(payload[..8].try_into().unwrap());
        let (address, beat) = (number(8), u64::from(number(8)) / 64);
        let word = |value: u32| value.to_le_bytes().to_vec();
        let reply = match number(0) {
            0 => HELLO.as_bytes().to_vec(),
            1 => word(twin.read(address).unwrap()),
            2 => {
                let value = u32::from_le_bytes(payload[..].try_into().unwrap());
                twin.write(address, value).unwrap();
                vec![]
            }
            3 => {
                twin.upload(beat, &payload).unwrap();
                vec![]
            }
            4 => {
                let mut bytes = vec![0; long() as usize];
                twin.download(beat, &mut bytes).unwrap();
                bytes
            }
            5 => {
                let tail = twin.read(registers::REGISTER_TAIL).unwrap();
                twin.wait(tail, LONG).unwrap();
                word(tail)
            }
            _ => {
                twin.reset().unwrap();
                vec![]
            }
        };
        output.write_all(&[0; 4]).unwrap();
        output.write_all(&(reply.len() as u32).to_le_bytes()).unwrap();
        output.write_all(&reply).unwrap();
    }
}

/// Returns a script for a card that answers so many requests.
fn card(lasts: usize) -> Script {
    let program = std::env::current_exe().unwrap();
    let test = "fpga::child::tests::a_card_as_a_program";
    let program = program.display();
    Script::new(&format!(
        "export CARD_LASTS={lasts}\nexec '{program}' --exact {test} --nocapture 3>&1 >/dev/null"
    ))
}

fn square(engine: &dyn Engine) -> Result<Vec<u64>, RunError> {
    let m = Arc::new(Modulus::new("m", &[11, 12, 13]).unwrap());
    let mut b = Builder::new("square");
    let x = b.secret_residues("x", &m);
    let y = b.mul("y", x, x);
    b.output(y);
    let (x, mut out) = ([9; 30], vec![0; 30]);
    engine.run(&b.build(), &mut [Operand::SecretIn(&x), Operand::Out(&mut out)])?;
    Ok(out)
}

#[test]
fn a_program_may_be_a_card() {
    let script = card(usize::MAX);
    let engine = FpgaEngine::over(Box::new(script.start(LONG).unwrap())).unwrap();
    assert_eq!(square(&engine), square(&CpuEngine::new()));
    assert!(engine.info().is_emulated);
    assert!(FpgaEngine::open(script.path()).is_ok());
    // It ends with the engine, and later than that in the middle of a run.
    drop(engine);
    let script = card(20);
    let engine = FpgaEngine::over(Box::new(script.start(LONG).unwrap())).unwrap();
    let why = DeviceFault::Lost { why: format!("{}: it has ended", script.path()) };
    let lost = Err(RunError::Device { engine: "fpga", why });
    assert_eq!([square(&engine), square(&engine)], [lost.clone(), lost]);
    let script = card(3);
    let lost = FpgaEngine::over(Box::new(script.start(LONG).unwrap())).err();
    assert!(matches!(lost, Some(FpgaError::Link(LinkError::Lost { .. }))));
}

//! The spool: whatever is done to the file, what is read is a beginning of what was written.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ciphergram_he::exchange::Announcement;
use ciphergram_he::params::{Literal, Scheme};
use ciphergram_he::{Contributor, ContributorSet, SealPermit, SecretKey, Sum};
use ciphergram_nic::federation::spool::{
    SavedSum, Spool, SpoolContent, SpoolHeader, fingerprint, is_spool, remove,
};
use ciphergram_nic::round::Resume;
use ciphergram_tests::cases;
use proptest::prelude::*;

use crate::support::federation::{job, key, update};

const BATCHES: [usize; 4] = [700, 1, 64, 1300];

/// A spool as it is written, and what was written to it.
struct Written {
    header: SpoolHeader,
    stream: Vec<u8>,
    file: Vec<u8>,
    /// Where each record ends, the header's first.
    ends: Vec<usize>,
}

fn written() -> &'static Written {
    static WRITTEN: OnceLock<Written> = OnceLock::new();
    WRITTEN.get_or_init(|| {
        let (key, update) = (key(Scheme::CkksSum).public(), update(1, 0, 5));
        let seed = SealPermit::draw().unwrap().seed();
        let header = SpoolHeader {
            contributor: 1,
            resume: Resume { incarnation: 0x0102_0304, round: 5 },
            fingerprint: fingerprint(&update, 17).unwrap(),
            rounding: std::array::from_fn(|i| i as u8).into(),
            announcement: Announcement::propose(seed, job(key), (3, None), &update, 17, None)
                .unwrap(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let mut spool = Spool::create(&path, 10_000).unwrap();
        spool.begin(key, &header).unwrap();
        let length = || fs::metadata(&path).unwrap().len() as usize;
        let (mut stream, mut ends) = (vec![], vec![length()]);
        for (salt, bytes) in BATCHES.into_iter().enumerate() {
            let batch: Vec<u8> = (0..bytes).map(|i| (i * 31 + salt * 7) as u8).collect();
            spool.append(&batch).unwrap();
            stream.extend(batch);
            ends.push(length());
        }
        Written { header, stream, file: fs::read(&path).unwrap(), ends }
    })
}

/// A sum of two, of nothing but zeros.
fn a_sum() -> Sum {
    let key = key(Scheme::CkksSum).public();
    let agreement = written().header.announcement.agreement.clone();
    let chunks = key.parameters().chunks(agreement.values());
    let seed = || SealPermit::draw().unwrap().seed();
    let contributors = [0, 1].map(|number| Contributor { number, seed: seed() }).to_vec();
    let sets = vec![ContributorSet::all(2); chunks.count() as usize];
    let stream = vec![0; chunks.total_bytes()];
    Sum { contributors, job: job(key).id(), round: 3, agreement, sets, stream }
}

struct Place {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn place(bytes: &[u8]) -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    fs::write(&path, bytes).unwrap();
    Place { _folder: folder, path }
}

type Read = Option<(SpoolHeader, SpoolContent)>;

fn read(path: &Path) -> Result<Read, String> {
    let opened = Spool::open(path, key(Scheme::CkksSum).public());
    opened.map(|o| o.map(|found| (found.header, found.content))).map_err(|e| e.to_string())
}

#[test]
fn cut_files_hold_whole_records_go_on() {
    let w = written();
    let thin = |at: &usize| {
        *at < 100 || at.is_multiple_of(5) || w.ends.iter().any(|e| at.abs_diff(*e) < 40)
    };
    for cut in (0..=w.file.len()).filter(thin) {
        let whole = w.ends.iter().filter(|end| **end <= cut).count();
        let place = place(&w.file[..cut]);
        let found = read(&place.path).unwrap();
        let Some(batches) = whole.checked_sub(1) else {
            assert!(found.is_none() && !place.path.exists(), "cut at {cut}");
            continue;
        };
        let bytes: usize = BATCHES[..batches].iter().sum();
        let expected = (w.header.clone(), SpoolContent::Chunks(w.stream[..bytes].to_vec(), None));
        assert!(found == Some(expected), "cut at {cut}");
        if cut % 50 > 0 {
            continue;
        }
        let key = key(Scheme::CkksSum).public();
        let mut found = Spool::open(&place.path, key).unwrap().unwrap();
        found.spool.append(b"more").unwrap();
        drop(found);
        let (_, content) = read(&place.path).unwrap().unwrap();
        let expected = [&w.stream[..bytes], b"more"].concat();
        assert!(content == SpoolContent::Chunks(expected, None), "cut at {cut}");
    }
}

/// A changed byte in the last record may look like a cut only if the file really ends early; here
/// it never does.
#[test]
fn any_changed_byte_is_damage_files_stay() {
    let w = written();
    // All of the header and of the small records, and some of the large ones.
    let thin = |at: &usize| {
        *at < 500 || at.is_multiple_of(5) || w.ends.iter().any(|e| at.abs_diff(*e) < 40)
    };
    for at in (0..w.file.len()).filter(thin) {
        let mut bytes = w.file.clone();
        bytes[at] ^= 1 << (at % 8);
        let place = place(&bytes);
        let error = read(&place.path).err().unwrap_or_else(|| panic!("byte {at}"));
        let expected = if at < 8 { "it is no spool" } else { "it is damaged at byte" };
        assert!(error.contains(expected), "byte {at}: {error}");
        assert!(fs::read(&place.path).unwrap() == bytes, "byte {at}");
    }
}

#[test]
fn other_files_are_neither_read_nor_removed() {
    let long = [7; 300];
    for foreign in [&b"x"[..], b"CGSPOOK", b"my thesis, the only copy", &long] {
        let place = place(foreign);
        assert!(read(&place.path).unwrap_err().contains("it is no spool"));
        assert!(fs::read(&place.path).unwrap() == foreign);
        assert!(!is_spool(foreign));
    }
    assert!(is_spool(&written().file));
}

#[cfg(unix)]
#[test]
fn a_device_is_not_removed() {
    let place = place(b"");
    remove(&place.path).unwrap();
    std::os::unix::fs::symlink("/dev/null", &place.path).unwrap();
    assert!(read(&place.path).unwrap_err().contains("no regular file"));
    assert!(place.path.is_symlink());
}

#[test]
fn one_process_and_one_key_only() {
    let w = written();
    let place = place(&w.file);
    let key = key(Scheme::CkksSum).public();
    let first = Spool::open(&place.path, key).unwrap().unwrap();
    assert!(read(&place.path).unwrap_err().contains("another process is at work"));
    assert!(Spool::create(&place.path, 0).is_err(), "it exists");
    drop(first);
    let literal = Literal { scheme: Scheme::CkksSum, clients: 4, bits: 16 };
    let stranger = SecretKey::generate(literal).unwrap();
    let error = Spool::open(&place.path, stranger.public()).err().unwrap().to_string();
    assert!(error.contains("it was made under key"), "{error}");
    assert!(read(&place.path).unwrap().is_some());
    remove(&place.path).unwrap();
    assert!(!place.path.exists() && remove(&place.path).is_ok());
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = place(b"");
    remove(&place.path).unwrap();
    let _spool = Spool::create(&place.path, 0).unwrap();
    assert_eq!(fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Space is reserved and not yet used; a spool that never begins leaves no file, and its place to no other.
#[cfg(target_os = "linux")]
#[test]
fn space_is_there_before_it_is_needed() {
    use std::os::unix::fs::MetadataExt as _;
    let place = place(b"");
    remove(&place.path).unwrap();
    let spool = Spool::create(&place.path, 1 << 20).unwrap();
    let made = fs::metadata(&place.path).unwrap();
    let blocks = made.blocks() * 512;
    // Nothing is set aside where the file system cannot.
    assert!(made.len() == 0 && (blocks == 0 || blocks >= 2 << 20), "{blocks} bytes");
    assert!(read(&place.path).unwrap_err().contains("another process is at work"));
    drop(spool);
    assert!(!place.path.exists());
    let error = Spool::create(&place.path, 1 << 60).err().map(|error| error.to_string());
    assert!(error.is_none_or(|error| error.contains("No space left")));
    assert!(!place.path.exists());
}

#[test]
fn a_sum_ends_a_spool() {
    let (w, key) = (written(), key(Scheme::CkksSum).public());
    let sum = a_sum();
    for chunks in [&w.ends[..1], &w.ends] {
        let place = place(&w.file[..*chunks.last().unwrap()]);
        let mut found = Spool::open(&place.path, key).unwrap().unwrap();
        found.spool.keep(&sum, (&[0, 7], &[]), key).unwrap();
        drop(found);
        let saved = SavedSum { sum: sum.clone(), clipped: vec![0, 7], answers: vec![] };
        let expected = (w.header.clone(), SpoolContent::Sum(Box::new(saved)));
        assert!(read(&place.path).unwrap() == Some(expected.clone()));
        let whole = fs::read(&place.path).unwrap();
        // Cut while the sum was written: the chunks are there still.
        fs::write(&place.path, &whole[..whole.len() - 1]).unwrap();
        let (_, content) = read(&place.path).unwrap().unwrap();
        assert!(matches!(content, SpoolContent::Chunks(..)));
        for at in (*chunks.last().unwrap()..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&place.path, &bytes).unwrap();
            assert!(read(&place.path).unwrap_err().contains("it is damaged"), "byte {at}");
        }
        // A record behind it is none.
        let record = &w.file[w.ends[0]..w.ends[1]];
        fs::write(&place.path, [&whole, record].concat()).unwrap();
        assert!(read(&place.path).unwrap_err().contains("it is damaged"));
    }
}

/// Mishaps of a file.
#[derive(Clone, Debug)]
enum Harm {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    /// One record in the place of another.
    Swap(usize, usize),
    /// One record again, at the end.
    Repeat(usize),
    Drop(usize),
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    let record = 0..=BATCHES.len();
    let harm = prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Harm::Set(at, byte)),
        any::<prop::sample::Index>().prop_map(Harm::Cut),
        (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 1..40))
            .prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        (record.clone(), record.clone()).prop_map(|(a, b)| Harm::Swap(a, b)),
        record.clone().prop_map(Harm::Repeat),
        record.prop_map(Harm::Drop),
    ];
    prop::collection::vec(harm, 1..4)
}

/// Records are harmed first, bytes after them.
fn harmed(harms: &[Harm]) -> Vec<u8> {
    let w = written();
    let starts = [8].into_iter().chain(w.ends.iter().copied());
    let mut records: Vec<&[u8]> = starts.zip(&w.ends).map(|(a, &b)| &w.file[a..b]).collect();
    for harm in harms {
        match harm {
            Harm::Swap(a, b) if a.max(b) < &records.len() => records.swap(*a, *b),
            Harm::Repeat(at) if *at < records.len() => records.push(records[*at]),
            Harm::Drop(at) if *at < records.len() => drop(records.remove(*at)),
            _ => {}
        }
    }
    let mut bytes = [&w.file[..8], &records.concat()].concat();
    for harm in harms {
        match harm {
            Harm::Set(at, byte) if !bytes.is_empty() => {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            Harm::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
            Harm::Insert(at, more) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, more.iter().copied());
            }
            _ => {}
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    #[test]
    fn reading_gives_a_beginning_of_the_written(harms in harms()) {
        let (w, bytes) = (written(), harmed(&harms));
        let place = place(&bytes);
        if let Ok(Some((header, content))) = read(&place.path) {
            prop_assert!(header == w.header);
            let SpoolContent::Chunks(stream, None) = content else { panic!("a sum was never written") };
            prop_assert!(w.stream.starts_with(&stream));
            let at = BATCHES.iter().scan(0, |sum, b| { *sum += b; Some(*sum) });
            prop_assert!(stream.is_empty() || at.into_iter().any(|end| end == stream.len()));
        }
    }

    #[test]
    fn random_bytes_never_panic(magic: bool, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let start: &[u8] = if magic { b"CGSPOOL1" } else { b"" };
        let place = place(&[start, &bytes].concat());
        if let Ok(found) = read(&place.path) {
            prop_assert!(found.is_none());
        }
    }
}

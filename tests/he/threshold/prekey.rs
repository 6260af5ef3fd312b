//! The lattice half of X-Wing beside vectors of NIST's; boxes are opened by OpenSSL in Python's tests.

use ml_kem::{Decapsulate, DecapsulationKey, EncapsulationKey, KeyExport, MlKem768, array::Array};

/// Values in hexadecimal digits, each below its name.
const VECTORS: &str = include_str!("ml-kem-768.txt");

fn vector<const BYTES: usize>(name: &str) -> [u8; BYTES] {
    let mut lines = VECTORS.lines().skip_while(|line| *line != name).skip(1);
    let digits: String = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    let bytes = (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16));
    bytes.collect::<Result<Vec<_>, _>>().unwrap().try_into().unwrap()
}

#[test]
fn ml_kem_generates_encapsulates_and_decapsulates_as_nist_says() {
    let generated = DecapsulationKey::<MlKem768>::from_seed(Array(vector("seed")));
    assert_eq!(generated.encapsulation_key().to_bytes().0, vector("generated"));

    let to = EncapsulationKey::<MlKem768>::new(&Array(vector("encapsulation"))).unwrap();
    let (ciphertext, shared) = to.encapsulate_deterministic(&Array(vector("message")));
    assert_eq!((ciphertext.0, shared.0), (vector("ciphertext"), vector("shared")));

    #[expect(deprecated, reason = "NIST's vectors of decapsulation give no seed")]
    let key = DecapsulationKey::<MlKem768>::from_expanded(&Array(vector("decapsulation"))).unwrap();
    assert_eq!(key.decapsulate(&Array(vector("modified"))).0, vector("rejected"));
}

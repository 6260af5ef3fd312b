//! The JSON form of keys.

use std::sync::Arc;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{
    ClientKey, IdentityKey, PublicKey, SecretKey, public::PublicMaterial, secret::SecretMaterial,
};
use crate::{
    Error, Parameters, Scheme,
    error::ModulusFault,
    ids::{KeyId, hex, parse_hex},
    paillier::{PaillierModulus, PaillierSecret},
    params::Literal,
    private_ranges::RangesSecret,
    tag::{SumKey, TagKey},
    threshold::Identity,
};

/// Clients and bits of a key of python-paillier, which says nothing of them.
const FOREIGN: (u32, u32) = (64, 16);

/// The parameters, in our own member of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    version: u32,
    scheme: String,
    clients: u32,
    bits: u32,
    key_id: String,
    /// The name of the sum key, which the key id covers; keys of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum_key_id: Option<String>,
    /// `djn` if the maker of a Paillier modulus vouches for the form that short masks need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    form: Option<String>,
}

/// The version of key files.
pub(super) const VERSION: u32 = 3;
const DJN: &str = "djn";
const PAILLIER_KTY: &str = "DAJ";
const RLWE_KTY: &str = "CIPHERGRAM";
const ALG: &str = "PAI-GN1";

#[derive(Serialize, Deserialize)]
pub(super) struct PublicJson {
    kty: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    alg: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    key_ops: Vec<String>,
    kid: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ciphergram: Option<Own>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub(super) struct SecretJson {
    kty: String,
    key_ops: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    p: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    q: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<String>,
    /// Where no seed tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sum_key: Option<String>,
    /// The seed of a secret of private ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranges_secret: Option<String>,
    #[zeroize(skip)]
    #[serde(rename = "pub")]
    public: PublicJson,
    kid: String,
}

/// The file of a client's key.
#[derive(Serialize, Deserialize)]
pub(super) struct ClientJson {
    kty: String,
    key_ops: Vec<String>,
    client: ClientPart,
    #[serde(rename = "pub")]
    public: PublicJson,
    kid: String,
}

/// The part of a sum key that a client has.
#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct ClientPart {
    number: u16,
    coefficients: String,
    pads: String,
    /// The seed of a secret of private ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranges_secret: Option<String>,
}

pub(super) fn invalid(why: impl Into<String>) -> Error {
    Error::Format { what: "key file", why: why.into() }
}

/// Writes the text of a file.
///
/// # Errors
/// The JSON library's, which these types do not cause.
pub(super) fn text(file: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string_pretty(file).map_err(|e| invalid(e.to_string()))
}

/// Reads the text of a file. serde_json's own words could quote a secret; only the place is passed on.
pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|e| {
        invalid(format!("unexpected content at line {} column {}", e.line(), e.column()))
    })
}

/// base64url of the big-endian bytes without leading zeros, as python-paillier writes integers.
fn encode_integer(words: &[u64]) -> Zeroizing<String> {
    let bytes: Zeroizing<Vec<u8>> =
        Zeroizing::new(words.iter().rev().flat_map(|w| w.to_be_bytes()).collect());
    let start = bytes.iter().position(|&b| b != 0).unwrap_or(bytes.len());
    Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(&bytes[start..]))
}

pub(super) fn decode_bytes(text: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let text = text.trim_end_matches('=');
    BASE64_URL_SAFE_NO_PAD
        .decode(text)
        .map(Zeroizing::new)
        .map_err(|_| invalid("a number is not base64url"))
}

fn decode_integer(text: &Option<String>, what: &str) -> Result<Zeroizing<Vec<u64>>, Error> {
    let text = text.as_ref().ok_or_else(|| invalid(format!("{what} is missing")))?;
    let bytes = decode_bytes(text)?;
    let word = |chunk: &[u8]| chunk.iter().fold(0, |acc, &b| (acc << 8) | u64::from(b));
    let words: Zeroizing<Vec<u64>> = Zeroizing::new(bytes.rchunks(8).map(word).collect());
    let used = words.iter().rposition(|&w| w != 0).map_or(0, |i| i + 1);
    if used == 0 {
        return Err(invalid(format!("{what} is zero")));
    }
    Ok(Zeroizing::new(words[..used].to_vec()))
}

fn public_json(key: &PublicKey) -> PublicJson {
    let Literal { scheme, clients, bits } = key.parameters.literal();
    let key_id = key.id.to_string();
    let mut file = PublicJson {
        kty: RLWE_KTY.into(),
        alg: None,
        n: None,
        key_ops: if key.encrypts() { vec!["encrypt".into()] } else { vec![] },
        kid: format!("Ciphergram {scheme} public key {key_id}"),
        ciphergram: None,
    };
    let mut form = None;
    match &key.material {
        PublicMaterial::Paillier(modulus) => {
            file.kty = PAILLIER_KTY.into();
            file.alg = Some(ALG.into());
            file.n = Some(encode_integer(modulus.n().words()).to_string());
            form = modulus.is_djn().then(|| DJN.into());
        }
        PublicMaterial::CkksSum(_) => {}
        #[cfg(test)]
        PublicMaterial::Plain(_) => {}
    }
    let (scheme, sum_key_id) = (scheme.name().into(), key.sum_key.map(|id| hex(&id)));
    file.ciphergram =
        Some(Own { version: VERSION, scheme, clients, bits, key_id, sum_key_id, form });
    file
}

/// Writes the text of a public key's file.
///
/// # Errors
/// As [`text`].
pub(super) fn write_public(key: &PublicKey) -> Result<String, Error> {
    text(&public_json(key))
}

/// Writes the text of a secret key's file.
///
/// # Errors
/// As [`text`].
pub(super) fn write_secret(key: &SecretKey) -> Result<Zeroizing<String>, Error> {
    let (scheme, id) = (key.public.parameters.scheme(), key.public.id);
    let mut file = SecretJson {
        kty: RLWE_KTY.into(),
        key_ops: vec!["encrypt".into(), "decrypt".into()],
        p: None,
        q: None,
        seed: None,
        sum_key: None,
        ranges_secret: key.ranges.as_ref().map(|ranges| encode_seed(ranges.seed())),
        public: public_json(&key.public),
        kid: format!("Ciphergram {scheme} secret key {id}"),
    };
    match &key.material {
        SecretMaterial::Paillier(secret) => {
            let (p, q) = secret.factors();
            file.kty = PAILLIER_KTY.into();
            file.key_ops = vec!["decrypt".into()];
            file.p = Some(encode_integer(p).to_string());
            file.q = Some(encode_integer(q).to_string());
            // Elsewhere it comes from the seed.
            file.sum_key = key.sum_key.as_ref().map(|sum_key| encode_seed(sum_key.bytes()));
        }
        SecretMaterial::CkksSum(secrets) => file.seed = Some(encode_seed(secrets.seed())),
        #[cfg(test)]
        SecretMaterial::Plain(_) => file.seed = Some(encode_seed(&[0; 32])),
    }
    text(&file).map(Zeroizing::new)
}

/// Writes the text of an identity's file.
///
/// # Errors
/// As [`text`].
pub(super) fn write_identity(key: &IdentityKey) -> Result<Zeroizing<String>, Error> {
    let public = public_json(&key.public);
    let file = SecretJson {
        kty: public.kty.clone(),
        key_ops: vec!["sign".into()],
        p: None,
        q: None,
        seed: Some(encode_seed(key.identity.seed())),
        sum_key: None,
        ranges_secret: None,
        kid: format!("Ciphergram identity of member {}", hex(&key.identity.id().to_bytes()[..8])),
        public,
    };
    text(&file).map(Zeroizing::new)
}

pub(super) fn read_identity(file: &SecretJson) -> Result<IdentityKey, Error> {
    check_rlwe_kty(&file.kty)?;
    let seed = decode_seed(file.seed.as_deref(), "the seed")?;
    let (public, identity) = (read_public(&file.public)?, Identity::of_seed(&seed));
    Ok(IdentityKey { public, identity: Arc::new(identity) })
}

/// Writes the text of a client key's file.
///
/// # Errors
/// As [`text`].
pub(super) fn write_client(key: &ClientKey) -> Result<Zeroizing<String>, Error> {
    let TagKey { number, coefficients, pads } = &key.tag;
    let pads = pads.as_ref().ok_or_else(|| invalid("a client's key without pads"))?;
    let (scheme, id) = (key.public.parameters.scheme(), key.public.id);
    let public = public_json(&key.public);
    let file = ClientJson {
        kty: public.kty.clone(),
        key_ops: vec!["encrypt".into()],
        client: ClientPart {
            number: *number,
            coefficients: encode_seed(coefficients),
            pads: encode_seed(pads),
            ranges_secret: key.ranges.as_ref().map(|ranges| encode_seed(ranges.seed())),
        },
        public,
        kid: format!("Ciphergram {scheme} key of client {number} {id}"),
    };
    text(&file).map(Zeroizing::new)
}

pub(super) fn encode_seed(seed: &[u8; 32]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(seed)
}

/// Reads the parameters, and whether the file vouches for the form of the modulus.
fn parameters(file: &PublicJson, n_bits: Option<u32>) -> Result<(Parameters, bool), Error> {
    let literal = match (&file.ciphergram, n_bits) {
        (Some(own), _) => {
            Literal { scheme: own.scheme.parse()?, clients: own.clients, bits: own.bits }
        }
        (None, Some(n_bits)) => {
            let scheme = Scheme::ALL.into_iter().find(|s| s.modulus_bits() == Some(n_bits));
            let scheme = scheme.ok_or_else(|| {
                invalid(format!("n has {n_bits} bits; 2048, 3072 and 4096 are supported"))
            })?;
            Literal { scheme, clients: FOREIGN.0, bits: FOREIGN.1 }
        }
        (None, None) => return Err(invalid("it has no parameters")),
    };
    let djn = file.ciphergram.as_ref().is_some_and(|own| own.form.as_deref() == Some(DJN));
    Ok((Parameters::new(literal)?, djn))
}

fn bit_length(words: &[u64]) -> u32 {
    words.last().map_or(0, |w| words.len() as u32 * 64 - w.leading_zeros())
}

/// The modulus as a Paillier key file declares it, before the modulus itself is validated.
struct Declared {
    n: Zeroizing<Vec<u64>>,
    bits: u32,
    parameters: Parameters,
    djn: bool,
}

impl Declared {
    fn read(file: &PublicJson) -> Result<Self, Error> {
        let n = decode_integer(&file.n, "n")?;
        if file.alg.as_deref().is_some_and(|alg| alg != ALG) {
            return Err(invalid("its algorithm is not PAI-GN1"));
        }
        let (parameters, djn) = parameters(file, Some(bit_length(&n)))?;
        let bits = parameters.scheme().modulus_bits();
        let bits = bits.ok_or_else(|| invalid("a modulus under ckks-sum"))?;
        Ok(Self { n, bits, parameters, djn })
    }
}

pub(super) fn read_public(file: &PublicJson) -> Result<PublicKey, Error> {
    if file.kty == PAILLIER_KTY {
        let Declared { n, bits, parameters, djn } = Declared::read(file)?;
        let modulus = PaillierModulus::new(&n, bits, djn)?;
        return check_own_id(file, PublicKey::of_modulus(parameters, modulus, sum_key_id(file)?));
    }
    check_rlwe_kty(&file.kty)?;
    let (parameters, _) = parameters(file, None)?;
    #[cfg(test)]
    if parameters.scheme() == Scheme::Plain {
        return check_own_id(file, PublicKey::of_nothing(parameters));
    }
    let Some(rlwe) = parameters.rlwe().cloned() else {
        return Err(invalid("a Paillier key without its modulus"));
    };
    if parameters.scheme() == Scheme::CkksSumThreshold {
        return check_own_id(file, PublicKey::of_parameters(parameters)?);
    }
    let own = file.ciphergram.as_ref().ok_or_else(|| invalid("it has no parameters"))?;
    let id = parse_hex(&own.key_id).map(KeyId).ok_or_else(bad_id)?;
    Ok(PublicKey { id, parameters, material: PublicMaterial::CkksSum(rlwe), sum_key: None })
}

pub(super) fn decode_seed(text: Option<&str>, what: &str) -> Result<Zeroizing<[u8; 32]>, Error> {
    let text = text.ok_or_else(|| invalid(format!("{what} is missing")))?;
    let bytes = decode_bytes(text)?.as_slice().try_into();
    bytes.map(Zeroizing::new).map_err(|_| invalid(format!("{what} is not 32 bytes")))
}

fn check_rlwe_kty(kty: &str) -> Result<(), Error> {
    if kty == RLWE_KTY { Ok(()) } else { Err(invalid("its type is neither DAJ nor CIPHERGRAM")) }
}

fn bad_id() -> Error {
    invalid("a key id is not 32 hexadecimal digits")
}

/// Reads the name of the sum key, if there is one.
fn sum_key_id(file: &PublicJson) -> Result<Option<[u8; 16]>, Error> {
    let text = file.ciphergram.as_ref().and_then(|own| own.sum_key_id.as_ref());
    text.map(|text| parse_hex(text).ok_or_else(bad_id)).transpose()
}

/// Refuses a key whose file has another id.
pub(super) fn check_id(told: &str, id: KeyId) -> Result<(), Error> {
    let wrong = || invalid("the key id is not that of the key material");
    if told == id.to_string() { Ok(()) } else { Err(wrong()) }
}

fn check_own_id(file: &PublicJson, key: PublicKey) -> Result<PublicKey, Error> {
    file.ciphergram.as_ref().map_or(Ok(()), |own| check_id(&own.key_id, key.id))?;
    Ok(key)
}

pub(super) fn read_secret(file: &SecretJson) -> Result<SecretKey, Error> {
    if file.kty == PAILLIER_KTY {
        if file.public.kty != PAILLIER_KTY {
            return Err(invalid("its public key is of another type"));
        }
        let Declared { n, bits, parameters, djn } = Declared::read(&file.public)?;
        let (p, q) = (decode_integer(&file.p, "p")?, decode_integer(&file.q, "q")?);
        let secret = PaillierSecret::new(&p, &q, bits, djn)?;
        if *n != secret.modulus().n().words() {
            let why = "is not the product of the two primes in the file";
            return Err(ModulusFault::new(why).into());
        }
        let key = SecretKey::of_factors(parameters, secret, sum_key(file)?);
        check_own_id(&file.public, key.public.clone())?;
        return Ok(SecretKey { ranges: ranges_secret(&file.ranges_secret)?, ..key });
    }
    check_rlwe_kty(&file.kty)?;
    let (parameters, _) = parameters(&file.public, None)?;
    let seed = decode_seed(file.seed.as_deref(), "the seed")?;
    let key = SecretKey::of_seed(parameters, &seed)?;
    check_own_id(&file.public, key.public.clone())?;
    Ok(SecretKey { ranges: ranges_secret(&file.ranges_secret)?, ..key })
}

/// Reads the secret of private ranges, if the file has one.
fn ranges_secret(text: &Option<String>) -> Result<Option<RangesSecret>, Error> {
    let seed = text.as_deref().map(|text| decode_seed(Some(text), "the secret of ranges"));
    Ok(seed.transpose()?.map(RangesSecret::of_seed))
}

/// Reads the sum key, if the file has one.
fn sum_key(file: &SecretJson) -> Result<Option<SumKey>, Error> {
    let text = file.sum_key.as_deref();
    text.map(|text| decode_seed(Some(text), "the sum key").map(SumKey::new)).transpose()
}

pub(super) fn read_client(file: &ClientJson) -> Result<ClientKey, Error> {
    let public = read_public(&file.public)?;
    if file.kty != file.public.kty {
        return Err(invalid("its public key is of another type"));
    }
    let decode = |text: &str, what| decode_seed(Some(text), what);
    let ClientPart { number, coefficients, pads, ranges_secret: ranges } = &file.client;
    let tag = TagKey {
        number: *number,
        coefficients: decode(coefficients, "the key of coefficients")?,
        pads: Some(decode(pads, "the key of pads")?),
    };
    public.check_sums()?;
    public.check_number(*number)?;
    public.encryption()?;
    Ok(ClientKey { public, tag, ranges: ranges_secret(ranges)? })
}

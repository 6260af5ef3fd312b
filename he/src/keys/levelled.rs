//! Keys of the levelled scheme and their files, which have the frame of other keys' files.
//!
//! The secret half is one seed. The public one is the seed of its uniform polynomial and the other
//! polynomial, packed.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use ciphergram_accel::CpuEngine;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{
    OPENS,
    json::{self, decode_bytes, decode_seed, encode_seed, invalid},
};
use crate::{
    Error,
    ckks::{LevelledPublic, LevelledSecret, Parameters, Preset},
    files::write_new,
};

/// The type of key files of the levelled scheme.
pub(super) const KTY: &str = "CIPHERGRAM-CKKS";

/// The parameters.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelledPart {
    version: u32,
    scheme: String,
    key_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublicPart {
    kty: String,
    key_ops: Vec<String>,
    kid: String,
    ciphergram: LevelledPart,
    /// The seed of the uniform polynomial, and the other one. The seed of a secret key tells both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<String>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct SecretPart {
    kty: String,
    key_ops: Vec<String>,
    kid: String,
    seed: String,
    #[zeroize(skip)]
    #[serde(rename = "pub")]
    public: PublicPart,
}

/// A key of the levelled scheme, of either kind.
pub enum LevelledKey {
    /// It encrypts.
    Public(LevelledPublic),
    /// It decrypts as well.
    Secret(Box<LevelledSecret>),
}

impl LevelledKey {
    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &LevelledPublic {
        match self {
            Self::Public(key) => key,
            Self::Secret(key) => key.public(),
        }
    }

    /// Returns the secret key.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn secret(&self) -> Result<&LevelledSecret, Error> {
        match self {
            Self::Secret(key) => Ok(key),
            Self::Public(_) => Err(Error::KeyKind { found: "public", needed: OPENS }),
        }
    }

    /// Reads the text of a key file, of a secret key if it has a public one inside.
    pub(super) fn read(text: &str, is_secret: bool) -> Result<Self, Error> {
        let engine = CpuEngine::new();
        if is_secret {
            let SecretPart { seed, public, .. } = &json::parse(text)?;
            if public.a.is_some() || public.b.is_some() {
                return Err(invalid("it has a polynomial a or b, which belong into public keys"));
            }
            let seed = decode_seed(Some(unpadded(seed)?), "the seed")?;
            let key = LevelledSecret::expand(&seed, &parameters(&public.ciphergram)?, &engine)?;
            json::check_id(&public.ciphergram.key_id, key.public().id())?;
            return Ok(Self::Secret(key.into()));
        }
        let file: PublicPart = json::parse(text)?;
        let parameters = parameters(&file.ciphergram)?;
        let a = file.a.as_deref().map(unpadded).transpose()?;
        let seed = decode_seed(a, "its seed a")?;
        let b = file.b.as_deref().ok_or_else(|| invalid("its polynomial b is missing"))?;
        let key =
            LevelledPublic::unpack(&parameters, *seed, &decode_bytes(unpadded(b)?)?, &engine)?;
        json::check_id(&file.ciphergram.key_id, key.id())?;
        Ok(Self::Public(key))
    }
}

impl LevelledPublic {
    /// Returns the text of the key file.
    ///
    /// # Errors
    /// [`CkksError::NoPreset`](crate::ckks::CkksError::NoPreset).
    pub fn to_json(&self) -> Result<String, Error> {
        let (a, b) = (Some(BASE64.encode(self.seed())), Some(BASE64.encode(self.packed())));
        json::text(&PublicPart { a, b, ..public_part(self)? })
    }

    /// Writes the key file.
    ///
    /// # Errors
    /// The path exists or cannot be written; those of [`to_json`](Self::to_json).
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_new(path, self.to_json()?.as_bytes(), 0o644)
    }
}

impl LevelledSecret {
    /// Writes the key file, readable by its owner only.
    ///
    /// # Errors
    /// The path exists or cannot be written; [`CkksError::NoPreset`](crate::ckks::CkksError::NoPreset).
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let public = public_part(self.public())?;
        let LevelledPart { scheme, key_id, .. } = &public.ciphergram;
        let file = SecretPart {
            kty: KTY.into(),
            key_ops: vec!["encrypt".into(), "decrypt".into()],
            kid: format!("Ciphergram {scheme} secret key {key_id}"),
            seed: encode_seed(self.seed()),
            public,
        };
        write_new(path, Zeroizing::new(json::text(&file)?).as_bytes(), 0o600)
    }
}

/// Returns the members that both files have.
fn public_part(key: &LevelledPublic) -> Result<PublicPart, Error> {
    let (scheme, key_id) = (key.parameters().named()?.to_string(), key.id().to_string());
    Ok(PublicPart {
        kty: KTY.into(),
        key_ops: vec!["encrypt".into()],
        kid: format!("Ciphergram {scheme} public key {key_id}"),
        ciphergram: LevelledPart { version: json::VERSION, scheme, key_id },
        a: None,
        b: None,
    })
}

/// Refuses the padding that numbers of python-paillier may have.
fn unpadded(text: &str) -> Result<&str, Error> {
    if text.ends_with('=') { Err(invalid("a number is not base64url")) } else { Ok(text) }
}

fn parameters(own: &LevelledPart) -> Result<Arc<Parameters>, Error> {
    Ok(Arc::new(Parameters::preset(own.scheme.parse::<Preset>()?)))
}

//! Key files of the levelled scheme: JSON in the frame that keys of sums have.
//!
//! The secret half is one seed. The public one is the seed of its uniform polynomial and the other
//! polynomial, packed, in base64url.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use ciphergram_accel::Engine;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::{Parameters, Preset, PublicKey, SecretKey};
use crate::{
    Error, KeyId,
    keys::{permission_warning, write_new},
    text, versions,
};

/// The type of key files of the levelled scheme.
pub(crate) const KTY: &str = "CIPHERGRAM-CKKS";
/// The version of key files.
const VERSION: u32 = 1;

/// The parameters.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    version: u32,
    scheme: String,
    key_id: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublicJson {
    kty: String,
    key_ops: Vec<String>,
    kid: String,
    ciphergram: Own,
    /// The seed of the uniform polynomial, and the other one. The seed of a secret key tells both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    a: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    b: Option<String>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct SecretJson {
    kty: String,
    key_ops: Vec<String>,
    kid: String,
    seed: String,
    #[zeroize(skip)]
    #[serde(rename = "pub")]
    public: PublicJson,
}

impl PublicKey {
    /// Returns the text of the key file.
    ///
    /// # Errors
    /// [`CkksError::NoPreset`](super::CkksError::NoPreset).
    pub fn to_json(&self) -> Result<String, Error> {
        let a = Some(BASE64.encode(self.seed()));
        let b = Some(BASE64.encode(self.packed()));
        let file = PublicJson { a, b, ..public_json(self)? };
        serde_json::to_string_pretty(&file).map_err(|e| invalid(e.to_string()))
    }

    /// Writes the key file.
    ///
    /// # Errors
    /// The path exists or cannot be written; those of [`to_json`](Self::to_json).
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        write_new(path, self.to_json()?.as_bytes(), 0o644)
    }
}

impl SecretKey {
    /// Writes the key file, readable by its owner only.
    ///
    /// # Errors
    /// The path exists or cannot be written;
    /// [`CkksError::NoPreset`](super::CkksError::NoPreset).
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let public = public_json(self.public())?;
        let file = SecretJson {
            kty: KTY.into(),
            key_ops: vec!["encrypt".into(), "decrypt".into()],
            kid: format!(
                "Ciphergram {} secret key {}",
                public.ciphergram.scheme,
                self.public().id()
            ),
            seed: BASE64.encode(self.seed()),
            public,
        };
        let text = serde_json::to_string_pretty(&file).map(Zeroizing::new);
        write_new(path, text.map_err(|e| invalid(e.to_string()))?.as_bytes(), 0o600)
    }
}

/// A key file of the levelled scheme, of either kind.
pub enum AnyKey {
    /// A public key.
    Public(PublicKey),
    /// A secret key, and a warning if others can read its file.
    Secret(Box<SecretKey>, Option<String>),
}

impl AnyKey {
    /// Reads a key file. Returns nothing where it is none of the levelled scheme, but perhaps one of sums.
    ///
    /// # Errors
    /// The file cannot be read, or is not as it should be; the path is named.
    pub fn load(path: &Path, engine: &dyn Engine) -> Result<Option<Self>, Error> {
        let here = |e: Error| e.within(path.display());
        let text = text::read("key file", path).map_err(here)?;
        let key = Self::from_json(&text, engine).map_err(here)?;
        Ok(key.map(|key| match key {
            Self::Secret(key, _) => Self::Secret(key, permission_warning(path)),
            public => public,
        }))
    }

    /// Reads the text of a key file. Returns nothing where it is of another scheme.
    ///
    /// # Errors
    /// It is of the levelled scheme, and not as it should be; the engine's.
    pub fn from_json(text: &str, engine: &dyn Engine) -> Result<Option<Self>, Error> {
        /// The members that tell what it is.
        #[derive(Deserialize)]
        struct Probe {
            kty: String,
            #[serde(rename = "pub")]
            public: Option<serde::de::IgnoredAny>,
        }
        let Ok(probe) = serde_json::from_str::<Probe>(text) else { return Ok(None) };
        if probe.kty != KTY {
            return Ok(None);
        }
        // serde_json's own words could quote a secret; only the place is passed on.
        let parse = |e: serde_json::Error| {
            invalid(format!("unexpected content at line {} column {}", e.line(), e.column()))
        };
        match probe.public {
            None => {
                let file: PublicJson = serde_json::from_str(text).map_err(parse)?;
                read_public(&file, engine).map(Self::Public).map(Some)
            }
            Some(_) => {
                let file: SecretJson = serde_json::from_str(text).map_err(parse)?;
                let key = read_secret(&file, engine)?;
                Ok(Some(Self::Secret(key.into(), None)))
            }
        }
    }

    /// Returns the public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        match self {
            Self::Public(key) => key,
            Self::Secret(key, _) => key.public(),
        }
    }

    /// Returns the secret key.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn secret(&self) -> Result<&SecretKey, Error> {
        match self {
            Self::Secret(key, _) => Ok(key),
            Self::Public(_) => Err(Error::KeyKind {
                found: "public",
                needed: "this needs the secret key, keys/secret.json",
            }),
        }
    }

    /// Returns the warning that others can read its file, if they can and must not.
    #[must_use]
    pub fn warning(&self) -> Option<&str> {
        match self {
            Self::Public(_) => None,
            Self::Secret(_, warning) => warning.as_deref(),
        }
    }
}

/// Returns the members that both files have.
fn public_json(key: &PublicKey) -> Result<PublicJson, Error> {
    let (scheme, key_id) = (key.parameters().named()?.to_string(), key.id().to_string());
    Ok(PublicJson {
        kty: KTY.into(),
        key_ops: vec!["encrypt".into()],
        kid: format!("Ciphergram {scheme} public key {key_id}"),
        ciphergram: Own { version: VERSION, scheme, key_id },
        a: None,
        b: None,
    })
}

fn parameters(own: &Own) -> Result<Arc<Parameters>, Error> {
    versions::check(own.version.into(), VERSION)?;
    let preset: Preset = own.scheme.parse()?;
    Ok(Arc::new(Parameters::preset(preset)))
}

fn read_public(file: &PublicJson, engine: &dyn Engine) -> Result<PublicKey, Error> {
    let parameters = parameters(&file.ciphergram)?;
    let seed = decode_seed(file.a.as_deref().ok_or_else(|| invalid("its seed a is missing"))?)?;
    let b = file.b.as_deref().ok_or_else(|| invalid("its polynomial b is missing"))?;
    let b = BASE64.decode(b).map_err(|_| invalid("its polynomial b is not base64url"))?;
    let key = PublicKey::unpack(&parameters, *seed, &b, engine)?;
    check_id(&file.ciphergram, key.id())?;
    Ok(key)
}

fn read_secret(file: &SecretJson, engine: &dyn Engine) -> Result<SecretKey, Error> {
    if file.public.a.is_some() || file.public.b.is_some() {
        return Err(invalid("it has a polynomial a or b, which belong into public keys"));
    }
    let parameters = parameters(&file.public.ciphergram)?;
    let key = SecretKey::expand(&*decode_seed(&file.seed)?, &parameters, engine)?;
    check_id(&file.public.ciphergram, key.public().id())?;
    Ok(key)
}

fn check_id(own: &Own, id: KeyId) -> Result<(), Error> {
    let wrong = || invalid("the key id is not that of the key material");
    if own.key_id == id.to_string() { Ok(()) } else { Err(wrong()) }
}

fn decode_seed(text: &str) -> Result<Zeroizing<[u8; 32]>, Error> {
    let bytes = BASE64.decode(text).map(Zeroizing::new).ok();
    let seed = bytes.and_then(|bytes| bytes.as_slice().try_into().map(Zeroizing::new).ok());
    seed.ok_or_else(|| invalid("a seed is not 32 bytes in base64url"))
}

fn invalid(why: impl Into<String>) -> Error {
    Error::Json { what: "key file", why: why.into() }
}

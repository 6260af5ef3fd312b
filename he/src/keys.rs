//! Keys: what they hold, and their files.
//!
//! A Paillier key file is JSON in the form that python-paillier's `pheutil` reads (`kty` DAJ, `alg`
//! PAI-GN1) with one more member, `ciphergram`, for the parameters. A `ckks-sum` key file has the
//! same frame; its public half holds no key material, only the parameters and the key id, which is
//! all that an aggregator needs. That of `ckks-sum-public` holds the seed of `a` and `b` in beats, both
//! in base64url; the secret half of either is one seed, from which everything else is made again.

mod json;

use std::{
    fmt,
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Arc,
};

use ciphergram_accel::{CpuEngine, Engine};
use zeroize::Zeroizing;

use crate::{
    Error, Parameters,
    bytes::to_bytes,
    ckks_sum::{LatticePublic, LatticeSecret},
    frame::hex,
    paillier::{self, PaillierModulus, PaillierSecret},
    params::{Literal, Scheme},
    random,
};

/// Sixteen bytes that name a key: a hash of its modulus or its public polynomials, or, where it has
/// nothing public, a one-way hash of its secret seed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyId(pub(crate) [u8; 16]);

impl KeyId {
    fn derive(context: &str, material: &[u8]) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::derive_key(context, material)[..16]);
        Self(id)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an aggregator holds: parameters, the key id, and what encrypts, if anything public does.
#[derive(Clone)]
pub struct PublicKey {
    parameters: Parameters,
    id: KeyId,
    encrypting: Option<Encrypting>,
}

/// What encrypts without a secret.
#[derive(Clone)]
enum Encrypting {
    Paillier(PaillierModulus),
    Lattice(LatticePublic),
}

impl PublicKey {
    /// The parameter set that the key is for.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The key's name in frames.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The modulus, if it is a Paillier key.
    #[must_use]
    pub fn paillier(&self) -> Option<&PaillierModulus> {
        match &self.encrypting {
            Some(Encrypting::Paillier(modulus)) => Some(modulus),
            _ => None,
        }
    }

    /// The polynomials that encrypt, if it is a `ckks-sum-public` key.
    #[must_use]
    pub fn lattice(&self) -> Option<&LatticePublic> {
        match &self.encrypting {
            Some(Encrypting::Lattice(public)) => Some(public),
            _ => None,
        }
    }

    /// Refuses a key that only sums.
    ///
    /// # Errors
    /// [`Error::KeyKind`].
    pub fn check_encrypts(&self) -> Result<(), Error> {
        match self.encrypting {
            Some(_) => Ok(()),
            None => Err(Error::KeyKind {
                found: "public",
                needed: "encrypting under ckks-sum without the secret needs a key made by keygen \
                         --public-encrypt: make one, or use keys/secret.json",
            }),
        }
    }

    fn from_modulus(parameters: Parameters, modulus: PaillierModulus) -> Self {
        let n = to_bytes(modulus.n().words());
        let id = KeyId::derive("ciphergram 2026 paillier key id", &n);
        Self { parameters, id, encrypting: Some(Encrypting::Paillier(modulus)) }
    }

    fn from_seed(parameters: Parameters, seed: &[u8; 32]) -> Self {
        let id = KeyId::derive("ciphergram 2026 ckks-sum key id", seed);
        Self { parameters, id, encrypting: None }
    }

    fn from_polynomials(parameters: Parameters, public: LatticePublic) -> Self {
        let material = [&parameters.id(), &public.seed()[..], public.packed()].concat();
        let id = KeyId::derive("ciphergram 2026 ckks-sum-public key id", &material);
        Self { parameters, id, encrypting: Some(Encrypting::Lattice(public)) }
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// It is missing, not a key file, a secret key, or holds a modulus that is not safe to use.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let here = |e: Error| e.within(path.display());
        match AnyKey::load(path)? {
            AnyKey::Public(key) => Ok(key),
            AnyKey::Secret(..) => Err(here(Error::KeyKind {
                found: "secret",
                needed: "whoever sums must hold public material only: give it keys/public.json",
            })),
        }
    }

    /// Writes the key file.
    ///
    /// # Errors
    /// The path exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        save(path, json::write_public(self)?.as_bytes(), 0o644)
    }
}

enum Material {
    Paillier(PaillierSecret),
    Lattice(LatticeSecret),
}

/// What clients share and an aggregator must never have.
pub struct SecretKey {
    public: PublicKey,
    material: Material,
}

impl SecretKey {
    /// Draws a fresh key.
    ///
    /// # Errors
    /// The parameters are refused, or there is no randomness.
    pub fn generate(literal: Literal) -> Result<Self, Error> {
        let parameters = Parameters::new(literal)?;
        match literal.scheme.modulus_bits() {
            Some(bits) => {
                let secret = paillier::generate(bits, &mut random::generator()?)?;
                Ok(Self::from_paillier(parameters, secret))
            }
            None => Self::from_seed(parameters, &*random::bytes::<32>()?),
        }
    }

    fn from_paillier(parameters: Parameters, secret: PaillierSecret) -> Self {
        let public = PublicKey::from_modulus(parameters, secret.modulus().clone());
        Self { public, material: Material::Paillier(secret) }
    }

    fn from_seed(parameters: Parameters, seed: &[u8; 32]) -> Result<Self, Error> {
        let Some(lattice) = parameters.lattice() else {
            return Err(Error::Json { what: "key file", why: "a seed under Paillier".into() });
        };
        let engine: Arc<dyn Engine> = Arc::new(CpuEngine::new());
        let secret = LatticeSecret::expand(seed, &lattice.ring, &*engine)?;
        let public = match parameters.scheme() {
            Scheme::CkksSumPublic => {
                let public = secret.publish(&parameters, &*engine)?;
                PublicKey::from_polynomials(parameters, public)
            }
            _ => PublicKey::from_seed(parameters, seed),
        };
        Ok(Self { public, material: Material::Lattice(secret) })
    }

    /// The half that anyone may have.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The secret factors, if it is a Paillier key.
    #[must_use]
    pub fn paillier(&self) -> Option<&PaillierSecret> {
        match &self.material {
            Material::Paillier(secret) => Some(secret),
            Material::Lattice(_) => None,
        }
    }

    /// The secret polynomial, if it is a `ckks-sum` or `ckks-sum-public` key.
    #[must_use]
    pub fn lattice(&self) -> Option<&LatticeSecret> {
        match &self.material {
            Material::Lattice(secret) => Some(secret),
            Material::Paillier(_) => None,
        }
    }

    /// Reads a key file. The warning, if any, says that others on this machine can read it too.
    ///
    /// # Errors
    /// It is missing, not a key file, or a public key.
    pub fn load(path: &Path) -> Result<(Self, Option<String>), Error> {
        match AnyKey::load(path)? {
            AnyKey::Secret(key, warning) => Ok((*key, warning)),
            AnyKey::Public(_) => Err(Error::KeyKind {
                found: "public",
                needed: "this needs the secret key, keys/secret.json",
            }
            .within(path.display())),
        }
    }

    /// Writes the key file, readable by its owner only.
    ///
    /// # Errors
    /// The path exists or cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        save(path, json::write_secret(self)?.as_bytes(), 0o600)
    }
}

/// A key file of either kind.
pub enum AnyKey {
    /// A public key.
    Public(PublicKey),
    /// A secret key, and a warning if others can read its file.
    Secret(Box<SecretKey>, Option<String>),
}

impl AnyKey {
    /// Reads a key file of either kind.
    ///
    /// # Errors
    /// It is missing or not a valid key file; the path is named.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let here = |e: Error| e.within(path.display());
        let text = Zeroizing::new(fs::read_to_string(path).map_err(|e| here(e.into()))?);
        json::read(&text).map_err(here).map(|key| match key {
            Self::Secret(key, _) => Self::Secret(key, permission_warning(path)),
            public => public,
        })
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// It is not a valid key file.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        json::read(text)
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        match self {
            Self::Public(key) => key,
            Self::Secret(key, _) => key.public(),
        }
    }
}

#[cfg(unix)]
fn permission_warning(path: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let warning = || {
        let path = path.display();
        format!("{path} is readable by others (mode {mode:04o}): run chmod 600 {path}")
    };
    (mode & 0o077 != 0).then(warning)
}

#[cfg(not(unix))]
fn permission_warning(_path: &Path) -> Option<String> {
    None
}

fn save(path: &Path, text: &[u8], mode: u32) -> Result<(), Error> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let write = || -> std::io::Result<()> {
        let mut file = options.open(path)?;
        file.write_all(text)?;
        file.sync_all()
    };
    write().map_err(|e| match e.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Exists { path: path.into() },
        _ => Error::from(e).within(path.display()),
    })
}

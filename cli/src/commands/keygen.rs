//! `ciphergram keygen`.

use std::fs;

use ciphergram_he::{Error, Scheme, SecretKey};
use serde_json::json;

use crate::{
    args::Keygen,
    failure::{Failure, at},
    report::{report, warn},
};

pub(crate) fn run(args: &Keygen) -> Result<(), Failure> {
    if args.public_encrypt && args.set.scheme == Scheme::CkksSum {
        let text = "--public-encrypt is not there yet for ckks-sum; Paillier keys always can";
        return Err(Failure::Misuse(text.into()));
    }
    let (public, secret) = (args.out.join("public.json"), args.out.join("secret.json"));
    for path in [&public, &secret] {
        if path.exists() {
            return Err(Error::Exists { path: path.clone() }.into());
        }
    }
    let literal = args.set.literal();
    let key = SecretKey::generate(literal)?;
    if args.set.scheme == Scheme::Paillier2048 {
        warn("paillier-2048 is of about 112-bit security; paillier-3072 and ckks-sum are of 128");
    }
    fs::create_dir_all(&args.out).map_err(at(&args.out))?;
    key.save(&secret)?;
    key.public().save(&public)?;
    let id = key.public().id().to_string();
    let value = json!({
        "scheme": args.set.scheme.name(), "clients": args.set.clients, "bits": args.set.bits, "key_id": id,
        "public": public, "secret": secret,
    });
    let lines = [
        format!(
            "{} key {id}, for sums of at most {} clients at {} bits",
            args.set.scheme, args.set.clients, args.set.bits
        ),
        format!("{}  give it to whoever sums", public.display()),
        format!("{}  share it among the clients, and with no one else", secret.display()),
    ];
    report(args.json, &value, &lines)
}

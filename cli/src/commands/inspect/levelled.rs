//! What belongs to the levelled scheme.

use std::path::Path;

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    Error, LevelledKey,
    ckks::{Bound, Ciphertext, EvaluationKeys, Parameters},
    keys::permission_warning,
    vectors::{Layout, Vector},
};
use serde_json::json;

use super::Findings;
use crate::report::{per_value, per_value_words, warn};

/// Describes a vector: what it holds, how far it has come, and what is left.
pub(super) fn vector(bytes: &[u8], found: &mut Findings) -> Result<(), Error> {
    let (vector, _) = Vector::from_bytes(bytes, &CpuEngine::new())?;
    found.add("kind", "vector", "vector: tensors to compute with");
    describe(vector.parameters(), found)?;
    found.add_same("key_id", vector.key().to_string());
    let (level, top) = (vector.level(), vector.parameters().top_level());
    found.add(
        "level",
        level,
        format!("{level} of {top}: products in a row that there is room for"),
    );
    let scale = vector.parameters().scale(level);
    found.add("scale", scale, format!("2^{:.6}", scale.log2()));
    let factor = vector.unit() / vector.divisor() as f64;
    let Bound { magnitude, error } = vector.bound();
    let (magnitude, error) = (magnitude * factor, error * factor);
    found.add("claimed_magnitude", magnitude, format!("±{magnitude:.6}, as whoever wrote it says"));
    found.add("claimed_error", error, format!("{error:.1e}, as whoever wrote it says"));
    let left = vector.ciphertexts().iter().map(Ciphertext::bits_left).fold(f64::INFINITY, f64::min);
    found.add("bits_left", left, format!("{left:.1} above the largest value"));
    found.add("unit", vector.unit(), format!("2^{}", vector.unit().log2()));
    found.add("divisor", vector.divisor(), format!("values are divided by {}", vector.divisor()));
    let layout = match vector.layout() {
        Layout::Rows => "rows",
        Layout::Columns => "columns",
        Layout::Each => "each",
    };
    found.add_same("layout", layout);
    let (values, count) = (vector.values(), vector.ciphertexts().len());
    found.add("values", values, format!("{values}, in {count} ciphertexts"));
    found.json.insert("bytes_per_value".into(), json!(per_value(bytes.len(), values)));
    found.add("ciphertext_bytes", bytes.len(), per_value_words(bytes.len(), values));
    let names: Vec<_> = vector.sources().iter().map(|source| source.name.clone()).collect();
    if !names.is_empty() {
        found.add("sources", names.clone(), names.join(", "));
    }
    let mut list = vec![];
    for spec in vector.specs() {
        let dtype = spec.dtype.name();
        found.lines.push(format!("tensor           {:?} {dtype} {:?}", spec.name, spec.shape));
        list.push(json!({ "name": spec.name, "dtype": dtype, "shape": spec.shape }));
    }
    found.json.insert("tensors".into(), list.into());
    Ok(())
}

/// Describes keys to compute with.
pub(super) fn evaluation_key(bytes: &[u8], found: &mut Findings) -> Result<(), Error> {
    let keys = EvaluationKeys::from_bytes(bytes, &CpuEngine::new())?;
    found.add("kind", "evaluation key", "evaluation key: for those who compute");
    describe(keys.parameters(), found)?;
    found.add_same("key_id", keys.id().to_string());
    let ([products, conjugates], rotations) = (keys.others(), keys.rotations());
    found.add_same("products", products);
    found.add_same("conjugates", conjugates);
    let words = rotations.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    found.add("rotations", rotations, words);
    found.add_same("bytes", bytes.len());
    Ok(())
}

/// Describes a key.
pub(super) fn key(key: &LevelledKey, path: &Path, found: &mut Findings) -> Result<(), Error> {
    match key {
        LevelledKey::Public(_) => {
            found.add("kind", "public key", "public key: for those who encrypt")
        }
        LevelledKey::Secret(_) => {
            found.add("kind", "secret key", "secret key: for those who decrypt, and no one else");
            permission_warning(path).iter().for_each(|warning| warn(warning));
        }
    }
    describe(key.public().parameters(), found)?;
    found.add_same("key_id", key.public().id().to_string());
    Ok(())
}

fn describe(set: &Parameters, found: &mut Findings) -> Result<(), Error> {
    found.add_same("scheme", set.named()?.name());
    found.add("slots", set.slots(), format!("{} numbers a ciphertext", set.slots()));
    let (degree, log_qp) = (set.degree(), set.log_qp());
    let words = format!("N = {degree}, log2 QP = {log_qp:.2}, ternary secret, 128-bit");
    found.add("ring_degree", degree, words);
    Ok(())
}

//! The sizes of a preset of the levelled scheme.

use ciphergram_he::ckks::{Bound, Operation, Parameters, Preset};
use serde_json::{Value, json};

use super::STANDARD;

/// Returns the steps that lead to a preset's sizes, as JSON and as lines for people.
pub(super) fn derivation(preset: Preset) -> (Value, Vec<String>) {
    let p = Parameters::preset(preset);
    let (top, degree, slots) = (p.top_level(), p.degree(), p.slots());
    let (primes, special) = (p.ring(top).primes(), p.special_primes());
    let (log_qp, limit) = (p.log_qp(), p.security_limit());
    let list = |primes: &[u64]| primes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let digits: Vec<usize> = (0..=top).map(|level| p.digits(level)).collect();
    let transforms = Operation::Multiply.program(&p).map_or(0, |program| program.transforms());
    let [secret, public] = [false, true].map(|public| p.fresh_bound(1.0, public));
    let product = p.product_bound(public, public, top);
    let error = |bound: Bound| format!("{:.1e}, {:.0} bits", bound.error, -bound.error.log2());
    let part = degree * (top + 1) * 8;
    let key = 2 * p.digits(top) * degree * (special.len() + top + 1) * 8;
    let json = json!({
        "scheme": preset.to_string(), "slots": slots, "levels": top,
        "security": {
            "ring_degree": degree, "primes": primes, "special_primes": special,
            "log2_qp": log_qp, "log2_qp_limit": limit, "level_bits": 128, "secret": "ternary",
            "source": STANDARD,
        },
        "levels_and_scales": {"log2_scales": (0..=top).map(|l| p.scale(l).log2()).collect::<Vec<_>>()},
        "digits": {"primes_each": special.len(), "by_level": digits, "transforms_of_product": transforms},
        "noise": {
            "fresh_secret": secret.error, "fresh_public": public.error, "product": product.error,
            "failure_log2": -40,
        },
        "size": {"ciphertext_bytes": 2 * part, "key_bytes": key},
    });
    let mut lines = vec![format!("{preset}, {slots} slots, {top} products in a row")];
    let mut step = |name: &str, says: Vec<String>| {
        lines.extend([String::new(), name.into()]);
        lines.extend(says.iter().map(|line| format!("  {line}")));
    };
    let mut says = vec![
        format!("the ring degree is N = {degree}: twice the slots"),
        "Q is the product of".into(),
    ];
    says.extend(primes.chunks(4).map(&list));
    says.push("and P, the special primes, of".into());
    says.extend(special.chunks(4).map(&list));
    says.push(format!("log2 QP is {log_qp:.2}; with a ternary secret at most {limit}"));
    says.push(format!("is 128-bit secure ({STANDARD}, N = {degree})"));
    step("security", says);
    step(
        "scales",
        vec![
            format!(
                "slots are times 2^{:.4} when they are fresh, and within 2^-10 of that on",
                p.scale(top).log2()
            ),
            "each level below: what rescaling by its prime leaves of the square".into(),
        ],
    );
    step(
        "digits",
        vec![
            format!(
                "a digit has as many primes as P, {}: {} digits on the top level",
                special.len(),
                digits[top]
            ),
            format!("a product, relinearised and rescaled, takes {transforms} transforms"),
            format!("a key for products, or for a rotation, takes {:.1} MB", key as f64 / 1e6),
        ],
    );
    step(
        "noise",
        vec![
            "errors of slots within 1, but for a chance of 2^-40, at most:".into(),
            format!("fresh, by the secret key: {}", error(secret)),
            format!("fresh, by the public key: {}", error(public)),
            format!("a product of two such: {}", error(product)),
        ],
    );
    step(
        "size",
        vec![format!(
            "a fresh ciphertext takes {} bytes in memory, {:.1} a slot",
            2 * part,
            2.0 * part as f64 / slots as f64
        )],
    );
    (json, lines)
}

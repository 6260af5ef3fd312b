//! `ciphergram show params`: derives the sizes of a parameter set from scheme, clients and bits.

mod levelled;

use ciphergram_he::{
    Parameters, Scheme,
    params::{CHUNK_BYTES, COEFFICIENT_BITS, PAD_BITS},
    rlwe::{NOISE_BOUND, RlweParameters},
};
use serde_json::{Value, json};

use crate::{
    args::{AnyScheme, ParamsArgs},
    commands::vectors,
    failure::Failure,
    report::report,
};

/// Values of the update whose size is shown.
const VALUES: usize = 1_000_000;
const STANDARD: &str = "HE Standard of 2018 and guidelines of 2024, the tighter";
const NIST: &str = "NIST SP 800-57 part 1, table 2, which is for RSA";
const NOISE: &str = "centred binomial of 2 x 21 bits";

pub(crate) fn run(args: &ParamsArgs) -> Result<(), Failure> {
    let scheme = match args.set.scheme {
        AnyScheme::Sums(scheme) => scheme,
        AnyScheme::Levelled(preset) => {
            vectors::refuse(&args.set.of_sums(), preset.name())?;
            let (json, lines) = levelled::derivation(preset);
            return report(args.report.json, &json, &lines);
        }
    };
    let literal = args.set.literal(scheme);
    let parameters = Parameters::new(literal).map_err(|e| Failure::Misuse(e.to_string()))?;
    let derivation = Derivation::of(&parameters);
    report(args.report.json, &derivation.json, &derivation.lines)
}

/// The steps of a derivation, as lines for people and as JSON.
struct Derivation {
    json: Value,
    lines: Vec<String>,
}

impl Derivation {
    fn of(p: &Parameters) -> Self {
        let (scheme, clients, bits) = (p.scheme(), p.clients(), p.bits());
        let json = json!({
            "scheme": scheme.name(), "clients": clients, "bits": bits,
            "parameters_id": p.id().map(|byte| format!("{byte:02x}")).concat(),
        });
        let title = format!("{scheme}, sums of at most {clients} clients at {bits} bits a value");
        let mut all = Self { json, lines: vec![title] };
        if let Some(rlwe) = p.rlwe() {
            all.rlwe(p, rlwe);
        } else if let Some(modulus_bits) = scheme.modulus_bits() {
            all.paillier(p, modulus_bits);
        }
        all
    }

    /// Adds a step: its name, its figures, and its lines.
    fn step(&mut self, name: &str, figures: Value, says: Vec<String>) {
        self.lines.extend([String::new(), name.replace('_', " ")]);
        self.lines.extend(says.iter().map(|line| format!("  {line}")));
        self.json[name] = figures;
    }

    fn rlwe(&mut self, p: &Parameters, rlwe: &RlweParameters) {
        let (ring, log_q, limit) = (&rlwe.ring, rlwe.log_q(), rlwe.security_limit());
        let (degree, primes) = (ring.degree(), ring.primes());
        let (secret, most) = match p.scheme() {
            // Wider, also once a sum of two is known: see he/docs/threshold.md.
            Scheme::CkksSumThreshold => {
                ("centred binomial", "with ternary secrets, which are narrower, at most")
            }
            _ => ("ternary", "with a ternary secret at most"),
        };
        let figures = json!({
            "ring_degree": degree, "primes": primes, "log2_q": log_q, "log2_q_limit": limit,
            "level_bits": 128, "secret": secret, "source": STANDARD,
        });
        let list: Vec<_> = primes.iter().map(u64::to_string).collect();
        let says = vec![
            format!("the ring degree is N = {degree}, Q the product of {} primes:", primes.len()),
            list.join(", "),
            format!("log2 Q is just below {:.0}; {most} {limit}", log_q.ceil()),
            format!("is 128-bit secure ({STANDARD}, N = {degree})"),
        ];
        self.step("security", figures, says);

        let (clients, bound, margin) = (p.clients(), rlwe.noise_bound, rlwe.margin_bits);
        let deviation = f64::sqrt(10.5);
        let figures = json!({
            "distribution": NOISE, "standard_deviation": deviation, "bound_of_one": NOISE_BOUND,
            "bound_of_sum": bound, "margin_bits": margin,
        });
        let says = vec![
            format!("of one contribution: {NOISE}, standard deviation {deviation:.2},"),
            format!("never more than {NOISE_BOUND} away from zero"),
            format!("of a sum: never more than {clients} x {NOISE_BOUND} = {bound} away"),
            format!(
                "so the margin has {margin} bits: {bound} is below 2^{}, half of it",
                margin - 1
            ),
        ];
        self.step("noise", figures, says);

        let g = p.geometry();
        let (field_bits, fields) = (g.field_bits, g.fields_per_slot);
        let capacity = (log_q - f64::from(margin)) / f64::from(field_bits);
        let whole = format!("{fields} whole fields to a coefficient");
        let says = vec![
            format!("({:.0} - {margin}) / {field_bits} = {capacity:.2}: {whole}", log_q.ceil()),
            "all at their largest, and the noise and a margin on top, do not pass Q (checked"
                .into(),
            "with the exact integers): a sum never wraps".into(),
        ];
        self.fields(p, says);
        let (each, unit) = (g.slots_per_unit, g.unit_bytes);
        let says = vec![
            format!("a coefficient is {} residues, a beat of 64 bytes ten:", primes.len()),
            format!("{each} coefficients are a unit of {unit} bytes"),
            format!("a chunk of at most {CHUNK_BYTES} bytes is {} coefficients", g.slots_per_chunk),
        ];
        self.head(p);
        self.chunks(p, says);
        self.failure("rounding to the margin is right whatever noise within its bound is drawn");

        let others = p.others();
        let others: Vec<_> = others.iter().filter_map(|p| Some((p, p.rlwe()?))).collect();
        let figures = others.iter().map(|(p, rlwe)| ring_figures(p, rlwe));
        let says = others.iter().map(|(p, rlwe)| ring_words(p, rlwe));
        self.step("not_chosen", figures.collect(), says.collect());
        self.larger(p);
    }

    /// Derives the rings of large updates.
    fn larger(&mut self, p: &Parameters) {
        let sets: Vec<_> =
            p.larger().filter_map(|(from, set)| Some((from, set, set.rlwe()?))).collect();
        if sets.is_empty() {
            return;
        }
        let figures = sets.iter().map(|(from, set, rlwe)| {
            let mut figures = ring_figures(set, rlwe);
            figures["from_values"] = json!(from);
            figures
        });
        let mut says = vec![
            "large updates travel under larger rings: a coefficient spends one margin and one rounding"
                .into(),
            "on more fields, and its head takes only part of a coefficient".into(),
        ];
        says.extend(
            sets.iter().map(|(from, set, rlwe)| {
                format!("from {from} values on, {}", ring_words(set, rlwe))
            }),
        );
        let chosen = p.of_values(VALUES);
        if chosen != p {
            let total = chosen.chunks(VALUES).total_bytes();
            says.push(format!("{VALUES} values then take {total} bytes"));
        }
        self.step("large_updates", figures.collect(), says);
    }

    fn paillier(&mut self, p: &Parameters, modulus_bits: u32) {
        let (level, words) = match p.scheme() {
            Scheme::Paillier2048 => (112, "about 112-bit security"),
            Scheme::Paillier3072 => (128, "about 128-bit security"),
            _ => (128, "more than the 128-bit security of 3072 bits"),
        };
        let figures = json!({"modulus_bits": modulus_bits, "level_bits": level, "source": NIST});
        let says = vec![
            format!("n is the product of two primes and has {modulus_bits} bits:"),
            format!("{words} ({NIST})"),
        ];
        self.step("security", figures, says);
        let (g, usable_bits) = (p.geometry(), modulus_bits - 1);
        let (field_bits, fields) = (g.field_bits, g.fields_per_slot);
        let quotient = f64::from(usable_bits) / f64::from(field_bits);
        let says = vec![
            format!(
                "{usable_bits} / {field_bits} = {quotient:.2}: {fields} whole fields to a plaintext,"
            ),
            "which is then below n: a sum never wraps".into(),
        ];
        self.fields(p, says);
        let ciphertexts = match g.slots_per_chunk {
            1 => "one ciphertext".to_owned(),
            count => format!("{count} ciphertexts"),
        };
        let says = vec![
            format!("a ciphertext is a number below n squared: {} bytes", g.unit_bytes),
            format!("a chunk of at most {CHUNK_BYTES} bytes is {ciphertexts}"),
        ];
        self.head(p);
        self.chunks(p, says);
        self.failure("plaintexts are exact integers without noise");
    }

    /// Derives the width of a field; `says` derives the number of fields to a slot.
    fn fields(&mut self, p: &Parameters, says: Vec<String>) {
        let (g, clients, bits, half) = (p.geometry(), p.clients(), p.bits(), p.half_steps());
        let (largest, field_bits) = (2 * half, g.field_bits);
        let sum = u64::from(clients) * u64::from(largest);
        let figures = json!({
            "half_steps": half, "largest_value": largest, "largest_sum": sum,
            "field_bits": field_bits, "fields_per_slot": g.fields_per_slot,
        });
        let mut all = vec![
            format!("{bits} bits are values from -{half} to {half}, sent as 0 to {largest}"),
            format!(
                "the largest sum is {clients} x {largest} = {sum}: a field has {field_bits} bits"
            ),
            "one contributor more is refused, so no field ever overflows".into(),
        ];
        all.extend(says);
        self.step("fields", figures, all);
    }

    /// Derives the composition of the head of a chunk.
    fn head(&mut self, p: &Parameters) {
        let (g, clients) = (p.geometry(), p.clients());
        let (head, slot_bits) = (&g.head, g.fields_per_slot as u32 * g.field_bits);
        let (count, weight) = (head.count_bits(), head.weight_bits());
        let (tag, tags) = (head.tag_bits(), head.tag_sum_bits());
        let figures = json!({
            "count_bits": count, "weight_bits": weight, "coefficient_bits": COEFFICIENT_BITS,
            "pad_bits": PAD_BITS, "tag_bits": tag, "tag_sum_bits": tags, "slot_bits": slot_bits,
            "slots": head.slots(), "fields": g.head_fields,
        });
        let slots = if head.slots() == 1 { "slot" } else { "slots" };
        let pad = match p.scheme() {
            // It needs none, as its secrets are used once, but lays chunks out as ckks-sum does.
            Scheme::CkksSumThreshold => "and room for a pad",
            _ => "and a pad",
        };
        let says = vec![
            format!("{count} bits count {clients} contributors, {weight} bits add their weights"),
            "a tag is the count, the weight and all values of a chunk, each times a secret number of"
                .into(),
            format!("{COEFFICIENT_BITS} bits, {pad} of {PAD_BITS} bits: it has {tag} bits"),
            format!("{clients} of them are added and never reduced, in {tags} bits"),
            format!(
                "{count} + {weight} + {tags} bits lie in {} {slots} of {slot_bits} bits: {} fields",
                head.slots(),
                g.head_fields
            ),
        ];
        self.step("head", figures, says);
    }

    /// Derives the bytes of chunks and values; `says` defines a chunk.
    fn chunks(&mut self, p: &Parameters, mut says: Vec<String>) {
        let g = p.geometry();
        let (bytes, values, each) = (g.chunk_bytes(), g.values_per_chunk(), g.bytes_per_value());
        let (slots, fields, head) = (g.slots_per_chunk, g.fields_per_slot, g.head_fields);
        let figures = json!({
            "bytes": bytes, "most_bytes": CHUNK_BYTES, "slots": slots,
            "slots_per_unit": g.slots_per_unit, "unit_bytes": g.unit_bytes,
            "head_fields": head, "values": values, "group_chunks": g.group_chunks,
        });
        says.push(format!(
            "{slots} x {fields} - {head} = {values} fields are left for values after the head"
        ));
        self.step("chunks", figures, says);
        let total = g.chunks(VALUES).total_bytes();
        let figures = json!({"bytes_per_value": each, "values": VALUES, "bytes": total});
        let says = vec![
            format!("{bytes} / {values} = {each:.3} bytes a value"),
            format!("{VALUES} values take {total} bytes; as float32, {}", 4 * VALUES),
        ];
        self.step("size", figures, says);
    }

    fn failure(&mut self, why: &str) {
        let figures = json!({"value": 0, "why": why});
        self.step("failure_probability", figures, vec![format!("0: {why}")]);
    }
}

/// Returns the sizes of a ring, to compare with those of others.
fn ring_figures(p: &Parameters, rlwe: &RlweParameters) -> Value {
    let g = p.geometry();
    json!({
        "ring_degree": rlwe.ring.degree(), "primes": rlwe.ring.primes().len(),
        "log2_q": rlwe.log_q(), "log2_q_limit": rlwe.security_limit(),
        "margin_bits": rlwe.margin_bits, "fields_per_slot": g.fields_per_slot,
        "values_per_chunk": g.values_per_chunk(), "bytes_per_value": g.bytes_per_value(),
    })
}

/// Returns the same for people.
fn ring_words(p: &Parameters, rlwe: &RlweParameters) -> String {
    let (g, ring) = (p.geometry(), &rlwe.ring);
    let ring = format!("N = {} with {} primes", ring.degree(), ring.primes().len());
    let (fields, each) = (g.fields_per_slot, g.bytes_per_value());
    format!("{ring}: {fields} fields to a coefficient, {each:.3} bytes a value")
}

//! Tensors as the tests know them: apart from the library's own reading, rounding and averaging.

use std::collections::BTreeMap;

use half::{bf16, f16};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng as _, SeedableRng as _};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

/// Names to tensors.
pub(crate) type Tensors = BTreeMap<String, Tensor>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// As their type holds them.
    pub(crate) values: Vec<f64>,
}

impl Tensor {
    /// Makes `values`, rounded to the type.
    pub(crate) fn new(dtype: Dtype, shape: &[usize], values: Vec<f64>) -> Self {
        assert_eq!(values.len(), shape.iter().product::<usize>());
        let values = decode(dtype, &encode(dtype, &values));
        Self { dtype, shape: shape.into(), values }
    }

    pub(crate) fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |max, x| x.abs().max(max))
    }
}

fn encode(dtype: Dtype, values: &[f64]) -> Vec<u8> {
    let one = |&x: &f64| match dtype {
        Dtype::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f64(x).to_le_bytes().to_vec(),
        Dtype::F32 => (x as f32).to_le_bytes().to_vec(),
        _ => x.to_le_bytes().to_vec(),
    };
    values.iter().flat_map(one).collect()
}

fn decode(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
    let one = |b: &[u8]| match dtype {
        Dtype::F16 => f16::from_le_bytes([b[0], b[1]]).to_f64(),
        Dtype::BF16 => bf16::from_le_bytes([b[0], b[1]]).to_f64(),
        Dtype::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        _ => f64::from_le_bytes(b.try_into().unwrap()),
    };
    bytes.chunks_exact(dtype.bitsize() / 8).map(one).collect()
}

pub(crate) fn to_file(tensors: &Tensors) -> Vec<u8> {
    let data: Vec<_> = tensors.values().map(|t| encode(t.dtype, &t.values)).collect();
    let view = |t: &Tensor, data| TensorView::new(t.dtype, t.shape.clone(), data).unwrap();
    let views = tensors.iter().zip(&data).map(|((name, t), data)| (name, view(t, data)));
    safetensors::serialize(views, None).unwrap()
}

pub(crate) fn from_file(bytes: &[u8]) -> Tensors {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let tensor = |view: TensorView<'_>| Tensor {
        dtype: view.dtype(),
        shape: view.shape().into(),
        values: decode(view.dtype(), view.data()),
    };
    file.iter().map(|(name, view)| (name.to_owned(), tensor(view))).collect()
}

/// One tensor `t` of single precision.
pub(crate) fn single(values: &[f64]) -> Tensors {
    BTreeMap::from([("t".into(), Tensor::new(Dtype::F32, &[values.len()], values.into()))])
}

/// Numbers in ±1, the same for the same seed.
pub(crate) fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    move || f64::from(rng.next_u32()) / f64::from(1u32 << 31) - 1.0
}

/// Returns a client's tensors: every type, a scalar, an empty one, a bias of ten, one of many
/// chunks, magnitudes far apart.
pub(crate) fn mixed(seed: u64) -> Tensors {
    let mut draw = uniform(seed);
    let layout: [(&str, Dtype, &[usize], f64); 5] = [
        ("layer.weight", Dtype::F32, &[60, 50], 0.02),
        ("layer.bias", Dtype::F16, &[10], 0.5),
        ("scale", Dtype::F64, &[], 3.0),
        ("unused", Dtype::F32, &[4, 0], 1.0),
        ("embedding", Dtype::BF16, &[31, 7], 1e-4),
    ];
    let tensor = |(name, dtype, shape, size): (&str, _, &[usize], f64)| {
        let values = (0..shape.iter().product()).map(|_| size * draw()).collect();
        (name.to_owned(), Tensor::new(dtype, shape, values))
    };
    layout.into_iter().map(tensor).collect()
}

/// Returns the distance of neighbouring numbers of a type around `x`.
fn ulp(dtype: Dtype, x: f64) -> f64 {
    let (mantissa, smallest) = match dtype {
        Dtype::F16 => (10, -14),
        Dtype::BF16 => (7, -126),
        Dtype::F32 => (23, -126),
        _ => (52, -1022),
    };
    let exponent = (x.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.max(smallest) - mantissa)
}

/// Returns whether `found` is within `error` of `expected`, and half a unit in the last place of
/// its type. The last digits of double precision are not what is compared.
pub(crate) fn is_near(dtype: Dtype, found: f64, expected: f64, error: f64) -> bool {
    let half_ulp = ulp(dtype, found.abs().max(expected.abs())) / 2.0;
    (found - expected).abs() <= (error + half_ulp) * (1.0 + 1e-9) + expected.abs() * 1e-13
}

/// Returns the range that clients agree on by themselves.
pub(crate) fn power_of_two(largest: f64) -> f64 {
    if largest == 0.0 { 0.0 } else { largest.log2().ceil().exp2() }
}

/// The updates of all clients, and their agreement.
pub(crate) struct Brought {
    pub(crate) clients: Vec<Tensors>,
    pub(crate) weights: Vec<u64>,
    pub(crate) ranges: BTreeMap<String, f64>,
    pub(crate) max_weight: u64,
}

/// Half of the steps of 16 bits.
pub(crate) const HALF_STEPS: f64 = 32767.0;

impl Brought {
    /// Clients whose ranges are what `range` makes of each tensor's largest magnitude of all.
    pub(crate) fn new(clients: Vec<Tensors>, weights: &[u64], range: fn(f64) -> f64) -> Self {
        let largest =
            |name| clients.iter().map(|c: &Tensors| c[name].largest()).fold(0.0, f64::max);
        let ranges = clients[0].keys().map(|name| (name.clone(), range(largest(name)))).collect();
        let max_weight = *weights.iter().max().unwrap();
        Self { clients, weights: weights.into(), ranges, max_weight }
    }

    /// Every value of the weighted mean is within contributors · W ÷ Σ weights steps and half a
    /// unit in the last place of its type.
    pub(crate) fn check_mean(&self, found: &Tensors) {
        self.check(found, self.weights.iter().sum::<u64>() as f64);
    }

    /// The same of the weighted sum, where the error is contributors · W steps.
    pub(crate) fn check_sum(&self, found: &Tensors) {
        self.check(found, 1.0);
    }

    fn check(&self, found: &Tensors, divisor: f64) {
        let first = &self.clients[0];
        assert!(found.keys().eq(first.keys()), "{:?}", found.keys());
        for (name, tensor) in found {
            assert_eq!((tensor.dtype, &tensor.shape), (first[name].dtype, &first[name].shape));
            let steps = self.clients.len() as f64 * self.max_weight as f64 / divisor;
            let error = steps * self.ranges[name] / HALF_STEPS;
            for (i, &x) in tensor.values.iter().enumerate() {
                let terms = self.clients.iter().zip(&self.weights);
                let sum: f64 = terms.map(|(c, &w)| w as f64 * c[name].values[i]).sum();
                let expected = sum / divisor;
                let near = is_near(tensor.dtype, x, expected, error);
                assert!(near, "{name}[{i}] is {x}, expected {expected} ± {error}");
            }
        }
    }
}

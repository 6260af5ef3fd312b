//! The network that the demonstration trains: 64 pixels, a hidden layer of 280 units, 10 classes.
//!
//! ```text
//! hidden  = relu(hidden.weight · image + hidden.bias)
//! logits  = output.weight · hidden + output.bias
//! loss    = mean over images of −ln softmax(logits)[label]
//! ```
//!
//! Plain minibatch gradient descent in `f32`, with every sum in a fixed order: the same seed gives
//! the same bits on one machine, which is what lets a plaintext twin run beside encrypted training.

use ciphergram_he::{Dtype, Tensor, TensorSpec, Update};
use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::digits::{CLASSES, DigitImages, PIXELS, shuffled};
use crate::failure::Failure;

/// Units of the hidden layer; with 280 the network has 21,010 parameters.
const HIDDEN: usize = 280;
/// Parallel sums of a dot product. Both layer widths are multiples of it.
const LANES: usize = 8;
const _: () = assert!(PIXELS.is_multiple_of(LANES) && HIDDEN.is_multiple_of(LANES));

/// Names and shapes of the parameters, in the order in which a model holds them.
const LAYOUT: [(&str, &[usize]); 4] = [
    ("hidden.weight", &[HIDDEN, PIXELS]),
    ("hidden.bias", &[HIDDEN]),
    ("output.weight", &[CLASSES, HIDDEN]),
    ("output.bias", &[CLASSES]),
];

/// Training that reaches 0.93 accuracy in ten rounds of federated averaging.
pub(super) const TRAINING: Training = Training { epochs: 4, batch: 16, learning_rate: 0.1 };

/// A client's training between two exchanges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Training {
    /// Passes over the shard.
    pub(super) epochs: usize,
    /// Images a step; the last step of a pass may have fewer.
    pub(super) batch: usize,
    /// Length of a step along the mean gradient of its images.
    pub(super) learning_rate: f32,
}

/// A number for each weight of the model, or what is added to it: the parameters of [`LAYOUT`], each row-major.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Weights(pub(super) [Vec<f32>; 4]);

impl Weights {
    pub(super) fn zeros() -> Self {
        Self(LAYOUT.map(|(_, shape)| vec![0.0; shape.iter().product()]))
    }

    pub(super) fn count(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Adds others, times `scale`.
    pub(super) fn add(&mut self, scale: f32, others: &Self) {
        for (own, other) in self.0.iter_mut().zip(&others.0) {
            add_scaled(own, scale, other);
        }
    }

    /// Returns them as tensors of their names.
    pub(super) fn to_update(&self) -> Result<Update, Failure> {
        let tensors = LAYOUT.iter().zip(&self.0).map(|((name, shape), values)| {
            let values: Vec<_> = values.iter().map(|&x| f64::from(x)).collect();
            Tensor::from_values(spec(name, shape), &values)
        });
        Ok(Update::new(tensors.collect::<Result<_, _>>()?))
    }

    /// Reads tensors, which may stand in any order.
    ///
    /// # Errors
    ///
    /// A parameter has no tensor of its name and shape.
    pub(super) fn from_update(update: &Update) -> Result<Self, Failure> {
        let mut weights = Self::zeros();
        for ((name, shape), weights) in LAYOUT.iter().zip(&mut weights.0) {
            let tensor = update.tensors().iter().find(|tensor| tensor.spec.name == *name);
            let missing = || Failure::Work(format!("the update has no tensor {name:?}"));
            let tensor = tensor.ok_or_else(missing)?;
            let found = &tensor.spec.shape;
            if *found != spec(name, shape).shape {
                return Err(Failure::Work(format!(
                    "tensor {name:?} of the update has shape {found:?} instead of {shape:?}"
                )));
            }
            *weights = tensor.values()?.iter().map(|&x| x as f32).collect();
        }
        Ok(weights)
    }
}

fn spec(name: &str, shape: &[usize]) -> TensorSpec {
    let shape = shape.iter().map(|&d| d as u64).collect();
    TensorSpec { name: name.into(), dtype: Dtype::F32, shape }
}

/// The quality of a model on images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quality {
    /// Mean cross-entropy in nats.
    pub(super) loss: f64,
    /// Share of images whose likeliest class is the label, 0..=1.
    pub(super) accuracy: f64,
}

/// A two-layer classifier.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Classifier {
    weights: Weights,
}

impl Classifier {
    /// Returns a model with random weights and zero biases.
    ///
    /// # Source
    ///
    /// K. He et al., "Delving Deep into Rectifiers", 2015, §2.2: variance 2 / inputs. Uniform
    /// numbers have that variance when they reach to √(6 / inputs).
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let mut weights = Weights::zeros();
        for (tensor, inputs) in [(0, PIXELS), (2, HIDDEN)] {
            let reach = (6.0 / inputs as f32).sqrt();
            weights.0[tensor].fill_with(|| reach * signed_unit(&mut rng));
        }
        Self { weights }
    }

    pub(super) fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Trains a copy on `shard`, and returns what that adds to each parameter: trained minus
    /// initial.
    ///
    /// This is the update of federated averaging; the mean of all clients', weighted by shard
    /// sizes, goes to [`Classifier::apply`]. An empty shard gives zeros. The seed orders the images
    /// and should differ between clients and between rounds.
    pub(super) fn local_update(
        &self,
        shard: &DigitImages,
        training: &Training,
        seed: u64,
    ) -> Weights {
        let mut trained = self.clone();
        let mut scratch = TrainingBuffers::new();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        for _ in 0..training.epochs {
            let order = shuffled(shard.len(), &mut rng);
            for batch in order.chunks(training.batch.max(1)) {
                trained.step(shard, batch, training.learning_rate, &mut scratch);
            }
        }
        trained.weights.add(-1.0, &self.weights);
        trained.weights
    }

    /// Adds an update.
    pub(super) fn apply(&mut self, update: &Weights) {
        self.weights.add(1.0, update);
    }

    /// Loss and accuracy over `digits`; both 0 if there are none.
    pub(super) fn evaluate(&self, digits: &DigitImages) -> Quality {
        let mut scratch = TrainingBuffers::new();
        let (mut loss, mut correct) = (0.0, 0_usize);
        for index in 0..digits.len() {
            self.forward(digits.image(index), &mut scratch);
            correct += usize::from(likeliest(&scratch.logits) == digits.label(index));
            loss += f64::from(softmax_loss(&mut scratch.logits, digits.label(index)));
        }
        let images = digits.len().max(1) as f64;
        Quality { loss: loss / images, accuracy: correct as f64 / images }
    }

    /// Takes one step of gradient descent along the mean gradient of the images in `batch`.
    fn step(
        &mut self,
        shard: &DigitImages,
        batch: &[usize],
        rate: f32,
        scratch: &mut TrainingBuffers,
    ) {
        scratch.gradient.0.iter_mut().for_each(|tensor| tensor.fill(0.0));
        for &index in batch {
            self.forward(shard.image(index), scratch);
            softmax_loss(&mut scratch.logits, shard.label(index));
            self.backward(shard.image(index), scratch);
        }
        self.weights.add(-rate / batch.len() as f32, &scratch.gradient);
    }

    /// Leaves the hidden activations and the logits of one image in `scratch`.
    fn forward(&self, image: &[f32], scratch: &mut TrainingBuffers) {
        let [hidden_weight, hidden_bias, output_weight, output_bias] = &self.weights.0;
        affine(hidden_weight, hidden_bias, image, &mut scratch.hidden);
        scratch.hidden.iter_mut().for_each(|unit| *unit = unit.max(0.0));
        affine(output_weight, output_bias, &scratch.hidden, &mut scratch.logits);
    }

    /// Adds one image's gradient, given ∂loss/∂logits in `scratch.logits`.
    fn backward(&self, image: &[f32], scratch: &mut TrainingBuffers) {
        let TrainingBuffers { hidden, hidden_slope, logits, gradient } = scratch;
        let [hidden_weight, hidden_bias, output_weight, output_bias] = &mut gradient.0;
        let rows = self.weights.0[2].chunks_exact(HIDDEN);
        hidden_slope.fill(0.0);
        add_scaled(output_bias, 1.0, logits);
        let gradient_rows = output_weight.chunks_exact_mut(HIDDEN);
        for ((row, gradient_row), &slope) in rows.zip(gradient_rows).zip(&*logits) {
            add_scaled(gradient_row, slope, hidden);
            add_scaled(hidden_slope, slope, row);
        }
        let gradient_rows = hidden_weight.chunks_exact_mut(PIXELS);
        let units = gradient_rows.zip(hidden_bias).zip(&*hidden_slope).zip(&*hidden);
        for (((gradient_row, bias), &slope), &unit) in units {
            // A unit that is off passes nothing back.
            if unit > 0.0 {
                *bias += slope;
                add_scaled(gradient_row, slope, image);
            }
        }
    }
}

/// Buffers of one image's passes and one batch's gradient, reused throughout a training.
struct TrainingBuffers {
    hidden: Vec<f32>,
    /// ∂loss/∂hidden.
    hidden_slope: Vec<f32>,
    /// The logits, then ∂loss/∂logits in their place.
    logits: Vec<f32>,
    gradient: Weights,
}

impl TrainingBuffers {
    fn new() -> Self {
        Self {
            hidden: vec![0.0; HIDDEN],
            hidden_slope: vec![0.0; HIDDEN],
            logits: vec![0.0; CLASSES],
            gradient: Weights::zeros(),
        }
    }
}

/// Uniform in −1..1, of 24 random bits: as many as an `f32` holds.
fn signed_unit(rng: &mut ChaCha20Rng) -> f32 {
    (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0
}

/// out = weight · input + bias, weight being `[out][input]`.
fn affine(weight: &[f32], bias: &[f32], input: &[f32], out: &mut [f32]) {
    let rows = weight.chunks_exact(input.len());
    for ((value, row), &bias) in out.iter_mut().zip(rows).zip(bias) {
        *value = bias + dot(row, input);
    }
}

/// Several sums side by side, because the compiler may not reorder one float sum into vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

/// a += scale · b.
fn add_scaled(a: &mut [f32], scale: f32, b: &[f32]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += scale * b;
    }
}

/// Replaces the logits by ∂loss/∂logits and returns the loss of one image.
fn softmax_loss(logits: &mut [f32], label: usize) -> f32 {
    let peak = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Shifting by the peak keeps every exponential in 0..=1 and their sum at least 1.
    let own = logits[label] - peak;
    logits.iter_mut().for_each(|logit| *logit = (*logit - peak).exp());
    let total: f32 = logits.iter().sum();
    logits.iter_mut().for_each(|share| *share /= total);
    logits[label] -= 1.0;
    total.ln() - own
}

/// Returns the first of the largest.
fn likeliest(logits: &[f32]) -> usize {
    let larger = |best, index| if logits[index] > logits[best] { index } else { best };
    (0..logits.len()).fold(0, larger)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the weighted mean of the clients' updates, as a plaintext aggregator takes it.
    fn weighted_mean(updates: &[Weights], weights: &[usize]) -> Weights {
        let total = weights.iter().sum::<usize>() as f32;
        let mut mean = Weights::zeros();
        for (update, &weight) in updates.iter().zip(weights) {
            mean.add(weight as f32 / total, update);
        }
        mean
    }

    /// Plain federated averaging; the accuracy after the last round.
    fn federate(clients: usize, rounds: u64, seed: u64) -> Quality {
        let split = DigitImages::load().split(seed);
        let shards = split.train.shards(clients, seed);
        let weights: Vec<usize> = shards.iter().map(DigitImages::len).collect();
        let mut model = Classifier::new(seed);
        for round in 0..rounds {
            let train = |(client, shard)| {
                let seed = seed << 32 | round << 16 | client as u64;
                model.local_update(shard, &TRAINING, seed)
            };
            let updates: Vec<_> = shards.iter().enumerate().map(train).collect();
            model.apply(&weighted_mean(&updates, &weights));
        }
        model.evaluate(&split.test)
    }

    #[test]
    fn ten_rounds_of_four_clients_learn_the_digits() {
        for seed in 0..=5 {
            let start = std::time::Instant::now();
            let Quality { loss, accuracy } = federate(4, 10, seed);
            println!("seed {seed}: loss {loss:.4}, accuracy {accuracy:.4}, {:?}", start.elapsed());
            assert!(accuracy >= 0.93, "seed {seed}: accuracy {accuracy}");
        }
    }

    #[test]
    fn the_model_is_as_large_as_promised() {
        assert_eq!(Classifier::new(0).weights().count(), 21_010);
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let shard = DigitImages::load().shards(150, 0).swap_remove(0);
        let model = Classifier::new(1);
        let whole = Training { epochs: 1, batch: shard.len(), learning_rate: 1.0 };
        // One step of length 1 over the whole shard is the negative mean gradient.
        let gradient = model.local_update(&shard, &whole, 0);
        for (layer, index) in [(0, 650), (0, 7_010), (1, 5), (2, 3), (2, 2_000), (3, 9)] {
            let loss_at = |offset: f32| {
                let mut moved = model.clone();
                moved.weights.0[layer][index] += offset;
                moved.evaluate(&shard).loss
            };
            let slope = (loss_at(1e-2) - loss_at(-1e-2)) / 2e-2;
            let found = -f64::from(gradient.0[layer][index]);
            assert!((slope - found).abs() < 1e-4, "{layer}.{index}: {slope} against {found}");
        }
    }

    #[test]
    fn an_update_leads_from_the_initial_to_the_trained_model() {
        let shard = DigitImages::load().shards(8, 0).swap_remove(0);
        let mut model = Classifier::new(2);
        let before = model.evaluate(&shard);
        let update = model.local_update(&shard, &TRAINING, 3);
        assert_eq!(update, model.local_update(&shard, &TRAINING, 3));
        assert_ne!(update, model.local_update(&shard, &TRAINING, 4));
        model.apply(&update);
        assert!(model.evaluate(&shard).loss < before.loss);
    }

    #[test]
    fn an_empty_shard_changes_nothing() {
        let empty = DigitImages::load().shards(4_000, 0).into_iter().find(|shard| shard.len() == 0);
        let update = Classifier::new(0).local_update(&empty.unwrap(), &TRAINING, 0);
        assert!(update.0.iter().flatten().all(|value| *value == 0.0));
    }

    #[test]
    fn an_update_finds_its_tensors_by_name() {
        let weights = Classifier::new(4).weights;
        let update = weights.to_update().unwrap_or_else(|e| panic!("{e}"));
        assert_ne!(update.tensors()[0].spec.name, LAYOUT[0].0, "sorted by name");
        let read = Weights::from_update(&update);
        assert_eq!(read.unwrap_or_else(|e| panic!("{e}")), weights);
    }

    #[test]
    fn an_update_that_does_not_fit_is_refused() {
        let update = Classifier::new(5).weights.to_update().unwrap_or_else(|e| panic!("{e}"));
        let refusal = |other: Option<Tensor>| {
            let kept = update.tensors().iter().filter(|tensor| tensor.spec.name != "output.bias");
            match Weights::from_update(&Update::new(kept.cloned().chain(other).collect())) {
                Err(refusal) => refusal.to_string(),
                Ok(_) => panic!("it fits"),
            }
        };
        let other = Tensor::from_values(spec("output.bias", &[2, 5]), &[0.0; 10]).unwrap();
        let shape = "tensor \"output.bias\" of the update has shape [2, 5] instead of [10]";
        assert_eq!(refusal(Some(other)), shape);
        assert_eq!(refusal(None), "the update has no tensor \"output.bias\"");
    }
}

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

use rand_chacha::ChaCha20Rng;
use rand_core::{Rng, SeedableRng};

use super::digits::{CLASSES, DigitImages, PIXELS, shuffled};

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

/// A named array of numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamedArray {
    /// Unique within a model or an update.
    pub(super) name: String,
    /// Row-major; the product is the number of values.
    pub(super) shape: Vec<usize>,
    /// The numbers themselves.
    pub(super) values: Vec<f32>,
}

/// An update that does not fit the model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Misfit {
    /// A parameter of the model has no tensor in the update.
    #[error("the update has no tensor {name:?}")]
    Missing {
        /// The parameter's name.
        name: String,
    },
    /// A tensor of the update has another shape than the parameter of its name.
    #[error("tensor {name:?} of the update has shape {found:?} instead of {expected:?}")]
    Shape {
        /// The parameter's name.
        name: String,
        /// The parameter's shape.
        expected: Vec<usize>,
        /// The shape in the update.
        found: Vec<usize>,
    },
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
    /// One tensor an entry of [`LAYOUT`].
    parameters: [NamedArray; 4],
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
        let mut parameters = LAYOUT.map(|(name, shape)| zeros(name, shape));
        let [hidden_weight, _, output_weight, _] = &mut parameters;
        for tensor in [hidden_weight, output_weight] {
            let reach = (6.0 / tensor.shape[1] as f32).sqrt();
            tensor.values.fill_with(|| reach * signed_unit(&mut rng));
        }
        Self { parameters }
    }

    /// Returns the parameters as named tensors, in a fixed order.
    pub(super) fn parameters(&self) -> &[NamedArray] {
        &self.parameters
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
    ) -> Vec<NamedArray> {
        let mut trained = self.clone();
        let mut scratch = TrainingBuffers::new();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        for _ in 0..training.epochs {
            let order = shuffled(shard.len(), &mut rng);
            for batch in order.chunks(training.batch.max(1)) {
                trained.step(shard, batch, training.learning_rate, &mut scratch);
            }
        }
        for (tensor, initial) in trained.parameters.iter_mut().zip(&self.parameters) {
            add_scaled(&mut tensor.values, -1.0, &initial.values);
        }
        trained.parameters.into()
    }

    /// Adds an update, whose tensors may stand in any order.
    ///
    /// # Errors
    ///
    /// [`Misfit`] if a parameter has no tensor of its name and shape; the model is then unchanged.
    pub(super) fn apply(&mut self, update: &[NamedArray]) -> Result<(), Misfit> {
        let mut next = self.clone();
        for parameter in &mut next.parameters {
            let tensor = matching(parameter, update)?;
            add_scaled(&mut parameter.values, 1.0, &tensor.values);
        }
        *self = next;
        Ok(())
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
        scratch.gradient.iter_mut().for_each(|tensor| tensor.values.fill(0.0));
        for &index in batch {
            self.forward(shard.image(index), scratch);
            softmax_loss(&mut scratch.logits, shard.label(index));
            self.backward(shard.image(index), scratch);
        }
        let scale = -rate / batch.len() as f32;
        for (parameter, gradient) in self.parameters.iter_mut().zip(&scratch.gradient) {
            add_scaled(&mut parameter.values, scale, &gradient.values);
        }
    }

    /// Leaves the hidden activations and the logits of one image in `scratch`.
    fn forward(&self, image: &[f32], scratch: &mut TrainingBuffers) {
        let [hidden_weight, hidden_bias, output_weight, output_bias] = &self.parameters;
        affine(hidden_weight, hidden_bias, image, &mut scratch.hidden);
        scratch.hidden.iter_mut().for_each(|unit| *unit = unit.max(0.0));
        affine(output_weight, output_bias, &scratch.hidden, &mut scratch.logits);
    }

    /// Adds one image's gradient, given ∂loss/∂logits in `scratch.logits`.
    fn backward(&self, image: &[f32], scratch: &mut TrainingBuffers) {
        let TrainingBuffers { hidden, hidden_slope, logits, gradient } = scratch;
        let [hidden_weight, hidden_bias, output_weight, output_bias] = gradient;
        let [_, _, weight, _] = &self.parameters;
        let rows = weight.values.chunks_exact(HIDDEN);
        hidden_slope.fill(0.0);
        add_scaled(&mut output_bias.values, 1.0, logits);
        let gradient_rows = output_weight.values.chunks_exact_mut(HIDDEN);
        for ((row, gradient_row), &slope) in rows.zip(gradient_rows).zip(&*logits) {
            add_scaled(gradient_row, slope, hidden);
            add_scaled(hidden_slope, slope, row);
        }
        let gradient_rows = hidden_weight.values.chunks_exact_mut(PIXELS);
        let units = gradient_rows.zip(&mut hidden_bias.values).zip(&*hidden_slope).zip(&*hidden);
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
    gradient: [NamedArray; 4],
}

impl TrainingBuffers {
    fn new() -> Self {
        Self {
            hidden: vec![0.0; HIDDEN],
            hidden_slope: vec![0.0; HIDDEN],
            logits: vec![0.0; CLASSES],
            gradient: LAYOUT.map(|(name, shape)| zeros(name, shape)),
        }
    }
}

fn zeros(name: &str, shape: &[usize]) -> NamedArray {
    let values = vec![0.0; shape.iter().product()];
    NamedArray { name: name.to_owned(), shape: shape.to_vec(), values }
}

/// Uniform in −1..1, of 24 random bits: as many as an `f32` holds.
fn signed_unit(rng: &mut ChaCha20Rng) -> f32 {
    (rng.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0
}

fn matching<'a>(
    parameter: &NamedArray,
    update: &'a [NamedArray],
) -> Result<&'a NamedArray, Misfit> {
    let named = update.iter().find(|tensor| tensor.name == parameter.name);
    let tensor = named.ok_or_else(|| Misfit::Missing { name: parameter.name.clone() })?;
    if tensor.shape != parameter.shape || tensor.values.len() != parameter.values.len() {
        return Err(Misfit::Shape {
            name: parameter.name.clone(),
            expected: parameter.shape.clone(),
            found: tensor.shape.clone(),
        });
    }
    Ok(tensor)
}

/// out = weight · input + bias, weight being `[out][input]`.
fn affine(weight: &NamedArray, bias: &NamedArray, input: &[f32], out: &mut [f32]) {
    let rows = weight.values.chunks_exact(input.len());
    for ((value, row), &bias) in out.iter_mut().zip(rows).zip(&bias.values) {
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
    fn weighted_mean(updates: &[Vec<NamedArray>], weights: &[usize]) -> Vec<NamedArray> {
        let total = weights.iter().sum::<usize>() as f32;
        let mut mean = LAYOUT.map(|(name, shape)| zeros(name, shape));
        for (update, &weight) in updates.iter().zip(weights) {
            for (mean, tensor) in mean.iter_mut().zip(update) {
                add_scaled(&mut mean.values, weight as f32 / total, &tensor.values);
            }
        }
        mean.into()
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
            let updates: Vec<Vec<NamedArray>> = shards.iter().enumerate().map(train).collect();
            model.apply(&weighted_mean(&updates, &weights)).unwrap();
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
        let model = Classifier::new(0);
        let counts = model.parameters().iter().map(|tensor| tensor.values.len());
        assert_eq!(counts.sum::<usize>(), 21_010);
        for tensor in model.parameters() {
            assert_eq!(tensor.values.len(), tensor.shape.iter().product::<usize>());
        }
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
                moved.parameters[layer].values[index] += offset;
                moved.evaluate(&shard).loss
            };
            let slope = (loss_at(1e-2) - loss_at(-1e-2)) / 2e-2;
            let found = -f64::from(gradient[layer].values[index]);
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
        model.apply(&update).unwrap();
        assert!(model.evaluate(&shard).loss < before.loss);
    }

    #[test]
    fn an_empty_shard_changes_nothing() {
        let empty = DigitImages::load().shards(4_000, 0).into_iter().find(|shard| shard.len() == 0);
        let update = Classifier::new(0).local_update(&empty.unwrap(), &TRAINING, 0);
        assert!(update.iter().flat_map(|tensor| &tensor.values).all(|value| *value == 0.0));
    }

    #[test]
    fn an_update_finds_its_tensors_by_name() {
        let mut model = Classifier::new(4);
        let mut update = model.parameters().to_vec();
        update.reverse();
        model.apply(&update).unwrap();
        let doubled = Classifier::new(4).parameters()[0].values[0] * 2.0;
        assert_eq!(model.parameters()[0].values[0], doubled);
    }

    #[test]
    fn an_update_that_does_not_fit_is_refused_whole() {
        let mut model = Classifier::new(5);
        let initial = model.clone();
        let mut update = model.parameters().to_vec();
        update[3].shape = vec![2, 5];
        let refusal = model.apply(&update).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "tensor \"output.bias\" of the update has shape [2, 5] instead of [10]"
        );
        update.pop();
        let refusal = model.apply(&update).unwrap_err();
        assert_eq!(refusal.to_string(), "the update has no tensor \"output.bias\"");
        assert_eq!(model, initial);
    }
}

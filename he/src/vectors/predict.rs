//! Answers of a model to encrypted inputs.

use super::{Layout, Model, Output, Source, Vector, model::Layer};
use crate::{
    Dtype, Error, TensorSpec,
    ckks::{Ciphertext, CkksError, Complex, Evaluator},
};

/// What a model answers.
pub struct Prediction {
    /// The answers: of a batch, one column for each output.
    pub answers: Vector,
    /// The most that what goes into the sigmoid can be, by the range of inputs, if it is beyond the interval. Answers
    /// to inputs that take it there mean nothing, and are not within the error that the vector of answers states.
    pub beyond_interval: Option<f64>,
}

/// Runs a model on a batch, whose columns are apart and fill slots, or on one sample, whose values are in slots one
/// after the other. For a sample, keys for the rotations of its matrices must be there.
///
/// # Errors
/// Inputs of another size; too few levels; a missing rotation; an answer that its modulus may not hold; the engine's.
pub fn predict(
    evaluator: &Evaluator<'_>,
    model: &Model,
    input: &Vector,
    source: Source,
) -> Result<Prediction, Error> {
    let (inputs, outputs) = model.sizes();
    let [TensorSpec { shape, .. }] = &input.specs[..] else {
        return refuse(format!(
            "the input has {} tensors, and a model takes one",
            input.specs.len()
        ));
    };
    let (level, depth) = (input.level(), model.depth());
    if level < depth {
        return refuse(format!(
            "it takes {depth} levels, and the input has {level}: use a preset with more, or a lower degree"
        ));
    }
    let found = match input.layout {
        Layout::Columns => shape[1] as usize,
        _ => input.values(),
    };
    if found != inputs {
        return match input.layout {
            Layout::Columns => {
                refuse(format!("it takes {inputs} values, and the input has {found}"))
            }
            _ => Err(CkksError::ModelInput { expected: inputs, found }.into()),
        };
    }
    let (shape, ciphertexts, beyond_interval) = match input.layout {
        Layout::Columns => {
            let blocks = input.ciphertexts.len() / inputs;
            let mut answers = vec![vec![]; outputs];
            let mut beyond = None;
            for block in 0..blocks {
                let own = (0..inputs).map(|i| input.ciphertexts[i * blocks + block].clone());
                let (of_block, most) =
                    run(&Batch(evaluator), model, own.collect(), input).map_err(of_model)?;
                answers.iter_mut().zip(of_block).for_each(|(column, answer)| column.push(answer));
                beyond = most.into_iter().chain(beyond).reduce(f64::max);
            }
            (vec![shape[0], outputs as u64], answers.concat(), beyond)
        }
        _ => {
            let own = input.ciphertexts.clone();
            let (answers, beyond) = run(&Sample(evaluator), model, own, input).map_err(of_model)?;
            (vec![outputs as u64], answers, beyond)
        }
    };
    if ciphertexts.iter().any(|answer| answer.bits_left() < 0.0) {
        return Err(CkksError::NoRoom.into());
    }
    let spec = TensorSpec { name: "output".into(), dtype: Dtype::F64, shape };
    let answers = Vector {
        specs: vec![spec],
        layout: input.layout,
        exponent: 0,
        divisor: 1,
        // Biases, sigmoids and folded matrices leave something there.
        has_tail: true,
        sources: vec![source],
        ciphertexts,
    };
    Ok(Prediction { answers, beyond_interval })
}

/// The way in which values of a layer lie in ciphertexts.
trait Lie {
    /// Returns a layer's outputs, with its weights and biases times a factor each.
    fn layer(
        &self,
        layer: &Layer,
        factors: (f64, f64),
        values: &[Ciphertext],
    ) -> Result<Vec<Ciphertext>, Error>;

    /// Returns the evaluator.
    fn evaluator(&self) -> &Evaluator<'_>;
}

/// Each value in a ciphertext of its own, of all rows of a batch.
struct Batch<'a, 'e>(&'a Evaluator<'e>);

/// All values of one sample in the first slots of one ciphertext.
struct Sample<'a, 'e>(&'a Evaluator<'e>);

impl Lie for Batch<'_, '_> {
    fn layer(
        &self,
        layer: &Layer,
        (weight, bias): (f64, f64),
        values: &[Ciphertext],
    ) -> Result<Vec<Ciphertext>, Error> {
        let rows = layer.weight.chunks_exact(layer.inputs).zip(&layer.bias);
        let output = |(row, own): (&[f64], &f64)| {
            let terms: Vec<_> = row.iter().map(|x| x * weight).zip(values).collect();
            self.0.add_constant(&self.0.weigh(&terms)?, own * bias)
        };
        rows.map(output).collect()
    }

    fn evaluator(&self) -> &Evaluator<'_> {
        self.0
    }
}

impl Lie for Sample<'_, '_> {
    fn layer(
        &self,
        layer: &Layer,
        (weight, bias): (f64, f64),
        values: &[Ciphertext],
    ) -> Result<Vec<Ciphertext>, Error> {
        let [value] = values else {
            return refuse("a sample must fit the slots of one ciphertext".into());
        };
        let scaled: Vec<f64> = layer.weight.iter().map(|x| x * weight).collect();
        let sizes = (layer.outputs(), layer.inputs);
        let matrix = self.0.encode_matrix(&scaled, sizes, value.level())?;
        let product = self.0.multiply_matrix(&matrix, value)?;
        let biases: Vec<f64> = layer.bias.iter().map(|x| x * bias).collect();
        let biases = self.0.encode(&Complex::real(&biases), product.level())?;
        Ok(vec![self.0.add_plain(&product, &biases)?])
    }

    fn evaluator(&self) -> &Evaluator<'_> {
        self.0
    }
}

/// Runs a model. Also returns the most that what goes into the sigmoid can be, if it is beyond the interval.
fn run(
    lie: &impl Lie,
    model: &Model,
    mut values: Vec<Ciphertext>,
    input: &Vector,
) -> Result<(Vec<Ciphertext>, Option<f64>), Error> {
    let evaluator = lie.evaluator();
    let interval = match &model.output {
        Output::Linear => 1.0,
        Output::Sigmoid { interval, .. } => *interval,
    };
    for (index, layer) in model.layers.iter().enumerate() {
        // The first layer takes units away, the last one brings what it leaves within the interval.
        let units = if index == 0 { input.unit() / input.divisor as f64 } else { 1.0 };
        let within = if index + 1 == model.layers.len() { 1.0 / interval } else { 1.0 };
        values = lie.layer(layer, (units * within, within), &values)?;
        if index + 1 < model.layers.len() {
            values = values.iter().map(|x| evaluator.square(x)).collect::<Result<_, _>>()?;
        }
    }
    let Output::Sigmoid { polynomial, interval } = &model.output else { return Ok((values, None)) };
    let most = values.iter().map(|x| x.bound().magnitude).fold(0.0, f64::max);
    // By the range alone it may be beyond the interval, though with the values that occur it is not.
    let sigmoid = |x: &Ciphertext| evaluator.polynomial(polynomial, &x.within(1.0));
    let answers = values.iter().map(sigmoid).collect::<Result<_, _>>()?;
    Ok((answers, (most > 1.0).then_some(most * interval)))
}

/// Says of a number that cannot be encoded that it is the model's.
fn of_model(error: Error) -> Error {
    match error {
        Error::Ckks(CkksError::Value { value, limit, .. }) => {
            let why =
                format!("a weight or bias of {value:e} is beyond {limit:e}, in units of the input");
            CkksError::Model { why }.into()
        }
        error => error,
    }
}

fn refuse<T>(why: String) -> Result<T, Error> {
    Err(CkksError::Model { why }.into())
}

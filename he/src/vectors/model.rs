//! Models that run on ciphertexts: one layer, or two with squares between them, as safetensors.
//!
//! Tensors have the names that PyTorch gives them: `weight` and `bias` of a linear layer, or `0.weight`, `0.bias`,
//! `2.weight` and so on of layers one after the other, in the order of their numbers. Metadata say what is between
//! and behind:
//!
//! | member | values |
//! |---|---|
//! | `output` | `linear` (default) or `sigmoid` |
//! | `degree`, `interval` | of the polynomial in place of the sigmoid, within ± the interval: 7 and 8 unless given |
//! | `hidden` | `square`, which two layers must have |

use std::{collections::BTreeMap, f64::consts::PI};

use crate::{
    Error, Tensor, Update,
    ckks::{Basis, CkksError, Polynomial},
    tensors::metadata,
};

/// The degree and the interval of a sigmoid, unless metadata say otherwise.
const SIGMOID: (usize, f64) = (7, 8.0);
/// The largest degree: seven levels hold it.
const MAX_DEGREE: usize = 63;

/// A linear layer.
pub(super) struct Layer {
    /// Row by row: what each output takes of each input.
    pub(super) weight: Vec<f64>,
    pub(super) bias: Vec<f64>,
    pub(super) inputs: usize,
}

impl Layer {
    pub(super) fn outputs(&self) -> usize {
        self.bias.len()
    }
}

/// What the last layer's outputs go through.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Nothing.
    Linear,
    /// A polynomial of Chebyshev's basis in place of a sigmoid, within ± an interval.
    Sigmoid {
        /// Of the output divided by the interval.
        polynomial: Polynomial,
        /// The interval.
        interval: f64,
    },
}

/// A model in clear: who computes has it.
pub struct Model {
    /// Between them, outputs are squared.
    pub(super) layers: Vec<Layer>,
    pub(super) output: Output,
}

impl Model {
    /// Reads a safetensors file.
    ///
    /// # Errors
    /// It is none; its layers do not chain, or have other names; metadata that are not known.
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self, Error> {
        let tensors = Update::from_safetensors(bytes)?;
        let mut metadata = metadata(bytes)?;
        let mut parts: BTreeMap<u32, [Option<&Tensor>; 2]> = BTreeMap::new();
        for tensor in tensors.tensors() {
            let name = &tensor.spec.name[..];
            let (layer, part) = name.rsplit_once('.').unwrap_or(("0", name));
            let part = ["weight", "bias"].iter().position(|known| *known == part);
            let (Ok(layer), Some(part)) = (layer.parse(), part) else {
                return refuse(format!("{name:?} is neither a weight nor a bias of a layer"));
            };
            if parts.entry(layer).or_default()[part].replace(tensor).is_some() {
                return refuse(format!(
                    "{name:?} is there twice: a layer without a number is layer 0"
                ));
            }
        }
        let layers = parts.into_iter().map(|(number, parts)| layer(number, parts));
        let layers: Vec<Layer> = layers.collect::<Result<_, _>>()?;
        if layers.is_empty() || layers.len() > 2 {
            return refuse(format!("it has {} layers, and one or two can be run", layers.len()));
        }
        for pair in layers.windows(2) {
            let (outputs, inputs) = (pair[0].outputs(), pair[1].inputs);
            if outputs != inputs {
                return refuse(format!(
                    "its layers do not chain: one has {outputs} outputs, and the next {inputs} inputs"
                ));
            }
        }
        match (layers.len(), metadata.remove("hidden").as_deref()) {
            (1, None) | (2, Some("square")) => {}
            (1, Some(_)) => {
                return refuse("metadata name a hidden layer, and there is none".into());
            }
            _ => return refuse("between two layers metadata must say hidden = square".into()),
        }
        let output = output(&mut metadata)?;
        match metadata.keys().find(|name| *name != "format") {
            None => Ok(Self { layers, output }),
            Some(name) => refuse(format!("metadata {name:?} are not known")),
        }
    }

    /// Returns the numbers of inputs and outputs.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        let last = self.layers.last().map_or(0, Layer::outputs);
        (self.layers[0].inputs, last)
    }

    /// Returns the levels that it takes.
    #[must_use]
    pub fn depth(&self) -> usize {
        let between = self.layers.len() - 1;
        let output = match &self.output {
            Output::Linear => 0,
            Output::Sigmoid { polynomial, .. } => polynomial.depth(),
        };
        self.layers.len() + between + output
    }

    /// Returns what follows the last layer.
    #[must_use]
    pub fn output(&self) -> &Output {
        &self.output
    }
}

/// Reads the layer of these tensors.
fn layer(number: u32, [weight, bias]: [Option<&Tensor>; 2]) -> Result<Layer, Error> {
    let Some(weight) = weight else { return refuse(format!("layer {number} has no weight")) };
    let &[outputs, inputs] = &weight.spec.shape[..] else {
        return refuse(format!("the weight of layer {number} has not two extents"));
    };
    let finite = |tensor: &Tensor| {
        let values = tensor.values()?;
        match values.iter().position(|x| !x.is_finite()) {
            None => Ok(values),
            Some(index) => {
                let (tensor, value) = (tensor.spec.name.clone(), values[index].to_string());
                Err(Error::NotFinite { tensor, index, value })
            }
        }
    };
    let (outputs, inputs) = (outputs as usize, inputs as usize);
    if outputs == 0 || inputs == 0 {
        return refuse(format!("the weight of layer {number} is empty"));
    }
    let bias = bias.map_or_else(|| Ok(vec![0.0; outputs]), finite)?;
    if bias.len() != outputs {
        return refuse(format!(
            "layer {number} has {outputs} outputs, and a bias of {}",
            bias.len()
        ));
    }
    Ok(Layer { weight: finite(weight)?, bias, inputs })
}

/// Takes what follows the last layer off metadata.
fn output(metadata: &mut BTreeMap<String, String>) -> Result<Output, Error> {
    let (degree, interval) = (metadata.remove("degree"), metadata.remove("interval"));
    match metadata.remove("output").as_deref() {
        None | Some("linear") if degree.is_none() && interval.is_none() => Ok(Output::Linear),
        Some("sigmoid") => {
            let degree = degree.map_or(Some(SIGMOID.0), |text| text.parse().ok());
            let Some(degree) = degree.filter(|d| (1..=MAX_DEGREE).contains(d)) else {
                return refuse(format!("the degree must be from 1 to {MAX_DEGREE}"));
            };
            let interval = interval.map_or(Some(SIGMOID.1), |text| text.parse().ok());
            let Some(interval) = interval.filter(|i: &f64| *i > 0.0 && *i <= 1024.0) else {
                return refuse("the interval must be above 0 and at most 1024".into());
            };
            let polynomial = chebyshev(degree, |x| 1.0 / (1.0 + (-x * interval).exp()));
            Ok(Output::Sigmoid { polynomial, interval })
        }
        _ => refuse("the output must be linear, or sigmoid with a degree and an interval".into()),
    }
}

/// Interpolates a function within ±1 at Chebyshev's nodes.
fn chebyshev(degree: usize, of: impl Fn(f64) -> f64) -> Polynomial {
    let count = degree + 1;
    let angle = |k: usize| PI * (k as f64 + 0.5) / count as f64;
    let coefficient = |j: usize| {
        let sum: f64 = (0..count).map(|k| of(angle(k).cos()) * (j as f64 * angle(k)).cos()).sum();
        sum * if j == 0 { 1.0 } else { 2.0 } / count as f64
    };
    Polynomial { coefficients: (0..count).map(coefficient).collect(), basis: Basis::Chebyshev }
}

fn refuse<T>(why: String) -> Result<T, Error> {
    Err(CkksError::Model { why }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chebyshev_polynomials_are_near_the_sigmoid() {
        for (degree, off) in [(3, 0.12), (7, 0.03), (15, 0.002)] {
            let polynomial = chebyshev(degree, |x| 1.0 / (1.0 + (-8.0 * x).exp()));
            let error = |i: i32| {
                let x = f64::from(i) / 100.0;
                (polynomial.value(x) - 1.0 / (1.0 + (-8.0 * x).exp())).abs()
            };
            let worst = (-100..=100).map(error).fold(0.0, f64::max);
            assert!(worst < off, "degree {degree}: {worst}");
        }
    }
}

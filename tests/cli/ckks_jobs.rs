//! Jobs on encrypted vectors, with the real binary: updates are screened before they are summed, and a model answers
//! to inputs that it does not see.

use std::collections::HashMap;

use ciphergram_accel::CpuEngine;
use ciphergram_he::{
    ckks::{EvaluationKeys, Evaluator},
    vectors::{self, Source, Vector},
};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::support::place::Place;

const PIXELS: usize = 64;
const CLASSES: usize = 10;
/// The bundled digits: of each image its pixels, then its label.
static DIGITS: &[u8] = include_bytes!("../../cli/data/digits.u8");

/// Images with pixels in 0..=1, and their labels.
#[derive(Clone)]
struct Images(Vec<([f64; PIXELS], usize)>);

impl Images {
    /// Every `step`th image from `first` on.
    fn dealt(first: usize, step: usize) -> Self {
        let image = |record: &[u8]| {
            let mut pixels = [0.0; PIXELS];
            pixels
                .iter_mut()
                .zip(record)
                .for_each(|(pixel, &dark)| *pixel = f64::from(dark) / 16.0);
            (pixels, usize::from(record[PIXELS]))
        };
        Self(DIGITS.chunks_exact(PIXELS + 1).skip(first).step_by(step).map(image).collect())
    }
}

/// Weights of each class, then its bias.
type Model = Vec<[f64; PIXELS + 1]>;

fn scores(model: &Model, pixels: &[f64; PIXELS]) -> Vec<f64> {
    let score = |own: &[f64; PIXELS + 1]| {
        own.iter().zip(pixels).map(|(w, x)| w * x).sum::<f64>() + own[PIXELS]
    };
    model.iter().map(score).collect()
}

fn decision(scores: &[f64]) -> usize {
    (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap()
}

fn accuracy(model: &Model, images: &Images) -> f64 {
    let right = images.0.iter().filter(|(x, label)| decision(&scores(model, x)) == *label);
    right.count() as f64 / images.0.len() as f64
}

/// Returns the mean cross-entropy, in nats.
fn loss(model: &Model, images: &Images) -> f64 {
    let own = |(pixels, label): &([f64; PIXELS], usize)| {
        let scores = scores(model, pixels);
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = scores.iter().map(|x| (x - most).exp()).sum();
        sum.ln() + most - scores[*label]
    };
    images.0.iter().map(own).sum::<f64>() / images.0.len() as f64
}

/// Softmax regression from zero, so that the model is the update.
fn train(images: &Images) -> Model {
    let mut model = vec![[0.0; PIXELS + 1]; CLASSES];
    for _ in 0..30 {
        for (pixels, label) in &images.0 {
            let powers: Vec<f64> = scores(&model, pixels).iter().map(|x| x.exp()).collect();
            let sum: f64 = powers.iter().sum();
            for (class, own) in model.iter_mut().enumerate() {
                let off = powers[class] / sum - f64::from(u8::from(class == *label));
                own.iter_mut().zip(pixels).for_each(|(w, x)| *w -= 0.05 * off * x);
                own[PIXELS] -= 0.05 * off;
            }
        }
    }
    model
}

fn bytes(values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    values.into_iter().flat_map(|x| (x as f32).to_le_bytes()).collect()
}

fn file(tensors: &[(&str, Vec<usize>, Vec<u8>)], metadata: &[(&str, &str)]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, shape, data)| {
        (*name, TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
    });
    let metadata: HashMap<_, _> =
        metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    safetensors::serialize(views, Some(metadata)).unwrap()
}

fn model_file(model: &Model, metadata: &[(&str, &str)]) -> Vec<u8> {
    let weight = bytes(model.iter().flat_map(|own| own[..PIXELS].to_vec()));
    let bias = bytes(model.iter().map(|own| own[PIXELS]));
    let tensors = [("weight", vec![CLASSES, PIXELS], weight), ("bias", vec![CLASSES], bias)];
    file(&tensors, metadata)
}

fn numbers(file: &[u8], name: &str) -> Vec<f64> {
    let file = SafeTensors::deserialize(file).unwrap();
    let tensor = file.tensor(name).unwrap();
    let data = tensor.data();
    match tensor.dtype() {
        Dtype::F32 => {
            data.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        }
        Dtype::F64 => data.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
        other => panic!("{other:?}"),
    }
}

fn model_of(file: &[u8]) -> Model {
    let (weight, bias) = (numbers(file, "weight"), numbers(file, "bias"));
    let own = |class: usize| {
        let mut own = [bias[class]; PIXELS + 1];
        own[..PIXELS].copy_from_slice(&weight[class * PIXELS..][..PIXELS]);
        own
    };
    (0..CLASSES).map(own).collect()
}

fn mean(models: &[Model]) -> Model {
    let mut sum = vec![[0.0; PIXELS + 1]; CLASSES];
    for model in models {
        sum.iter_mut().flatten().zip(model.iter().flatten()).for_each(|(sum, x)| *sum += x);
    }
    sum.iter_mut().flatten().for_each(|x| *x /= models.len() as f64);
    sum
}

#[test]
fn screening_keeps_scaled_and_negated_updates_out() {
    let place = Place::new();
    place.done("keygen --scheme ckks-4096x1 --rotations sum --out keys");
    // Clients have nine images of ten, dealt out; the tenth are for the test.
    let test = Images::dealt(10, 11);
    let mut updates: Vec<Model> = (0..10).map(|client| train(&Images::dealt(client, 11))).collect();
    let reference = train(&Images(Images::dealt(3, 11).0[..60].to_vec()));
    let honest = mean(&updates[3..]);
    for scaled in &mut updates[..2] {
        scaled.iter_mut().flatten().for_each(|x| *x *= 50.0);
    }
    updates[2].iter_mut().flatten().for_each(|x| *x = -*x);
    place.write("ref", model_file(&reference, &[]));
    let encrypt = |key: &str, name: &str| {
        place.done(&format!(
            "encrypt --key keys/{key}.json --range 256 --in {name} --out {name}.cgm"
        ));
    };
    encrypt("secret", "ref");
    let mut files = String::new();
    for (i, update) in updates.iter().enumerate() {
        place.write(&format!("u{i}"), model_file(update, &[]));
        // Clients need no secret.
        encrypt(if i % 2 == 0 { "public" } else { "secret" }, &format!("u{i}"));
        files += &format!(" u{i}.cgm");
    }
    place.done(&format!(
        "vectors screen --key keys/evaluation.cgk --against ref.cgm --out scores.cgm{files}"
    ));
    let said = place.done(
        "vectors scores --key keys/secret.json --in scores.cgm --max-norm 20 --min-cosine 0.1 --out weights.cgm",
    );
    println!("{said}");
    let aggregate = |words: &str, out: &str| {
        place.done(&format!("aggregate --key keys/{words} --out {out}.cgm{files}"));
        place.done(&format!("decrypt --key keys/secret.json --in {out}.cgm --out {out}"));
        model_of(&place.read(out))
    };
    let (screened, raw) = (
        aggregate("evaluation.cgk --weights weights.cgm", "screened"),
        aggregate("public.json", "raw"),
    );
    let losses = [&honest, &screened, &raw].map(|model| loss(model, &test));
    let [without, screened, raw] = [&honest, &screened, &raw].map(|model| accuracy(model, &test));
    println!("loss of honest clients alone, screened, unscreened: {losses:.3?}");
    println!(
        "accuracy of honest clients alone {without:.3}, screened {screened:.3}, unscreened {raw:.3}"
    );
    assert!(without > 0.9 && screened > without - 0.02, "{screened} against {without}");
    // Lines between classes stay where they are when weights grow, but sure they are not.
    assert!(losses[1] < losses[0] + 0.05 && losses[2] > 1.5 * losses[0], "{losses:?}");

    let shares = place.json(
        "vectors scores --key keys/secret.json --in scores.cgm --max-norm 20 --min-cosine 0.1 --out weights.cgm",
    );
    let share = |i: usize| shares["updates"][i]["share"].as_f64().unwrap();
    assert!(share(0) < 0.2 && share(1) < 0.2 && share(2) == 0.0 && share(5) == 1.0, "{shares}");
    let weights = place.json("inspect weights.cgm");
    assert_eq!((&weights["values"], &weights["layout"]), (&10.into(), &"each".into()));
    let inspected = place.json("inspect scores.cgm");
    assert_eq!((&inspected["level"], &inspected["layout"]), (&0.into(), &"each".into()));

    refusals(&place, &files);
}

/// Everything that does not belong, each in one line.
fn refusals(place: &Place, files: &str) {
    let fails = |words: &str, parts: &[&str]| place.fails_with(1, words, parts);
    let misused = |words: &str, parts: &[&str]| place.fails_with(2, words, parts);
    fails(
        &format!("vectors screen --key keys/secret.json --out s.cgm{files}"),
        &["keys/secret.json", "evaluation.cgk"],
    );
    fails(
        &format!("aggregate --key keys/secret.json --out s.cgm{files}"),
        &["public material only"],
    );
    for key in ["public", "secret"] {
        let words =
            format!("aggregate --key keys/{key}.json --weights weights.cgm --out s.cgm{files}");
        fails(&words, &["evaluation.cgk"]);
    }
    misused(
        "vectors scores --key keys/secret.json --in scores.cgm --min-cosine 2 --out w.json",
        &["from -1 to 1"],
    );
    fails("vectors scores --key keys/public.json --in scores.cgm --out w.json", &["secret.json"]);
    // What it decrypts is shown to nobody who lacks the key, by whatever option.
    misused("decrypt --key keys/secret.json --in raw.cgm --release 1 --out d", &["--release"]);
    misused("encrypt --key keys/public.json --for sums --in ref --out d.cgm", &["--for"]);
    misused(
        "encrypt --key keys/public.json --in ref --client 1 --out d.cgm",
        &["--client", "ckks-4096x1"],
    );
    misused("keygen --scheme ckks-4096x1 --clients 4 --out k", &["--clients"]);
    misused("keygen --rotations 1 --out k", &["--rotations", "ckks-sum"]);
    fails("keygen --scheme ckks-4096x1 --out keys", &["not overwritten"]);
    // Rounds and jobs refuse such keys by name.
    fails("serve --key keys/public.json --listen 127.0.0.1:0", &["keygen --scheme ckks-sum"]);
    fails("job --key keys/public.json --out job.json", &["keygen --scheme ckks-sum"]);
    // Another secret's.
    place.done("keygen --scheme ckks-4096x1 --rotations 1 --out other");
    fails("vectors screen --key other/evaluation.cgk --out s.cgm u0.cgm", &["u0.cgm", "under key"]);
    fails("decrypt --key other/secret.json --in raw.cgm --out d", &["raw.cgm", "under key"]);
    place.done("keygen --scheme ckks-4096x2 --out larger");
    fails(
        "vectors screen --key larger/evaluation.cgk --out s.cgm u0.cgm",
        &["u0.cgm", "other parameters"],
    );
    // Cut and flipped.
    let whole = place.read("u0.cgm");
    place.write("cut.cgm", &whole[..whole.len() / 2]);
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    place.write("flipped.cgm", flipped);
    fails("inspect cut.cgm", &["cut.cgm"]);
    fails("aggregate --key keys/public.json --out s.cgm flipped.cgm", &["flipped.cgm"]);
    fails(
        "encrypt --key keys/public.json --range 0.001 --in ref --out d.cgm",
        &["--clip", "±0.001"],
    );
}

/// An aggregator that lies about scores. It once read the secret key from weights that came back in clear: here it
/// gives key holders the norms of vectors of its own as those of updates, and finds the same whatever they decrypt to.
#[test]
fn forged_scores_tell_an_aggregator_nothing() {
    let place = Place::new();
    place.done("keygen --scheme ckks-4096x1 --rotations sum --out keys");
    let engine = CpuEngine::new();
    let keys = EvaluationKeys::from_bytes(&place.read("keys/evaluation.cgk"), &engine).unwrap();
    let evaluator = Evaluator::new(keys, &engine);
    let read = |name: &str| Vector::from_bytes(&place.read(name), &engine).unwrap();
    for i in 0..6 {
        let values = bytes((0..500).map(|j| f64::from(i * j) / 3e3));
        place.write(&format!("u{i}"), file(&[("w", vec![500], values)], &[]));
        place.done(&format!("encrypt --key keys/public.json --range 1 --in u{i} --out u{i}.cgm"));
    }
    let screen = |of: [usize; 3]| {
        let pairs = of.into_iter().enumerate().map(|(update, shown)| {
            let name = format!("u{update}.cgm");
            let digest = read(&name).1;
            Ok((Source { name, digest }, read(&format!("u{shown}.cgm")).0))
        });
        vectors::screen(&evaluator, None, pairs).unwrap().to_bytes().unwrap()
    };
    let scores =
        "vectors scores --key keys/secret.json --in scores.cgm --max-norm 1 --out weights.cgm";
    let mut answers = vec![];
    for shown in [[0, 1, 2], [5, 5, 4], [3, 0, 0]] {
        place.write("scores.cgm", screen(shown));
        let said = place.done(scores);
        answers.push((said, place.read("weights.cgm"), place.json("inspect weights.cgm")));
    }
    for (said, weights, inspected) in &answers[1..] {
        assert_ne!(*said, answers[0].0, "key holders see what they decrypt");
        assert_eq!(weights.len(), answers[0].1.len());
        // That is all of it that is in clear.
        assert_eq!(*inspected, answers[0].2);
    }
    // More numbers than updates, or of another kind, are not decrypted at all.
    for forged in ["u0.cgm", "weights.cgm"] {
        place.fails_with(
            1,
            &format!("vectors scores --key keys/secret.json --in {forged} --out w.cgm"),
            &["no scores"],
        );
    }
}

#[test]
fn encrypted_digits_are_answered_as_in_plaintext() {
    let place = Place::new();
    place.done("keygen --scheme ckks-8192x7 --rotations matrix:10x64 --out keys");
    let (test, model) =
        (Images(Images::dealt(10, 11).0[..50].to_vec()), train(&Images::dealt(0, 2)));
    let rows = test.0.len();
    let pixels = bytes(test.0.iter().flat_map(|(pixels, _)| *pixels));
    place.write("x", file(&[("x", vec![rows, PIXELS], pixels)], &[]));
    place.done("encrypt --key keys/public.json --range 1 --columns --in x --out x.cgm");
    let expected: Vec<Vec<f64>> = test.0.iter().map(|(x, _)| scores(&model, x)).collect();
    let predict = |name: &str, model: &Model, metadata: &[(&str, &str)]| {
        place.write("model", model_file(model, metadata));
        let words =
            "vectors predict --key keys/evaluation.cgk --model model --in x.cgm --out y.cgm";
        println!("{name}: {}", place.run(words).done().stdout.trim());
        place.done("decrypt --key keys/secret.json --in y.cgm --out y");
        let found = numbers(&place.read("y"), "output");
        assert_eq!(found.len(), rows * CLASSES);
        found
    };
    let found = predict("linear", &model, &[]);
    let same =
        found.chunks(CLASSES).zip(&expected).filter(|(a, b)| decision(a) == decision(b)).count();
    println!("linear: {same} of {rows} decisions as in plaintext");
    let off = found.iter().zip(expected.iter().flatten()).map(|(a, b)| (a - b).abs());
    assert!(same == rows && off.fold(0.0, f64::max) < 1e-4);
    // One class against the others, all scores within the interval.
    let most = expected.iter().flatten().fold(0.0, |most: f64, x| most.max(x.abs()));
    let mut calm = model.clone();
    calm.iter_mut().flatten().for_each(|w| *w *= 7.0 / most);
    let sigmoid = [("output", "sigmoid"), ("degree", "15"), ("interval", "8")];
    let found = predict("logistic", &calm, &sigmoid);
    let same =
        found.iter().zip(expected.iter().flatten()).filter(|(a, b)| (**a > 0.5) == (**b > 0.0));
    println!("logistic: {} of {} decisions as in plaintext", same.clone().count(), found.len());
    assert_eq!(same.count(), found.len());
    let exact = expected.iter().flatten().map(|x| 1.0 / (1.0 + (-x * 7.0 / most).exp()));
    let off = found.iter().zip(exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 2e-3, "{off}");
    // One sample, by matrix.
    place.write("one", file(&[("x", vec![PIXELS], bytes(test.0[0].0))], &[]));
    place.done("encrypt --key keys/secret.json --range 1 --in one --out one.cgm");
    place.write("model", model_file(&model, &[]));
    place.done("vectors predict --key keys/evaluation.cgk --model model --in one.cgm --out y1.cgm");
    place.done("decrypt --key keys/secret.json --in y1.cgm --out y1");
    let off = numbers(&place.read("y1"), "output");
    let off = off.iter().zip(&expected[0]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off < 1e-4, "{off}");
    // Two layers, with squares between.
    let hidden: Vec<f64> =
        (0..8 * PIXELS).map(|i| f64::from((i * 37 % 19) as u8) / 100.0 - 0.09).collect();
    let last: Vec<f64> = (0..3 * 8).map(|i| f64::from((i * 5 % 7) as u8) / 4.0 - 0.7).collect();
    let two = [
        ("0.weight", vec![8, PIXELS], bytes(hidden.clone())),
        ("2.weight", vec![3, 8], bytes(last.clone())),
    ];
    place.write("two", file(&two, &[("hidden", "square")]));
    place.done("vectors predict --key keys/evaluation.cgk --model two --in x.cgm --out y2.cgm");
    place.done("decrypt --key keys/secret.json --in y2.cgm --out y2");
    let found = numbers(&place.read("y2"), "output");
    for (row, (pixels, _)) in test.0.iter().enumerate() {
        let layer = |w: &[f64]| w.iter().zip(pixels).map(|(w, x)| w * x).sum::<f64>().powi(2);
        let inner: Vec<f64> = hidden.chunks(PIXELS).map(layer).collect();
        for (class, own) in last.chunks(8).enumerate() {
            let expected: f64 = own.iter().zip(&inner).map(|(w, x)| w * x).sum();
            assert!((found[3 * row + class] - expected).abs() < 1e-3, "{row} {class}");
        }
    }
    // What does not chain, or is not known.
    let predict = "vectors predict --key keys/evaluation.cgk --in x.cgm --out z.cgm --model";
    let refused =
        |tensors: &[(&str, Vec<usize>, Vec<u8>)], metadata: &[(&str, &str)], why: &str| {
            place.write("bad", file(tensors, metadata));
            place.fails_with(1, &format!("{predict} bad"), &[why]);
        };
    let weight = |rows: usize, columns: usize| bytes(vec![0.5; rows * columns]);
    refused(
        &[("0.weight", vec![8, 64], weight(8, 64)), ("1.weight", vec![3, 9], weight(3, 9))],
        &[("hidden", "square")],
        "do not chain",
    );
    refused(
        &[("weight", vec![3, 63], weight(3, 63))],
        &[],
        "takes 63 values, and the input has 64",
    );
    refused(&[("weight", vec![3, 64], weight(3, 64))], &[("output", "tanh")], "linear, or sigmoid");
    refused(
        &[("weight", vec![3, 64], weight(3, 64))],
        &[("output", "sigmoid"), ("degree", "63"), ("interval", "0")],
        "interval",
    );
    refused(&[("kernel", vec![3, 64], weight(3, 64))], &[], "\"kernel\"");
    refused(&[("weight", vec![3], weight(3, 1))], &[], "two extents");
    place.fails_with(1, &format!("{predict} x.cgm"), &["x.cgm"]);
    place.fails_with(
        1,
        "vectors predict --key keys/secret.json --model model --in x.cgm --out z.cgm",
        &["evaluation.cgk"],
    );
    place.done("encrypt --key keys/public.json --range 1 --in x --out flat.cgm");
    place.fails_with(
        1,
        "vectors predict --key keys/evaluation.cgk --model model --in flat.cgm --out z.cgm",
        &["--columns"],
    );
}

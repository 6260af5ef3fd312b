//! Attacks through files, on the real binary: what a malicious party crafts with the library and keys of its own never
//! opens, and is refused by name where it can be seen.

mod jobs;
mod rounds;

use ciphergram_he::{Agreement, Contribution, Dtype, Sum, TensorSpec};

use crate::support::craft::{CLOSED, RANGE, Scene};
use crate::support::place::as_client;
use crate::support::tensors::{single, to_file};

const SCHEMES: [&str; 2] = ["ckks-sum", "paillier-2048"];

/// Ranges that let only the victim's values through: others refuse them, and what was sealed over some ranges
/// is not summed under others.
#[test]
fn ranges_that_single_out_updates_are_refused() {
    for scheme in SCHEMES {
        let scene = Scene::new(scheme);
        let place = &scene.place;
        place.write("wide", to_file(&single(&[1e30; 150])));
        place.done("ranges --out wide.json --weight 9 wide");
        let key = as_client(if scheme == "ckks-sum" { "secret.json" } else { "clients" }, 1);
        let encrypt = format!("encrypt {key} --in g1 --out none --ranges wide.json");
        let beyond = "g1: the job does not admit it: tensor \"t\" has range 1";
        place.fails_with(1, &encrypt, &[beyond, "the job admits 65536 at most"]);
        // Within the job: sealed, and no sum with the victim's, whatever the header says.
        let mut all = [0, 1, 2]
            .map(|client| scene.contribution(client, 0, if client == 0 { RANGE } else { 10.0 }));
        let files = ["a.cgm", "b.cgm", "c.cgm"];
        let write = |all: &[Contribution<'_>]| {
            let files = files.iter().zip(all);
            files.for_each(|(file, c)| place.write(file, c.to_bytes(&scene.public)));
        };
        write(&all);
        let aggregate = format!("aggregate --key keys/public.json --out none {}", files.join(" "));
        let why = "b.cgm: the clipping ranges differ: tensor \"t\" has range 10 here and 1 there";
        place.fails_with(1, &aggregate, &[why]);
        for range in [RANGE, 10.0, 3.0] {
            all.iter_mut().for_each(|c| c.agreement = scene.agreement(range));
            scene.refuses(&scene.sum(&all), CLOSED);
        }
    }
}

/// Whatever a sum's header says other than what was sealed: refused by name if the job tells, or else it does not
/// open.
#[test]
fn a_header_that_was_rewritten_opens_nothing() {
    for scheme in SCHEMES {
        let scene = Scene::new(scheme);
        let sum = scene.sum(&scene.contributions(4));
        let agreement = |name: &str, shape: &[u64], range, max_weight| {
            let spec = TensorSpec { name: name.into(), dtype: Dtype::F32, shape: shape.into() };
            Agreement::new(vec![spec], vec![range], max_weight).unwrap()
        };
        for (why, agreement) in [
            ("the job admits 65536 at most", agreement("t", &[150], 1e6, 9)),
            ("a largest weight of 100001", agreement("t", &[150], RANGE, 100_001)),
            (CLOSED, agreement("u", &[150], RANGE, 9)),
            (CLOSED, agreement("t", &[10, 15], RANGE, 9)),
        ] {
            scene.refuses(&Sum { agreement, ..sum.clone() }, why);
        }
        scene.opens(&sum);
    }
}

/// Without a key one sees of a changed sum whether it opens: noise does, and all else does not, in the same words
/// whatever was changed. Every failure is counted, once.
#[test]
fn sums_that_fail_reveal_nothing_and_count() {
    for scheme in SCHEMES {
        let scene = Scene::new(scheme);
        let margin = scene.margin();
        let g = scene.public.parameters().geometry();
        let (count, weight) = (g.head.count_bits(), g.head.weight_bits());
        let of_value = |value: usize| {
            let field = g.head_fields + value;
            let bit = (field % g.fields_per_slot) as u32 * g.field_bits;
            (field / g.fields_per_slot, margin + bit)
        };
        let noise = [0, margin / 2, margin.saturating_sub(2), margin.saturating_sub(1)];
        let noise = noise.into_iter().filter(|&bit| bit < margin).map(|bit| (0, bit));
        // The count, weights, and the lowest bit of the tag, which follow one another.
        let head = [0, 2, count, count + 20, count + weight, count + weight + 9]
            .map(|bit| (0, margin + bit));
        let values = (0..150).step_by(9).map(of_value);
        let changes = noise.chain(head).chain(values);
        let mut failures = 0;
        for (round, (slot, bit)) in (0..).zip(changes) {
            let honest = scene.sum(&scene.contributions(round));
            let mut sum = honest.clone();
            scene.add(&mut sum.stream, 0, slot, bit);
            match scene.open(&sum, "") {
                Ok(mean) => {
                    assert!(bit < margin, "2^{bit} in slot {slot}");
                    scene.brought.check_mean(&mean);
                    continue;
                }
                Err(error) => assert_eq!(error, CLOSED, "2^{bit} in slot {slot}"),
            }
            failures += 1;
            assert_eq!(scene.failures(), failures);
            // The same bytes tell the same again; the round's own sum opens, and no other one then.
            assert_eq!(scene.open(&sum, "").unwrap_err(), CLOSED);
            assert_eq!(scene.failures(), failures);
            scene.opens(&honest);
            scene.add(&mut sum.stream, 0, slot, bit + 1);
            let second = scene.open(&sum, "").unwrap_err();
            assert!(
                second.contains(&format!("another sum of round {round} of this job")),
                "{second}"
            );
        }
    }
}

//! Attacks through files, on the real binary: what a liar crafts with the library and keys of its own never opens,
//! and is refused by name where it can be seen.

mod jobs;
mod rounds;

use ciphergram_he::{Agreement, Contribution, ContributorSet, Dtype, Sum, TensorSpec};

use crate::support::craft::{CLIENTS, CLOSED, RANGE, Scene, fresh, named};
use crate::support::place::as_client;
use crate::support::tensors::{single, to_file};

const SCHEMES: [&str; 3] = ["ckks-sum", "ckks-sum-public", "paillier-2048"];

/// A client with its own file adds terms to its mask, each of which brings a multiple of the secret into the sum.
#[test]
fn a_mask_that_its_client_changed_opens_nothing() {
    let scene = Scene::new("ckks-sum-public");
    let honest = scene.contributions(0);
    let (margin, degree) = (scene.margin(), 8192);
    scene.opens(&scene.sum(&honest));
    scene.place.forget("keys/secret.json");
    let tampered = |terms: &[(usize, u32, bool)]| {
        let mut contributions = honest.clone();
        scene.add_terms(contributions[2].stream.to_mut(), terms);
        // As a file with a digest of its own.
        let bytes = contributions[2].to_bytes(&scene.public);
        contributions[2] = Contribution::from_vec(bytes, &scene.public).unwrap();
        scene.sum(&contributions)
    };
    // A unit in the mask is noise of one in the sum, and tells nothing: the honest have their mean.
    scene.opens(&tampered(&[(0, 0, true), (17, 0, false)]));
    scene.place.forget("keys/secret.json");
    let monomials = [0, 1, 49, 50, 4095, 8100, degree - 1].map(|place| vec![(place, margin, true)]);
    let high = [margin + 1, margin + 22, margin + 100].map(|bit| vec![(300, bit, false)]);
    let even = |(place, bit)| move |i: usize| (i * place, bit, i.is_multiple_of(2));
    let dense = (0..degree).map(even((1, margin))).collect();
    let spaced = (0..degree / 50).map(even((50, margin))).collect();
    let few = vec![(0, margin, true), (1, margin, false), (7000, margin + 3, true)];
    for terms in monomials.into_iter().chain(high).chain([dense, spaced, few]) {
        scene.refuses(&tampered(&terms), CLOSED);
    }
}

/// One contribution under the names of all, or beside itself: the victim's update would be the mean.
#[test]
fn a_contribution_that_was_copied_is_not_three() {
    for scheme in SCHEMES {
        let scene = Scene::new(scheme);
        let [victim, second, third] = scene.contributions(0).try_into().unwrap();
        let place = &scene.place;
        place.write("a.cgm", victim.to_bytes(&scene.public));
        let aggregate = |copy: &Contribution<'_>, why: &str| {
            place.write("b.cgm", copy.to_bytes(&scene.public));
            let words = "aggregate --key keys/public.json --out none a.cgm b.cgm";
            place.fails_with(1, words, &["b.cgm: ", why]);
        };
        aggregate(&named(&victim, 0, fresh()), "two contributions of client 0 were given");
        aggregate(
            &named(&victim, 1, victim.contributor.seed),
            "the same contribution was given twice",
        );
        aggregate(&named(&victim, CLIENTS, fresh()), "client 3 of 3 clients");
        let copies = [1, 2].map(|number| named(&victim, number, fresh()));
        let all = [vec![victim.clone()], copies.to_vec()].concat();
        scene.refuses(&scene.sum(&all), CLOSED);
        // Another member's number, with the seed that is one's own or the member's.
        let mut swapped = scene.sum(&[
            victim.clone(),
            named(&third, 1, third.contributor.seed),
            named(&second, 2, second.contributor.seed),
        ]);
        scene.refuses(&swapped, CLOSED);
        // As whom they are of, the same is the honest sum.
        swapped.contributors[1].seed = second.contributor.seed;
        swapped.contributors[2].seed = third.contributor.seed;
        scene.opens(&swapped);
        scene.place.forget("keys/secret.json");
        scene.opens(&scene.sum(&[victim, second, third]));
    }
}

/// Ranges that let only the victim's values through: others refuse them, and what was sealed over some ranges
/// is not summed under others.
#[test]
fn ranges_that_leave_only_one_update_are_refused() {
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
        let agreement = |specs: Vec<TensorSpec>, range, max_weight| {
            Agreement::new(specs, vec![range], max_weight).unwrap()
        };
        let specs = |name: &str, shape: &[u64]| {
            vec![TensorSpec { name: name.into(), dtype: Dtype::F32, shape: shape.into() }]
        };
        let own = || specs("t", &[150]);
        let other = Scene::new(scheme).job.id();
        let changes: Vec<(&str, Change<'_>)> = vec![
            ("the job admits 65536 at most", Box::new(|s| s.agreement = agreement(own(), 1e6, 9))),
            (
                "a largest weight of 100001",
                Box::new(|s| s.agreement = agreement(own(), RANGE, 100_001)),
            ),
            (CLOSED, Box::new(|s| s.agreement = agreement(own(), 10.0, 9))),
            (CLOSED, Box::new(|s| s.agreement = agreement(own(), RANGE / 1000.0, 9))),
            (CLOSED, Box::new(|s| s.agreement = agreement(own(), RANGE, 10))),
            (CLOSED, Box::new(|s| s.agreement = agreement(specs("u", &[150]), RANGE, 9))),
            (CLOSED, Box::new(|s| s.agreement = agreement(specs("t", &[10, 15]), RANGE, 9))),
            (CLOSED, Box::new(|s| s.round = 3)),
            (CLOSED, Box::new(|s| s.round = 5)),
            ("it is of job", Box::new(|s| s.job = other)),
            (CLOSED, Box::new(|s| s.contributors[1].seed = fresh())),
            ("sum of 2; fewer than 3", Box::new(one_less)),
            ("two contributions of client 0", Box::new(|s| s.contributors[2].number = 0)),
            (
                "the same contribution was given twice",
                Box::new(|s| s.contributors[2].seed = s.contributors[0].seed),
            ),
            ("client 3 of 3 clients", Box::new(|s| s.contributors[2].number = 3)),
        ];
        for (why, change) in changes {
            let mut forged = sum.clone();
            change(&mut forged);
            scene.refuses(&forged, why);
        }
        // The sum of two of them, as that of three, and the other way.
        let two = scene.sum(&scene.contributions(4)[..2]);
        scene.refuses(&Sum { stream: two.stream.clone(), ..sum.clone() }, CLOSED);
        let mut less = sum.clone();
        one_less(&mut less);
        let error = scene.open(&less, "--min-clients 2").unwrap_err();
        assert_eq!(error, CLOSED.replace("its 3", "its 2"));
        scene.place.forget("keys/secret.json");
        // In whatever order they are listed, it is the same sum.
        let mut turned = sum.clone();
        turned.contributors.swap(0, 2);
        scene.opens(&turned);
        scene.place.forget("keys/secret.json");
        scene.opens(&sum);
    }
}

/// A change of a sum's header.
type Change<'a> = Box<dyn Fn(&mut Sum) + 'a>;

/// Lists one contributor less.
fn one_less(sum: &mut Sum) {
    sum.contributors.pop();
    let all = ContributorSet::all(sum.contributors.len());
    sum.sets.iter_mut().for_each(|set| *set = all.clone());
}

/// Without a key one sees of a changed sum whether it opens: noise does, and all else does not, in the same words
/// whatever was changed. Every failure is counted, once, and under `ckks-sum-public` the key opens nothing after four.
#[test]
fn what_does_not_open_says_nothing_and_is_counted() {
    for scheme in SCHEMES {
        let scene = Scene::new(scheme);
        let (margin, chunk) = (scene.margin(), scene.first_chunk());
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
        let most = scene.public.parameters().scheme().max_failures();
        let mut failures = 0;
        for (round, (slot, bit)) in (0..).zip(changes) {
            let honest = scene.sum(&scene.contributions(round));
            let mut sum = honest.clone();
            scene.add(&mut sum.stream, chunk, slot, bit);
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
            if most == Some(failures as usize) {
                break;
            }
            // The same bytes tell the same again; the round's own sum opens, and no other one then.
            assert_eq!(scene.open(&sum, "").unwrap_err(), CLOSED);
            assert_eq!(scene.failures(), failures);
            scene.opens(&honest);
            scene.add(&mut sum.stream, chunk, slot, bit + 1);
            let second = scene.open(&sum, "").unwrap_err();
            assert!(
                second.contains(&format!("another sum of round {round} of this job")),
                "{second}"
            );
        }
        let Some(most) = most else { continue };
        let spent = scene.open(&scene.sum(&scene.contributions(100)), "").unwrap_err();
        let why =
            format!("{most} sums did not open under this key, and each may have told a bit of it");
        assert!(spent.contains(&why), "{spent}");
        let status = scene.place.done("key status --key keys/secret.json");
        let words = format!("sums that did not open: {most}, of {most} that end it\n");
        assert!(status.contains(&words), "{status}");
        assert!(status.contains("it opens no more sums: make another key"), "{status}");
    }
}

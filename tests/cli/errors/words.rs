//! Commands that cannot be meant, and tensors that cannot be summed: one line, and nothing written.

use safetensors::Dtype;

use crate::support::place::Place;
use crate::support::tensors::{Tensor, Tensors, single, to_file};

const ENCRYPT: &str = "encrypt --key keys/secret.json --client 0 --out out.cgm";

/// Returns a key for three clients, tensors `g`, and their ranges at a largest weight of 9.
fn place() -> Place {
    let place = Place::with_key("ckks-sum", 3);
    place.write("g", to_file(&single(&[0.1, 0.2, 0.3])));
    place.done("ranges --out ranges.json --weight 9 g");
    place
}

#[test]
fn files_of_other_libraries_are_refused() {
    let place = place();
    let view = safetensors::tensor::TensorView::new(Dtype::F8_E4M3, vec![8], &[0; 8]).unwrap();
    place.write("steps", safetensors::serialize([("n", view)], None).unwrap());
    assert!(place.done("inspect steps").contains("\"n\" F8_E4M3 [8]"));
    place.write("cut", &place.read("g")[..40]);
    place.fails_with(1, "inspect cut", &["cut: not a valid safetensors file"]);
    let (torch, numpy) = ("torch.load(FILE, weights_only=True)", "dict(numpy.load(FILE))");
    let zip = |member: &str| {
        let mut bytes = b"PK\x03\x04\x14\0\0\0".to_vec();
        bytes.resize(30, 0);
        [bytes, member.into(), vec![0; 300]].concat()
    };
    let cases = [
        ("model.pt", zip("model/data.pkl"), torch),
        ("old.pt", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.".to_vec(), torch),
        ("all.npz", zip("t.npy"), numpy),
        ("one.npy", b"\x93NUMPY\x01\0v\0{'descr': '<f4'".to_vec(), "numpy.load(FILE)"),
    ];
    for (file, bytes, loads) in cases {
        place.write(file, bytes);
        let words = format!("{ENCRYPT} --clip 1 --in {file}");
        place.fails_with(1, &words, &[file, "convert it in Python: import ", loads]);
    }
    place.write("other.zip", zip("readme.txt"));
    place.fails_with(1, &format!("{ENCRYPT} --in other.zip"), &["not a valid safetensors file"]);
}

#[test]
fn tensors_without_agreed_ranges_are_refused() {
    let place = place();
    let tensor = |dtype, shape: &[usize]| Tensor::new(dtype, shape, vec![0.5; 3]);
    let named = |name: &str, t| Tensors::from([(name.to_owned(), t)]);
    let mut more = single(&[0.1, 0.2, 0.3]);
    more.insert("u".into(), tensor(Dtype::F32, &[3]));
    let cases = [
        (named("s", tensor(Dtype::F32, &[3])), "it has tensor \"s\", which was not agreed"),
        (named("t", tensor(Dtype::F32, &[3, 1])), "F32 [3, 1]"),
        (named("t", tensor(Dtype::F64, &[3])), "F64 [3]"),
        (Tensors::new(), "it lacks tensor \"t\", which was agreed"),
        (more, "it has tensor \"u\", which was not agreed"),
    ];
    for (tensors, why) in cases {
        place.write("other", to_file(&tensors));
        let parts = ["other: the tensors differ", why];
        place.fails_with(1, &format!("{ENCRYPT} --ranges ranges.json --in other"), &parts);
        place.done("ranges --out other.json other");
        let merge = "ranges --merge --out all.json ranges.json other.json";
        place.fails_with(1, merge, &["other.json: the tensors differ", why]);
    }
}

#[test]
fn ranges_files_are_checked() {
    let place = place();
    let text = String::from_utf8(place.read("ranges.json")).unwrap();
    let cases = [
        (text.replace("0.3", "-0.3"), "the clipping range of \"t\" is -0.3"),
        (text.replace("\"max_weight\": 9", "\"max_weight\": 0"), "weight 0"),
        (text.replace("\"version\": 1", "\"version\": 9"), "version 9"),
        (text.replace("F32", "F8_E4M3"), "tensor \"t\" is F8_E4M3"),
        (text.replace("\"range\"", "\"rage\""), "not a valid ranges file"),
        ("{".into(), "not a valid ranges file"),
    ];
    for (bad, why) in cases {
        assert_ne!(bad, text);
        place.write("bad.json", bad);
        let words = format!("{ENCRYPT} --ranges bad.json --in g");
        place.fails_with(1, &words, &["bad.json: ", why]);
        place.fails_with(1, "ranges --merge --out all.json bad.json", &["bad.json: ", why]);
    }
    place.fails_with(1, &format!("{ENCRYPT} --ranges none.json --in g"), &["none.json: No such"]);
}

#[test]
fn weights_are_integers_within_their_bounds() {
    let place = place();
    let encrypt = |words: &str| format!("{ENCRYPT} --in g {words}");
    for weight in ["0", "-1", "1.5", "4294967296", "many"] {
        let reported = format!("'{weight}' for '--weight <WEIGHT>': a weight is an integer from 1");
        place.fails_with(2, &encrypt(&format!("--clip 1 --weight {weight}")), &[&reported]);
        place.fails_with(2, &format!("ranges --out r.json g --weight {weight}"), &[&reported]);
        let join = "join --key keys/secret.json --server 127.0.0.1:9 --client 0 --in g --out out";
        place.fails_with(2, &format!("{join} --weight {weight}"), &[&reported]);
        place.fails(2, &format!("job --key keys/public.json --out j.json --max-weight {weight}"));
    }
    place.done("job --key keys/public.json --out job.json --max-weight 8");
    let heavy = "the job does not admit it: a largest weight of 10, the job's is 8";
    place.fails_with(1, &encrypt("--job job.json --weight 10"), &[heavy]);
    place.done(&encrypt("--ranges ranges.json --weight 9"));
}

#[test]
fn serving_what_cannot_be_served_is_refused() {
    let place = place();
    let serve = |words: &str| format!("serve --key keys/public.json {words}");
    for address in ["0.0.0.0:0", "192.0.2.1:7700", "[::]:0"] {
        let reported = "is not on this machine: say --identity FILE and --allow FILE";
        let words = serve(&format!("--clients 3 --listen {address}"));
        place.fails_with(2, &words, &[address, reported]);
        place.fails_with(2, &format!("{words} --identity keys/server.identity"), &[reported]);
        let words =
            "join --key keys/secret.json --client 0 --in g --out none --server 192.0.2.1:7700";
        place.fails_with(2, words, &["192.0.2.1:7700 is not on this machine: say --identity FILE"]);
    }
    let reported = ["--min-clients 3 is more than the 2 clients of a round"];
    place.fails_with(2, &serve("--clients 2 --min-clients 3"), &reported);
    for words in [
        "--clients 0",
        "--clients 3 --rounds=-1",
        "--clients 3 --min-clients 0",
        "--clients 3 --deadline 0",
    ] {
        place.fails(2, &serve(words));
    }
}

#[test]
fn misuse_is_one_line_exit_code_two() {
    let place = place();
    let scheme = "no scheme \"rsa\"; there are ckks-sum, ckks-sum-threshold, paillier-2048";
    let cases = [
        ("sing", "'sing'"),
        ("keygen", "--out <FOLDER>"),
        ("keygen --scheme rsa --out more", scheme),
        ("show program sing", "'sing'"),
        ("keygen --bits 7 --out more", "7 bits a value; choose 8 to 24"),
        ("keygen --clients 0 --out more", "0 clients; choose 1 to 1024"),
        ("show", "requires a subcommand"),
        ("demo --clients 0", "--clients"),
        ("demo --rounds 0", "--rounds"),
        ("encrypt --in g --out more --clip 1", "--key <FILE>"),
        ("aggregate --key keys/public.json --out more", "<FILE>..."),
        ("decrypt --key keys/secret.json --out more", "--in <FILE>"),
        ("serve --clients 3", "--key <FILE>"),
        ("keygen --upgrade keys/secret.json", "--out <FOLDER>"),
        ("keygen --upgrade keys/secret.json --bits 16 --out more", "cannot be used with"),
        ("keygen --upgrade keys/secret.json --job j.json --out more", "cannot be used with"),
        ("keygen --upgrade keys/secret.json --renew-nodes --out more", "cannot be used with"),
        ("job --key keys/public.json", "--out <FILE>"),
        ("job --key keys/public.json --out more --clients 0", "--clients"),
        ("job --key keys/public.json --out more --min-clients 0", "--min-clients"),
        ("job --key keys/public.json --out more --max-range 0", "--max-range"),
        ("job --key keys/public.json --out more --max-range nan", "--max-range"),
        ("job --key keys/public.json --out more --ranges ranges.json --layout g", "--layout"),
        ("join --key keys/secret.json --client 0 --in g --out more", "--server <HOST:PORT>"),
        ("inspect", "<FILE>"),
        ("inspect g --ciphertexts", "--json"),
        ("ranges --out more g g", "one safetensors file"),
        (
            "ranges --out more --policy least g",
            "a policy is max, sigma:MULTIPLE, aciq[:BITS] or fixed:RANGE",
        ),
        ("ranges --out more --policy aciq:25 g", "aciq: takes 8 to 24 bits"),
        ("ranges --out more --policy sigma:-1 g", "positive"),
        ("ranges --out more --policy fixed:0 g", "fixed: takes a positive number"),
        ("ranges --out more --policy fixed:inf g", "fixed: takes a positive number"),
        ("ranges --out more --merge ranges.json --weight 3", "--merge"),
    ];
    for (words, reported) in cases {
        place.fails_with(2, words, &[reported]);
    }
    for words in ["--clip 0", "--clip -1", "--clip NaN", "--clip inf"] {
        place.fails_with(2, &format!("{ENCRYPT} --in g {words}"), &["--clip"]);
    }
}

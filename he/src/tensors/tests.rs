use std::io::Write as _;

use proptest::prelude::*;
use safetensors::{SafeTensors, tensor::TensorView};

use super::*;

fn tensor(name: &str, dtype: Dtype, shape: &[u64], values: &[f64]) -> Tensor {
    let spec = TensorSpec { name: name.into(), dtype, shape: shape.into() };
    Tensor::from_values(spec, values).unwrap()
}

fn named(update: &Update) -> Vec<(&str, Dtype, Vec<f64>)> {
    let all = update.tensors().iter().chain(update.kept());
    all.map(|t| (&t.spec.name[..], t.spec.dtype, t.values().unwrap())).collect()
}

/// Returns an update of many types, and the file of it that the library makes, with metadata.
fn mixed() -> (Update, Vec<u8>) {
    let tensors = vec![
        tensor("z", Dtype::F64, &[], &[0.1]),
        tensor("empty", Dtype::F32, &[3, 0, 2], &[]),
        tensor("b", Dtype::Bf16, &[2, 1], &[1.5, -2.0]),
        tensor("h", Dtype::F16, &[1], &[65504.0]),
        tensor("steps", Dtype::I64, &[], &[-7.0]),
        tensor("mask", Dtype::Bool, &[3], &[1.0, 0.0, 1.0]),
    ];
    let update = Update::new(tensors);
    let bytes = update.to_safetensors().unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    (update, safetensors::serialize(file.iter(), Some(metadata)).unwrap())
}

#[test]
fn safetensors_keep_names_shapes_and_types() {
    let (update, _) = mixed();
    let bytes = update.to_safetensors().unwrap();
    // As the library writes it.
    let file = SafeTensors::deserialize(&bytes).unwrap();
    assert!(safetensors::serialize(file.iter(), None).unwrap() == bytes);
    let read = Update::from_bytes(bytes.clone(), Integers::Sum).unwrap();
    assert_eq!((read.specs(), named(&read)), (update.specs(), named(&update)));
    assert!(read.to_safetensors().unwrap() == bytes);
    let empty = Update::default().to_safetensors().unwrap();
    assert_eq!(Update::from_safetensors(&empty).unwrap().specs(), []);
}

#[test]
fn a_file_that_is_written_to_meanwhile_is_read_no_more() {
    let (_, bytes) = mixed();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let read = Update::open(file.path(), Integers::Keep).unwrap();
    assert!(read.to_safetensors().is_ok());
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    file.as_file().set_modified(later).unwrap();
    let told = read.to_safetensors().unwrap_err().to_string();
    let place = file.path().display().to_string();
    assert!(told.starts_with(&place) && told.contains("it was written to"), "{told}");
}

#[test]
fn a_file_is_read_where_it_lies_and_its_layout_and_metadata_are_its_own() {
    let (update, bytes) = mixed();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let read = Update::open(file.path(), Integers::Keep).unwrap();
    let names = |tensors: &[Tensor]| -> Vec<String> {
        tensors.iter().map(|tensor| tensor.spec.name.clone()).collect()
    };
    assert_eq!(names(read.tensors()), ["b", "empty", "h", "z"]);
    assert_eq!(names(read.kept()), ["mask", "steps"]);
    assert!(read.to_safetensors().unwrap() == bytes);
    // A template keeps whatever integers the sum is not of.
    let specs: Vec<_> = update.specs().into_iter().filter(|spec| spec.name != "mask").collect();
    let template = Update::open_template(file.path(), &specs).unwrap();
    assert_eq!((template.specs(), names(template.kept())), (specs, vec!["mask".to_owned()]));
    // What is cut while it is open is an error that names it.
    file.as_file().set_len(bytes.len() as u64 - 1).unwrap();
    let error = read.to_safetensors().unwrap_err().to_string();
    assert!(error.starts_with(&file.path().display().to_string()), "{error}");
}

#[test]
fn integers_are_kept_summed_or_refused() {
    let (_, bytes) = mixed();
    let refused = Update::from_bytes(bytes, Integers::Refuse).err().unwrap().to_string();
    assert!(refused.starts_with("tensor \"mask\" is BOOL, and integers are refused"), "{refused}");
    let view = TensorView::new(safetensors::Dtype::F8_E4M3, vec![8], &[0; 8]).unwrap();
    let bytes = safetensors::serialize([("scales", view)], None).unwrap();
    let expected = Error::Dtype { tensor: "scales".into(), dtype: "F8_E4M3".into() };
    for integers in [Integers::Keep, Integers::Sum, Integers::Refuse] {
        assert_eq!(Update::from_bytes(bytes.clone(), integers).err(), Some(expected.clone()));
    }
}

#[test]
fn integers_that_doubles_may_not_hold_are_not_summed() {
    let check = |value: i64| {
        let spec = TensorSpec { name: "t".into(), dtype: Dtype::I64, shape: vec![2] };
        let bytes = [0, value].map(i64::to_le_bytes).concat();
        let tensor = Tensor::from_bytes(spec, bytes);
        let values = tensor.values().unwrap();
        check_values(&tensor, 0, &values)
    };
    let (limit, fault) = (1 << 53, Error::Integer { tensor: "t".into(), index: 1 });
    assert_eq!((check(limit - 1), check(1 - limit)), (Ok(()), Ok(())));
    for value in [limit, limit + 1, -limit, i64::MIN, i64::MAX] {
        assert_eq!(check(value), Err(fault.clone()), "{value}");
    }
}

#[test]
fn clipping_counts_and_shows_in_what_is_read() {
    let values = [0.5, -3.0, 2.0, 2.5];
    let mut update = Update::new(vec![tensor("t", Dtype::F32, &[4], &values)]);
    assert_eq!((update.clip(2.0), update.limit()), (Ok(vec![2]), Some(2.0)));
    assert_eq!(update.tensors()[0].values().unwrap(), [0.5, -2.0, 2.0, 2.0]);
    let bytes = [1.0, f64::INFINITY].map(f64::to_le_bytes).concat();
    let spec = TensorSpec { name: "t".into(), dtype: Dtype::F64, shape: vec![2] };
    let mut update = Update::new(vec![Tensor::from_bytes(spec, bytes)]);
    assert!(matches!(update.clip(2.0), Err(Error::NotFinite { index: 1, .. })));
}

#[test]
fn a_value_beyond_the_type_is_named() {
    let spec = TensorSpec { name: "h".into(), dtype: Dtype::F16, shape: vec![2] };
    let error = Tensor::from_values(spec, &[1.0, 1e5]).err();
    let expected = Error::Overflow { tensor: "h".into(), index: 1, dtype: "F16" };
    assert_eq!(error, Some(expected));
}

proptest! {
    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Update::from_safetensors(&bytes);
    }

    /// The same is refused as by the library, in the same words.
    #[test]
    fn what_the_library_refuses_is_refused(
        cut in 0usize..300, flip in 0usize..300, bit in 0u8..8, more in 0usize..2,
    ) {
        let (_, mut bytes) = mixed();
        let flip = flip % bytes.len();
        bytes[flip] ^= 1 << bit;
        bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(150)));
        bytes.resize(bytes.len() + more, 0);
        let ours = Update::from_bytes(bytes.clone(), Integers::Keep).err();
        match SafeTensors::deserialize(&bytes) {
            Err(e) => prop_assert_eq!(ours, Some(Error::Format { what: "safetensors file", why: e.to_string() })),
            Ok(_) => {
                let refused = matches!(ours, Some(Error::Format { .. }));
                prop_assert!(!refused);
            }
        }
    }
}

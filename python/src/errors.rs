//! Errors of the crates beneath as Python's: a class for each kind, and the facts as attributes.

use ciphergram_he::{
    Error as SchemeError,
    ckks::CkksError,
    error::{FrameError, OperandFault, with_remedy},
};
use ciphergram_nic::{NicError, federation::Error as RoundError};
use pyo3::{
    IntoPyObjectExt,
    exceptions::{PyOverflowError, PyRuntimeError, PyTypeError},
    prelude::*,
    types::{PyBool, PyDict},
};

use crate::hints::{remedy, round_remedy};

/// Everything that a call can fail with.
#[derive(Debug)]
pub(crate) enum Error {
    /// A scheme, a key, tensors, a file.
    Scheme(SchemeError),
    /// A round over the network.
    Round(RoundError),
    /// Python itself, or code of the caller's.
    Python(PyErr),
    /// A class of `ciphergram.errors`, and its words.
    Own(&'static str, String),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes the error for an argument that cannot be meant.
    pub(crate) fn parameter(text: impl Into<String>) -> Self {
        Self::Own("ParameterError", text.into())
    }
}

impl From<SchemeError> for Error {
    fn from(error: SchemeError) -> Self {
        Self::Scheme(error)
    }
}

impl From<RoundError> for Error {
    fn from(error: RoundError) -> Self {
        match error {
            RoundError::Scheme(error) => Self::Scheme(error),
            error => Self::Round(error),
        }
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        Python::attach(|py| match error {
            Error::Python(error) => error,
            Error::Own(class, text) => raise(py, class, &text, Facts::default()),
            Error::Round(error) => {
                let (class, facts) = describe_round(&error);
                raise(py, class, &with_remedy(&error, round_remedy(&error)), facts)
            }
            Error::Scheme(error) => {
                let (class, facts) = describe(&error);
                raise(py, class, &with_remedy(&error, remedy(&error)), facts)
            }
        })
    }
}

/// A fact of an error.
enum Fact {
    Text(String),
    Count(u64),
    Integer(i64),
    Number(f64),
}

/// The facts of an error, by the names of their attributes.
#[derive(Default)]
pub(crate) struct Facts(Vec<(&'static str, Fact)>);

impl Facts {
    fn text(mut self, name: &'static str, text: impl ToString) -> Self {
        self.0.push((name, Fact::Text(text.to_string())));
        self
    }

    fn count(mut self, name: &'static str, count: impl TryInto<u64>) -> Self {
        self.0.push((name, Fact::Count(count.try_into().unwrap_or(u64::MAX))));
        self
    }

    fn integer(mut self, name: &'static str, integer: i64) -> Self {
        self.0.push((name, Fact::Integer(integer)));
        self
    }

    fn number(mut self, name: &'static str, number: f64) -> Self {
        self.0.push((name, Fact::Number(number)));
        self
    }
}

/// Makes an exception of a class of `ciphergram.errors`.
pub(crate) fn raise(py: Python<'_>, class: &str, text: &str, facts: Facts) -> PyErr {
    let make = || -> PyResult<PyErr> {
        let class = py.import("ciphergram.errors")?.getattr(class)?;
        let fields = PyDict::new(py);
        for (name, fact) in facts.0 {
            let value = match fact {
                Fact::Text(text) => text.into_bound_py_any(py)?,
                Fact::Count(count) => count.into_bound_py_any(py)?,
                Fact::Integer(integer) => integer.into_bound_py_any(py)?,
                Fact::Number(number) => number.into_bound_py_any(py)?,
            };
            fields.set_item(name, value)?;
        }
        Ok(PyErr::from_value(class.call((text,), Some(&fields))?))
    };
    make().unwrap_or_else(|error| error)
}

/// Returns the class of an error, and its facts.
fn describe(error: &SchemeError) -> (&'static str, Facts) {
    use SchemeError as E;
    let facts = Facts::default();
    match error {
        E::In { error, .. } => describe(error),
        E::Ckks(error) => describe_vector(error),
        E::Parameters(_) | E::Noise(_) | E::Limits { .. } | E::Modulus(_) | E::RangesNotPrivate => {
            ("ParameterError", facts)
        }
        E::Bits { name, .. } => ("ParameterError", facts.text("tensor", name)),
        E::NotExact { tensor, .. } => ("Overflow", facts.text("tensor", tensor)),
        E::ClipNorm { norm } => ("ParameterError", facts.text("norm", norm)),
        E::Range { tensor, range } => {
            ("ParameterError", facts.text("tensor", tensor).text("range", range))
        }
        E::Weight { weight, max_weight } => {
            ("WeightError", facts.count("weight", *weight).count("max_weight", *max_weight))
        }
        E::NotFinite { tensor, index, value } => {
            ("NotFinite", facts.text("tensor", tensor).count("index", *index).text("value", value))
        }
        E::Dtype { tensor, dtype } => {
            ("DtypeError", facts.text("tensor", tensor).text("dtype", dtype))
        }
        E::Integers { tensor, dtype } => {
            ("DtypeError", facts.text("tensor", tensor).text("dtype", dtype))
        }
        E::Integer { tensor, index } => {
            ("Overflow", facts.text("tensor", tensor).count("index", *index))
        }
        E::Overflow { tensor, index, dtype } => {
            ("Overflow", facts.text("tensor", tensor).count("index", *index).text("dtype", dtype))
        }
        E::Tensors { why } => ("LayoutError", facts.text("difference", why)),
        E::Layout { difference } => ("LayoutError", facts.text("difference", difference)),
        E::Ranges { difference } => ("RangesDiffer", facts.text("difference", difference)),
        E::Operand { fault, .. } => describe_operand(fault),
        E::TooManyContributors { found, admitted } => {
            ("TooMany", facts.count("found", *found).count("admitted", *admitted))
        }
        E::NothingToSum => ("TooFew", facts.count("found", 0u64)),
        E::TooFewContributors { found, min_clients, .. } => {
            ("TooFew", facts.count("found", *found).count("min_clients", *min_clients))
        }
        E::TooFewProposals { found, .. } => ("TooFew", facts.count("found", *found)),
        E::SameContribution => ("DuplicateClient", facts),
        E::SameNumber { number } => ("DuplicateClient", facts.count("client", *number)),
        E::NoSumKey | E::KeyKind { .. } => ("KeyKind", facts),
        E::Number { number, .. } => ("ClientNumberError", facts.count("client", *number)),
        E::AnotherClient { .. } | E::NoNumber => ("ClientNumberError", facts),
        E::KeyMismatch { found, expected, .. } => {
            ("KeyMismatch", facts.text("found", found).text("expected", expected))
        }
        E::JobMismatch { found, expected, .. } => {
            ("JobMismatch", facts.text("found", found).text("expected", expected))
        }
        _ => describe_rest(error),
    }
}

/// Describes what is wrong with integers or fixed-point numbers, encrypted or in clear.
fn describe_operand(fault: &OperandFault) -> (&'static str, Facts) {
    use OperandFault as F;
    let facts = Facts::default();
    match fault {
        F::NotFinite { index } => ("NotFinite", facts.count("index", *index)),
        F::TooLarge { index, .. } => ("Overflow", facts.count("index", *index)),
        F::Scale { found, expected } => {
            ("ScaleMismatch", facts.count("found", *found).count("expected", *expected))
        }
        F::ScaleLimit { .. } => ("ParameterError", facts),
        F::Ciphertext(_) => ("BadCiphertext", facts),
        F::Modulus => ("KeyMismatch", facts),
        _ => ("LayoutError", facts),
    }
}

/// Describes what is wrong with a vector, or with work on one.
fn describe_vector(error: &CkksError) -> (&'static str, Facts) {
    use CkksError as E;
    let facts = Facts::default();
    match error {
        E::Parameters { .. } => ("ParameterError", facts),
        E::Vectors { .. } | E::Model { .. } | E::ModelInput { .. } => ("LayoutError", facts),
        E::Value { index, value, .. } if !value.is_finite() => {
            ("NotFinite", facts.count("index", *index).text("value", value))
        }
        E::Value { index, value, limit, .. } => (
            "Overflow",
            facts.count("index", *index).number("value", *value).number("limit", *limit),
        ),
        E::BeyondRange { tensor, index, value, range } => (
            "Overflow",
            facts
                .text("tensor", tensor)
                .count("index", *index)
                .number("value", *value)
                .number("range", *range),
        ),
        E::NoRoom => ("Overflow", facts),
        E::OutOfLevels | E::Level { .. } => ("OutOfLevels", facts),
        E::OtherParameters { .. } => ("KeyMismatch", facts),
        E::NoRelinearisation | E::NoConjugate => ("NoEvaluationKey", facts),
        E::NoRotation { steps } => ("NoEvaluationKey", facts.integer("rotation", *steps)),
        E::NoRotations { of } => ("NoEvaluationKey", facts.text("rotation", of)),
        _ => ("CiphergramError", facts),
    }
}

/// Describes what is wrong with something from outside, or with the machine.
fn describe_rest(error: &SchemeError) -> (&'static str, Facts) {
    use SchemeError as E;
    let facts = Facts::default();
    match error {
        E::Frame(FrameError::Kind { found, expected }) => {
            ("BadFrame", facts.text("found", found).text("expected", expected))
        }
        E::Frame(_) | E::Format { .. } => ("BadFrame", facts),
        E::Ciphertext { chunk, .. } | E::Empty { chunk } | E::MixedContributors { chunk } => {
            ("BadCiphertext", facts.count("chunk", *chunk))
        }
        E::NotTheirs { contributors } => {
            ("SumMismatch", facts.count("contributors", *contributors))
        }
        E::BeyondJob { .. } | E::RangeBeyondJob { .. } => ("BeyondJob", facts),
        E::AnotherRound { found, expected } => {
            ("RoundMismatch", facts.count("found", *found).count("expected", *expected))
        }
        E::RoundAhead { .. } => ("RoundMismatch", facts),
        E::Terms { .. } => ("BadTerms", facts),
        E::RoundOver { number, round, last } => (
            "RoundOver",
            facts.count("client", *number).count("round", *round).count("last", *last),
        ),
        E::Answered { round, last } => {
            ("RoundOver", facts.count("round", *round).count("last", *last))
        }
        E::Opener { opener, .. } => ("OpenerError", facts.count("opener", *opener)),
        E::Contributor { number, .. } => ("OpenerError", facts.count("client", *number)),
        E::TooFewAnswers { found, .. } => ("TooFew", facts.count("found", *found)),
        E::FalseAnswers { .. } => ("SumMismatch", facts),
        E::NoMember { .. } | E::NoOpeners => ("NotAMember", facts),
        E::SecondSum { round } => ("SecondSum", facts.count("round", *round)),
        E::RoundSpent { round } => ("RoundSpent", facts.count("round", *round)),
        E::DifferentSums { round } => ("DifferentSums", facts.count("round", *round)),
        E::WithoutTfhe | E::NoRangesSecret | E::NoRangesKey => ("NoRangesKey", facts),
        E::Exists { path } => ("Exists", facts.text("path", path.display())),
        E::Io { why } | E::Ledger { why } => match os_code(why) {
            Some(code) => ("FileError", facts.count("errno", code)),
            None => ("FileError", facts),
        },
        E::Engine(_) | E::Randomness => ("EngineError", facts),
        _ => ("CiphergramError", facts),
    }
}

/// Returns the operating system's number of an error, which its words end with.
fn os_code(why: &str) -> Option<u32> {
    why.strip_suffix(')')?.rsplit_once("(os error ")?.1.parse().ok()
}

/// Describes what ended a round, or kept it from beginning.
fn describe_round(error: &RoundError) -> (&'static str, Facts) {
    use RoundError as E;
    let facts = Facts::default();
    match error {
        E::Scheme(error) => describe(error),
        E::TooManyClients { .. } | E::Nic(NicError::Quorum { .. }) => ("ParameterError", facts),
        E::Nic(NicError::Bind { .. }) => ("FileError", facts),
        E::Refused { server, reason } | E::Rejected { server, reason, .. } => {
            ("Refused", facts.text("server", server).text("reason", reason))
        }
        E::Unreachable { server, .. } => ("Unreachable", facts.text("server", server)),
        E::Unlisted { server, node } => {
            ("Unlisted", facts.text("server", server).text("node", node))
        }
        E::Withheld { round, withheld, chunks, .. } => (
            "Withheld",
            facts.count("round", *round).count("withheld", *withheld).count("chunks", *chunks),
        ),
        E::TermsChanged { .. } | E::BadRound { .. } => ("BadTerms", facts),
        E::NodeFile { path, .. } => ("NodeKeyError", facts.text("path", path.display())),
        E::Spool { path, .. } => ("SpoolError", facts.text("path", path.display())),
        E::Stopped => ("Stopped", facts),
        _ => ("CiphergramError", facts),
    }
}

/// Refuses to write a secret into a pickle.
pub(crate) fn no_pickle(what: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "{what} holds a secret and is not pickled: save it to a file of its owner's"
    ))
}

/// Warns the user, if there is something to warn of.
pub(crate) fn warn(py: Python<'_>, text: Option<&str>) -> PyResult<()> {
    let Some(text) = text else { return Ok(()) };
    let text = std::ffi::CString::new(text).unwrap_or_default();
    let category = py.import("ciphergram.errors")?.getattr("CiphergramWarning")?;
    PyErr::warn(py, &category, &text, 1)
}

/// Warns of values that were clipped to their ranges, if any were: once for a line of code, as the words are the same.
/// Where warnings are errors it is reported, not raised: the round is over, and its result would be lost.
pub(crate) fn warn_clipped(py: Python<'_>, counts: &[usize]) {
    let text = "values beyond their range were clipped to it: `clipped` counts them by tensor";
    if counts.iter().any(|count| *count > 0)
        && let Err(error) = warn(py, Some(text))
    {
        error.write_unraisable(py, None);
    }
}

/// Takes a whole number; one that is too large or negative is a `ParameterError`, as one that is not admitted is.
pub(crate) fn whole<'py, T>(number: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if number.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("a truth value is no number"));
    }
    number.extract::<T>().map_err(|error| {
        match error.is_instance_of::<PyOverflowError>(number.py()) {
            true => Error::parameter(format!("{number} is not a number that there can be")).into(),
            false => error,
        }
    })
}

/// As [`whole`], of a weight: one that there cannot be is a `WeightError`.
pub(crate) fn weight(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    let refused = |why: &str| {
        let text = format!(
            "weight {} {why}",
            number.repr().map_or_else(|_| String::new(), |x| x.to_string())
        );
        PyErr::from(Error::Own("WeightError", text))
    };
    let small: Option<f64> = number.extract().ok().filter(|_| !number.is_instance_of::<PyBool>());
    match small {
        Some(0.0) => Err(refused("is no contribution: leave this client out of the round")),
        Some(x) if x.fract() != 0.0 => Err(refused(
            "is no whole number: scale the weights of all clients alike, 0.125 to 125 of max_weight=1000",
        )),
        Some(x) if !(1.0..=f64::from(u32::MAX)).contains(&x) => {
            Err(refused(&format!("is no weight: they are from 1 to {}", u32::MAX)))
        }
        // Also a float that is whole.
        Some(x) => whole(number).or(Ok(x as u64)),
        None => whole(number),
    }
}

/// As [`weight`], of one that may be left out.
pub(crate) fn weight_or_none(number: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    if number.is_none() { Ok(None) } else { weight(number).map(Some) }
}

/// As [`whole`], of a number that may be left out.
pub(crate) fn whole_or_none<'py, T>(number: &Bound<'py, PyAny>) -> PyResult<Option<T>>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    if number.is_none() { Ok(None) } else { whole(number).map(Some) }
}

/// Makes the error of something that cannot be, but is.
pub(crate) fn internal(text: &'static str) -> PyErr {
    PyRuntimeError::new_err(text)
}

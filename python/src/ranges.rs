//! Clipping ranges.

use std::{collections::BTreeMap, path::PathBuf};

use ciphergram_he::{
    self as he, Agreement, Error as SchemeError, TensorSpec,
    codec::{Policy, RangesFile},
};
use pyo3::{IntoPyObjectExt, prelude::*, types::PyDict};

use crate::{
    arrays::{self, in_order},
    errors::{Error, Result, weight, whole, whole_or_none},
    files::replace,
    job::PyJob,
    pool::run,
    private_ranges::{self, PyRangesKey, PyRangesProposal},
};

/// What the updates of a round have in common: names, types and shapes of tensors, the range that the values of each
/// are clipped to, and the largest weight of a client. All of it is public.
#[pyclass(frozen, mapping, name = "Ranges", module = "ciphergram")]
pub(crate) struct PyRanges(pub(crate) Agreement);

impl PyRanges {
    fn file(&self) -> RangesFile {
        RangesFile::from_agreement(&self.0)
    }

    fn items(&self) -> impl Iterator<Item = (&str, f64)> {
        let names = self.0.specs().iter().map(|spec| spec.name.as_str());
        names.zip(self.0.ranges().iter().copied())
    }
}

#[pymethods]
impl PyRanges {
    /// Reads a file of ranges.
    ///
    /// Raises:
    ///     BadFrame: It is none.
    #[staticmethod]
    fn load(path: PathBuf) -> Result<Self> {
        let text = std::fs::read_to_string(&path).map_err(SchemeError::from);
        let read = || RangesFile::from_json(&text?)?.agreement();
        Ok(Self(read().map_err(|e| e.within(path.display()))?))
    }

    /// Reads the text of a file of ranges.
    ///
    /// Raises:
    ///     BadFrame: It is none.
    #[staticmethod]
    fn from_json(text: &str) -> Result<Self> {
        Ok(Self(RangesFile::from_json(text)?.agreement()?))
    }

    /// Returns the text of the file.
    fn to_json(&self) -> Result<String> {
        Ok(self.file().to_json()?)
    }

    /// Writes the file; one of ranges that is there is replaced.
    ///
    /// Raises:
    ///     Exists: The file is something else.
    fn save(&self, path: PathBuf) -> Result<()> {
        let is_own = |found: &[u8]| {
            str::from_utf8(found).is_ok_and(|text| RangesFile::from_json(text).is_ok())
        };
        replace(&path, self.to_json()?.as_bytes(), is_own)
    }

    /// Returns the same tensors with other ranges, another largest weight if one is given, and the same norm.
    ///
    /// Raises:
    ///     LayoutError: A name is no tensor's.
    #[pyo3(signature = (ranges, *, max_weight=None))]
    fn replace(
        &self,
        ranges: BTreeMap<String, f64>,
        #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
    ) -> Result<Self> {
        let mut all: BTreeMap<_, _> =
            self.items().map(|(name, range)| (name.to_owned(), range)).collect();
        all.extend(ranges);
        let max_weight = max_weight.unwrap_or(self.0.max_weight());
        let bits = self.0.precisions().iter().map(|precision| precision.bits());
        let replaced = named(&all, max_weight, self.0.specs())?.with_bits(bits)?;
        Ok(Self(replaced.with_clip_norm(self.0.clip_norm())?))
    }

    /// The largest weight of a client.
    #[getter]
    fn max_weight(&self) -> u32 {
        self.0.max_weight()
    }

    /// The bits of tensors that are other than the key's, by name.
    #[getter]
    fn bits(&self) -> BTreeMap<&str, u32> {
        let names = self.0.specs().iter().map(|spec| spec.name.as_str());
        let bits = names.zip(self.0.precisions());
        bits.filter_map(|(name, precision)| Some((name, precision.bits()?))).collect()
    }

    /// The L2 norm that every client clips its whole update to; None if they do not.
    #[getter]
    fn clip_norm(&self) -> Option<f64> {
        self.0.clip_norm()
    }

    /// The number of values of all tensors.
    #[getter]
    fn values_count(&self) -> usize {
        self.0.values()
    }

    /// The type and the shape of each tensor, by name.
    #[getter]
    fn specs<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let specs = PyDict::new(py);
        for place in in_order(py, &self.0)? {
            let TensorSpec { name, dtype, shape } = &self.0.specs()[place];
            specs.set_item(name, (dtype.name(), pyo3::types::PyTuple::new(py, shape)?))?;
        }
        Ok(specs)
    }

    /// The names of the tensors, in the order in which this process gave them, else sorted, numbers by value.
    fn keys(&self, py: Python<'_>) -> Result<Vec<&str>> {
        Ok(self.pairs(py)?.into_iter().map(|(name, _)| name).collect())
    }

    /// The ranges, in the order of the names.
    fn values(&self, py: Python<'_>) -> Result<Vec<f64>> {
        Ok(self.pairs(py)?.into_iter().map(|(_, range)| range).collect())
    }

    /// Names and ranges.
    #[pyo3(name = "items")]
    fn pairs(&self, py: Python<'_>) -> Result<Vec<(&str, f64)>> {
        let pair = |place: usize| (self.0.specs()[place].name.as_str(), self.0.ranges()[place]);
        Ok(in_order(py, &self.0)?.into_iter().map(pair).collect())
    }

    fn __getitem__(&self, name: &str) -> PyResult<f64> {
        let found = self.items().find(|(known, _)| *known == name);
        found
            .map(|(_, range)| range)
            .ok_or_else(|| pyo3::exceptions::PyKeyError::new_err(name.to_owned()))
    }

    fn __contains__(&self, name: &str) -> bool {
        self.items().any(|(known, _)| known == name)
    }

    fn __len__(&self) -> usize {
        self.0.specs().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, pyo3::types::PyIterator>> {
        Ok(pyo3::types::PyList::new(py, self.keys(py)?)?.try_iter()?)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        let each = |(name, range): (&str, f64)| format!("{name:?}: {range}");
        let most = 8;
        let mut shown: Vec<_> = self.items().take(most).map(each).collect();
        if self.__len__() > most {
            shown.push(format!("… {} more", self.__len__() - most));
        }
        let norm = self.0.clip_norm().map(|norm| format!(", clipped to norm {norm}"));
        let (norm, shown) = (norm.unwrap_or_default(), shown.join(", "));
        format!("<Ranges {{{shown}}}, weights up to {}{norm}>", self.0.max_weight())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (String,))> {
        let class = py.get_type::<Self>();
        Ok((class.getattr("from_json")?, (self.to_json()?,)))
    }
}

/// Finds the ranges of tensors.
///
/// Args:
///     tensors: Arrays by name, or the path of a safetensors file.
///     weight: The client's weight, from 1, which no proposal of private ranges tells.
///     policy: "max", the largest magnitude, which clips nothing; "sigma:3", three times the root mean square;
///         "aciq", the range of the least error for values as of a Gaussian; "fixed:0.1".
///     bits: The bits of a quantised value, for "aciq".
///     integers: As of `SecretKey.encrypt`.
///     private: A client's key, to encrypt them for a job that agrees on ranges; None to return them in clear.
///     client: The client's number, where it shares the secret key.
///     job: That job; None for the key's own.
///
/// Returns:
///     `Ranges`, or with `private` a `RangesProposal`, which `merge_ranges` takes.
///
/// Raises:
///     NotFinite: A value is NaN or infinite.
///     NoRangesKey: The key has no secret of ranges.
#[pyfunction]
#[pyo3(name = "ranges", signature = (tensors, *, weight=1, policy="max", bits=16, integers="keep", private=None,
                                     client=None, job=None))]
#[expect(clippy::too_many_arguments)]
pub(crate) fn measure<'py>(
    py: Python<'py>,
    tensors: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = weight)] weight: u64,
    policy: &str,
    #[pyo3(from_py_with = whole)] bits: u32,
    integers: &str,
    private: Option<&Bound<'py, PyAny>>,
    #[pyo3(from_py_with = whole_or_none)] client: Option<u16>,
    job: Option<&PyJob>,
) -> Result<Bound<'py, PyAny>> {
    let policy = parse(policy, bits)?;
    let update = arrays::take(tensors, integers)?;
    if let Some(key) = private {
        if weight != 1 {
            return Err(Error::parameter(
                "no proposal tells a weight: leave weight= out with private=",
            ));
        }
        let proposal = private_ranges::propose(py, (&update, policy), key, client, job)?;
        return Ok(proposal.into_bound_py_any(py)?);
    }
    if client.is_some() || job.is_some() {
        return Err(Error::parameter("client= and job= are for private="));
    }
    let measured =
        run(py, || Ok(PyRanges(RangesFile::measure(&update, policy, weight)?.agreement()?)))?;
    Ok(measured.into_bound_py_any(py)?)
}

fn parse(policy: &str, bits: u32) -> Result<Policy> {
    let bad =
        || Error::parameter(format!("policy={policy:?}: there are max, sigma:K, aciq and fixed:R"));
    let number = |text: &str| {
        text.parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0).ok_or_else(bad)
    };
    match policy.split_once(':') {
        None if policy == "max" => Ok(Policy::Max),
        None if policy == "aciq" => Ok(Policy::Aciq { bits }),
        Some(("sigma", multiple)) => Ok(Policy::Sigma(number(multiple)?)),
        Some(("fixed", range)) => Ok(Policy::Fixed(number(range)?)),
        _ => Err(bad()),
    }
}

/// Joins the ranges of several clients: the largest of each tensor, and the largest weight. Of private ones it finds
/// those that the job agrees on, and opens none.
///
/// Args:
///     ranges: Those of each client.
///     ranges_key: The key to find private ones with, if they are `RangesProposal`s.
///     job: The job that agrees on them; None for the one beside that key.
///
/// Returns:
///     `Ranges`, or with `ranges_key` `AgreedRanges`, which `open_ranges` opens.
///
/// Raises:
///     LayoutError: Their tensors differ.
///     TooFew: Fewer clients than the rank that the job agrees on.
///     JobMismatch, BeyondJob, DuplicateClient: A proposal is none of the job's.
#[pyfunction]
#[pyo3(signature = (ranges, *, ranges_key=None, job=None))]
pub(crate) fn merge_ranges<'py>(
    py: Python<'py>,
    ranges: &Bound<'py, PyAny>,
    ranges_key: Option<&PyRangesKey>,
    job: Option<&PyJob>,
) -> Result<Bound<'py, PyAny>> {
    if let Some(key) = ranges_key {
        let proposals: Vec<PyRef<'_, PyRangesProposal>> = ranges.extract()?;
        let agreed = private_ranges::merge(py, &proposals, key, job)?;
        return Ok(agreed.into_bound_py_any(py)?);
    }
    if job.is_some() {
        return Err(Error::parameter("job= is for ranges_key="));
    }
    let ranges: Vec<PyRef<'_, PyRanges>> = ranges.extract()?;
    let files: Vec<_> = ranges.iter().map(|ranges| ranges.file()).collect();
    Ok(PyRanges(RangesFile::merge(&files)?.agreement()?).into_bound_py_any(py)?)
}

/// Returns the agreement that an update is sealed under: by the ranges given, one for all tensors, one for each, or
/// shared ones; or by what the job settles. Beside ranges in numbers the largest weight is the job's, or 1 where
/// clients give no weights.
pub(crate) fn agreement(
    (ranges, max_weight): (Option<&Bound<'_, PyAny>>, Option<u32>),
    weighs: bool,
    job: &he::Job,
    specs: &[TensorSpec],
) -> Result<Agreement> {
    let Some(ranges) = ranges else { return settled(job, max_weight, specs) };
    let of_job = if weighs { job.limits().max_weight } else { 1 };
    Ok(job.at_precision(&given((ranges, max_weight), of_job, specs)?)?)
}

/// Returns the agreement of ranges that are given, and of the job's largest weight if none is.
fn given(
    (ranges, max_weight): (&Bound<'_, PyAny>, Option<u32>),
    of_job: u32,
    specs: &[TensorSpec],
) -> Result<Agreement> {
    if let Ok(ranges) = ranges.cast::<PyRanges>() {
        if max_weight.is_some_and(|given| given != ranges.get().0.max_weight()) {
            let text = "the ranges have a largest weight of their own: leave max_weight= out";
            return Err(Error::parameter(text));
        }
        return Ok(ranges.get().0.clone());
    }
    let max_weight = max_weight.unwrap_or(of_job);
    if let Ok(range) = ranges.extract::<f64>() {
        return Ok(Agreement::new(sorted(specs), vec![range; specs.len()], max_weight)?);
    }
    let by_name: BTreeMap<String, f64> = ranges.extract().map_err(|_| {
        Error::parameter("ranges= is a number, a mapping of names to numbers, or Ranges")
    })?;
    named(&by_name, max_weight, specs)
}

fn settled(job: &he::Job, max_weight: Option<u32>, specs: &[TensorSpec]) -> Result<Agreement> {
    if !job.settles_ranges() {
        let text = "the job settles no ranges: say ranges=, a number or what all clients share";
        return Err(Error::parameter(text));
    }
    let own = Agreement::new(specs.to_vec(), vec![0.0; specs.len()], 1)?;
    let settled = job.settle(&own)?;
    let max_weight = max_weight.unwrap_or(settled.max_weight());
    Ok(settled.with_max_weight(max_weight)?)
}

/// Returns the agreement of a range for each tensor, by its name.
fn named(
    ranges: &BTreeMap<String, f64>,
    max_weight: u32,
    specs: &[TensorSpec],
) -> Result<Agreement> {
    let specs = sorted(specs);
    if let Some(name) = ranges.keys().find(|name| specs.iter().all(|spec| spec.name != **name)) {
        let difference = format!("there is a range of {name:?}, which is no tensor");
        return Err(SchemeError::Layout { difference }.into());
    }
    let range = |spec: &TensorSpec| {
        let missing =
            || SchemeError::Layout { difference: format!("{:?} has no range", spec.name) };
        ranges.get(&spec.name).copied().ok_or_else(missing)
    };
    let ranges = specs.iter().map(range).collect::<Result<_, _>>()?;
    Ok(Agreement::new(specs, ranges, max_weight)?)
}

fn sorted(specs: &[TensorSpec]) -> Vec<TensorSpec> {
    let mut specs = specs.to_vec();
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    specs
}

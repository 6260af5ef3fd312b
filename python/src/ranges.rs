//! Clipping ranges.

use std::{collections::BTreeMap, path::PathBuf};

use ciphergram_he::{self as he, Agreement, Error as SchemeError, TensorSpec, codec::RangesFile};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    arrays::in_order,
    errors::{Error, Result, whole_or_none},
    paths::replace,
};

/// What the updates of a round have in common: names, types and shapes of tensors, the range that the values of each
/// are clipped to, and the largest weight of a client. All of it is public.
#[pyclass(frozen, mapping, name = "Ranges", module = "ciphergram")]
pub(crate) struct PyRanges(pub(crate) Agreement);

impl PyRanges {
    pub(crate) fn file(&self) -> RangesFile {
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

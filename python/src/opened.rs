//! Results: what a sum opens to.

use ciphergram_he::{self as he, codec::Output};
use pyo3::{prelude::*, types::PyDict};

use crate::{
    arrays::{Arrays, in_order},
    errors::Result,
    ranges::PyRanges,
};

/// Returns the form of a result.
pub(crate) fn output(total: bool) -> Output {
    if total { Output::Sum } else { Output::Mean }
}

/// Makes the result of a sum, in arrays that hold what it opens to; `clipped` is how many values of each tensor of
/// this client were out of range.
pub(crate) fn opened<'py>(
    py: Python<'py>,
    arrays: Arrays,
    sum: &he::Sum,
    total: bool,
    clipped: Option<&[usize]>,
) -> Result<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("contributors", sum.contributed())?;
    fields.set_item("fewest", sum.fewest_contributors())?;
    fields.set_item("round", sum.round)?;
    fields.set_item("ranges", PyRanges(sum.agreement.clone()))?;
    fields.set_item("total", total)?;
    fields.set_item("clipped", by_name(py, &sum.agreement, clipped)?)?;
    let class = py.import("ciphergram._opened")?.getattr("Opened")?;
    Ok(class.call((arrays.arrays,), Some(&fields))?)
}

/// Returns a count for each tensor by its name, if there are counts.
pub(crate) fn by_name<'py>(
    py: Python<'py>,
    agreement: &he::Agreement,
    counts: Option<&[usize]>,
) -> Result<Option<Bound<'py, PyDict>>> {
    let Some(counts) = counts else { return Ok(None) };
    let names = PyDict::new(py);
    for place in in_order(py, agreement)? {
        names.set_item(&agreement.specs()[place].name, counts[place])?;
    }
    Ok(Some(names))
}

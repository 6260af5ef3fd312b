//! Members of jobs whose sums openers open, and what openers answer.

use std::path::{Path, PathBuf};

use ciphergram_he::{
    AnyKey, Error as SchemeError, Limits, Parameters, PublicKey, Scheme,
    keys::write_identities,
    params::Literal,
    threshold::{OpenRequest, Prekey},
};
use ciphergram_nic::federation::nodes::LocalNodes;
use pyo3::{prelude::*, types::PyBytes};

use crate::{
    buffer::Frozen,
    errors::{Result, whole, whole_or_none},
    holder::Holder,
    job::PyJob,
    keys::PyMember,
    paths::whole_folder,
    pool::{run, run_with},
};

#[pymethods]
impl PyMember {
    /// Answers an aggregator's request as an opener, once a round: see `Summing.requests`.
    ///
    /// Args:
    ///     request: The bytes of the request to this opener.
    ///     job: The job; None for the member's own.
    ///
    /// Returns:
    ///     The bytes of the answer, which only members of the job can read.
    ///
    /// Raises:
    ///     RoundOver: It has answered for that round, or a later one.
    ///     OpenerError: A client did not make its contribution so. NotAMember: It is no opener of the job.
    ///     TooFew: The sum is of fewer contributors than the job demands.
    ///     JobMismatch: The request is of another job, or to another opener. BadFrame: It is none.
    #[pyo3(signature = (request, *, job=None))]
    fn answer<'py>(
        &self,
        py: Python<'py>,
        request: &Bound<'py, PyAny>,
        job: Option<&PyJob>,
    ) -> Result<Bound<'py, PyBytes>> {
        let (request, job) = (Frozen::new(request)?, self.0.job(job)?);
        let answer = run_with(py, &self.1, |path| {
            let public = self.0.key.public();
            let request = OpenRequest::from_bytes(request.as_ref(), public)?;
            let AnyKey::Identity(own, _) = &*self.0.key else {
                return Err(SchemeError::NoMember { role: "opener" }.into());
            };
            let opener = own.opener(path, &job)?;
            Ok(opener.answer(&self.0.ledger()?, &request)?.to_bytes(public))
        })?;
        Ok(PyBytes::new(py, &answer))
    }

    /// Returns the prekey of this opener's next answer, which contributors `learn` where answers do not reach them.
    ///
    /// Args:
    ///     job: The job; None for the member's own.
    ///
    /// Returns:
    ///     Its bytes, signed and good for thirty days; None if the member is no opener of the job.
    #[pyo3(signature = (*, job=None))]
    fn prekey<'py>(
        &self,
        py: Python<'py>,
        job: Option<&PyJob>,
    ) -> Result<Option<Bound<'py, PyBytes>>> {
        let job = self.0.job(job)?;
        let prekey = run_with(py, &self.1, |path| {
            let AnyKey::Identity(own, _) = &*self.0.key else { return Ok(None) };
            let opener = own.opener_if_any(path, &job)?;
            Ok(opener.map(|opener| opener.prekey()).transpose()?)
        })?;
        Ok(prekey.map(|prekey| PyBytes::new(py, &prekey.to_bytes())))
    }

    /// Learns prekeys that openers told, for contributions from now on. Those that are none of theirs are left aside.
    ///
    /// Args:
    ///     prekeys: Bytes of `prekey`, of any openers.
    ///     job: The job; None for the member's own.
    #[pyo3(signature = (prekeys, *, job=None))]
    fn learn(&self, prekeys: Vec<Vec<u8>>, job: Option<&PyJob>) -> Result<()> {
        let job = self.0.job(job)?;
        let told: Vec<_> =
            prekeys.iter().filter_map(|prekey| Prekey::from_bytes(prekey).ok()).collect();
        // Whose each is shows in its signature.
        let openers = 0..job.openers()?.openers().len() as u8;
        let told = openers.flat_map(|opener| told.iter().map(move |prekey| (opener, prekey)));
        self.0.act(None, &job, "cpu", |member| Ok(member.learn(told)?))
    }
}

/// Makes the identities of all clients of a job, and the job, whose sums the first of them open, all or at most 32.
/// Whoever makes them could keep them: between organisations each member makes its own (`ciphergram keygen --member`).
///
/// Args:
///     folder: The folder to make, with `public.json` and `job.json`, the members' files in `clients/`, and node keys
///         for rounds over datagrams on this machine.
///     clients: The most contributors of a sum.
///     open: Openers whose answers open a sum; None for as few as keep a third of them from learning anything together.
///     bits: The bits of a quantised value, from 8 to 24.
///     min_clients, max_weight, max_range: As of `Job`.
///
/// Returns:
///     The members, in the order of their numbers.
///
/// Raises:
///     ParameterError: There is no such job. Exists: The folder is there.
#[pyfunction]
#[pyo3(signature = (folder, *, clients, open=None, bits=16, min_clients=None, max_weight=None, max_range=None))]
#[expect(clippy::too_many_arguments)]
pub(crate) fn keygen_members(
    py: Python<'_>,
    folder: PathBuf,
    #[pyo3(from_py_with = whole)] clients: u32,
    #[pyo3(from_py_with = whole_or_none)] open: Option<u8>,
    #[pyo3(from_py_with = whole)] bits: u32,
    #[pyo3(from_py_with = whole_or_none)] min_clients: Option<u16>,
    #[pyo3(from_py_with = whole_or_none)] max_weight: Option<u32>,
    max_range: Option<f64>,
) -> Result<Vec<PyMember>> {
    let literal = Literal { scheme: Scheme::CkksSumThreshold, clients, bits };
    let parameters = Parameters::new(literal).map_err(SchemeError::from)?;
    let public = PublicKey::of_parameters(parameters)?;
    let limits = Limits::of_key(&public).of_clients(clients as u16, min_clients);
    let limits = limits.up_to(max_weight, max_range)?;
    let open = open.map(usize::from);
    let write = |folder: &Path| {
        write_identities(&public, limits.clone(), open, folder)?;
        Ok(LocalNodes::of_folder(folder).draw()?)
    };
    run(py, || whole_folder(&folder, write, |_| Ok(())))?;
    let load = |number: u32| {
        let path = folder.join("clients").join(format!("{number}.json"));
        Ok(PyMember(Holder::load(py, &path, None, 1)?, path.into()))
    };
    (0..clients).map(load).collect()
}

//! One module a command.

pub(crate) mod aggregate;
pub(crate) mod bundle;
pub(crate) mod complete;
pub(crate) mod decrypt;
pub(crate) mod devices;
pub(crate) mod encrypt;
pub(crate) mod identity;
pub(crate) mod inspect;
pub(crate) mod job;
pub(crate) mod join;
pub(crate) mod keygen;
pub(crate) mod man;
pub(crate) mod noise;
pub(crate) mod opener;
pub(crate) mod params;
pub(crate) mod predict;
pub(crate) mod program;
pub(crate) mod ranges;
pub(crate) mod screen;
pub(crate) mod serve;
pub(crate) mod vectors;

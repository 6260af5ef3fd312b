//! Engines over devices: a program over some items of a batch is recorded as data, which the device carries out part by
//! part of the batch. What is recorded, and how much at once, is the device's own; the rest is here.

mod batch;
pub(crate) mod numbers;
mod record;
mod run;

pub(crate) use batch::{BatchPart, DeviceBatch, DeviceJob};
pub(crate) use record::{
    Applied, Buffer, DeviceKind, DeviceValue, HostWords, Life, Memory, Recorder, Recording,
    Transfer,
};
pub(crate) use run::{Runner, multiplies, record, run};

//! Where commands write: what they replace, what they refuse, and what they leave behind.
#![cfg(unix)]

mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    process::{Command, Stdio},
    thread,
};

use support::{place::Place, tensors::write_tensors};

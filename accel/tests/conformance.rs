//! Every engine of this crate, through the shared suite.

mod cpu {
    ciphergram_accel::conformance!(ciphergram_accel::CpuEngine::new());
}

mod reference {
    ciphergram_accel::conformance!(ciphergram_accel::ReferenceEngine);
}

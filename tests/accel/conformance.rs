//! The suite, over every engine of this crate and each path of the CPU engine.

mod reference {
    ciphergram_accel::conformance!(ciphergram_accel::ReferenceEngine);
}

mod cpu {
    ciphergram_accel::conformance!(ciphergram_accel::CpuEngine::new());
}

mod cpu_avx2 {
    use ciphergram_accel::CpuEngine;

    ciphergram_accel::conformance!(CpuEngine::avx2().unwrap_or_else(CpuEngine::portable));
}

mod cpu_portable {
    ciphergram_accel::conformance!(ciphergram_accel::CpuEngine::portable());
}

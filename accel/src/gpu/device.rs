//! One adapter: what it can do, its pipelines, its memory.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use super::{
    pool::BufferPool,
    shaders::{Kernel, PARAMS_BYTES, Prelude, Shape},
};
use crate::engine::DeviceFault;

/// Why there is no GPU engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// No adapter is there, or none that `CIPHERGRAM_GPU` names.
    #[error("no GPU adapter{}", .wanted.as_ref().map(|w| format!(" like {w:?}")).unwrap_or_default())]
    NoAdapter {
        /// The choice of the environment.
        wanted: Option<String>,
    },
    /// The adapter is there but gives no device.
    #[error("the adapter {adapter} gives no device: {why}")]
    NoDevice {
        /// The adapter's name.
        adapter: String,
        /// The words of its driver.
        why: String,
    },
}

/// The value of `CIPHERGRAM_GPU` that leaves all adapters alone.
const NONE: &str = "none";

/// A pipeline is of one kernel, and of one shape where it is over big numbers.
type Pipelines = HashMap<(Kernel, Option<Shape>), Arc<OnceLock<wgpu::ComputePipeline>>>;

/// The bytes of memory that runs take.
const MEMORY_BYTES: u64 = 2 << 30;

/// The most time that a device may take for one part of a batch.
const PATIENCE: Duration = Duration::from_secs(300);

/// An open device.
pub(crate) struct GpuDevice {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) prelude: Prelude,
    has_int64: bool,
    pub(super) info: wgpu::AdapterInfo,
    pub(super) limits: wgpu::Limits,
    pub(super) layout: wgpu::BindGroupLayout,
    pipeline_layout: wgpu::PipelineLayout,
    pipelines: Mutex<Pipelines>,
    pub(super) pool: Mutex<BufferPool>,
    memory_bytes: AtomicU64,
    patience_micros: AtomicU64,
    lost: Arc<AtomicBool>,
}

/// Returns the adapters that there are, in the order in which an index names them.
fn adapters() -> Vec<wgpu::Adapter> {
    if wgpu::Instance::enabled_backend_features().is_empty() {
        return vec![];
    }
    let instance =
        wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
}

/// Returns the adapter that `wanted` names by index or by a part of its name; else the first of the
/// fastest kind.
fn choose(adapters: Vec<wgpu::Adapter>, wanted: Option<&str>) -> Option<wgpu::Adapter> {
    let kind = |adapter: &wgpu::Adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::VirtualGpu => 1,
        wgpu::DeviceType::IntegratedGpu => 2,
        wgpu::DeviceType::Cpu => 3,
        wgpu::DeviceType::Other => 4,
    };
    let index = wanted.and_then(|wanted| wanted.parse::<usize>().ok());
    let like = |adapter: &wgpu::Adapter| {
        let name = adapter.get_info().name.to_lowercase();
        wanted.is_none_or(|wanted| name.contains(&wanted.to_lowercase()))
    };
    match index {
        Some(index) => adapters.into_iter().nth(index),
        None => adapters.into_iter().filter(like).min_by_key(kind),
    }
}

impl GpuDevice {
    /// Opens the adapter that the environment names, or the fastest. `split` takes the prelude
    /// without integers of 64 bits even where there are some.
    pub(super) fn open(split: bool) -> Result<Self, GpuError> {
        let wanted = std::env::var("CIPHERGRAM_GPU").ok();
        // Not even looked for: drivers take their time to start.
        let present = if wanted.as_deref() == Some(NONE) { vec![] } else { adapters() };
        let Some(adapter) = choose(present, wanted.as_deref()) else {
            return Err(GpuError::NoAdapter { wanted });
        };
        let has_int64 = adapter.features().contains(wgpu::Features::SHADER_INT64);
        let native = has_int64 && !split;
        let (info, limits) = (adapter.get_info(), adapter.limits());
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("ciphergram"),
            required_features: match native {
                true => wgpu::Features::SHADER_INT64,
                false => wgpu::Features::empty(),
            },
            required_limits: limits.clone(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let opened = pollster::block_on(adapter.request_device(&descriptor));
        let (device, queue) = opened.map_err(|why| GpuError::NoDevice {
            adapter: info.name.clone(),
            why: why.to_string(),
        })?;
        let lost = Arc::new(AtomicBool::new(false));
        let seen = lost.clone();
        device.set_device_lost_callback(move |_, _| seen.store(true, Relaxed));
        // Errors are caught in scopes; one outside of them must not end the process.
        device.on_uncaptured_error(Arc::new(|_| ()));
        let layout = layout(&device);
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let prelude = if native { Prelude::Native } else { Prelude::Split };
        let pipelines = Mutex::default();
        Ok(Self {
            device,
            queue,
            prelude,
            has_int64,
            info,
            limits,
            layout,
            pipeline_layout,
            pipelines,
            pool: Mutex::default(),
            memory_bytes: AtomicU64::new(MEMORY_BYTES),
            patience_micros: AtomicU64::new(PATIENCE.as_micros() as u64),
            lost,
        })
    }

    /// Returns the pipeline of a kernel, made when it is first needed, by one thread.
    pub(super) fn pipeline(&self, kernel: Kernel, shape: Option<Shape>) -> wgpu::ComputePipeline {
        let place = self.pipelines().entry((kernel, shape)).or_default().clone();
        place.get_or_init(|| self.make_pipeline(kernel, shape)).clone()
    }

    /// Returns whether a kernel has run.
    #[cfg(test)]
    pub(super) fn has_run(&self, kernel: Kernel) -> bool {
        self.pipelines().keys().any(|&(made, _)| made == kernel)
    }

    fn pipelines(&self) -> MutexGuard<'_, Pipelines> {
        // Nothing that can panic happens under the lock.
        self.pipelines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make_pipeline(&self, kernel: Kernel, shape: Option<Shape>) -> wgpu::ComputePipeline {
        let text = kernel.text(self.prelude, shape.map_or(0, |shape| shape.limbs));
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name()),
            source: wgpu::ShaderSource::Wgsl(text.into()),
        };
        // Checks at every access and every loop keep compilers from unrolling loops over limbs,
        // which then lie in memory and not in registers; and to make such a pipeline takes twice
        // the time.
        //
        // SAFETY: the text is ours alone. Its addresses are of places that the host made for the
        // parameters which it gives, its loops end by those parameters, and it divides by constants
        // of them that are not zero.
        let checks = wgpu::ShaderRuntimeChecks::unchecked();
        #[expect(unsafe_code, reason = "our own kernels, validated by a test")]
        let module = unsafe { self.device.create_shader_module_trusted(descriptor, checks) };
        let team = shape.map_or(1, |shape| shape.team);
        let constants = [("TEAM", f64::from(team))];
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name()),
            layout: Some(&self.pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: if kernel.has_teams() { &constants } else { &[] },
                // Kernels use nothing that they did not write.
                zero_initialize_workgroup_memory: false,
            },
            cache: None,
        })
    }

    /// Lets go of pipelines that were made while something went wrong: they would fail for ever.
    pub(super) fn forget_pipelines(&self) {
        self.pipelines().clear();
    }

    /// Returns the bytes of memory that runs take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    pub(super) fn set_memory_bytes(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Relaxed);
    }

    /// Returns the most time that a part of a batch may take.
    pub(super) fn patience(&self) -> Duration {
        Duration::from_micros(self.patience_micros.load(Relaxed))
    }

    pub(super) fn set_patience(&self, patience: Duration) {
        let micros = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        self.patience_micros.store(micros, Relaxed);
    }

    /// Returns the threads that a part of a batch keeps busy, at least, where there is work for
    /// more. Nearly four times what the largest cards have registers for (68,000 threads with 128
    /// registers on 132 multiprocessors), so that what idles at the end of each dispatch is little.
    /// Fewer on adapters that are a hundredth as fast: some systems take a dispatch of two seconds
    /// for one that hangs.
    pub(super) fn part_threads(&self) -> u64 {
        match self.info.device_type {
            wgpu::DeviceType::DiscreteGpu
            | wgpu::DeviceType::VirtualGpu
            | wgpu::DeviceType::Other => 1 << 18,
            wgpu::DeviceType::IntegratedGpu => 1 << 15,
            wgpu::DeviceType::Cpu => 1 << 12,
        }
    }

    pub(super) fn is_software(&self) -> bool {
        self.info.device_type == wgpu::DeviceType::Cpu
    }

    /// Waits for a submission and all before it, or for all that there are.
    pub(super) fn wait(
        &self,
        submission_index: Option<wgpu::SubmissionIndex>,
    ) -> Result<(), DeviceFault> {
        let wait = wgpu::PollType::Wait { submission_index, timeout: Some(self.patience()) };
        // wgpu panics where a driver says that the device is lost.
        let poll = AssertUnwindSafe(|| self.device.poll(wait));
        match catch_unwind(poll) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(wgpu::PollError::Timeout)) => Err(DeviceFault::Timeout),
            Ok(Err(_)) | Err(_) => Err(lost()),
        }
    }

    /// Sees to it that what was to happen when the device is done with all that it has happens,
    /// though nobody may wait for the device again.
    pub(super) fn wait_unseen(&self) {
        let device = self.device.clone();
        let wait = move || {
            let all = wgpu::PollType::Wait { submission_index: None, timeout: None };
            // What goes wrong now concerns nobody.
            let _ = catch_unwind(AssertUnwindSafe(|| device.poll(all)));
        };
        // Without a thread, the next caller of the device does it.
        let _ = thread::Builder::new().name("gpu".into()).spawn(wait);
    }

    /// Runs `work`, and returns a fault of the device meanwhile before one of the work.
    pub(super) fn guard(
        &self,
        work: impl FnOnce() -> Result<(), DeviceFault>,
    ) -> Result<(), DeviceFault> {
        let scopes = Scopes::new(self);
        let outcome = work();
        let error = scopes.pop();
        // A device reports its loss when it has ended its work. Work that takes too long has been
        // waited for.
        let is_late = outcome == Err(DeviceFault::Timeout);
        if (error.is_some() || outcome.is_err()) && !is_late {
            let _ = self.wait(None);
        }
        self.fault(error).map_or(outcome, Err)
    }

    /// Returns one line, for people.
    pub(super) fn describe(&self) -> String {
        let wgpu::AdapterInfo { name, driver, driver_info, backend, .. } = &self.info;
        let integers = match self.prelude {
            Prelude::Native => "64-bit integers",
            Prelude::Split => "products in 16-bit halves",
        };
        format!("{name} ({backend}, {driver} {driver_info}), {integers}")
    }

    /// Returns names and values, for people.
    pub(super) fn details(&self) -> Vec<(&'static str, String)> {
        let Self { info, limits, .. } = self;
        let kind = match info.device_type {
            wgpu::DeviceType::DiscreteGpu => "a discrete GPU",
            wgpu::DeviceType::VirtualGpu => "a virtual GPU",
            wgpu::DeviceType::IntegratedGpu => "an integrated GPU",
            wgpu::DeviceType::Cpu => "software",
            wgpu::DeviceType::Other => "of unknown kind",
        };
        let features = match self.has_int64 {
            true => "64-bit integers",
            false => "none that kernels use",
        };
        let prelude = match self.prelude {
            Prelude::Native => "native: 64-bit integers",
            Prelude::Split => "split: products in 16-bit halves",
        };
        let limits = format!(
            "bindings of {} MiB, workgroups of {} threads with {} KiB, {} workgroups a dispatch",
            self.binding_bytes() >> 20,
            limits.max_compute_invocations_per_workgroup,
            limits.max_compute_workgroup_storage_size >> 10,
            limits.max_compute_workgroups_per_dimension,
        );
        vec![
            ("adapter", format!("{}, {kind}", info.name)),
            ("driver", format!("{} {} ({})", info.driver, info.driver_info, info.backend)),
            ("features", features.into()),
            ("limits", limits),
            ("prelude", prelude.into()),
        ]
    }

    /// Returns the most bytes of one buffer that a kernel can see.
    pub(super) fn binding_bytes(&self) -> u64 {
        self.limits.max_buffer_size.min(self.limits.max_storage_buffer_binding_size)
    }

    /// Returns the fault of the device, if it reports one.
    pub(super) fn fault(&self, error: Option<wgpu::Error>) -> Option<DeviceFault> {
        if self.lost.load(Relaxed) {
            return Some(lost());
        }
        error.map(|error| match error {
            wgpu::Error::OutOfMemory { .. } => DeviceFault::OutOfMemory,
            wgpu::Error::Validation { description, .. }
            | wgpu::Error::Internal { description, .. } => DeviceFault::Failed { why: description },
        })
    }
}

/// Binding 0 is the parameters, 1 to 3 are read, 4 and 5 are written: the same for all kernels.
fn layout(device: &wgpu::Device) -> wgpu::BindGroupLayout {
    let entry = |binding: u32| wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: match binding {
                0 => wgpu::BufferBindingType::Uniform,
                _ => wgpu::BufferBindingType::Storage { read_only: binding < 4 },
            },
            has_dynamic_offset: false,
            min_binding_size: match binding {
                0 => std::num::NonZero::new(PARAMS_BYTES as u64),
                _ => None,
            },
        },
        count: None,
    };
    let entries: [_; 6] = std::array::from_fn(|binding| entry(binding as u32));
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: None,
        entries: &entries,
    })
}

/// Makes the fault of memory that was to be the host's and is not.
pub(super) fn unmapped<T>(_: T) -> DeviceFault {
    DeviceFault::Failed { why: "memory of the device could not be mapped".into() }
}

/// Catches what goes wrong on a device. Out of memory is first: what follows of it are errors of
/// use.
pub(super) struct Scopes(Vec<wgpu::ErrorScopeGuard>);

impl Scopes {
    pub(super) fn new(device: &GpuDevice) -> Self {
        use wgpu::ErrorFilter::{Internal, OutOfMemory, Validation};
        let filters = [Internal, Validation, OutOfMemory];
        Self(filters.map(|filter| device.device.push_error_scope(filter)).into())
    }

    /// Returns the first error.
    pub(super) fn pop(mut self) -> Option<wgpu::Error> {
        let mut first = None;
        while let Some(scope) = self.0.pop() {
            let error = pollster::block_on(scope.pop());
            first = first.or(error);
        }
        first
    }
}

impl Drop for Scopes {
    fn drop(&mut self) {
        // The last first.
        while self.0.pop().is_some() {}
    }
}

/// Returns the fault of a device that its driver gave up.
pub(super) fn lost() -> DeviceFault {
    DeviceFault::Lost { why: "its driver gave it up".into() }
}

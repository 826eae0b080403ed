//! A simulated flash device without contents: commands in, times and wear out.

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use syncline_lab::LabError;
use syncline_lab::experiments::profile;
use syncline_nand::Simulator;

use crate::observed::{observed, raised};

/// Most bytes of a device: the model has a few bytes for each of its pages.
const SIZE_MAX: u64 = 1 << 42;

struct Inner {
    simulator: Simulator,
    now_ns: u64,
}

/// A device; commands run one after the other, at the device's own time.
#[pyclass(frozen)]
pub(crate) struct Device(Mutex<Inner>);

#[pymethods]
impl Device {
    #[new]
    fn new(
        py: Python<'_>,
        spec: String,
        size: u64,
        precondition: u32,
        seed: u64,
    ) -> PyResult<Device> {
        observed(py, move |_| {
            if size > SIZE_MAX || precondition > 95 {
                let text = "a device has at most 4 TiB, precondition is at most 95 per cent";
                return Err(LabError::Usage(text.to_owned()));
            }
            let mut simulator = Simulator::new(&profile(&spec)?, size)?;
            if precondition > 0 {
                simulator.precondition(precondition, seed);
            }
            Ok(Device(Mutex::new(Inner { simulator, now_ns: 0 })))
        })
    }

    /// `op` is read, write, fua, flush or discard; returns the latency in nanoseconds.
    fn command(&self, op: &str, offset: u64, len: u64) -> PyResult<u64> {
        let mut inner = self.0.lock();
        let Inner { simulator, now_ns } = &mut *inner;
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > simulator.size_bytes()) {
            let text = format!("the device ends at byte {}", simulator.size_bytes());
            return Err(PyValueError::new_err(text));
        }
        let done_ns = match op {
            "read" => simulator.read(*now_ns, offset, len),
            "write" => simulator.write(*now_ns, offset, len, false),
            "fua" => simulator.write(*now_ns, offset, len, true),
            "flush" => simulator.flush(*now_ns),
            "discard" => simulator.discard(*now_ns, offset, len),
            _ => return Err(raised(LabError::Usage(format!("unknown operation `{op}`")))),
        };
        let latency_ns = done_ns - *now_ns;
        *now_ns = done_ns;
        Ok(latency_ns)
    }

    /// Lets time pass without a command.
    fn idle(&self, ns: u64) {
        let mut inner = self.0.lock();
        inner.now_ns = inner.now_ns.saturating_add(ns).min(1 << 62);
    }

    fn now_ns(&self) -> u64 {
        self.0.lock().now_ns
    }

    fn size(&self) -> u64 {
        self.0.lock().simulator.size_bytes()
    }

    /// Counters, latencies and wear as JSON.
    fn report(&self) -> PyResult<String> {
        let report = self.0.lock().simulator.report();
        let failed = |err: serde_json::Error| PyValueError::new_err(err.to_string());
        serde_json::to_string(&report).map_err(failed)
    }

    /// Erases of each block, as 32-bit numbers in the machine's order.
    fn erases<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let inner = self.0.lock();
        let bytes: Vec<u8> =
            inner.simulator.erases().iter().flat_map(|erases| erases.to_ne_bytes()).collect();
        PyBytes::new(py, &bytes)
    }
}

//! Runs all cases one after the other.

use std::error::Error;
use std::time::{Duration, Instant};

use kvstore::{DType, Device, NDArray, Optimizer, Result, backends, create, synchronize, trim};
use serde_json::json;

use crate::data::{CARD, Random, Sizes};
use crate::report::{Bar, Case, Report};
use crate::timing::{Call, Clock, Plan, Times};
use crate::{Options, arrays, codes, dense, row_sparse, small_keys};

/// The state that the cases share.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) sizes: Sizes,
    pub(crate) random: Random,
    pub(crate) report: Report,
    plan: Plan,
    names: Vec<String>,
    until: Instant,
}

impl Bench {
    /// Measures a case if it was requested and there is time for it. `prepare` creates its values
    /// and returns its call.
    pub(crate) fn case(
        &mut self,
        case: &Case,
        prepare: impl FnOnce(&Random, &Sizes) -> Result<Call>,
    ) -> std::io::Result<()> {
        self.timed(case, Clock::Done, prepare).map(|_| ())
    }

    /// Works like [`Bench::case`], with a choice of the clock. Returns the times.
    pub(crate) fn timed(
        &mut self,
        case: &Case,
        clock: Clock,
        prepare: impl FnOnce(&Random, &Sizes) -> Result<Call>,
    ) -> std::io::Result<Option<Times>> {
        if !self.names.is_empty() && !self.names.iter().any(|name| case.name.starts_with(name)) {
            return Ok(None);
        }
        if Instant::now() > self.until {
            self.report.failure(&case.name, "left out: the time is up")?;
            return Ok(None);
        }
        let plan = match clock {
            Clock::Done => self.plan,
            // A short call. Many of them are queued.
            Clock::Queued => Plan { per_group: 100, ..self.plan },
        };
        let times =
            prepare(&self.random, &self.sizes).and_then(|mut call| plan.time(clock, &mut call));
        trim();
        match times {
            Ok(times) => self.report.row(case, &times).map(|()| Some(times)),
            Err(error) => self.report.failure(&case.name, &error.chain()).map(|()| None),
        }
    }

    /// Measures the copy rate of the GPU: copies an array into half of another one. A copy to a
    /// separate array would share the memory.
    fn copy(&mut self, name: &str) -> std::io::Result<()> {
        let names = std::mem::take(&mut self.names);
        let num_bytes = self.sizes.copy_bytes;
        let case = Case::new(name, 2 * num_bytes, Bar::None).noted("what shares are of");
        let times = self.timed(&case, Clock::Done, |random, _| {
            let len = num_bytes / 4;
            let source = random.array(len, DType::F32)?.tensor();
            let halves = NDArray::concatenate(
                &[random.array(len, DType::F32)?, random.array(len, DType::F32)?],
                0,
            )?;
            let halves = [halves.slice(0, len)?, halves.slice(len, 2 * len)?];
            Ok(Box::new(move |turn| halves[turn % 2].assign(&source)))
        })?;
        self.names = names;
        if let Some(times) = times.filter(|_| self.report.copy_rate.is_none()) {
            self.report.copy_rate = Some(crate::report::bytes(2 * num_bytes) / times.median);
        }
        Ok(())
    }
}

/// Runs the requested cases. Returns whether every case has a result.
pub(crate) fn run(options: &Options) -> std::result::Result<bool, Box<dyn Error>> {
    let started = Instant::now();
    let card = backends().of(Device::gpu(0))?;
    let description = card.description();
    let is_emulated = description.contains("Emulated");
    println!("{description}");
    let is_judged = !is_emulated && !options.is_small;
    let mut report = Report::new(options.json.as_deref(), is_judged)?;
    report.line(&json!({
        "card": description, "version": env!("CARGO_PKG_VERSION"), "small": options.is_small,
        "emulated": is_emulated, "keys": options.sizes.keys, "rows": options.sizes.rows,
        "copy_bytes": options.sizes.copy_bytes, "set_bytes": options.sizes.set_bytes,
        "sets": options.sizes.sets,
    }))?;
    if !is_judged {
        println!("These numbers mean nothing: the driver is emulated, or the values are small.");
    }
    Report::head();
    first_calls(&mut report)?;
    if options.only_first_calls {
        return Ok(report.finish());
    }
    let plan = if options.is_small {
        Plan { groups: 3, per_group: 2, at_most: Duration::from_millis(200) }
    } else {
        Plan { groups: 30, per_group: 12, at_most: Duration::from_millis(1500) }
    };
    let mut bench = Bench {
        sizes: options.sizes,
        random: Random::new(&options.sizes)?,
        report,
        plan,
        names: options.names.clone(),
        until: started + options.at_most,
    };
    bench.copy("copy")?;
    dense::sums(&mut bench)?;
    dense::steps(&mut bench)?;
    dense::layer_wise_steps(&mut bench)?;
    dense::mixed_steps(&mut bench)?;
    dense::fused(&mut bench)?;
    small_keys::run(&mut bench)?;
    dense::pulls(&mut bench)?;
    codes::run(&mut bench)?;
    row_sparse::run(&mut bench)?;
    arrays::run(&mut bench)?;
    bench.copy("copy_again")?;
    Ok(bench.report.finish())
}

/// Measures the first call of each kernel, for which the driver compiles the module unless it is in
/// the driver's cache.
fn first_calls(report: &mut Report) -> std::io::Result<()> {
    type FirstCall = fn() -> Result<()>;
    let calls: [(&str, FirstCall); 5] = [
        ("first_sum", || push(None, None)),
        ("first_sgd", || push(Some("sgd"), None)),
        ("first_adam", || push(Some("adam"), None)),
        ("first_2bit", || push(None, Some("2bit"))),
        ("first_cast", || small(DType::F32)?.as_type(DType::F16)?.wait_to_read()),
    ];
    for (name, call) in calls {
        let start = Instant::now();
        let done = call().and_then(|()| synchronize());
        let seconds = start.elapsed().as_secs_f64();
        let times = Times { median: seconds, least: seconds, most: seconds, calls: 1 };
        match done {
            Ok(()) => report.row(&Case::new(name, 0, Bar::None), &times)?,
            Err(error) => report.failure(name, &error.chain())?,
        }
    }
    Ok(())
}

fn push(optimizer: Option<&str>, compression: Option<&str>) -> Result<()> {
    let store = create("device")?;
    store.init("w", &small(DType::F32)?)?;
    if let Some(name) = optimizer {
        store.set_optimizer(Optimizer::new(name)?)?;
    }
    if let Some(name) = compression {
        store.set_gradient_compression(name, 0.5)?;
    }
    store.push("w", &[small(DType::F32)?, small(DType::F32)?])
}

fn small(dtype: DType) -> Result<NDArray> {
    kvstore::array(&[1f32; 1000], [1000], CARD)?.as_type(dtype)
}

//! Replays programs with recorded results.

use std::fmt::Write as _;
use std::path::PathBuf;

use kvstore::{Compression, Error, NDArray, OnExisting, Optimizer, Pairs, Store};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::arrays::{self, UpdaterLog, from_array, to_array};
use crate::json::{flat, list, options, text, texts, value_of};
use crate::policy::NamedUpdater;
use crate::value::Number;

/// The recorded programs of this crate.
pub const OWN_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/store_cases.json");

/// Groups of programs that run on every store.
pub const ON_EVERY_STORE: [&str; 13] = [
    "basic_local",
    "basic_device",
    "order",
    "pushpull",
    "dtype",
    "sum_order",
    "updater",
    "errors_local",
    "errors_device",
    "crash",
    "bug",
    "grad_compression",
    "optimizer_python",
];

/// Further groups that use only the verbs of these. A file may lack them.
pub const ALSO_ON_EVERY_STORE: [&str; 1] = ["random"];

/// Reads the file that `KVSTORE_CASES` names, or [`OWN_FILE`].
pub fn load_file() -> Json {
    let path = std::env::var("KVSTORE_CASES").unwrap_or_else(|_| OWN_FILE.to_owned());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the programs of that file.
pub fn load() -> Vec<Json> {
    list(&load_file()["cases"]).to_vec()
}

/// Replays one program on a store of the given name. An error describes the first difference.
pub fn replay(case: &Json, store_name: &str) -> Result<(), String> {
    replay_on(case, store_name, kvstore::create(store_name))
}

/// Works like [`replay`], on a store that was created or could not be.
pub fn replay_on(
    case: &Json,
    store_name: &str,
    created: Result<Store, Error>,
) -> Result<(), String> {
    replay_on_parts(case, store_name, created, &|_| 0)
}

/// Works like [`replay_on`], on a store of several parts, which update their keys in an order of
/// their own. `part_of` returns the part with a key.
pub fn replay_on_parts(
    case: &Json,
    store_name: &str,
    created: Result<Store, Error>,
    part_of: &dyn Fn(&str) -> usize,
) -> Result<(), String> {
    let mut answer = format!("{} on `{store_name}`", text(&case["name"]));
    if let Some(code) = case["create_error"].as_str() {
        return expect_code(created.map(drop), code).map_err(|what| answer + ": " + &what);
    }
    let player = Player {
        folder: tempfile::tempdir().expect("a folder"),
        store: created.map_err(|error| error.chain())?,
        log: UpdaterLog::default(),
        part_of,
        tolerance: case["rtol"].as_f64().unwrap_or(0.0),
    };
    for (step, operation) in list(&case["ops"]).iter().enumerate() {
        if let Err(what) = player.step(operation) {
            let _ = write!(answer, ", step {step} ({}): {what}", text(&operation["op"]));
            return Err(answer);
        }
    }
    Ok(())
}

struct Player<'a> {
    store: Store,
    log: UpdaterLog,
    /// Returns the part of the store with a key. The log has one order for each part.
    part_of: &'a dyn Fn(&str) -> usize,
    tolerance: f64,
    /// The folder for files of the program.
    folder: TempDir,
}

impl Player<'_> {
    fn step(&self, operation: &Json) -> Result<(), String> {
        let values = arrays_of(&operation["values"]);
        let outs = if operation["outs"].is_null() {
            values.clone()
        } else {
            arrays_of(&operation["outs"])
        };
        let result = self.call(operation, &values, &outs);
        if let Some(code) = operation["expect_error"].as_str() {
            return expect_code(result, code);
        }
        result.map_err(|error| error.chain())?;
        match &operation["expect"] {
            Json::Null => Ok(()),
            expected if operation["op"] == "updater_log" => self.compare_log(expected),
            expected if operation["op"] == "info" => self.compare_info(expected),
            expected => self.compare(expected, &outs.flat()),
        }
    }

    fn call(&self, operation: &Json, values: &Arrays, outs: &Arrays) -> Result<(), Error> {
        let priority = operation["priority"].as_i64().unwrap_or(0);
        let priority = i32::try_from(priority).expect("a priority is an i32");
        let pairs = |arrays| pairs(&operation["keys"], arrays);
        match text(&operation["op"]) {
            "init" => self.store.init_pairs(&pairs(values)?, OnExisting::Reject),
            "push" => self.store.push_pairs(&pairs(values)?, priority),
            "pull" => self.store.pull_pairs(&pairs(outs)?, priority),
            "pushpull" => self.store.pushpull_pairs(&pairs(values)?, &pairs(outs)?, priority),
            "broadcast" => self.store.broadcast_pairs(&pairs(values)?, &pairs(outs)?, priority),
            "barrier" => self.store.barrier(),
            "info" | "updater_log" => Ok(()),
            "set_optimizer" => {
                let options = options(&operation["kwargs"]);
                let optimizer = Optimizer::from_options(text(&operation["name"]), &options)?;
                self.store.set_optimizer(optimizer)
            }
            "save_optimizer_states" => {
                self.store.save_optimizer_states(self.file(operation), false)
            }
            "load_optimizer_states" => self.store.load_optimizer_states(self.file(operation)),
            "set_gradient_compression" => compress(&self.store, &operation["params"]),
            "set_updater" => {
                let name = text(&operation["name"]);
                let updater =
                    NamedUpdater::from_name(name).unwrap_or_else(|| panic!("updater `{name}`"));
                arrays::set_updater(&self.store, updater, &self.log)
            }
            other => panic!("unknown operation `{other}`"),
        }
    }

    fn file(&self, operation: &Json) -> PathBuf {
        self.folder.path().join(text(&operation["file"]))
    }

    fn compare_log(&self, expected: &Json) -> Result<(), String> {
        let mut log = std::mem::take(&mut *self.log.lock().expect("logging does not panic"));
        let mut expected: Vec<_> = list(expected).iter().map(text).collect();
        // Stable, so the keys of a part keep their order.
        log.sort_by_key(|key| (self.part_of)(key));
        expected.sort_by_key(|key| (self.part_of)(key));
        if log == expected { Ok(()) } else { Err(format!("expected {expected:?}, found {log:?}")) }
    }

    fn compare_info(&self, expected: &Json) -> Result<(), String> {
        let (store, number) = (&self.store, |name: &str| expected[name].as_u64());
        let rank = store.rank().map_err(|error| error.chain())?;
        let num_workers = store.num_workers().map_err(|error| error.chain())?;
        let is_same = store.name() == text(&expected["type"])
            && number("rank") == Some(rank as u64)
            && number("num_workers") == Some(num_workers as u64);
        if is_same { Ok(()) } else { Err(format!("expected {expected}, found {store:?}")) }
    }

    fn compare(&self, expected: &Json, found: &[NDArray]) -> Result<(), String> {
        let expected = match expected {
            Json::Array(values) => values.iter().flat_map(flat).collect(),
            value => vec![value],
        };
        assert_eq!(expected.len(), found.len(), "one array per expected value");
        for (expected, found) in
            expected.into_iter().map(value_of).zip(found.iter().map(from_array))
        {
            let mut pairs = expected.numbers.iter().zip(&found.numbers);
            if expected.spec != found.spec || !pairs.all(|(a, b)| self.is_close(*a, *b)) {
                return Err(format!("expected {expected:?}, found {found:?}"));
            }
        }
        Ok(())
    }

    /// Without a tolerance, numbers are compared as floats: 0.0 equals -0.0, and any NaN equals any
    /// NaN.
    fn is_close(&self, expected: Number, found: Number) -> bool {
        match (expected, found) {
            (Number::Int(a), Number::Int(b)) => a == b,
            (Number::Float(a), Number::Float(b)) => {
                (a - b).abs() <= self.tolerance * a.abs()
                    || a.to_bits() == b.to_bits()
                    || (a.is_nan() && b.is_nan())
            }
            _ => false,
        }
    }
}

/// Sets the compression. The parameters are a Python dictionary, whose errors the binding detects.
fn compress(store: &Store, parameters: &Json) -> Result<(), Error> {
    let parameters = parameters.as_object().expect("parameters are an object");
    if let Some(name) =
        parameters.keys().find(|name| !["type", "threshold"].contains(&name.as_str()))
    {
        return Err(Error::InvalidArgument(format!("unknown parameter `{name}`")));
    }
    let threshold = match parameters.get("threshold") {
        None => Some(Compression::DEFAULT_THRESHOLD),
        Some(threshold) => threshold.as_f64(),
    };
    match (parameters.get("type").and_then(Json::as_str), threshold) {
        (Some(name), Some(threshold)) => store.set_gradient_compression(name, threshold),
        _ => Err(Error::InvalidArgument("a type and a number".to_owned())),
    }
}

fn expect_code(result: Result<(), Error>, code: &str) -> Result<(), String> {
    match result {
        Err(error) if error.code().as_str() == code => Ok(()),
        Err(error) => Err(format!("expected {code}, found {}: {}", error.code(), error.chain())),
        Ok(()) => Err(format!("expected {code}, but it succeeded")),
    }
}

/// One array, or a list that may contain lists: the shapes of a call's values.
#[derive(Clone)]
enum Arrays {
    One(NDArray),
    Many(Vec<Arrays>),
}

impl Arrays {
    fn flat(&self) -> Vec<NDArray> {
        match self {
            Self::One(array) => vec![array.clone()],
            Self::Many(arrays) => arrays.iter().flat_map(Self::flat).collect(),
        }
    }
}

/// Returns arrays. Values have data; outputs have none and start with zeros.
fn arrays_of(json: &Json) -> Arrays {
    match json {
        Json::Null => Arrays::Many(Vec::new()),
        Json::Array(values) => Arrays::Many(values.iter().map(arrays_of).collect()),
        value => Arrays::One(to_array(&value_of(value))),
    }
}

/// Returns the pairs of a call in one of the four forms.
fn pairs(keys: &Json, arrays: &Arrays) -> Result<Pairs, Error> {
    match (keys, arrays) {
        (Json::String(key), Arrays::One(array)) => Pairs::new(key.as_str(), array),
        (Json::String(key), many) => Pairs::new(key.as_str(), many.flat()),
        (keys, Arrays::One(array)) => Pairs::new(&*texts(keys), vec![array.clone()]),
        (keys, Arrays::Many(lists)) => {
            Pairs::new(&*texts(keys), lists.iter().map(Arrays::flat).collect::<Vec<_>>())
        }
    }
}

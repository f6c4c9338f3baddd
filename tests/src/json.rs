//! Reads values and lists from a JSON file of recorded programs.

use kvstore::DType;
use serde_json::Value as Json;

use crate::value::{Number, Spec, Value};

/// Returns a value with its data, or zeros if it has no data.
pub fn value_of(json: &Json) -> Value {
    let shape: Vec<_> = list(&json["shape"]).iter().map(length_of).collect();
    let spec = Spec::new(&shape, DType::from_name(text(&json["dtype"])).expect("a dtype's name"));
    match json["data"].as_array() {
        Some(data) => Value::new(spec, &data.iter().map(number_of).collect::<Vec<_>>()),
        None => Value::zeros(spec),
    }
}

fn length_of(json: &Json) -> usize {
    json.as_u64().and_then(|length| length.try_into().ok()).expect("the length of an axis")
}

fn number_of(json: &Json) -> Number {
    match json {
        Json::String(name) => Number::Float(name.parse().expect("`nan`, `inf` or `-inf`")),
        number => number
            .as_i64()
            .map_or_else(|| Number::Float(number.as_f64().expect("a number")), Number::Int),
    }
}

/// Returns the items of a list. A single item counts as a list of one.
pub fn flat(json: &Json) -> Vec<&Json> {
    json.as_array().map_or_else(|| vec![json], |values| values.iter().collect())
}

/// Returns the strings of a list.
pub fn texts(json: &Json) -> Vec<&str> {
    list(json).iter().map(text).collect()
}

/// Returns the items of a list.
pub fn list(json: &Json) -> &[Json] {
    json.as_array().expect("a list")
}

/// Returns the string.
pub fn text(json: &Json) -> &str {
    json.as_str().expect("a text")
}

/// Returns the options of a map by name. A flag becomes 0 or 1.
pub fn options(json: &Json) -> Vec<(String, f64)> {
    let number = |value: &Json| {
        let flag = value.as_bool().map(|is_set| f64::from(u8::from(is_set)));
        flag.or(value.as_f64()).expect("a number or a flag")
    };
    let options = json.as_object().expect("a map of options");
    options.iter().map(|(name, value)| (name.clone(), number(value))).collect()
}

/// Returns the numbers of a list, including nested lists.
pub fn floats(json: &Json) -> Vec<f64> {
    match json {
        Json::Array(items) => items.iter().flat_map(floats).collect(),
        item => vec![item.as_f64().expect("a number")],
    }
}

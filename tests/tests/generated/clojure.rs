//! Generates the constructors of optimizers in Clojure, as data.

use std::fmt::Write;

use kvstore_core::optimizer::{DEFINITIONS, Definition};

use super::optimizers::{Optimizer, default, item, with_code, wrapped};

const HEAD: &str = ";; Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
(ns dev.kvstore.impl.optimizers
  \"The constructors of `org.apache.clojure-mxnet.optimizer` as data.

    constructors  a vector of maps: the symbol of the function, the symbol of the method of `Optimizer`
                  that it calls, its title and its documentation\")

(set! *warn-on-reflection* true)

(def constructors
  \"Each makes an optimizer with `opts`.\"
  '[";

/// Returns the namespace with all constructors.
pub(crate) fn namespace(optimizers: &[Optimizer]) -> String {
    let all: Vec<_> = optimizers.iter().map(constructor).collect();
    format!("{HEAD}{}])\n", all.join("\n   "))
}

fn constructor(optimizer: &Optimizer) -> String {
    let factory = optimizer.definition.factory.name;
    let function = kebab(factory);
    let title = format!("Returns the optimizer `{function}`. {}", prose(optimizer.title()));
    let mut text = wrapped(&title, "  ").trim_start().to_owned();
    text += &optimizer.plain_details("  ", prose);
    let (own, common) = optimizer.parameters_of_jvm();
    let first = common.iter().take(2);
    let first: Vec<_> = first
        .map(|parameter| format!("{} {}", option(parameter.name), default(parameter)))
        .collect();
    let end = if own.is_empty() { "." } else { ", and" };
    let opts = format!("`opts` are those of every optimizer ({}){end}", first.join(", "));
    text.push('\n');
    text += &wrapped(&opts, "  ");
    let width = own.iter().map(|parameter| option(parameter.name).len()).max().unwrap_or_default();
    for parameter in own {
        let lead = format!("    {:width$}  ", option(parameter.name));
        let about = first_lower(&prose(parameter.about));
        text += &item(&lead, &format!("{}; {about}", default(&parameter)));
    }
    let _ = write!(
        text,
        "  Errors are those of the namespace.\n\n      (kvstore/set-optimizer (kvstore/create) ({function} {{:rescale-grad 0.5}}))"
    );
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    let title = prose(optimizer.title()).replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "{{:function {function}\n    :factory {factory}\n    :title \"{title}\"\n    :doc \"{text}\"}}"
    )
}

/// Returns the keyword of a hyper-parameter.
fn option(name: &str) -> String {
    format!(":{}", in_clojure(name))
}

/// Returns code with the names of options in Clojure's form.
fn in_clojure(code: &str) -> String {
    let mut code = code.to_owned();
    for parameter in DEFINITIONS.iter().flat_map(Definition::parameters) {
        let name = parameter.name.replace('_', "-").replace("lamda", "lambda");
        code = code.replace(parameter.name, &name);
    }
    code
}

/// Converts a name in camel case to hyphens.
fn kebab(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            text.push('-');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn first_lower(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(letters).collect()
}

fn prose(text: &str) -> String {
    with_code(text, in_clojure)
}

//! Generates the page of the manual about optimizers.

use std::fmt::Write;

use kvstore_core::optimizer::{COMMON, Domain, Parameter};

use super::formulas::Formula;
use super::optimizers::{Block, Optimizer, default, with_code};

const HEAD: &str = "\
<!-- Generated from kvstore-core/src/rule by `make kernels`. Do not edit. -->
# Optimizers

Every optimizer, with its formula, its hyper-parameters and its source. In the formulas `w` is the weight, `lr` the
learning rate, `rescale` is `rescale_grad`, and `clip` bounds every element by `clip_gradient`. Names are those of
Rust and Python; Java writes `clipGradient` and Clojure `:clip-gradient`.

The formula of the last update is in checkpoints ([formats.md](reference/formats.md)). It says how many tensors of state a key
has, each with the shape of the weight; that of `GroupAdaGrad` has one number for each row. A weight in half
precision has a copy in `f32` beside it.

";

/// Returns the page.
pub(crate) fn page(optimizers: &[Optimizer], formulas: &[Formula]) -> String {
    let mut text = HEAD.to_owned();
    text += "| optimizer | | formulas: tensors of state |\n|---|---|---|\n";
    for optimizer in optimizers {
        let name = optimizer.definition.name;
        let states: Vec<_> = optimizer
            .formulas()
            .iter()
            .map(|name| {
                let formula = formulas.iter().find(|formula| formula.name == *name);
                let formula = formula.unwrap_or_else(|| panic!("no formula `{name}`"));
                format!("`{name}`: {}", formula.num_states)
            })
            .collect();
        let _ = writeln!(
            text,
            "| [`{name}`](#{name}) | {} | {} |",
            prose(optimizer.title()).trim_end_matches('.'),
            states.join(", ")
        );
    }
    text += "\nBeside `learning_rate` and `wd`, every optimizer has these hyper-parameters:\n\n";
    text += &table(&COMMON[2..], &[]);
    for optimizer in optimizers {
        text += &section(optimizer);
    }
    text
}

fn section(optimizer: &Optimizer) -> String {
    let definition = optimizer.definition;
    let mut text = format!("\n## `{}`\n\n{}\n", definition.name, prose(optimizer.title()));
    for block in optimizer.details() {
        match block {
            Block::Paragraph(paragraph) => {
                let _ = write!(text, "\n{}\n", prose(paragraph));
            }
            Block::List(items) => {
                text.push('\n');
                text.extend(items.iter().map(|item| format!("- {}\n", prose(item))));
            }
        }
    }
    let (own, common) = optimizer.parameters();
    text.push('\n');
    text + &table(&[own.as_slice(), &common[..2]].concat(), definition.factory.defaults)
}

/// Returns a table of hyper-parameters. `on_jvm` has the defaults that differ on the JVM.
fn table(parameters: &[Parameter], on_jvm: &[(&str, f64)]) -> String {
    let mut text = "| hyper-parameter | default | values | |\n|---|---|---|---|\n".to_owned();
    for parameter in parameters {
        let mut value = default(parameter);
        if let Some((_, other)) = on_jvm.iter().find(|(name, _)| *name == parameter.name) {
            let other = Parameter { default: *other, ..*parameter };
            let _ = write!(value, "; {} in Java and Clojure", default(&other));
        }
        let values = match parameter.domain {
            Domain::Flag => "`true` or `false`",
            domain => domain.description(),
        };
        let _ = writeln!(
            text,
            "| `{}` | {value} | {values} | {} |",
            parameter.name,
            prose(parameter.about)
        );
    }
    text
}

fn prose(text: &str) -> String {
    with_code(text, |code| format!("`{code}`"))
}

//! The page about optimizers in the manual.

use std::fmt::Write;

use kvstore_core::optimizer::{COMMON, Domain, Parameter};

use super::formulas::Formula;
use super::optimizers::{Block, Optimizer, default, with_code};

/// The longest line outside tables.
const WIDTH: usize = 100;

const HEAD: &str = "\
<!-- Generated from kvstore-core/src/rule by `make kernels`. Do not edit. -->
# Optimizers

In the formulas, `w` is the weight, `lr` the learning rate, `rescale` is `rescale_grad`, and `clip`
clamps each element to plus or minus `clip_gradient`. Java has names such as `clipGradient`, Clojure
such as `:clip-gradient`.

Defaults of Java and Clojure are in parentheses if they differ. [Checkpoints](formats.md) contain
the name of the last formula. Its state tensors have the weight's shape, except that `GroupAdaGrad`
has one number per row. A half-precision weight also has an `f32` copy.

";

const HYPER_PARAMETERS: &str = "
## Hyper-parameters

";

/// Returns the page.
pub(crate) fn page(optimizers: &[Optimizer], formulas: &[Formula]) -> String {
    let shared = shared(optimizers);
    let links = optimizers.iter().map(|one| format!("[`{0}`](#{0})", one.definition.name));
    let mut text = HEAD.to_owned() + &filled("", &links.collect::<Vec<_>>().join(", "));
    text += HYPER_PARAMETERS;
    let _ = writeln!(text, "Every optimizer has the first {}.\n", COMMON.len());
    text += "| name | values | |\n|---|---|---|\n";
    for parameter in COMMON.iter().chain(&shared) {
        let (values, about) = (values(parameter), prose(parameter.about));
        let _ = writeln!(text, "| `{}` | {values} | {about} |", parameter.name);
    }
    let defaults =
        COMMON[2..].iter().map(|common| format!("`{}` {}", common.name, default(common)));
    text.push('\n');
    text += &filled("", &format!("Defaults: {}.", defaults.collect::<Vec<_>>().join(", ")));
    for optimizer in optimizers {
        text += &section(optimizer, formulas, &shared);
    }
    text
}

/// Returns the hyper-parameters that several optimizers describe in the same way, so that the page
/// needs to describe them only once. Defaults may differ.
fn shared(optimizers: &[Optimizer]) -> Vec<Parameter> {
    let own = || optimizers.iter().flat_map(|optimizer| optimizer.parameters().0);
    let mut shared: Vec<Parameter> = Vec::new();
    for parameter in own() {
        let is_repeated = own().filter(|other| is_same(other, &parameter)).count() > 1;
        // A name has one description in the table. Other meanings are in their sections.
        if is_repeated && shared.iter().all(|other| other.name != parameter.name) {
            shared.push(parameter);
        }
    }
    shared
}

fn is_same(a: &Parameter, b: &Parameter) -> bool {
    (a.name, a.about, a.domain) == (b.name, b.about, b.domain)
}

fn section(optimizer: &Optimizer, formulas: &[Formula], shared: &[Parameter]) -> String {
    let definition = optimizer.definition;
    let mut text = format!("\n## `{}`\n\n", definition.name);
    text += &filled("", &prose(optimizer.title()));
    for block in optimizer.details() {
        text.push('\n');
        match block {
            Block::Paragraph(paragraph) => text += &filled("", &prose(paragraph)),
            Block::List(items) => {
                text.extend(items.iter().map(|item| filled("- ", &prose(item))));
            }
        }
    }
    let (own, common) = optimizer.parameters();
    let described: Vec<_> =
        own.iter().filter(|own| !shared.iter().any(|shared| is_same(own, shared))).collect();
    if !described.is_empty() {
        text.push('\n');
    }
    let on_jvm = definition.factory.defaults;
    for parameter in &described {
        let (default, about) = (default_of(parameter, on_jvm), prose(parameter.about));
        let values = match parameter.domain {
            // The default is `true` or `false`, which says it.
            Domain::Flag => String::new(),
            _ => format!(" ({})", values(parameter)),
        };
        text += &filled("- ", &format!("{default}: {about}{values}"));
    }
    let others = own.iter().filter(|one| !described.contains(one));
    let defaults = common[..2].iter().chain(others).map(|one| default_of(one, on_jvm));
    let states = optimizer.formulas().into_iter().map(|name| {
        let formula = formulas.iter().find(|formula| formula.name == name);
        let formula = formula.unwrap_or_else(|| panic!("no formula `{name}`"));
        format!("`{name}` {}", formula.num_states)
    });
    let line = format!(
        "Defaults: {}. State tensors: {}.",
        defaults.collect::<Vec<_>>().join(", "),
        states.collect::<Vec<_>>().join(", ")
    );
    text + "\n" + &filled("", &line)
}

/// Returns a hyper-parameter with its default, and its default on the JVM if that differs.
fn default_of(parameter: &Parameter, on_jvm: &[(&str, f64)]) -> String {
    let mut text = format!("`{}` {}", parameter.name, default(parameter));
    if let Some((_, other)) = on_jvm.iter().find(|(name, _)| *name == parameter.name) {
        let _ = write!(text, " ({})", default(&Parameter { default: *other, ..*parameter }));
    }
    text
}

fn values(parameter: &Parameter) -> &'static str {
    match parameter.domain {
        Domain::Any => "any number",
        Domain::NonNegative => "at least 0",
        Domain::Fraction => "at least 0, below 1",
        Domain::Flag => "`true`, `false`",
        Domain::Count => "integer, at least 0",
    }
}

/// Returns the text in lines of at most [`WIDTH`] characters, the first one after `lead` and the
/// others indented by as much. Does not break code, because a line that begins with an operator of a
/// formula would be an item of a list.
fn filled(lead: &str, text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match parts.last_mut() {
            Some(part) if part.matches('`').count() % 2 == 1 => {
                part.push(' ');
                part.push_str(word);
            }
            _ => parts.push(word.to_owned()),
        }
    }
    let mut lines = vec![lead.to_owned()];
    for (number, part) in parts.iter().enumerate() {
        let line = lines.last_mut().expect("a line");
        if number == 0 {
            line.push_str(part);
        } else if line.chars().count() + 1 + part.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(part);
        } else {
            lines.push(" ".repeat(lead.len()) + part);
        }
    }
    lines.join("\n") + "\n"
}

/// Returns the text with formulas such as `m = beta1*m + (1 - beta1)*q`, which are shorter and show
/// the precedence.
fn prose(text: &str) -> String {
    with_code(text, |code| format!("`{}`", code.replace(" * ", "*").replace(" / ", "/")))
}

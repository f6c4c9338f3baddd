//! Generates the classes of optimizers in Python, each in its own module.

use std::fmt::Write;

use kvstore_core::optimizer::{ALIASES, COMMON, Domain, Parameter};

use super::optimizers::{Optimizer, default, parameters, with_code, wrapped};

const GENERATED: &str = "# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.\n";

const INIT: &str = r#""""The built-in optimizers, which :mod:`mxkv.optimizer` offers: a module with a class for each.

In the formulas ``w`` is the weight, ``lr`` the learning rate, ``rescale`` is ``rescale_grad``, and ``clip`` bounds every
element by ``clip_gradient``.
"""

"#;

const OPTIONS: &str = r#""""The options of every built-in optimizer."""

from __future__ import annotations

from typing import Any, Mapping, TypedDict

from .._native import LrScheduler


"#;

const CLASS: &str = r"
from __future__ import annotations

from typing import TYPE_CHECKING

from .._builtin_optimizer import Named
from .options import Options

if TYPE_CHECKING:
    from typing_extensions import Unpack


";

/// The options that are not hyper-parameters: name, type and documentation.
const OTHERS: [(&str, &str, &str); 4] = [
    ("lr_scheduler", "LrScheduler | None", "A schedule of the learning rate"),
    ("lr_mult", "Mapping[Any, float] | None", "Factors of the learning rate by key"),
    ("wd_mult", "Mapping[Any, float] | None", "Factors of the weight decay by key"),
    ("multi_precision", "bool", "Changes nothing: half precision always has a copy in ``float32``"),
];

/// A Python keyword, which cannot be the name of an option.
const KEYWORD: &str = "lambda";

/// Returns the names and the contents of the package's modules.
pub(crate) fn modules(optimizers: &[Optimizer]) -> Vec<(String, String)> {
    let mut modules = vec![
        ("__init__".to_owned(), format!("{GENERATED}{INIT}{}", imports(optimizers))),
        ("options".to_owned(), format!("{GENERATED}{OPTIONS}{}", options(optimizers))),
    ];
    modules.extend(optimizers.iter().map(|optimizer| {
        let definition = optimizer.definition;
        let docs = format!("\"\"\"The class :class:`{}`.\"\"\"\n", definition.class);
        (definition.name.to_owned(), format!("{GENERATED}{docs}{CLASS}{}", class(optimizer)))
    }));
    modules
}

/// Returns the lines that import all classes, and the list of the classes.
fn imports(optimizers: &[Optimizer]) -> String {
    let of = |optimizer: &Optimizer| (optimizer.definition.name, optimizer.definition.class);
    let mut all: Vec<_> = optimizers.iter().map(of).chain([("options", "Options")]).collect();
    all.sort_unstable();
    let mut text = String::new();
    for (module, class) in &all {
        let _ = writeln!(text, "from .{module} import {class}");
    }
    let mut names: Vec<_> = all.iter().map(|(_, class)| class).collect();
    names.sort_unstable();
    text += "\n__all__ = [\n";
    for name in names {
        let _ = writeln!(text, "    \"{name}\",");
    }
    text + "]\n"
}

fn class(optimizer: &Optimizer) -> String {
    let definition = optimizer.definition;
    let mut text = format!("class {}(Named):\n", definition.class);
    text += &wrapped(&format!("\"\"\"{}", prose(optimizer.title())), "    ");
    text += &optimizer.plain_details("    ", prose);
    text += "\n    Args:\n";
    let (own, common) = optimizer.parameters();
    // The defaults of these common options differ between optimizers.
    let parameters = [own.as_slice(), &common[..2]].concat();
    for parameter in &parameters {
        text += &argument(parameter.name, &prose(parameter.about));
    }
    text += &argument(
        "options",
        "The options that every optimizer has, :class:`mxkv.optimizer.Options`",
    );
    text += "    \"\"\"\n\n";
    let _ = writeln!(text, "    _name = \"{}\"\n", definition.name);
    text += "    def __init__(\n        self,\n        *,\n";
    for parameter in &parameters {
        let default = match default(parameter).as_str() {
            "true" => "True".to_owned(),
            "false" => "False".to_owned(),
            _ if parameter.domain == Domain::Count => default(parameter),
            _ => format!("{:?}", parameter.default),
        };
        let _ = writeln!(text, "        {}: {} = {default},", parameter.name, kind(parameter));
    }
    text += "        **options: Unpack[Options],\n    ) -> None: ...\n";
    text
}

/// Returns the source of the class with the options of every optimizer.
fn options(optimizers: &[Optimizer]) -> String {
    let parameters = parameters(optimizers);
    let of_name = |name: &str| parameters.iter().find(|parameter| parameter.name == name);
    let mut fields = String::new();
    let mut text = "class Options(TypedDict, total=False):\n".to_owned();
    text += "    \"\"\"The options that every built-in optimizer takes.\n\n    Args:\n";
    for parameter in &COMMON[2..] {
        // MXNet's default is `None`.
        let none = if parameter.name == "clip_gradient" { " | None" } else { "" };
        text += &argument(parameter.name, &prose(parameter.about));
        let _ = writeln!(fields, "    {}: {}{none}", parameter.name, kind(parameter));
    }
    for (name, kind, about) in OTHERS {
        text += &argument(name, about);
        let _ = writeln!(fields, "    {name}: {kind}");
    }
    for (alias, name) in ALIASES.iter().filter(|(alias, _)| *alias != KEYWORD) {
        if let Some(parameter) = of_name(name) {
            text += &argument(alias, &format!("Another name of ``{name}``"));
            let _ = writeln!(fields, "    {alias}: {}", kind(parameter));
        }
    }
    text + "    \"\"\"\n\n" + &fields
}

/// Returns the lines that document an argument.
fn argument(name: &str, about: &str) -> String {
    let indent = " ".repeat(12);
    wrapped(&format!("{name}: {about}."), &indent).replacen(&indent, &" ".repeat(8), 1)
}

/// Returns the type of an option.
fn kind(parameter: &Parameter) -> &'static str {
    match parameter.domain {
        Domain::Flag => "bool",
        Domain::Count => "int",
        _ => "float",
    }
}

fn prose(text: &str) -> String {
    with_code(text, |code| format!("``{code}``"))
}

//! The classes of optimizers in Python.

use std::fmt::Write;

use kvstore_core::optimizer::{Domain, Parameter};

use super::optimizers::{Block, Optimizer, shown, with_code, wrapped};

const WIDTH: usize = 110;

const HEAD: &str = r#"# Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
"""The classes of the built-in optimizers, which :mod:`mxkv.optimizer` offers.

In the formulas ``w`` is the weight, ``lr`` the learning rate, ``rescale`` is ``rescale_grad``, and ``clip`` bounds every
element by ``clip_gradient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._builtin_optimizer import Named, Options

if TYPE_CHECKING:
    from typing_extensions import Unpack
"#;

/// Returns the module with all classes.
pub(crate) fn module(optimizers: &[Optimizer]) -> String {
    let mut text = HEAD.to_owned();
    let mut names: Vec<_> = optimizers.iter().map(|one| one.definition.class).collect();
    names.sort_unstable();
    text += "\n__all__ = [\n";
    for name in names {
        let _ = writeln!(text, "    \"{name}\",");
    }
    text += "]\n";
    for optimizer in optimizers {
        text += &class(optimizer);
    }
    text
}

fn class(optimizer: &Optimizer) -> String {
    let definition = optimizer.definition;
    let mut text = format!("\n\nclass {}(Named):\n", definition.class);
    text += &wrapped(&format!("\"\"\"{}", prose(optimizer.title())), WIDTH, "    ");
    for block in optimizer.details() {
        text.push('\n');
        match block {
            Block::Paragraph(paragraph) => text += &wrapped(&prose(paragraph), WIDTH, "    "),
            Block::List(items) => {
                for item in items {
                    let item = wrapped(&prose(item), WIDTH, "      ");
                    text += &item.replacen("      ", "    - ", 1);
                }
            }
        }
    }
    text += "\n    Args:\n";
    let (own, common) = optimizer.parameters();
    // Their defaults differ.
    let parameters = [own.as_slice(), &common[..2]].concat();
    for parameter in &parameters {
        let item = format!("{}: {}.", parameter.name, prose(parameter.about));
        let item = wrapped(&item, WIDTH, "            ");
        text += &item.replacen("            ", "        ", 1);
    }
    text += "        options: Those of every optimizer, :class:`mxkv.optimizer.Options`.\n";
    text += "    \"\"\"\n\n";
    let _ = writeln!(text, "    _name = \"{}\"\n", definition.name);
    text += "    def __init__(\n        self,\n        *,\n";
    for parameter in &parameters {
        let _ = writeln!(text, "        {}: {},", parameter.name, annotation(parameter));
    }
    text += "        **options: Unpack[Options],\n    ) -> None: ...\n";
    text
}

/// Returns the type and the default of an option.
fn annotation(parameter: &Parameter) -> String {
    match parameter.domain {
        Domain::Flag if parameter.default == 0.0 => "bool = False".to_owned(),
        Domain::Flag => "bool = True".to_owned(),
        Domain::Count => format!("int = {}", shown(parameter.default)),
        _ => format!("float = {:?}", parameter.default),
    }
}

fn prose(text: &str) -> String {
    with_code(text, |code| format!("``{code}``"))
}

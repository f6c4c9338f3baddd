//! Generates the factories and the typed options of optimizers in Java.

use std::fmt::Write;

use kvstore_core::optimizer::{ALIASES, Domain, Parameter};

use super::optimizers::{Block, Optimizer, default, is_flag, parameters, with_code, wrapped};

const OPTIONS: &str = "// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
package dev.kvstore;

import java.util.Map;
import java.util.Set;

/** A method for each hyper-parameter of any optimizer. {@link Optimizer} inherits them. */
abstract sealed class OptimizerOptions permits OptimizerFactories {
    OptimizerOptions() {}
";

const WITH: &str = "
    /**
     * {@return this optimizer with another value of one hyper-parameter}
     *
     * @param hyperParameter its name
     * @param value its value; 0 or 1 for a boolean
     */
    public abstract Optimizer with(String hyperParameter, double value);
";

const FACTORIES: &str = "// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.
package dev.kvstore;

/** A factory method for each optimizer. {@link Optimizer} inherits them. */
abstract sealed class OptimizerFactories extends OptimizerOptions permits Optimizer {
    OptimizerFactories() {}
";

/// Returns the source of the class with all options.
pub(crate) fn options(optimizers: &[Optimizer]) -> String {
    let parameters = parameters(optimizers);
    let mut text = OPTIONS.to_owned();
    text += "\n    /** Other names of hyper-parameters. */\n";
    let aliases =
        ALIASES.iter().filter(|(_, name)| parameters.iter().any(|known| known.name == *name));
    let pairs: Vec<_> = aliases.map(|(alias, name)| format!("\"{alias}\", \"{name}\"")).collect();
    text += "    static final Map<String, String> ALIASES = Map.of(\n            ";
    text += &pairs.join(",\n            ");
    text += ");\n\n    /** Hyper-parameters that are true or false, kept as 1 or 0. */\n";
    let flags = parameters.iter().filter(|parameter| is_flag(parameter));
    let flags: Vec<_> = flags.map(|flag| format!("\"{}\"", flag.name)).collect();
    let _ = writeln!(text, "    static final Set<String> FLAGS = Set.of({});", flags.join(", "));
    text += WITH;
    for parameter in &parameters {
        text += &option(parameter);
    }
    text + "}\n"
}

/// Returns the source of the class with all factories.
pub(crate) fn factories(optimizers: &[Optimizer]) -> String {
    let factories: String = optimizers.iter().map(factory).collect();
    format!("{FACTORIES}{factories}}}\n")
}

fn factory(optimizer: &Optimizer) -> String {
    let definition = optimizer.definition;
    let mut lines = Vec::new();
    lines.push(format!("{{@return {{@code {}}}}} {}", definition.name, prose(optimizer.title())));
    for block in optimizer.details() {
        match block {
            Block::Paragraph(paragraph) => lines.push(format!("<p>{}", prose(paragraph))),
            Block::List(items) => lines.extend(list(items.iter().map(|item| prose(item)))),
        }
    }
    let (own, common) = optimizer.parameters_of_jvm();
    let first = common.iter().take(2);
    let first: Vec<_> = first
        .map(|parameter| format!("{{@code {}}} is {}", parameter.name, default(parameter)))
        .collect();
    let end = if own.is_empty() { " none." } else { "" };
    lines.push(format!("<p>{}. Its own hyper-parameters:{end}", first.join(", ")));
    lines.extend(list(own.iter().map(|parameter| {
        let about = prose(parameter.about);
        format!("{{@code {}}}, {}: {about}.", parameter.name, default(parameter))
    })));
    let mut body = format!("Optimizer.of(\"{}\")", definition.name);
    for (name, value) in definition.factory.defaults {
        let _ = write!(body, "\n                .with(\"{name}\", {value:?})");
    }
    let signature = format!("public static Optimizer {}()", definition.factory.name);
    method(&lines, &[], &signature, &body)
}

fn option(parameter: &Parameter) -> String {
    let kind = match parameter.domain {
        Domain::Flag => "boolean",
        Domain::Count => "long",
        _ => "double",
    };
    let expected = match parameter.domain {
        Domain::Flag => "true or false",
        domain => domain.description(),
    };
    let lines = [format!(
        "{{@return this optimizer with another {{@code {}}}}} {}.",
        parameter.name,
        prose(parameter.about)
    )];
    let tags = [
        format!("@param value {expected}"),
        "@throws KVStoreException with {@code INVALID_ARGUMENT} when this optimizer has no such \
         hyper-parameter, or it cannot have this value"
            .to_owned(),
    ];
    let signature = format!("public Optimizer {}({kind} value)", method_name(parameter.name));
    let value = if is_flag(parameter) { "value ? 1 : 0" } else { "value" };
    method(&lines, &tags, &signature, &format!("with(\"{}\", {value})", parameter.name))
}

fn method(lines: &[String], tags: &[String], signature: &str, body: &str) -> String {
    let mut text = String::from("\n    /**\n");
    for (number, line) in lines.iter().enumerate() {
        if number > 0 && line.starts_with("<p>") {
            text += "     *\n";
        }
        text += &wrapped(line, "     * ");
    }
    if !tags.is_empty() {
        text += "     *\n";
    }
    for tag in tags {
        text += &wrapped(tag, "     *     ").replacen("     *     ", "     * ", 1);
    }
    let _ = writeln!(text, "     */\n    {signature} {{\n        return {body};\n    }}");
    text
}

fn list(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = items.map(|item| format!("<li>{item}")).collect();
    if !lines.is_empty() {
        lines.insert(0, "<ul>".to_owned());
        lines.push("</ul>".to_owned());
    }
    lines
}

/// Returns the name of the method that changes a hyper-parameter: `beta1`, `clipGradient`.
fn method_name(parameter: &str) -> String {
    let parameter = match parameter {
        "wd" => "weight_decay".to_owned(),
        // MXNet's Python package spells it this way, because `lambda` is a keyword in Python.
        other => other.replace("lamda", "lambda"),
    };
    let mut words = parameter.split('_');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        name += &word[..1].to_uppercase();
        name += &word[1..];
    }
    name
}

fn prose(text: &str) -> String {
    with_code(text, |code| format!("{{@code {code}}}"))
}

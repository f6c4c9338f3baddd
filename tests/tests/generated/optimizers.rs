//! The optimizers, for the constructors of every language: their definitions in `kvstore-core`, and
//! the documentation of the functions that return these definitions.

use kvstore_core::optimizer::{DEFINITIONS, Definition, Domain, Parameter, UpdateRule};
use syn::{
    Attribute, Expr, GenericArgument, Item, ItemFn, Lit, Meta, PathArguments, TypeParamBound,
};

use super::formulas;

/// The optimizer for test programs, which bindings do not document.
const HIDDEN: &str = "test";

/// The longest line of documentation.
const WIDTH: usize = 100;

/// An optimizer and its documentation.
pub(crate) struct Optimizer {
    pub(crate) definition: &'static Definition<UpdateRule>,
    blocks: Vec<Block>,
    function: ItemFn,
}

/// A part of a documentation.
#[derive(Debug)]
pub(crate) enum Block {
    Paragraph(String),
    List(Vec<String>),
}

impl Optimizer {
    /// Returns all of them but [`HIDDEN`].
    pub(crate) fn all() -> Vec<Self> {
        let shown = DEFINITIONS.iter().filter(|definition| definition.name != HIDDEN);
        let of = |definition: &'static Definition<UpdateRule>| {
            let function = function(definition.name);
            Self { definition, blocks: blocks(&documentation(&function)), function }
        };
        shown.map(of).collect()
    }

    /// Returns the names of its formulas, from `R: From<..> + From<..>`.
    pub(crate) fn formulas(&self) -> Vec<String> {
        let rule = self.function.sig.generics.type_params().next();
        let rule = rule.unwrap_or_else(|| panic!("{}: no rule", self.definition.name));
        let mut names = Vec::new();
        for bound in &rule.bounds {
            let TypeParamBound::Trait(bound) = bound else { continue };
            let PathArguments::AngleBracketed(from) = &bound.path.segments[0].arguments else {
                continue;
            };
            names.extend(from.args.iter().filter_map(|formula| match formula {
                GenericArgument::Type(formula) => Some(formulas::name_of(formula)),
                _ => None,
            }));
        }
        names
    }

    /// Returns the first paragraph.
    pub(crate) fn title(&self) -> &str {
        let Some(Block::Paragraph(title)) = self.blocks.first() else {
            panic!("{}: a documentation begins with a title", self.definition.name);
        };
        title
    }

    /// Returns the parts behind the title.
    pub(crate) fn details(&self) -> &[Block] {
        &self.blocks[1..]
    }

    /// Returns the parts after the title as text, with an empty line before each part and a hyphen
    /// before each item of a list. `prose` changes the text of a part.
    pub(crate) fn plain_details(&self, indent: &str, prose: fn(&str) -> String) -> String {
        let mut text = String::new();
        for block in self.details() {
            text.push('\n');
            match block {
                Block::Paragraph(paragraph) => text += &wrapped(&prose(paragraph), indent),
                Block::List(items) => {
                    text.extend(
                        items.iter().map(|text| item(&format!("{indent}- "), &prose(text))),
                    );
                }
            }
        }
        text
    }

    /// Returns the optimizer's own hyper-parameters, and those of every optimizer.
    pub(crate) fn parameters(&self) -> (Vec<Parameter>, Vec<Parameter>) {
        self.definition.parameters().partition(|parameter| self.is_own(parameter))
    }

    /// Returns the same with the defaults for the JVM.
    pub(crate) fn parameters_of_jvm(&self) -> (Vec<Parameter>, Vec<Parameter>) {
        let changed = self.definition.factory.defaults;
        for (name, _) in changed {
            let known = self.definition.parameters().any(|parameter| parameter.name == *name);
            assert!(known, "{}: no hyper-parameter `{name}`", self.definition.name);
        }
        let default = |parameter: &Parameter| {
            let found = changed.iter().find(|(name, _)| *name == parameter.name);
            found.map_or(parameter.default, |(_, default)| *default)
        };
        let parameters = self.definition.parameters();
        let parameters = parameters.map(|known| Parameter { default: default(&known), ..known });
        parameters.partition(|parameter| self.is_own(parameter))
    }

    fn is_own(&self, parameter: &Parameter) -> bool {
        self.definition.own.iter().any(|own| own.name == parameter.name)
    }
}

/// Returns every hyper-parameter of any optimizer once, without a text if optimizers differ in it.
pub(crate) fn parameters(optimizers: &[Optimizer]) -> Vec<Parameter> {
    let mut found: Vec<Parameter> = Vec::new();
    for parameter in optimizers.iter().flat_map(|optimizer| optimizer.definition.parameters()) {
        match found.iter_mut().find(|known| known.name == parameter.name) {
            Some(known) => {
                assert_eq!(
                    is_flag(known),
                    is_flag(&parameter),
                    "`{}` is a flag of one optimizer and a number of another",
                    known.name
                );
                if known.about != parameter.about {
                    known.about = "What it is depends on the optimizer: see its factory";
                }
            }
            None => found.push(parameter),
        }
    }
    found
}

pub(crate) fn is_flag(parameter: &Parameter) -> bool {
    parameter.domain == Domain::Flag
}

/// Returns the default as text: `0.9`, `1e-8`, `0`, `true`.
pub(crate) fn default(parameter: &Parameter) -> String {
    if is_flag(parameter) {
        return (parameter.default != 0.0).to_string();
    }
    let text = format!("{:?}", parameter.default);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns the text with every code span changed and without backticks. A name such as `MXNet` is not
/// code: it has backticks because Clippy requires them.
pub(crate) fn with_code(text: &str, change: impl Fn(&str) -> String) -> String {
    let mut changed = String::new();
    for (number, part) in text.split('`').enumerate() {
        match number % 2 {
            1 if !is_name(part) => changed += &change(part),
            _ => changed += part,
        }
    }
    changed
}

/// Returns whether this is a name of something, such as `AdaGrad`.
fn is_name(code: &str) -> bool {
    code.len() > 2
        && code.starts_with(char::is_uppercase)
        && code.chars().all(char::is_alphanumeric)
}

/// Returns the text in lines of at most [`WIDTH`] characters, each after `indent`.
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if indent.len() + line.len() + 1 + word.len() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().flat_map(|line| [indent, line, "\n"]).collect()
}

/// Returns the text in such lines, the first one after `lead` and the others as far to the right.
pub(crate) fn item(lead: &str, text: &str) -> String {
    let indent = " ".repeat(lead.len());
    wrapped(text, &indent).replacen(&indent, lead, 1)
}

/// Returns the function that returns the definition with this name.
fn function(name: &str) -> ItemFn {
    let mut found = formulas::files().into_iter().flat_map(|file| file.items);
    let function = found.find_map(|item| match item {
        Item::Fn(function) if function.sig.ident == name => Some(function),
        _ => None,
    });
    function.unwrap_or_else(|| panic!("no function `{name}` in a file of a formula"))
}

fn documentation(function: &ItemFn) -> String {
    function.attrs.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Returns a line of a documentation.
fn line(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(literal) if pair.path.is_ident("doc") => match &literal.lit {
            Lit::Str(text) => Some(text.value().trim_end().trim_start_matches(' ').to_owned()),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the parts of a documentation. An empty line ends a paragraph, and so does a list of lines that
/// begin with a hyphen.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for part in text.split("\n\n") {
        let part = format!("\n{part}");
        let mut items = part.split("\n- ").map(|piece| piece.replace('\n', " ").trim().to_owned());
        let before = items.next().unwrap_or_default();
        if !before.is_empty() {
            blocks.push(Block::Paragraph(before));
        }
        let items: Vec<_> = items.collect();
        if !items.is_empty() {
            blocks.push(Block::List(items));
        }
    }
    blocks
}

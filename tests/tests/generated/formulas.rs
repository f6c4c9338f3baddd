//! Translates the formulas of optimizers to C++: the `impl Step`, `impl LayerFormula` and
//! `impl RowFormula` blocks in `kvstore-core/src/rule`.
//!
//! The translation supports arithmetic, comparisons, `if` expressions and the methods of `Real`. It
//! inlines a function of the formula itself. It panics at all other code, so a translated formula
//! is complete.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use kvstore_tests::sources::root;
use proc_macro2::{TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    BinOp, Block, Expr, ExprBlock, ExprIf, ExprMethodCall, FnArg, Ident, ImplItem, ImplItemFn,
    Item, ItemImpl, Lit, LitInt, Local, Member, Pat, PatTuple, Stmt, Token, Type, UnOp,
};

/// The folder of the formulas.
const RULES: &str = "kvstore-core/src/rule";

/// A formula without kernels. Recorded programs use it, and the host computes it.
const HOST_ONLY: &str = "Test";

/// A formula, as listed by `optimizers!` in `rule/mod.rs`.
pub(crate) struct Formula {
    pub(crate) name: String,
    pub(crate) num_states: usize,
    is_lazy: bool,
    has_norms: bool,
    is_rowwise: bool,
}

/// Returns the header with all formulas, the list of all formulas, and the list of the lazy ones.
pub(crate) fn header() -> String {
    let formulas = formulas();
    let sources = Sources::read();
    let mut text = String::from(
        "// Generated from kvstore-core/src/rule by `make kernels`. Do not edit.\n\
         // The formulas of optimizers for one element: the operations of the Rust code, in its\n\
         // order.\n\
         #pragma once\n\n\
         #include \"step.h\"\n",
    );
    for formula in &formulas {
        text.push('\n');
        text += &sources.translate(formula);
    }
    let list = |name: &str, formulas: &mut dyn Iterator<Item = &Formula>| {
        let uses: Vec<_> = formulas.map(|formula| format!("Use({})", formula.name)).collect();
        format!("#define {name}(Use) {}\n", uses.join(" "))
    };
    text += "\n// The formulas to compile. If KV_FORMULA is defined, it is the only one.\n";
    text += "#ifdef KV_FORMULA\n";
    text += "#define KV_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)\n";
    text += "#define KV_LAZY_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)\n";
    text += "#define KV_LAYER_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)\n";
    text += "#define KV_ROW_FORMULAS(Use) KV_FOR(KV_FORMULA, Use)\n#else\n";
    text += &list("KV_FORMULAS", &mut formulas.iter().filter(|formula| !formula.is_rowwise));
    text += &list("KV_LAZY_FORMULAS", &mut formulas.iter().filter(|formula| formula.is_lazy));
    text += &list("KV_LAYER_FORMULAS", &mut formulas.iter().filter(|formula| formula.has_norms));
    text += &list("KV_ROW_FORMULAS", &mut formulas.iter().filter(|formula| formula.is_rowwise));
    text += "#endif\n";
    text
}

/// Returns the formulas in the order of `optimizers!`, without [`HOST_ONLY`].
pub(crate) fn formulas() -> Vec<Formula> {
    let file = parse("mod.rs");
    let optimizers = file.items.iter().find_map(|item| match item {
        Item::Macro(item) if item.ident.is_none() && item.mac.path.is_ident("optimizers") => {
            Some(item.mac.parse_body::<Optimizers>())
        }
        _ => None,
    });
    let Optimizers(mut formulas) =
        optimizers.expect("`optimizers!` in rule/mod.rs").expect("lines of `optimizers!`");
    formulas.retain(|formula| formula.name != HOST_ONLY);
    formulas
}

/// The formulas in lines such as `adam: adam adamw => Adam<2> lazy;`.
struct Optimizers(Vec<Formula>);

impl Parse for Optimizers {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut formulas = Vec::new();
        while !input.is_empty() {
            while !input.peek(Token![=>]) {
                input.step(|cursor| match cursor.token_tree() {
                    Some((_, rest)) => Ok(((), rest)),
                    None => Err(cursor.error("expected `=>`")),
                })?;
            }
            input.parse::<Token![=>]>()?;
            formulas.extend(Punctuated::<Formula, Token![,]>::parse_separated_nonempty(input)?);
            input.parse::<Token![;]>()?;
        }
        Ok(Self(formulas))
    }
}

impl Parse for Formula {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let name = input.parse::<Ident>()?.to_string();
        input.parse::<Token![<]>()?;
        let num_states = input.parse::<LitInt>()?.base10_parse()?;
        input.parse::<Token![>]>()?;
        let is_lazy = input.parse::<Option<Ident>>()?.is_some();
        let has_norms = input.peek(syn::token::Bracket);
        let is_rowwise = input.peek(syn::token::Brace);
        if has_norms {
            let norms;
            syn::bracketed!(norms in input);
            norms.parse::<Ident>()?;
        }
        if is_rowwise {
            let rows;
            syn::braced!(rows in input);
            rows.parse::<Ident>()?;
        }
        Ok(Self { name, num_states, is_lazy, has_norms, is_rowwise })
    }
}

/// The parts of the files in [`RULES`] that a translation needs, by formula.
#[derive(Default)]
struct Sources {
    steps: BTreeMap<String, ItemImpl>,
    norms: BTreeMap<String, ItemImpl>,
    rows: BTreeMap<String, ItemImpl>,
    /// The functions of each formula that belong to no trait.
    own: BTreeMap<String, ItemImpl>,
    scalars: BTreeMap<String, Vec<String>>,
}

impl Sources {
    fn read() -> Self {
        let mut sources = Self::default();
        for item in files().into_iter().flat_map(|file| file.items) {
            match item {
                Item::Impl(item) => {
                    let of_trait = match trait_of(&item).as_deref() {
                        Some("Step") => &mut sources.steps,
                        Some("LayerFormula") => &mut sources.norms,
                        Some("RowFormula") => &mut sources.rows,
                        None => &mut sources.own,
                        Some(_) => continue,
                    };
                    of_trait.insert(name_of(&item.self_ty), item);
                }
                Item::Macro(item) if item.mac.path.is_ident("scalars") => {
                    let (name, fields) = scalars_of_macro(item.mac.tokens);
                    sources.scalars.insert(name, fields);
                }
                // A formula with fields that are not scalars, such as the key of a generator.
                Item::Struct(item) if item.generics.params.len() == 1 => {
                    let fields = item.fields.iter().filter(|field| is_scalar(&field.ty));
                    let names = fields.filter_map(|field| field.ident.as_ref());
                    let names = names.map(ToString::to_string).collect();
                    sources.scalars.entry(item.ident.to_string()).or_insert(names);
                }
                _ => {}
            }
        }
        sources
    }

    fn translate(&self, formula: &Formula) -> String {
        let Formula { name, num_states, .. } = formula;
        let scalars = self.scalars.get(name).unwrap_or_else(|| panic!("no scalars of {name}"));
        let mut body = Body::new(scalars, self.own.get(name));
        let apply = function(self.steps.get(name), "apply");
        let text = body.function(apply, &["index", "w", "s", "g"], Body::result);
        let (has_noise, names) = (body.has_noise, scalars.join(", "));
        let step = format!("KV_STEP({name}, {has_noise}, {num_states}, {names}) {{\n{text}}}\n");
        if formula.is_rowwise {
            return step + &self.of_rows(name, scalars);
        }
        if !formula.has_norms {
            return step;
        }
        let mut body = Body::new(scalars, self.own.get(name));
        let measure = function(self.norms.get(name), "measure");
        let text = body.function(measure, &["w", "s", "g"], Body::norms);
        // The kernels load only the states that the norms depend on.
        let num_measured = (0..*num_states).rev().find(|n| text.contains(&format!(" s[{n}]")));
        let num_measured = num_measured.map_or(0, |last| last + 1);
        format!("{step}\nKV_NORMS({name}, {num_measured}) {{\n{text}}}\n")
    }
}

impl Sources {
    fn of_rows(&self, name: &str, scalars: &[String]) -> String {
        let block = self.rows.get(name);
        let mut body = Body::new(scalars, self.own.get(name));
        let measure = body.function(function(block, "measure"), &["g"], Body::returned);
        let mut body = Body::new(scalars, self.own.get(name));
        let state = body.function(function(block, "row_state"), &["s", "mean"], Body::states);
        format!("\nKV_ROW_MEASURE({name}) {{\n{measure}}}\n\nKV_ROW_STATE({name}) {{\n{state}}}\n")
    }
}

/// Returns a function of a block.
fn function<'a>(block: Option<&'a ItemImpl>, name: &str) -> &'a ImplItemFn {
    let functions = block.into_iter().flat_map(|block| &block.items);
    let mut named = functions.filter_map(|item| match item {
        ImplItem::Fn(function) if function.sig.ident == name => Some(function),
        _ => None,
    });
    named.next().unwrap_or_else(|| panic!("no function `{name}`"))
}

/// A function of one formula during its translation.
struct Body<'a> {
    scalars: &'a [String],
    own: Option<&'a ItemImpl>,
    /// The C++ expression of each Rust name. A later `let` of the same name gets a new expression.
    names: BTreeMap<String, String>,
    used: HashSet<String>,
    has_noise: bool,
}

impl<'a> Body<'a> {
    fn new(scalars: &'a [String], own: Option<&'a ItemImpl>) -> Self {
        // Names that the C++ function uses. The scalars are in scope, too, as fields of its struct.
        let used = ["k", "w", "s", "g", "job", "index", "norms"].map(str::to_owned).into_iter();
        let used = used.chain(scalars.iter().cloned()).collect();
        Self { scalars, own, names: BTreeMap::new(), used, has_noise: false }
    }

    /// Translates a function. `places` are the C++ expressions of its arguments after the first.
    fn function(
        &mut self,
        function: &ImplItemFn,
        places: &[&str],
        result: fn(&mut Self, &Expr) -> String,
    ) -> String {
        for (argument, place) in function.sig.inputs.iter().skip(1).zip(places) {
            self.bind_argument(pattern_of(argument), place);
        }
        let (variables, value) = self.statements(&function.block);
        variables + &result(self, value)
    }

    fn bind_argument(&mut self, pattern: &Pat, place: &str) {
        match pattern {
            Pat::Ident(name) => {
                self.names.insert(name.ident.to_string(), place.to_owned());
            }
            Pat::Slice(states) => {
                for (number, state) in states.elems.iter().enumerate() {
                    self.bind_argument(state, &format!("{place}[{number}]"));
                }
            }
            _ => panic!("an argument is a name or a list of states"),
        }
    }

    /// Returns the name of a new variable.
    fn declare(&mut self, name: &str) -> String {
        let mut fresh = name.to_owned();
        let mut number = 2;
        while !self.used.insert(fresh.clone()) {
            fresh = format!("{name}_{number}");
            number += 1;
        }
        fresh
    }

    /// Returns the variables of a block, and the final expression.
    fn statements<'b>(&mut self, block: &'b Block) -> (String, &'b Expr) {
        let Some((Stmt::Expr(value, None), variables)) = block.stmts.split_last() else {
            panic!("a formula ends with an expression")
        };
        let mut text = String::new();
        for statement in variables {
            let Stmt::Local(local) = statement else { panic!("a formula consists of `let`") };
            text += &self.local(local);
        }
        (text, value)
    }

    fn local(&mut self, local: &Local) -> String {
        let value = &local.init.as_ref().expect("a variable has a value").expr;
        match (&local.pat, &**value) {
            (Pat::Ident(name), value) => self.variable(&name.ident.to_string(), value),
            (Pat::Tuple(names), Expr::Tuple(values)) => names
                .elems
                .iter()
                .zip(&values.elems)
                .map(|(name, it)| self.named(name, it))
                .collect(),
            (Pat::Tuple(names), Expr::MethodCall(call)) => self.inlined(names, call),
            _ => panic!("a variable is a name or a tuple of names"),
        }
    }

    /// Returns the variables of an inlined function of the formula, and the variables with its
    /// results.
    fn inlined(&mut self, names: &PatTuple, call: &ExprMethodCall) -> String {
        let function = function(self.own, &call.method.to_string());
        let arguments: Vec<_> =
            call.args.iter().map(|argument| self.expression(argument)).collect();
        let outer = self.names.clone();
        for (argument, value) in function.sig.inputs.iter().skip(1).zip(&arguments) {
            self.bind_argument(pattern_of(argument), value);
        }
        let (mut text, value) = self.statements(&function.block);
        let Expr::Tuple(values) = value else { panic!("a function returns a tuple") };
        let values: Vec<_> = values.elems.iter().map(|value| self.expression(value)).collect();
        self.names = outer;
        for (name, value) in names.elems.iter().zip(values) {
            let Pat::Ident(name) = name else { continue };
            let name = name.ident.to_string();
            if self.used.contains(&value) {
                self.names.insert(name, value);
            } else {
                text += &self.assigned(&name, &value);
            }
        }
        text
    }

    fn named(&mut self, name: &Pat, value: &Expr) -> String {
        let Pat::Ident(name) = name else { panic!("a tuple of names") };
        self.variable(&name.ident.to_string(), value)
    }

    fn variable(&mut self, name: &str, value: &Expr) -> String {
        let value = self.expression(value);
        self.assigned(name, &value)
    }

    fn assigned(&mut self, name: &str, value: &str) -> String {
        let fresh = self.declare(name);
        self.names.insert(name.to_owned(), fresh.clone());
        format!("    const A {fresh} = {value};\n")
    }

    /// Assigns the two numbers whose norms the step needs.
    fn norms(&mut self, numbers: &Expr) -> String {
        let Expr::Array(numbers) = numbers else { panic!("the numbers are a list") };
        let mut text = String::new();
        for (number, value) in numbers.elems.iter().enumerate() {
            let _ = writeln!(text, "    norms[{number}] = {};", self.expression(value));
        }
        text
    }

    fn returned(&mut self, value: &Expr) -> String {
        format!("    return {};\n", self.expression(value))
    }

    /// Assigns the new weight and the new states, all computed from the old ones.
    fn result(&mut self, result: &Expr) -> String {
        let Expr::Tuple(result) = result else { panic!("a step returns a tuple") };
        let mut text = self.variable("new_w", &result.elems[0]);
        let weight = self.names["new_w"].clone();
        let (variables, states) = self.new_states(&result.elems[1]);
        text += &variables;
        let _ = writeln!(text, "    w = {weight};");
        text + &assigned_states(&states)
    }

    /// Assigns the new states, all computed from the old ones.
    fn states(&mut self, states: &Expr) -> String {
        let (variables, states) = self.new_states(states);
        variables + &assigned_states(&states)
    }

    /// Returns the variables of the new states, and their names.
    fn new_states(&mut self, states: &Expr) -> (String, Vec<String>) {
        let Expr::Array(states) = states else { panic!("the states are a list") };
        let (mut text, mut names) = (String::new(), Vec::new());
        for (number, state) in states.elems.iter().enumerate() {
            let name = format!("new_s{number}");
            text += &self.variable(&name, state);
            names.push(self.names[&name].clone());
        }
        (text, names)
    }

    fn expression(&mut self, expression: &Expr) -> String {
        match expression {
            Expr::Paren(inner) => format!("({})", self.expression(&inner.expr)),
            Expr::Binary(binary) => {
                let (left, right) = (self.expression(&binary.left), self.expression(&binary.right));
                format!("{left} {} {right}", operator(&binary.op))
            }
            Expr::Unary(unary) => match unary.op {
                UnOp::Neg(_) => format!("-{}", self.expression(&unary.expr)),
                _ => panic!("the only operator of one operand is `-`"),
            },
            Expr::Field(field) => {
                let Member::Named(name) = &field.member else { panic!("a field has a name") };
                self.field(&name.to_string())
            }
            Expr::Path(path) => self.path(&path.path),
            Expr::MethodCall(call) => self.method(call),
            Expr::Call(call) => {
                let Expr::Path(function) = &*call.func else { panic!("a function has a name") };
                let arguments: Vec<_> = call.args.iter().map(|it| self.expression(it)).collect();
                match &*path_of(&function.path) {
                    "A::from_f64" => format!("(A){}", arguments.join(", ")),
                    "standard_normal" => format!("standard_normal({})", arguments.join(", ")),
                    other => panic!("an unknown function: {other}"),
                }
            }
            Expr::If(choice) => self.choice(choice),
            Expr::Lit(literal) => match &literal.lit {
                Lit::Float(number) => format!("(A){}", number.base10_digits()),
                _ => panic!("a literal is a float"),
            },
            _ => panic!("an unknown expression in a formula"),
        }
    }

    fn field(&mut self, name: &str) -> String {
        if self.scalars.iter().any(|scalar| scalar == name) {
            return format!("k[{name}]");
        }
        self.has_noise = true;
        format!("job->{name}")
    }

    fn path(&self, path: &syn::Path) -> String {
        match &*path_of(path) {
            "A::ZERO" => "(A)0".to_owned(),
            "A::ONE" => "(A)1".to_owned(),
            name => self.names.get(name).unwrap_or_else(|| panic!("no variable {name}")).clone(),
        }
    }

    fn method(&mut self, call: &ExprMethodCall) -> String {
        let receiver = match &*call.receiver {
            Expr::Paren(inner) => self.expression(&inner.expr),
            other => self.expression(other),
        };
        // A scalar may have the name of a function, so functions are qualified with `::`.
        let function = match &*call.method.to_string() {
            "sqrt" => "root",
            "abs" => "absolute",
            "clip" => "clip",
            "sign" => "sign",
            other => panic!("an unknown method: {other}"),
        };
        let mut arguments = vec![receiver];
        arguments.extend(call.args.iter().map(|argument| self.expression(argument)));
        format!("::{function}({})", arguments.join(", "))
    }

    fn choice(&mut self, choice: &ExprIf) -> String {
        let condition = self.expression(&choice.cond);
        let (_, otherwise) = choice.else_branch.as_ref().expect("an `if` has an `else`");
        let Expr::Block(ExprBlock { block: otherwise, .. }) = &**otherwise else {
            panic!("`else` is followed by one expression");
        };
        let [value, otherwise] = [&choice.then_branch, otherwise].map(|block| {
            let [Stmt::Expr(value, None)] = &*block.stmts else {
                panic!("a branch is an expression")
            };
            self.expression(value)
        });
        format!("({condition} ? {value} : {otherwise})")
    }
}

fn assigned_states(names: &[String]) -> String {
    let mut text = String::new();
    for (number, name) in names.iter().enumerate() {
        let _ = writeln!(text, "    s[{number}] = {name};");
    }
    text
}

fn operator(operator: &BinOp) -> &'static str {
    match operator {
        BinOp::Add(_) => "+",
        BinOp::Sub(_) => "-",
        BinOp::Mul(_) => "*",
        BinOp::Div(_) => "/",
        BinOp::Lt(_) => "<",
        BinOp::Le(_) => "<=",
        BinOp::Gt(_) => ">",
        BinOp::Ge(_) => ">=",
        BinOp::Eq(_) => "==",
        _ => panic!("an unknown operator"),
    }
}

/// Returns the files of [`RULES`].
pub(crate) fn files() -> Vec<syn::File> {
    let folder = std::fs::read_dir(root().join(RULES)).expect("the folder of the formulas");
    let names = folder.map(|entry| entry.expect("a file").file_name());
    names.map(|name| parse(name.to_str().expect("a name in Unicode"))).collect()
}

fn parse(file: &str) -> syn::File {
    let path = root().join(RULES).join(file);
    let text = std::fs::read_to_string(&path).expect("a file of a formula");
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn path_of(path: &syn::Path) -> String {
    let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    names.join("::")
}

/// Returns the trait of a block such as `impl<A: Real> Step<A, N> for Formula<A>`.
fn trait_of(item: &ItemImpl) -> Option<String> {
    let (path, _) = item.trait_.as_ref()?;
    path.segments.last().map(|segment| segment.ident.to_string())
}

/// Returns the pattern of an argument: its name, or the names of its parts.
fn pattern_of(argument: &FnArg) -> &Pat {
    let FnArg::Typed(argument) = argument else { panic!("`self` comes first") };
    &argument.pat
}

pub(crate) fn name_of(kind: &Type) -> String {
    let Type::Path(path) = kind else { panic!("a formula is a struct") };
    path.path.segments.last().expect("a name").ident.to_string()
}

/// Returns whether a field is a scalar, which has the type `A`.
fn is_scalar(kind: &Type) -> bool {
    matches!(kind, Type::Path(path) if path.path.is_ident("A"))
}

/// Returns the name and the fields of `scalars! { Name<N> [..] { field, .. } }`.
fn scalars_of_macro(tokens: TokenStream) -> (String, Vec<String>) {
    let mut name = None;
    let mut fields = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                name.get_or_insert(ident.to_string());
            }
            TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace => {
                let idents = group.stream().into_iter().filter_map(|token| match token {
                    TokenTree::Ident(ident) => Some(ident.to_string()),
                    _ => None,
                });
                fields = idents.collect();
            }
            _ => {}
        }
    }
    (name.expect("a formula has a name"), fields)
}

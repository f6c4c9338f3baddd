//! [`Modules`]: which file of a crate imports which, read with `syn`.
//!
//! An import is any path that begins with `crate`, `self`, `super` or a child module, in `use`
//! items, in code and in the bodies of macros. Documentation does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use kvstore_tests::sources::{files, root};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{Visit, visit_item_mod, visit_path};
use syn::{File, ItemMod, ItemUse, Macro, UseTree, Visibility, parse_file};

/// The imports between the files of one crate, as paths below its `src`, for example
/// `cpu/memory.rs`.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// Each file, with the files that it imports.
    pub(crate) imports: BTreeMap<String, BTreeSet<String>>,
    /// Files that import a name of the crate's root, with the names.
    pub(crate) of_root: BTreeSet<(String, String)>,
}

impl Modules {
    /// Reads the files in `src` of the crate in this folder of the workspace.
    pub(crate) fn of(krate: &str) -> Self {
        let source = root().join(krate).join("src");
        let paths = files(&format!("{krate}/src"), &["rs"]);
        let names: Vec<String> = paths
            .iter()
            .map(|path| {
                let relative = path.strip_prefix(&source).expect("a file in src");
                relative.to_str().expect("a name in Unicode").to_owned()
            })
            .collect();
        let files: BTreeMap<Vec<String>, String> =
            names.iter().map(|name| (module_of(name), name.clone())).collect();
        let mut modules = Self::default();
        for (path, name) in paths.iter().zip(&names) {
            let mut reader = Reader::new(&files, module_of(name));
            reader.visit_file(&parse(path));
            let imports = modules.imports.entry(name.clone()).or_default();
            for path in reader.found {
                let target = file_of(&files, &path);
                if target == "lib.rs" && name != "lib.rs" {
                    modules.of_root.insert((name.clone(), path.join("::")));
                } else if target != *name {
                    imports.insert(target);
                }
            }
        }
        modules.imports.remove("lib.rs");
        modules
    }

    /// Returns the imports between the folders and files in `src`, without `lib.rs`.
    pub(crate) fn of_folders(&self) -> BTreeSet<(&str, &str)> {
        self.edges().map(|(from, to)| (folder(from), folder(to))).filter(|(a, b)| a != b).collect()
    }

    /// Returns the sets of files that import each other in a cycle, the largest first.
    pub(crate) fn cycles(&self) -> Vec<BTreeSet<&str>> {
        let reached = |from: &str| {
            let (mut reached, mut open) = (BTreeSet::new(), Vec::from([from.to_owned()]));
            while let Some(file) = open.pop() {
                for next in self.imports.get(&file).into_iter().flatten() {
                    if reached.insert(next.clone()) {
                        open.push(next.clone());
                    }
                }
            }
            reached
        };
        let reached: BTreeMap<&str, BTreeSet<String>> =
            self.imports.keys().map(|file| (file.as_str(), reached(file))).collect();
        // Files are in one cycle if each reaches the other: a strongly connected component.
        let in_one_cycle = |a: &str, b: &str| reached[a].contains(b) && reached[b].contains(a);
        let cycle = |file: &&str| -> BTreeSet<&str> {
            reached.keys().copied().filter(|other| in_one_cycle(file, other)).collect()
        };
        let all: BTreeSet<BTreeSet<&str>> =
            reached.keys().map(cycle).filter(|cycle| cycle.len() > 1).collect();
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|cycle| std::cmp::Reverse(cycle.len()));
        all
    }

    /// Returns each import as a pair of files.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.imports.iter().flat_map(|(from, targets)| {
            targets.iter().map(move |target| (from.as_str(), target.as_str()))
        })
    }
}

/// Returns the folder of a file, or the file itself if it is in `src`, without `.rs`.
pub(crate) fn folder(file: &str) -> &str {
    file.split('/').next().unwrap_or(file).trim_end_matches(".rs")
}

/// Returns `[cpu, memory]` for `cpu/memory.rs`, `[cpu]` for `cpu/mod.rs`, and an empty list for
/// `lib.rs`.
fn module_of(file: &str) -> Vec<String> {
    let mut module: Vec<String> =
        file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// Returns the file of the longest module path that `path` begins with.
fn file_of(files: &BTreeMap<Vec<String>, String>, path: &[String]) -> String {
    let longest = (0..=path.len()).rev().find_map(|length| files.get(&path[..length]));
    longest.expect("every crate has a lib.rs").clone()
}

fn parse(path: &Path) -> File {
    let text = fs::read_to_string(path).expect("the file can be read");
    parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The types with a name in small letters.
const PRIMITIVES: [&str; 17] = [
    "bool", "char", "str", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64",
    "i128", "isize", "f32", "f64",
];

/// Returns the paths in the code of a file that lead to other crates, and its macros without a
/// path, for example `println!`.
pub(crate) fn outer_paths(code: &str) -> Vec<Vec<String>> {
    let files = BTreeMap::new();
    let mut reader = Reader::new(&files, Vec::new());
    reader.visit_file(&parse_file(code).expect("valid code"));
    let Reader { used, named, bound, macros, .. } = reader;
    let is_inner = |path: &[String]| {
        let first = path[0].as_str();
        ["crate", "self", "super"].contains(&first) || bound.contains(first)
    };
    let is_type = |path: &[String]| {
        PRIMITIVES.contains(&path[0].as_str()) || path[0].starts_with(char::is_uppercase)
    };
    let used = used.into_iter().filter(|path| !is_inner(path));
    let named =
        named.into_iter().filter(|path| path.len() > 1 && !is_inner(path) && !is_type(path));
    used.chain(named).chain(macros.into_iter().map(|name| vec![name + "!"])).collect()
}

/// Collects the paths of a file that lead to modules of the crate, relative to the crate's root.
struct Reader<'a> {
    files: &'a BTreeMap<Vec<String>, String>,
    /// The module whose items are being read. An inline module has no file of its own.
    module: Vec<String>,
    found: Vec<Vec<String>>,
    /// All paths of `use` items, and all other paths.
    used: Vec<Vec<String>>,
    named: Vec<Vec<String>>,
    /// The names that `use` and `mod` items define.
    bound: BTreeSet<String>,
    /// The macros without a path.
    macros: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(files: &'a BTreeMap<Vec<String>, String>, module: Vec<String>) -> Self {
        Self {
            files,
            module,
            found: Vec::new(),
            used: Vec::new(),
            named: Vec::new(),
            bound: BTreeSet::new(),
            macros: Vec::new(),
        }
    }

    fn add(&mut self, path: &[String]) {
        // A single segment is a name in scope, or the `crate` of `pub(crate)`.
        let [first, _, ..] = path else { return };
        let mut module = self.module.clone();
        module.push(first.clone());
        let mut from = match first.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.module.clone(),
            _ if self.files.contains_key(&module) => module,
            _ => return,
        };
        for (position, segment) in path.iter().enumerate() {
            match segment.as_str() {
                "super" => drop(from.pop()),
                "crate" | "self" => {}
                _ if position == 0 => {}
                _ => from.push(segment.clone()),
            }
        }
        self.found.push(from);
    }

    fn add_use(&mut self, path: &[String]) {
        self.used.push(path.to_vec());
        self.add(path);
    }

    fn add_named(&mut self, path: &[String]) {
        if !path.is_empty() {
            self.named.push(path.to_vec());
        }
        self.add(path);
    }

    fn add_tree(&mut self, tree: &UseTree, path: &mut Vec<String>) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.add_tree(&inner.tree, path);
                path.pop();
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, path);
                }
            }
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                // `use std::fmt::{self}` defines `fmt`.
                let bound = path.iter().rev().find(|name| *name != "self");
                // `use tokio;` defines nothing new.
                self.bound.extend(bound.filter(|_| path.len() > 1).cloned());
                self.add_use(path);
                path.pop();
            }
            UseTree::Rename(rename) => {
                self.bound.insert(rename.rename.to_string());
                path.push(rename.ident.to_string());
                self.add_use(path);
                path.pop();
            }
            UseTree::Glob(_) => {
                path.push("*".to_owned());
                self.add_use(path);
                path.pop();
            }
        }
    }

    /// Reads the paths in the tokens of a macro, which `syn` does not parse.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                // `$crate` in a macro for other crates must name the root.
                TokenTree::Punct(punct) if punct.as_char() == '$' => {
                    tokens.next_if(|next| matches!(next, TokenTree::Ident(_)));
                }
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add_named(&path);
                        path.clear();
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add_named(&path);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add_named(&path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.module.push(item.ident.to_string());
        self.bound.insert(item.ident.to_string());
        visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let num_found = self.found.len();
        self.add_tree(&item.tree, &mut Vec::new());
        if item.leading_colon.is_some() {
            // `::name` is another crate.
            self.found.truncate(num_found);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let num_found = self.found.len();
        self.add_named(&segments);
        if path.leading_colon.is_some() {
            self.found.truncate(num_found);
        }
        visit_path(self, path);
    }

    // `pub(in crate::cpu)` imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, mac: &'ast Macro) {
        self.macros.extend(mac.path.get_ident().map(ToString::to_string));
        self.visit_path(&mac.path);
        self.add_tokens(mac.tokens.clone());
    }
}

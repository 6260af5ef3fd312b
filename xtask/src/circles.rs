//! Circles of imports among the files of a crate: files that can only be understood all at once.
//!
//! What passes between a file and its own modules does not count, nor a circle that only this closes; nor does a
//! crate's `error`, which every file returns and which names the types of all. Names are followed through re-exports
//! to the file that defines them; what only tests build is left out, and macros are not looked into.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use syn::{
    Attribute, Item, UseTree,
    visit::{self, Visit},
};

use crate::command::root;

/// The path of a module in its crate: empty for that of `lib.rs`.
type Module = Vec<String>;

/// What is read of one file.
#[derive(Default)]
struct Source {
    /// Paths that it names, and a local name for those that it imports.
    paths: Vec<(Module, Option<String>)>,
    /// Its modules in files of their own.
    modules: Vec<String>,
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Mod(module) if of_tests(&module.attrs) => {}
            Item::Mod(module) if module.content.is_none() => {
                self.modules.push(module.ident.to_string());
            }
            Item::Use(import) if !of_tests(&import.attrs) => self.add(&import.tree, &mut vec![]),
            Item::Use(_) => {}
            item => visit::visit_item(self, item),
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !of_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Module = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if matches!(names[0].as_str(), "crate" | "super" | "self") {
            self.paths.push((names, None));
        }
        visit::visit_path(self, path);
    }
}

impl Source {
    /// Reads a file's text.
    fn of(text: &str) -> syn::Result<Self> {
        let mut source = Self::default();
        source.visit_file(&syn::parse_file(text)?);
        Ok(source)
    }

    fn add(&mut self, tree: &UseTree, before: &mut Module) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add(tree, before)),
            UseTree::Glob(_) => self.paths.push((before.clone(), None)),
            UseTree::Name(name) if name.ident == "self" => {
                self.paths.push((before.clone(), before.last().cloned()));
            }
            UseTree::Name(name) => self.import(before, name.ident.to_string(), None),
            UseTree::Rename(name) => {
                self.import(before, name.ident.to_string(), Some(name.rename.to_string()));
            }
        }
    }

    fn import(&mut self, before: &Module, name: String, rename: Option<String>) {
        let local = rename.unwrap_or_else(|| name.clone());
        let path = before.iter().cloned().chain((name != "self").then_some(name)).collect();
        self.paths.push((path, Some(local)));
    }
}

fn of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        list.path.is_ident("cfg") && list.tokens.to_string() == "test"
    })
}

/// The files of a crate, by module.
struct Sources(BTreeMap<Module, Source>);

impl Sources {
    /// Reads the module of a file, whose own modules are in a folder.
    fn read(&mut self, module: Module, file: &Path, folder: &Path) -> Result<(), String> {
        let name = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
        let text = fs::read_to_string(file).map_err(|error| name(&error))?;
        let source = Source::of(&text).map_err(|error| name(&error))?;
        for own in &source.modules {
            let path = module.iter().chain([own]).cloned().collect();
            self.read(path, &folder.join(format!("{own}.rs")), &folder.join(own))?;
        }
        self.0.insert(module, source);
        Ok(())
    }

    /// Returns the module of the file that defines a path seen in `at`; none if it is of another crate.
    fn definition(&self, at: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut path) = match path.first()?.as_str() {
            "crate" => (vec![], &path[1..]),
            "super" | "self" => (at.clone(), path),
            first if self.0.contains_key(&[at, &[first.to_owned()][..]].concat()) => {
                (at.clone(), path)
            }
            _ => return None,
        };
        while let [first, rest @ ..] = path {
            let inner: Module = at.iter().chain([first]).cloned().collect();
            if first == "super" {
                at.pop();
            } else if self.0.contains_key(&inner) {
                at = inner;
            } else if first != "self" {
                let imported =
                    |(_, local): &&(Module, Option<String>)| local.as_ref() == Some(first);
                let import = self.0[&at].paths.iter().find(imported);
                let Some((import, _)) = import.filter(|_| depth > 0) else { break };
                return self.definition(&at, &[import, rest].concat(), depth - 1);
            }
            path = rest;
        }
        Some(at)
    }

    /// Returns the modules that each one takes names from.
    fn arrows(&self) -> BTreeMap<Module, BTreeSet<Module>> {
        let related = |a: &Module, b: &Module| a.starts_with(b) || b.starts_with(a);
        let to = |(module, source): (&Module, &Source)| {
            let all = source.paths.iter().filter_map(|(path, _)| self.definition(module, path, 9));
            (module.clone(), all.filter(|other| !related(other, module)).collect())
        };
        self.0.iter().filter(|(module, _)| *module != &["error"]).map(to).collect()
    }

    /// Returns the circles: modules that lead to one another.
    fn circles(&self) -> BTreeSet<BTreeSet<Module>> {
        let arrows = self.arrows();
        let mut reached: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
        for from in arrows.keys() {
            let mut open = vec![from];
            let seen = reached.entry(from).or_default();
            while let Some(module) = open.pop() {
                let next = arrows.get(module).into_iter().flatten();
                open.extend(next.filter(|module| seen.insert(*module)));
            }
        }
        let leads = |a: &Module, b: &Module| reached.get(a).is_some_and(|all| all.contains(b));
        let circle = |from: &Module| -> BTreeSet<Module> {
            arrows.keys().filter(|to| leads(from, to) && leads(to, from)).cloned().collect()
        };
        arrows.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
    }
}

/// Returns a line for each circle in the crates of the repository.
pub(crate) fn offences() -> Vec<String> {
    let crates = ["accel", "he", "nic-integration", "cli", "python", "benches", "xtask"];
    crates
        .into_iter()
        .flat_map(|name| offences_of(name).unwrap_or_else(|error| vec![error]))
        .collect()
}

fn offences_of(name: &str) -> Result<Vec<String>, String> {
    let folder = root().join(name).join("src");
    let first =
        ["lib.rs", "main.rs"].map(|file| folder.join(file)).into_iter().find(|file| file.exists());
    let mut sources = Sources(BTreeMap::new());
    sources.read(vec![], &first.unwrap_or_default(), &folder)?;
    let line = |circle: BTreeSet<Module>| {
        let all: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
        format!("{name}/src: a circle of imports: {}", all.join(", "))
    };
    Ok(sources.circles().into_iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let read = |(module, text): &(&str, &str)| {
            let module = module.split_terminator("::").map(str::to_owned).collect();
            (module, Source::of(text).unwrap())
        };
        let circles = Sources(files.iter().map(read).collect()).circles();
        let line = |circle: &BTreeSet<Module>| {
            circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
        };
        circles.iter().map(line).collect()
    }

    #[test]
    fn circles_are_found_through_reexports() {
        let root = ("", "mod a; mod b; mod error; pub use b::{inner::Inner, B as Other};");
        let b = ("b", "mod inner; pub struct B; fn f(x: crate::a::A) {}");
        let inner = ("b::inner", "pub struct Inner(super::B);");
        let error = ("error", "use crate::{a::A, b::B};");
        for (import, found) in [
            ("use crate::Other; use crate::error::E;", vec!["a b"]),
            ("use super::{Other};", vec!["a b"]),
            // What a module's own module takes is no circle, nor what only tests take.
            ("use crate::Inner;", vec![]),
            ("#[cfg(test)] mod tests { use crate::b::B; }", vec![]),
            ("#[cfg(test)] use crate::b::B;", vec![]),
            ("use std::b::B; use crate::error::E;", vec![]),
        ] {
            assert_eq!(circles(&[root, ("a", import), b, inner, error]), found, "{import}");
        }
    }
}

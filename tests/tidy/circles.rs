//! No circle of modules leads into a folder and out of it again.
//!
//! The modules of a folder are compared by what their code names: a module knows another one if a
//! path in it leads there, also through `use` in between. Files that lie side by side may know each
//! other; a folder and a file beside it, or two folders, may not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::rust::Token;
use crate::tree::{File, Tree};

/// The sources of each member, by folder.
const PACKAGES: [&str; 11] = [
    "conformance/src/",
    "distlock/src/",
    "loadtest/board/src/",
    "loadtest/judge/src/",
    "loadtest/lab/src/",
    "loadtest/load/src/",
    "loadtest/measure/src/",
    "loadtest/report/src/",
    "loadtest/src/",
    "src/",
    "testbed/src/",
];

/// Edges that circles may have: package, the module that knows, the module that is known, why.
const ALLOWED: [(&str, &str, &str, &str); 7] = [
    ("distlock/src/", "kinds", "redis", "a row names its mechanism, and that asks for its row"),
    ("distlock/src/", "kinds", "mysql", "a row names its mechanism, and that asks for its row"),
    ("distlock/src/", "kinds", "zookeeper", "a row names its mechanism, and that asks for its row"),
    ("distlock/src/", "kinds", "etcd", "a row names its mechanism, and that asks for its row"),
    ("distlock/src/", "kinds", "nats", "a row names its mechanism, and that asks for its row"),
    ("distlock/src/", "inspector", "redis", "a cursor remembers where SCAN continues"),
    ("distlock/src/", "inspector", "mysql", "a cursor remembers the lists that its pages share"),
];

/// A module by its path from the crate's root, which is empty.
type Module = Vec<String>;
/// Of each module, the modules that it knows, with the place of one path that leads there.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// One path in a file: its line, its segments, and the name that `use` gives to its end.
struct NamedPath {
    line: usize,
    segments: Vec<String>,
    imported_as: Option<String>,
}

/// The modules of a package.
struct Package<'a> {
    files: BTreeMap<Module, &'a File>,
    paths: BTreeMap<Module, Vec<NamedPath>>,
}

pub(crate) fn folders_are_in_no_circle(tree: &Tree) -> Vec<String> {
    PACKAGES.iter().flat_map(|root| Package::of(tree, root).circles(root)).collect()
}

impl<'a> Package<'a> {
    fn of(tree: &'a Tree, root: &str) -> Self {
        let (mut files, mut paths) = (BTreeMap::new(), BTreeMap::new());
        for file in tree.rust(&[root], &[]) {
            let code = file.code();
            if code.is_empty() || file.path[root.len()..].starts_with("bin/") {
                continue;
            }
            let module = module_of(&file.path[root.len()..]);
            paths.insert(module.clone(), named_paths(&code));
            files.insert(module, file);
        }
        Self { files, paths }
    }

    fn circles(&self, root: &str) -> Vec<String> {
        let folders: BTreeSet<Module> = self
            .files
            .keys()
            .flat_map(|module| (0..module.len()).map(|length| module[..length].to_vec()))
            .collect();
        let mut found = Vec::new();
        for parent in &folders {
            let mut graph = self.graph_below(parent);
            if parent.is_empty() {
                found.extend(leave_out_allowed(&mut graph, root));
            }
            let child = |name: &String| [&parent[..], std::slice::from_ref(name)].concat();
            for folder in graph.keys().filter(|name| folders.contains(&child(name))) {
                if let Some(circle) = shortest_circle(&graph, folder) {
                    found.push(format!("{root}: a circle with a folder in it: {circle}"));
                }
            }
        }
        found
    }

    /// Which children of a module know which others.
    fn graph_below(&self, parent: &[String]) -> Graph {
        let mut graph = Graph::new();
        for (module, paths) in &self.paths {
            let Some(from) = child_of(parent, module) else { continue };
            for path in paths {
                let Some(known) = self.resolve(module, &path.segments, 0) else { continue };
                let place = || format!("{}:{}", self.files[module].path, path.line);
                match child_of(parent, &known) {
                    Some(to) if to != from => {
                        graph.entry(from.into()).or_default().entry(to.into()).or_insert_with(place)
                    }
                    _ => continue,
                };
            }
        }
        graph
    }

    /// The module in which a path from `module` ends, past what `use` passes on.
    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Module> {
        let (mut base, mut rest) = (module.to_vec(), path);
        match path.first()?.as_str() {
            "crate" => (base, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {}
            first => {
                self.paths.contains_key(&[module, &[first.to_owned()]].concat()).then_some(())?;
            }
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            base.pop()?;
            rest = &rest[1..];
        }
        let whole = [&base[..], rest].concat();
        // The registry declares the files of these folders.
        if let [registry, folder, _, ..] = &whole[..]
            && registry == "kinds"
            && self.paths.contains_key(std::slice::from_ref(folder))
        {
            (base, rest) = (vec![folder.clone()], &whole[2..]);
        }
        while let Some((first, after)) = rest.split_first() {
            let deeper = [&base[..], std::slice::from_ref(first)].concat();
            if self.paths.contains_key(&deeper) {
                (base, rest) = (deeper, after);
                continue;
            }
            let is_import = |one: &&NamedPath| one.imported_as.as_ref() == Some(first);
            let import = self.paths.get(&base)?.iter().find(is_import).filter(|_| depth < 8);
            let further = import.map(|one| [&one.segments[..], after].concat());
            return further.and_then(|path| self.resolve(&base, &path, depth + 1)).or(Some(base));
        }
        Some(base)
    }
}

fn module_of(path: &str) -> Module {
    let mut segments: Module = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if segments.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
        segments.pop();
    }
    segments
}

/// The child of `parent` that `module` is or belongs to.
fn child_of<'a>(parent: &[String], module: &'a [String]) -> Option<&'a str> {
    module.strip_prefix(parent)?.first().map(String::as_str)
}

/// Takes the allowed edges out. Findings are those that are not there any more.
fn leave_out_allowed(graph: &mut Graph, root: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_package = graph.len() > 3;
    for (_, from, to, _) in ALLOWED.iter().filter(|(package, ..)| *package == root && is_package) {
        if graph.get_mut(*from).and_then(|known| known.remove(*to)).is_none() {
            found.push(format!("{root}: `{from}` does not know `{to}`, though a law allows it"));
        }
    }
    found
}

/// The shortest way from a module back to itself, with the places of its edges.
fn shortest_circle(graph: &Graph, start: &str) -> Option<String> {
    let mut ways = VecDeque::from([(start, start.to_owned())]);
    let mut seen = BTreeSet::new();
    while let Some((module, way)) = ways.pop_front() {
        for (next, place) in graph.get(module).into_iter().flatten() {
            let way = format!("{way} -> {next} ({place})");
            if next == start {
                return Some(way);
            }
            if seen.insert(next) {
                ways.push_back((next, way));
            }
        }
    }
    None
}

/// Every path of the code that has a `::`, those in the braces of a `use` one by one.
fn named_paths(code: &[&Token]) -> Vec<NamedPath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let begins = code[at].is_name() && code.get(at + 1).is_some_and(|next| next.is("::"));
        if !begins {
            at += 1;
            continue;
        }
        let is_use = at > 0 && code[at - 1].is("use");
        at = path_tree(code, at, &mut Vec::new(), is_use, &mut found);
    }
    found
}

/// Reads the path that begins here; the index after it.
fn path_tree(
    code: &[&Token],
    mut at: usize,
    segments: &mut Vec<String>,
    is_use: bool,
    found: &mut Vec<NamedPath>,
) -> usize {
    let (start, line, before) = (at, code[at].line, segments.len());
    while let Some(token) = code.get(at) {
        if token.is("{") && is_use {
            at += 1;
            while code.get(at).is_some_and(|token| !token.is("}")) {
                at = if code[at].is(",") {
                    at + 1
                } else {
                    path_tree(code, at, segments, true, found)
                };
            }
            segments.truncate(before);
            return at + 1;
        }
        if !token.is_name() {
            break;
        }
        segments.push(token.text.clone());
        at += 1;
        if !code.get(at).is_some_and(|next| next.is("::")) {
            break;
        }
        at += 1;
    }
    // In braces `self` is what stands before them.
    if segments.len() > 1 && segments.last().is_some_and(|last| last == "self") {
        segments.pop();
    }
    let renamed = code.get(at).is_some_and(|token| token.is("as"));
    let alias = if renamed { code.get(at + 1).map(|name| name.text.clone()) } else { None };
    let imported_as = if is_use { alias.or_else(|| segments.last().cloned()) } else { None };
    found.push(NamedPath { line, segments: segments.clone(), imported_as });
    segments.truncate(before);
    // At least one token further: past `*`, past a new name, past what a macro makes.
    (at + 2 * usize::from(renamed)).max(start + 1)
}

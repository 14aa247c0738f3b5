//! The tree's own laws, each a test over its source files.
//!
//! A law that is not run is forgotten, and a law that cannot fail is none: each one here brings
//! samples that break it and samples that keep it, and the last test tries them all.

#[path = "tidy/assets.rs"]
mod assets;
#[path = "tidy/blocks.rs"]
mod blocks;
#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/document_laws.rs"]
mod document_laws;
#[path = "tidy/file_laws.rs"]
mod file_laws;
#[path = "tidy/languages.rs"]
mod languages;
#[path = "tidy/law.rs"]
mod law;
#[path = "tidy/layer_laws.rs"]
mod layer_laws;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/links.rs"]
mod links;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/style.rs"]
mod style;
#[path = "tidy/test_names.rs"]
mod test_names;
#[path = "tidy/tree.rs"]
mod tree;
#[path = "tidy/words.rs"]
mod words;

use std::sync::LazyLock;

use law::Law;
use tree::Tree;

static REPOSITORY: LazyLock<Tree> = LazyLock::new(Tree::of_the_repository);

/// The laws of all files.
fn all_laws() -> Vec<Law> {
    [document_laws::all(), file_laws::all(), layer_laws::all()].into_iter().flatten().collect()
}

#[test]
fn each_law_catches_its_bad_samples_and_accepts_the_good_ones() {
    for Law { name, check, breaks, keeps } in all_laws() {
        for (path, text) in breaks {
            let findings = check(&Tree::of(path, &text));
            assert!(!findings.is_empty(), "{name} does not see what is wrong in {path}:\n{text}");
        }
        for (path, text) in keeps {
            let findings = check(&Tree::of(path, &text));
            assert!(findings.is_empty(), "{name} is wrong about {path}:\n{text}\n{findings:?}");
        }
    }
}

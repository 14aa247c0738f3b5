//! Tells the programs by which profile of cargo they were built: figures depend on it.

use std::env;
use std::path::Path;

fn main() {
    // Cargo names the profile in the path only: target/PROFILE/build/PACKAGE-HASH/out. (`PROFILE`
    // is `release` for each profile that inherits from it.)
    let out = env::var("OUT_DIR").unwrap_or_default();
    let folder = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = folder.and_then(|name| name.to_str()).unwrap_or("unknown");
    println!("cargo::rustc-env=BUILD_PROFILE={profile}");
    println!("cargo::rerun-if-changed=build.rs");
}

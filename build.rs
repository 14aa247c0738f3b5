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
    // Nothing but this script decides it, and cargo looks at the script itself. A file named here
    // would be looked for in the folder of each package that uses it.
    println!("cargo::rerun-if-env-changed=BUILD_PROFILE");
}

//! `loadtest`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    loadtest::cli::main()
}

//! `loadtest`: see the crate's documentation.

fn main() -> std::process::ExitCode {
    // It is also the program of the links on which the laboratory loses packets.
    testbed::packet_link_main().unwrap_or_else(loadtest::cli::main)
}

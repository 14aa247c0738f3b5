//! The process inside the namespace, and the lines by which it is talked to.
//!
//! It reads what is to happen to packets, a line each, and answers each line with its counts. An
//! empty line changes nothing. It ends with its stdin.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use socket2::SockAddr;

use super::device::{self, LinkState, NAMESPACE_ADDRESS, PEER_ADDRESS};
use super::relay::{Relay, listen};
use super::{CHECK, COMMAND, PacketCounts, PacketFaults, READY};

/// Runs the process in the namespace, if this program has been started as that: the exit code.
///
/// A program that [`Bed::packet_link`](crate::Bed::packet_link) starts calls this first in its
/// `main`, before it has a second thread, and ends with the code. It is `None` if the arguments are
/// others.
#[must_use]
pub fn packet_link_main() -> Option<ExitCode> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let result = match &arguments[..] {
        [command, check] if command == COMMAND && check == CHECK => check_namespace(),
        [command, entrance, exit, seed] if command == COMMAND => serve(entrance, exit, seed),
        _ => return None,
    };
    Some(result.map_or_else(
        |error| {
            eprintln!("{error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

/// Whether a link can be served here.
fn check_namespace() -> io::Result<()> {
    enter_namespace()?;
    with_kernel_counts(PacketCounts::default()).map(drop)
}

/// Moves this process to a network of its own, which has only the device.
fn enter_namespace() -> io::Result<tun_rs::SyncDevice> {
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)
        .map_err(|error| io::Error::other(format!("there is no namespace: {error}")))?;
    device::open().map_err(|error| {
        io::Error::new(error.kind(), format!("there is no TUN device (/dev/net/tun): {error}"))
    })
}

/// Serves until stdin ends.
fn serve(entrance: &OsString, exit: &OsString, seed: &OsString) -> io::Result<()> {
    let seed = seed.to_str().and_then(|seed| seed.parse().ok());
    let seed = seed.ok_or(io::ErrorKind::InvalidInput)?;
    let (device, state) = (enter_namespace()?, Arc::new(LinkState::new(seed)));
    let listener = listen(&SocketAddr::from((NAMESPACE_ADDRESS, 0)).into())?;
    let address = listener.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
    let _out = Relay::start(listener, SockAddr::unix(exit)?)?;
    let over_the_device = SocketAddr::from((PEER_ADDRESS, address.port()));
    let _into = Relay::start(listen(&SockAddr::unix(entrance)?)?, over_the_device.into())?;
    let passing = Arc::clone(&state);
    thread::spawn(move || {
        eprintln!("{}", device::pass_packets(&device, &passing));
        process::exit(1);
    });
    println!("{READY}");
    for line in io::stdin().lock().lines() {
        if let Some(faults) = parse_request(&line?) {
            state.set_faults(faults);
        }
        println!("{}", answer(with_kernel_counts(state.counts())?));
    }
    // The thread that passes packets does not end.
    process::exit(0);
}

/// The line that asks for these faults.
pub(super) fn request(faults: PacketFaults) -> String {
    let PacketFaults { loss_percent, reorder_percent, max_delay } = faults;
    format!("{loss_percent} {reorder_percent} {}", max_delay.as_micros())
}

fn parse_request(line: &str) -> Option<PacketFaults> {
    let mut numbers = line.split(' ');
    let faults = PacketFaults {
        loss_percent: numbers.next()?.parse().ok()?,
        reorder_percent: numbers.next()?.parse().ok()?,
        max_delay: Duration::from_micros(numbers.next()?.parse().ok()?),
    };
    Some(faults)
}

fn answer(counts: PacketCounts) -> String {
    let PacketCounts { passed, lost, overtaken, retransmitted, out_of_order } = counts;
    format!("{passed} {lost} {overtaken} {retransmitted} {out_of_order}")
}

/// The counts in the answer of the process.
pub(super) fn parse_counts(line: &str) -> Option<PacketCounts> {
    let mut numbers = line.split(' ').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    Some(PacketCounts {
        passed: next()?,
        lost: next()?,
        overtaken: next()?,
        retransmitted: next()?,
        out_of_order: next()?,
    })
}

/// Adds what the kernel has counted in this namespace.
fn with_kernel_counts(counts: PacketCounts) -> io::Result<PacketCounts> {
    let read = |file: &str, group: &str, name: &str| {
        let text = fs::read_to_string(file)?;
        counter(&text, group, name).ok_or_else(|| io::Error::other(format!("{file} has no {name}")))
    };
    Ok(PacketCounts {
        retransmitted: read("/proc/self/net/snmp", "Tcp:", "RetransSegs")?,
        out_of_order: read("/proc/self/net/netstat", "TcpExt:", "TCPOFOQueue")?,
        ..counts
    })
}

/// A counter of the kernel. Each group is a line of names, and a line of their values.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let (mut names, mut values) = (lines.next()?.split(' '), lines.next()?.split(' '));
    let position = names.position(|one| one == name)?;
    values.nth(position)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_and_its_answer_are_read_as_they_were_written() {
        let max_delay = Duration::from_micros(9_500);
        let faults = PacketFaults { loss_percent: 5, reorder_percent: 20, max_delay };
        assert_eq!(parse_request(&request(faults)), Some(faults));
        assert_eq!(parse_request(""), None);
        let counts = parse_counts("1 2 3 4 5").expect("five numbers");
        assert_eq!(answer(counts), "1 2 3 4 5");
        assert_eq!(counts.out_of_order, 5);
        assert_eq!(parse_counts("1 2 3 4"), None);
    }

    #[test]
    fn a_counter_is_found_by_its_group_and_name() {
        let text = "Ip: InReceives RetransSegs\nIp: 7 8\nTcp: MaxConn RetransSegs\nTcp: -1 42\n";
        assert_eq!(counter(text, "Tcp:", "RetransSegs"), Some(42));
        assert_eq!(counter(text, "Tcp:", "InReceives"), None);
        assert_eq!(counter(text, "Udp:", "RetransSegs"), None);
    }
}
